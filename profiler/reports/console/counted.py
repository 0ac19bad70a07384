"""The counted figures on the terminal: multiply-adds of a forward and of a training step, and by module.

Formats what the blocks of a profile hold and computes nothing.
"""

from __future__ import annotations

from swinmr_profiling.profiler.record.blocks.architecture import (
    Architecture,
    ModuleCosts,
    ModuleCount,
    TrainingMacs,
)
from swinmr_profiling.profiler.record.units import MIB
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.reports.views import words


def print_counts(console: Console, architecture: Architecture) -> None:
    if architecture.macs is None or architecture.flops is None:
        return
    shape = " x ".join(map(str, architecture.input_shape))
    console.good(f"MACs: {architecture.macs:,} (multiply-adds, one forward of {shape})")
    console.good(words.in_unit(architecture.macs, "MACs"))
    console.good(f"FLOPs: {architecture.flops:,} (= 2 x MACs)")
    console.good(words.in_unit(architecture.flops, "FLOPs"))
    if architecture.flops_per_parameter is not None:
        console.good(f"FLOPs/param: {architecture.flops_per_parameter:,.2f}")
    letter, size = words.unit_of(architecture.macs)
    parts = [f"{kind} {macs / size:,.2f}" for kind, macs in (architecture.by_kind or {}).items() if macs]
    if parts:
        console.good(f"Of these {letter}MACs: {', '.join(parts)}")
    if architecture.note:
        console.note(architecture.note)


def print_training_macs(console: Console, block: TrainingMacs | None) -> None:
    """What a training step multiplies, per sample and per optimizer step."""
    if block is None:
        return
    sample, step = block.per_sample, block.per_step
    if sample is None or step is None:
        console.note(f"training step not counted: {block.error}")
        return
    again = f", recomputed apart {sample.recomputed_macs:,.0f}" if sample.recomputed_macs else ""
    loss = f"loss network {sample.loss_macs:,.0f}, " if sample.loss_macs else ""
    console.good(
        f"Training MACs per sample: {sample.macs:,.0f} (forward {sample.forward_macs:,.0f}, {loss}"
        f"backward {sample.backward_macs:,.0f}{again})"
    )
    optimizer = f"{step.optimizer_macs:,} MACs, " if step.optimizer_macs else ""
    console.good(
        f"Training MACs per optimizer step of {step.samples}: {step.macs:,} "
        f"(optimizer apart: {optimizer}about {step.optimizer_elementwise_flops:,} elementwise FLOPs)"
    )


def print_module_tree(console: Console, tree: ModuleCount, depth: int, indent: int = 6) -> None:
    """MACs and parameters by module, `depth` levels below the network."""
    name = tree.name or "(the network)"
    line = f"{' ' * indent}{name} ({tree.class_name}): {tree.macs:,} MACs, {tree.parameters:,} parameters"
    console.line(line)
    if depth:
        for child in tree.children:
            print_module_tree(console, child, depth - 1, indent + 2)


def print_module_costs(console: Console, block: ModuleCosts, depth: int) -> None:
    """Latency, memory and multiply-adds of a second by module, `depth` levels below the network."""
    console.line()
    hooks = "" if block.hook_share is None else f", of which hooks cost {100 * block.hook_share:.0f} %"
    console.good(
        f"By module, batch {block.input_shape[0]}, medians of {block.num_runs} runs of their own: "
        f"{block.hooked_ms:.2f} ms{hooks} (without them {block.plain_ms:.2f} ms)"
    )
    for module in block.modules:
        level = module.path.count(".") + 1 if module.path else 0
        if level > depth:
            continue
        share = "" if module.share is None else f" ({100 * module.share:.1f} %)"
        parts = [f"{module.latency_ms:.3f} ms{share}", f"results {_size(module.output_bytes)}"]
        if module.peak_bytes is not None:
            parts.append(f"peak {_size(module.peak_bytes)}")
        if module.macs_per_second is not None:
            letter, size = words.unit_of(module.macs_per_second)
            parts.append(f"{module.macs_per_second / size:,.2f} {letter}MACs/s")
        name = module.path.rpartition(".")[2] or "(the network)"
        console.line(f"{' ' * (6 + 2 * level)}{name} ({module.class_name}): {', '.join(parts)}")


def _size(count: int) -> str:
    """Megabytes, or what would show as none of them in bytes."""
    return f"{count / MIB:,.2f} MB" if count >= MIB / 100 or not count else f"{count:,} bytes"
