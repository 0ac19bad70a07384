"""The summary at the end of a report: what was found, in a few lines each.

Formats what the blocks of a profile hold and computes nothing.
"""

from __future__ import annotations

from swinmr_profiling.profiler.record.blocks.architecture import Reconstruction
from swinmr_profiling.profiler.record.blocks.batch import Batch, FailedBatch, MeasuredBatch
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.console.answer import print_answer
from swinmr_profiling.profiler.reports.console.steps import milliseconds
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.reports.views import words


def print_summary(console: Console, profile: Profile, title: str = "ANSWER") -> None:
    """The summary: architecture, single image, a line per batch size, and the answer, now with the latency.

    A warning has been printed where it arose; here its code marks the line that it concerns.
    """
    console.line()
    console.title("PROFILING SUMMARY")
    architecture, single = profile.architecture, profile.single_image
    if architecture is not None:
        console.line()
        console.line("Model Architecture:")
        parameters, size = architecture.total_parameters, architecture.model_size_mb
        console.line(f"  - Parameters: {parameters:,} ({figure(size)} MB)")
        if architecture.macs is not None and architecture.flops is not None:
            macs = words.in_unit(architecture.macs, "MACs")
            console.line(f"  - {words.in_unit(architecture.flops, 'FLOPs')} ({macs})")
        if architecture.reconstruction is not None:
            console.line(f"  - One reconstruction: {_reconstruction_line(architecture.reconstruction)}")
    if isinstance(single, MeasuredBatch):
        console.line()
        console.line("Single Image Performance:")
        console.line(f"  - Inference time: {milliseconds(single.timing)}")
        console.line(f"  - Throughput: {figure(single.timing.images_per_second)} images/sec")
    if profile.batch_profiling:
        console.line()
        console.line("Batch Size Recommendations:")
        for batch, block in sorted(profile.batch_profiling.items(), key=lambda item: int(item[0])):
            codes = [warning.code for warning in profile.warnings if warning.batch_size == int(batch)]
            console.line(f"  - Batch {batch}: {_summary_line(block, codes)}")
    if profile.recommendation is not None and profile.recommendation.inference is not None:
        advice = profile.recommendation.inference
        console.line(f"  For inference: batch {advice.batch_size}, {advice.reason}.")
        console.line(f"  This is for {advice.purpose}.")
    print_answer(console, profile, title=title)


def _reconstruction_line(block: Reconstruction) -> str:
    parts = [f"{block.denoiser_calls} calls"]
    if block.gflops is not None:
        parts.append(f"{figure(block.gflops)} GFLOPs")
    if block.latency_ms is not None:
        parts.append(f"about {figure(block.latency_ms / 1000)} s (calls x time of one image)")
    return ", ".join(parts)


def _summary_line(block: Batch, codes: list[str]) -> str:
    if isinstance(block, FailedBatch):
        return f"{block.error} ({block.detail})"
    timing, memory = block.timing, block.memory
    name = "GPU memory" if "CUDA" in memory.kind else "process memory"
    text = f"{figure(timing.images_per_second)} img/s, {memory.peak_mb:,.0f} MB {name}"
    return f"{text} (! {', '.join(codes)}: see above)" if codes else text
