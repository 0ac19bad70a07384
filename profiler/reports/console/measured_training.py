"""Training on the terminal. Formats what the blocks of a profile hold and computes nothing."""

from __future__ import annotations

from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.units import MIB
from swinmr_profiling.profiler.reports.console.terminal import Console


def print_training(console: Console, size: int, block: TrainingRun | TrainingFailure) -> None:
    """A batch size's training step: memory, validation, speed; or why there are no figures."""
    console.line(f"  Training at batch size: {size}")
    if isinstance(block, TrainingFailure):
        console.bad(f"{block.error}: {block.detail}", indent=4)
        return
    validation = block.validation
    name = "GPU memory" if "CUDA" in block.kind else "Process memory (RSS)"
    shape = " x ".join(map(str, block.input_shape))
    console.good(f"{name}: {block.peak_bytes / MIB:,.2f} MB (peak of training, {shape})", indent=4)
    if block.peak_reserved_bytes is not None:
        console.good(f"Reserved by the allocator: {block.peak_reserved_bytes / MIB:,.2f} MB", indent=4)
    shape = " x ".join(map(str, validation.input_shape))
    console.good(f"Validation of {shape}: {validation.allocated_bytes / MIB:,.2f} MB (peak)", indent=4)
    if block.images_per_second is not None:
        speed, steps = block.images_per_second, block.steps_run
        console.good(f"Throughput: {speed:,.2f} images/sec ({steps} steps)", indent=4)
    if block.retries:
        console.bad(f"The allocator gave cached memory back {block.retries} times", indent=4)
