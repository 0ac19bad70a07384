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
    kinds: tuple[tuple[bool, Layers], ...] = (
        (at_workspace, "workspace"),
        (fused or eager, "attention"),
        (convolutional, "convolution"),
        (True, "other"),
    )
    layers = next(name for applies, name in kinds if applies)
    untested = (
        (
            at_workspace,
            "workspaces of 16-bit convolutions (measured on capability 8.9, cudnn.benchmark on, forward)",
        ),
        (
            operator.startswith(FUSED_ATTENTION),
            "which attention kernel is taken, and what its backward pass uses",
        ),
        (fourier, "cuFFT's plans (not in the prediction)"),
        (
            precision == "fp32" and layers == "convolution",
            "fp32 workspaces of convolutions (some 10 MiB, not in the prediction)",
        ),
    )
    return PeakBasis(
        precision=precision,
        layers=layers,
        operator=operator.removeprefix("aten."),
        workspace_share=(peak - without) / max(peak, 1),
        untested=[text for applies, text in untested if applies],
        cudnn_benchmark=cudnn_benchmark,
    )
