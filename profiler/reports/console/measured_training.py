"""Training on the terminal. Formats what the blocks of a profile hold and computes nothing."""

from __future__ import annotations

from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.units import MIB, figure
from swinmr_profiling.profiler.reports.console.terminal import Console


def print_training(console: Console, size: int, block: TrainingRun | TrainingFailure) -> None:
    """A batch size's training step: memory, validation, speed; or why there are no figures."""
    console.line(f"  Training at batch size: {size}")
    if isinstance(block, TrainingFailure):
        console.bad(f"{block.error}: {block.detail}", indent=4)
        return
    validation = block.validation
    name = "GPU memory" if "CUDA" in (block.kind or "") else "Process memory (RSS)"
    shape = " x ".join(map(str, block.input_shape))
    console.good(f"{name}: {figure(block.peak_bytes / MIB)} MB (peak of training, {shape})", indent=4)
    if block.peak_reserved_bytes is not None:
        console.good(f"Reserved by the allocator: {figure(block.peak_reserved_bytes / MIB)} MB", indent=4)
    if validation is not None and validation.allocated_bytes is not None:
        shape = " x ".join(map(str, validation.input_shape))
        console.good(f"Validation of {shape}: {figure(validation.allocated_bytes / MIB)} MB (peak)", indent=4)
    if block.images_per_second is not None:
        speed, steps = block.images_per_second, block.steps_run
        console.good(f"Throughput: {figure(speed)} images/sec ({steps} steps)", indent=4)
    if block.retries:
        console.bad(f"The allocator gave cached memory back {block.retries} times", indent=4)
