"""What a denoiser's reconstruction costs: its calls, times what one call was counted and measured to cost."""

from __future__ import annotations

from typing import Literal

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.profiler.record.blocks.architecture import Architecture, Reconstruction
from swinmr_profiling.profiler.record.blocks.batch import Batch, MeasuredBatch
from swinmr_profiling.profiler.record.units import GIGA

WHAT = (
    "one sample of one image: calls of the denoiser alone; the sampler's own arithmetic, data consistency and further "
    "samples of the slice come on top"
)
GUIDED = (
    "with guidance a step is one call of twice the images: its memory and time are those of twice the batch"
)


def reconstruction_cost(config: ExperimentConfig, macs: int | None) -> Reconstruction | None:
    """The `reconstruction` block of `architecture`; None for a network that makes its image in one call.

    macs: of one call for one image. Guidance asks the network with and without condition, so each step is two calls
    (of one batch, twice as large). `latency_ms` is filled in by `add_latency`.
    """
    if not config.is_denoiser:
        return None
    sampling = config.evaluation.sampling
    calls_per_step: Literal[1, 2] = 1 if sampling.guidance == 1 else 2
    calls = sampling.sampling_steps * calls_per_step
    total = None if macs is None else calls * macs
    return Reconstruction(
        source="extrapolated",
        what=WHAT if calls_per_step == 1 else f"{WHAT}; {GUIDED}",
        sampler=sampling.sampler,
        sampling_steps=sampling.sampling_steps,
        guidance=sampling.guidance,
        calls_per_step=calls_per_step,
        denoiser_calls=calls,
        samples_per_slice=sampling.samples_per_slice,
        macs=total,
        flops=None if total is None else 2 * total,
        gmacs=None if total is None else total / GIGA,
        gflops=None if total is None else 2 * total / GIGA,
        latency_ms=None,
    )


def add_latency(architecture: Architecture | None, single_image: Batch | None) -> None:
    """Calls x mean latency of one image, into the `reconstruction` block where there is one."""
    block = None if architecture is None else architecture.reconstruction
    if block is not None and isinstance(single_image, MeasuredBatch):
        block.latency_ms = block.denoiser_calls * single_image.timing.mean_ms
