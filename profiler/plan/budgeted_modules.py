"""`training.gradient_checkpointing` as a budget: modules are chosen once, and written down."""

from __future__ import annotations

import json
from pathlib import Path

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.writing.atomic_files import write_text
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.batch_size.gpus import MemorySizeError, parse_bytes
from swinmr_profiling.profiler.plan.errors import PlanError
from swinmr_profiling.profiler.plan.plan_file import config_with_plan
from swinmr_profiling.profiler.plan.step_planner import StepPlanner
from swinmr_profiling.profiler.prediction.replay import replay
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.training.step.losses import build_loss

WRITTEN = "checkpointed_modules.json"


def with_budget_resolved(
    config: ExperimentConfig, *, trust_config: bool, folder: Path | None
) -> tuple[ExperimentConfig, str | None]:
    """The config with names in the place of a budget, and a line that says so; as it is where it names none.

    folder: where the names are written down, and found again by a run that goes on; None: nowhere. The budget is what
    PyTorch's allocator reserves for the training steps, without the CUDA context and libraries' workspaces.

    Raises PlanError for a budget that no set of modules meets, and for "auto" batches.
    """
    budget = config.training.checkpoint_budget
    if budget is None:
        return config, None
    batch_size = config.data.batch_size
    if not isinstance(batch_size, int):
        raise PlanError(
            'training.gradient_checkpointing: a budget needs data.batch_size as a number, not "auto"'
        )
    key = f"{memory_fingerprint(config)} {batch_size}"
    modules = None if folder is None else _written(folder / WRITTEN, key)
    how = "as written down before"
    if modules is None:
        modules, how = _chosen(config, batch_size, budget, trust_config), "chosen now"
        if folder is not None:
            try:
                write_text(folder / WRITTEN, json.dumps({"for": key, "modules": modules}, indent=1) + "\n")
            except OSError as error:
                raise PlanError(f"{folder / WRITTEN} cannot be written: {error.strerror}") from None
    message = f"recomputed for a budget of {budget} ({how}): {', '.join(modules) or 'none is needed'}"
    return config.changed("training", gradient_checkpointing=modules or "none"), message


def as_trained(
    config: ExperimentConfig, *, trust_config: bool, config_file: str, total_bytes: int | None = None
) -> tuple[ExperimentConfig, list[str]]:
    """The config as `train.py` would train it, its plan and its budget carried out, and lines that say so.

    total_bytes: of the card that a plan is to run on; None: none is asked.
    Raises PlanError, and ModelError for a network that cannot be built.
    """
    messages = []
    if config.training.plan is not None:
        loss = str(build_loss(config).label)
        config, message = config_with_plan(
            config, Path(config.training.plan), loss=loss, config_file=config_file, total_bytes=total_bytes
        )
        messages.append(message)
    config, told = with_budget_resolved(config, trust_config=trust_config, folder=None)
    return config, [*messages, *([] if told is None else [told])]


def _chosen(config: ExperimentConfig, batch_size: int, budget: str, trust_config: bool) -> list[str]:
    try:
        limit = parse_bytes(budget)
    except MemorySizeError as error:
        raise PlanError(f"training.gradient_checkpointing: {error}") from None
    planner = StepPlanner(config, trust_config=trust_config)

    def excess(modules: tuple[str, ...]) -> int:
        of = planner.in_way(modules or "none")
        built = build_model(of, trust_config=trust_config)
        trace = trace_training(built, of, batch_size, validation=False)
        return max(0, replay(trace).peak_reserved_bytes - limit)

    if excess(()) <= 0:
        return []
    found = planner.choose(batch_size, limit, excess=excess)
    if found is None:
        least = planner.least(batch_size).peak_bytes
        raise PlanError(
            f"training.gradient_checkpointing: no set of modules brings a step of batch {batch_size} within {budget}: "
            f"the least that is alive at once is {least / 2**20:,.0f} MiB"
        )
    return list(found.modules)


def _written(file: Path, key: str) -> list[str] | None:
    """The names that were chosen for this very config, None where there are none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        fits = content["for"] == key and all(isinstance(name, str) for name in content["modules"])
        return list(content["modules"]) if fits else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
