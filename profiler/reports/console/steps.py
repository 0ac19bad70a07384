"""The five numbered steps that users of this script know, and measured training, as they are printed.

Formats what the blocks of a profile hold and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.record.blocks.architecture import Architecture, CrossCheck
from swinmr_profiling.profiler.record.blocks.batch import (
    Batch,
    FailedBatch,
    Memory,
    PerceptualMetric,
    Timing,
)
from swinmr_profiling.profiler.record.blocks.run_description import RunConfig
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.files.private_record import relative_path
from swinmr_profiling.profiler.record.reconstruction_cost import GUIDED
from swinmr_profiling.profiler.record.units import MIB, figure
from swinmr_profiling.profiler.reports.console.terminal import Console


def milliseconds(timing: Timing) -> str:
    """Mean and deviation, or the number of runs where one run has no deviation."""
    if timing.std_ms is None:
        return f"{figure(timing.mean_ms)} ms (n={timing.num_runs})"
    return f"{figure(timing.mean_ms)} ± {figure(timing.std_ms)} ms (n={timing.num_runs})"


def memory_name(memory: Memory) -> str:
    """Short label of what a memory figure is."""
    return "GPU memory" if "CUDA" in memory.kind else "Process memory (RSS)"


def print_configuration(console: Console, config: RunConfig) -> None:
    console.title("MODEL PROFILING")
    console.heading("Configuration:")
    shown = {
        "Config file": relative_path(config.config_file),
        "Model": config.model,
        "Image size": config.image_size,
        "Device": config.device,
        "Precision": config.precision,
        "Batch sizes": config.batch_sizes,
    }
    for name, value in shown.items():
        console.line(f"  - {name}: {value}")


def print_parameters(console: Console, architecture: Architecture) -> None:
    console.good(f"Total parameters: {architecture.total_parameters:,}")
    console.good(f"Trainable parameters: {architecture.trainable_parameters:,}")
    console.good(f"Model size: {figure(architecture.model_size_mb)} MB")
    if architecture.buffer_bytes:
        elements, size = architecture.buffer_elements, architecture.buffer_bytes / MIB
        console.good(f"Buffers: {elements:,} elements, {figure(size)} MB (not parameters)")
    for name, count in architecture.parameters_by_module.items():
        if count:
            console.line(f"      {name}: {count:,}")


def print_reconstruction(console: Console, architecture: Architecture) -> None:
    """What a denoiser's reconstruction is made of, beside the one call above; nothing for other networks."""
    block = architecture.reconstruction
    if block is None:
        return
    guided = f" x 2 (guidance {block.guidance:g})" if block.calls_per_step == 2 else ""
    made_of = f"{block.sampling_steps} steps of {block.sampler}{guided}, {block.denoiser_calls} calls"
    cost = ""
    if block.gmacs is not None and block.gflops is not None:
        cost = f": {figure(block.gmacs)} GMACs, {figure(block.gflops)} GFLOPs"
    console.good(f"One reconstruction: {made_of}{cost}")
    if guided:
        console.note(GUIDED)
    if block.samples_per_slice > 1:
        console.note(f"test.py makes {block.samples_per_slice} of them for each slice")


def print_counters(console: Console, checks: Sequence[CrossCheck], *, in_full: bool = False) -> None:
    """What fvcore and thop say; in_full, and in a verbose report: what their difference from ours is made of."""
    for check in checks:
        name = check.counter
        if check.figure is None:
            console.bad(f"{name} gives no figure: {check.status}, {check.reason}")
            continue
        shape = " x ".join(map(str, check.input_shapes[0] if check.input_shapes else ()))
        exact = "" if not check.inexact else ", inexact"
        console.good(f"{name} at {shape}{exact}: {check.figure:,.0f}, ours {check.ours:,}")
        if check.from_earlier_run:
            console.note("asked in an earlier run: same network, code and versions; --no-cache asks anew", 6)
        if not (console.verbose or in_full):
            if check.agrees and check.parts:
                console.note("every multiply-add of the difference is explained: --verbose", 6)
            continue
        console.line(f"      {check.convention}")
        for part in check.parts:
            console.line(f"      {part.macs:+,.0f} {part.operator}: {part.why}")
        if check.agrees:
            console.line("      apart from that they agree to the unit")


def print_single_image(console: Console, block: Batch) -> None:
    if isinstance(block, FailedBatch):
        console.bad(f"{block.error}: {block.detail}")
        return
    timing, memory = block.timing, block.memory
    console.good(f"Mean time: {milliseconds(timing)}")
    console.good(f"Median time: {figure(timing.median_ms)} ms")
    console.good(f"Min/Max: {figure(timing.min_ms)} / {figure(timing.max_ms)} ms")
    console.good(f"{memory_name(memory)} (peak): {figure(memory.peak_mb)} MB")
    print_notes(console, timing, indent=4)


def print_batch(console: Console, block: Batch) -> None:
    if isinstance(block, FailedBatch):
        console.bad(f"{block.error}: {block.detail}", indent=4)
        return
    timing, memory = block.timing, block.memory
    console.good(f"Inference time: {milliseconds(timing)}", indent=4)
    console.good(f"Throughput: {figure(timing.images_per_second)} images/sec", indent=4)
    console.good(f"{memory_name(memory)}: {figure(memory.peak_mb)} MB (peak)", indent=4)
    # A resumed profile of an earlier version knows of no noise.
    noise = ""
    if memory.activation_within_noise and memory.noise_bytes is not None:
        noise = f" (within the noise of {figure(memory.noise_bytes / MIB)} MB)"
    console.good(f"Activation memory: {figure(memory.activation_mb)} MB{noise}", indent=4)
    if memory.peak_reserved_mb is not None:
        console.good(f"Reserved by the allocator: {figure(memory.peak_reserved_mb)} MB (peak)", indent=4)
    print_notes(console, timing, indent=6)


def print_notes(console: Console, timing: Timing, indent: int) -> None:
    """In how many processes a size was measured, where there were several, and what else must be known."""
    if timing.num_processes > 1:
        runs = " + ".join(map(str, timing.runs_by_process or ()))
        console.note(f"{timing.num_processes} processes, {runs} runs", indent)
    for note in timing.notes:
        console.note(note, indent)


def print_perceptual_metric(console: Console, block: PerceptualMetric) -> None:
    console.good(f"Parameters: {block.total_parameters:,}", indent=4)
    console.good(f"MACs: {block.macs:,}", indent=4)
    console.good(f"Time: {milliseconds(block.timing)}", indent=4)


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
