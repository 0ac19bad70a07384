"""A plan as a file: what was planned for which config and card, read again by `train.py` and applied to networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from torch import nn

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.configs.commented_json import read_commented_json
from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.sections.strategy import OnHost
from swinmr_profiling.models.recomputation.recomputed_modules import recompute_modules
from swinmr_profiling.profiler.plan.errors import PlanError
from swinmr_profiling.profiler.prediction.settings import PRECISION_VALUES
from swinmr_profiling.profiler.record.blocks.figures import (
    Block,
    Bytes,
    Checkpointing,
    Count,
    PatchSize,
    PositiveCount,
    Precision,
    Sha256,
)
from swinmr_profiling.profiler.record.blocks.recommended import BudgetBlock
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.profiler.record.written_profile import first_fault


class PlannedSetting(Block):
    """One way to train the global batch on the card.

    Attributes:
        modules: what is recomputed, where checkpointing is "modules".
        needed_bytes: of the card: reserved by the allocator, workspaces and context.
        on_host: what waits in the host's memory.
        recomputed_macs, recomputed_bytes: per optimizer step, beside what a step without checkpointing computes.
        to_host_bytes, to_device_bytes: over the bus per optimizer step, beside the batches.
        changes: what in the result differs from the config as it stands.
        memory_fingerprint: of the config in this setting.
    """

    micro_batch: PositiveCount
    accumulate: PositiveCount
    precision: Precision
    channels_last: bool
    checkpointing: Checkpointing
    modules: list[str]
    chosen_by: Literal["name", "dynamic programming", "greedy"]
    on_host: list[OnHost]
    patch_size: PatchSize
    val_batch_size: PositiveCount
    live_bytes: Bytes
    reserved_bytes: Bytes
    reserved_interval_bytes: list[Bytes] = Field(min_length=2, max_length=2)
    needed_bytes: Bytes
    fits: bool
    recomputed_macs: Count
    recomputed_bytes: Bytes
    to_host_bytes: Bytes
    to_device_bytes: Bytes
    changes: list[str]
    memory_fingerprint: Sha256


class TrainingPlan(Block):
    """`settings`: cheapest first; the one that is taken is number `chosen`."""

    kind: Literal["training plan"]
    version: Literal[1]
    source: Literal["predicted"]
    config_file: str | None
    torch_version: str
    loss: str
    global_batch: PositiveCount
    budget: BudgetBlock
    chosen: Count
    settings: list[PlannedSetting] = Field(min_length=1)
    notes: list[str]

    @property
    def setting(self) -> PlannedSetting:
        """The one that is taken."""
        return self.settings[self.chosen]


def read_plan(file: Path) -> TrainingPlan:
    """Raises PlanError."""
    try:
        raw, _ = read_commented_json(file)
    except ConfigError as error:
        raise PlanError(f"no plan can be read: {' '.join(str(error).split())}") from None
    try:
        plan = TrainingPlan.model_validate(raw, strict=True)
    except ValidationError as error:
        fault = first_fault(error, whole="the file")
        raise PlanError(f"{file}: is no plan ({fault}): run scripts/plan_training.py") from None
    if plan.chosen >= len(plan.settings):
        raise PlanError(f"{file}: is no plan (chosen: there is no setting {plan.chosen})")
    return plan


def config_in_setting(config: ExperimentConfig, setting: PlannedSetting) -> ExperimentConfig:
    """The config trained in a setting. Raises ConfigError where it does not suit the network."""
    raw: dict[str, Any] = config.model_dump(mode="json")
    raw["data"] |= {"batch_size": setting.micro_batch, "val_batch_size": setting.val_batch_size}
    raw["training"] |= {
        "accumulate": setting.accumulate,
        "gradient_checkpointing": setting.modules or setting.checkpointing,
        "on_host": setting.on_host,
    }
    raw["system"] |= {
        "channels_last": setting.channels_last,
        "mixed_precision": PRECISION_VALUES[setting.precision],
    }
    if setting.patch_size is not None and tuple(setting.patch_size) != config.training_patch_hw:
        raw["data"]["patch_size"], raw["data"]["use_patches"] = setting.patch_size, True
    return config_from_dict(raw)


def config_with_plan(
    config: ExperimentConfig, file: Path, *, loss: str, config_file: str, total_bytes: int | None
) -> tuple[ExperimentConfig, str]:
    """The config as a plan has it trained, and a line that says so.

    loss: the parts of the loss as built here. total_bytes: of the device; None for a CPU.
    Raises PlanError for a plan of another config or loss, of a larger card, or of a setting that does not fit its own.
    """
    plan = read_plan(file)
    setting = plan.setting
    again = (
        f'run scripts/plan_training.py --config {config_file} --gpu "{plan.budget.name}" '
        f"--batch {plan.global_batch} --output {file}"
    )
    try:
        planned = config_in_setting(config, setting)
    except ValueError as error:
        raise PlanError(
            f"{file} does not suit the config ({' '.join(str(error).split())}): {again}"
        ) from None
    if memory_fingerprint(planned) != setting.memory_fingerprint:
        raise PlanError(
            f"{file} was made with another network, patch, loss or optimizer than the config has now: {again}"
        )
    if plan.loss != loss:
        raise PlanError(f"{file} was made with the loss {plan.loss}, and here it is {loss}: {again}")
    if not setting.fits:
        raise PlanError(
            f"{file}: its setting does not fit {plan.budget.name}: choose another, or a larger card"
        )
    if total_bytes is not None and total_bytes < plan.budget.total_bytes:
        raise PlanError(f"{file} was made for {plan.budget.name}, and the card here has less memory: {again}")
    return planned, (
        f"plan from {file}: {setting.micro_batch} x {setting.accumulate} accumulated, {setting.precision}, "
        f"{', '.join(described(setting))}"
    )


def recomputed(setting: PlannedSetting) -> str:
    """ "none", or "of 12 modules"."""
    return f"of {len(setting.modules)} modules" if setting.modules else setting.checkpointing


def described(setting: PlannedSetting) -> list[str]:
    """What a run takes beside micro-batch, accumulation and precision, in words."""
    found = [f"checkpointing {recomputed(setting)}"]
    if setting.channels_last:
        found.append("channels-last")
    if setting.on_host:
        found.append(f"on the host: {' and '.join(name.replace('_', ' ') for name in setting.on_host)}")
    return found


def apply_plan(module: nn.Module, plan: TrainingPlan | PlannedSetting | str | Path) -> list[str]:
    """Makes a network compute again what the plan says; the names of the modules, in the network's order.

    plan: of `scripts/plan_training.py`, or its file. Micro-batch, accumulation, precision, layout and what waits on the
    host are the caller's to take: `plan.setting.micro_batch` and its like. The network's names must be those of the
    config's.

    Raises PlanError for a file that is no plan, and for "light" and "full", which networks of this project take when
    they are built; ModelError for a network without such modules.

    Example:
        >>> apply_plan(network, "plan.json")  # doctest: +SKIP
        ['layers.0', 'layers.1']
    """
    read = read_plan(Path(plan)) if isinstance(plan, (str, Path)) else plan
    setting = read.setting if isinstance(read, TrainingPlan) else read
    if setting.modules:
        return recompute_modules(module, setting.modules)
    if setting.checkpointing != "none":
        raise PlanError(
            f'the plan takes training.gradient_checkpointing "{setting.checkpointing}", which a network is built with'
        )
    return []
