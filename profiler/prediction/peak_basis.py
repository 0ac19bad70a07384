"""What a traced peak rests on: which interval it has, and which rules at it no GPU has confirmed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from swinmr_profiling.profiler.prediction.replay import live_peak
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, Trace
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.blocks.memory_model import Layers, PeakBasis

WORKSPACE = "cudnn."
FUSED_ATTENTION = ("aten._scaled_dot_product_", "aten._flash_attention", "aten._efficient_attention")
EAGER_ATTENTION = ("aten._softmax.", "aten.bmm.")
CONVOLUTIONS = ("aten.convolution.", "aten.convolution_backward.")
FOURIER = ("aten._fft_",)


def basis_of(trace: Trace, precision: Precision, *, cudnn_benchmark: bool) -> PeakBasis:
    """Of the steps of a trace."""
    start = trace.step_starts[0] if trace.step_starts else 0
    peak, event = live_peak(trace, start)
    names = trace.operator_names
    operator = names[trace.operators[abs(int(trace.events[event])) - 1]]
    workspace = trace.categories == CATEGORIES.index("workspaces")
    without = peak
    if workspace.any():
        without = live_peak(replace(trace, sizes=np.where(workspace, 0, trace.sizes)), start)[0]
    fused, eager, convolutional, fourier = (
        any(name.startswith(kind) for name in names)
        for kind in (FUSED_ATTENTION, EAGER_ATTENTION, CONVOLUTIONS, FOURIER)
    )
    at_workspace = operator.startswith(WORKSPACE)
    layers: Layers
    if at_workspace:
        layers = "workspace"
    elif fused or eager:
        layers = "attention"
    else:
        layers = "convolution" if convolutional else "other"
    untested = []
    if at_workspace:
        untested.append(
            "workspaces of 16-bit convolutions (measured on capability 8.9, cudnn.benchmark on, forward)"
        )
    if operator.startswith(FUSED_ATTENTION):
        untested.append("which attention kernel is taken, and what its backward pass uses")
    if fourier:
        untested.append("cuFFT's plans (not in the prediction)")
    if precision == "fp32" and layers == "convolution":
        untested.append("fp32 workspaces of convolutions (some 10 MiB, not in the prediction)")
    share = 0.0 if peak == 0 else (peak - without) / peak
    return PeakBasis(
        precision=precision,
        layers=layers,
        operator=operator.removeprefix("aten."),
        workspace_share=share,
        untested=untested,
        cudnn_benchmark=cudnn_benchmark,
    )
