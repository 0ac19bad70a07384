"""The budgets of a run: of cards that may be elsewhere, and of the machine's own GPU without what others hold of it."""

from __future__ import annotations

from dataclasses import replace

from swinmr_profiling.profiler.allocator.workspaces import KERNELS_BYTES, Workspaces, workspaces_for
from swinmr_profiling.profiler.batch_size.budget import Budget, budget_on
from swinmr_profiling.profiler.batch_size.gpus import is_this_gpu
from swinmr_profiling.profiler.measure.machine.machine_state import nvml_process_bytes
from swinmr_profiling.profiler.options.budget_options import Card
from swinmr_profiling.profiler.record.blocks.run_description import Environment, Gpu
from swinmr_profiling.profiler.record.device_memory import reserved_by_others
from swinmr_profiling.profiler.run.context import RunContext, TrainingOptions


def is_own_card(card: Card, gpu: Gpu) -> bool:
    """Whether a card asked for is the machine's own: by its name, or by its very memory where that is all there is."""
    return is_this_gpu(card.name, card.total_bytes, card.compute_capability, gpu)


def own_budget(context: RunContext, held_by_others_bytes: int) -> Budget:
    """What the machine's own GPU leaves for training; at least what the command line reserves is the others'."""
    gpu, training = context.gpu, context.options.training
    assert gpu is not None
    card = Card.of(gpu)
    return replace(
        budget_of(card, training, context.environment.torch_version),
        reserved_elsewhere_bytes=max(training.reserved_bytes, held_by_others_bytes),
        is_this_machine=True,
    )


def own_workspaces(environment: Environment) -> Workspaces:
    """The libraries' of the machine's own GPU, by the table."""
    assert environment.gpu is not None
    return workspaces_for(environment.torch_version, environment.gpu.compute_capability)


def held_by_others_at_start(context: RunContext) -> int:
    """By what the measuring process found when it opened the GPU, with nothing of it there but its context."""
    gpu, process = context.gpu, context.session.process
    assert gpu is not None
    assert gpu.free_bytes_at_start is not None
    context_bytes = None if process is None else nvml_process_bytes(gpu.uuid, process.process.pid)
    if context_bytes is None:
        context_bytes = own_workspaces(context.environment).context_bytes - KERNELS_BYTES
    return reserved_by_others(gpu.total_bytes, gpu.free_bytes_at_start, context_bytes)


def budget_of(card: Card, training: TrainingOptions, torch_version: str) -> Budget:
    """What a card leaves for training: its memory, less what others hold, headroom, workspaces and context."""
    return budget_on(
        *card,
        torch_version=torch_version,
        reserved_elsewhere_bytes=training.reserved_bytes,
        headroom_share=training.headroom,
    )
