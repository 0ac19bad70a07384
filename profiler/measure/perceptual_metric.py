"""What LPIPS (Zhang et al. 2018) costs as a metric: one comparison of two images, AlexNet backbone.

The cost does not depend on the weights, so the backbone is random and nothing is downloaded: the value it
computes means nothing and is not reported.
"""

from __future__ import annotations

import contextlib
import io
import warnings

import torch
from torch import Tensor, nn

from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.measure.machine.devices import MeasuredDevice
from swinmr_profiling.profiler.measure.measurement import MetricMeasurement
from swinmr_profiling.profiler.measure.timing.latency import LatencyPolicy, measure_latency

LPIPS_CHANNELS = 3


def build_lpips() -> nn.Module:
    """LPIPS with a random AlexNet backbone. Raises ImportError without the package."""
    import lpips

    # It prints what it loads, and calls torchvision in a form that torchvision warns of.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False).eval()


def measure_lpips(
    image_hw: tuple[int, int], device: MeasuredDevice, torch_device: torch.device, policy: LatencyPolicy
) -> MetricMeasurement:
    """Parameters, MACs and raw latency of one LPIPS comparison of two images of height x width pixels.

    Raises whatever LPIPS raises (images under about 32 pixels are too small for its backbone).
    """
    metric = build_lpips()
    shape = (1, LPIPS_CHANNELS, *image_hw)
    generator = torch.Generator().manual_seed(0)
    pair: tuple[Tensor, ...] = tuple(torch.rand(shape, generator=generator) * 2 - 1 for _ in range(2))
    counted = count_forward(metric, pair)
    metric.to(torch_device)
    pair = tuple(image.to(torch_device) for image in pair)
    with torch.inference_mode():
        latency = measure_latency(lambda: device.time_ms(lambda: metric(*pair)), policy)
    return MetricMeasurement(list(shape), counted.parameters, counted.macs, latency)
