"""The settings under which a global batch trains on a card, cheapest first: searched with the prediction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.writing.kept_files import HASHED_NETWORKS
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.plan.plan_file import PlannedSetting, TrainingPlan, config_in_setting
from swinmr_profiling.profiler.plan.step_planner import StepPlanner, Way
from swinmr_profiling.profiler.prediction.peak_basis import basis_of
from swinmr_profiling.profiler.prediction.predict import training_trace
from swinmr_profiling.profiler.prediction.replay import ReplayResult, live_peak, replay
from swinmr_profiling.profiler.prediction.settings import TrainingSetting, config_with
from swinmr_profiling.profiler.prediction.trace.remembered_results import RememberedResults
from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace
from swinmr_profiling.profiler.prediction.trace.traced_step import young_garbage_only
from swinmr_profiling.profiler.record.blocks.figures import Checkpointing, Precision
from swinmr_profiling.profiler.record.memory_fingerprint import PRECISIONS, memory_fingerprint
from swinmr_profiling.profiler.record.prediction_intervals import interval
from swinmr_profiling.training.step.losses import build_loss

NOTES = (
    "memory is predicted, as scripts/profile_model.py predicts it; nothing ran",
    "the order is by multiply-adds and bytes computed again per optimizer step; how fast a setting is was not "
    "measured, and many small micro-batches may be slower than fewer with recomputation",
)
# A smaller patch trains another model: only where it is allowed.
PATCH_SHARES = ((3, 4), (1, 2))
PATCH_MULTIPLE = 8


@dataclass(frozen=True)
class Predicted:
    """A setting as it was traced. over: by how many bytes it is too large for the budget, 0 where it fits."""

    trace: Trace
    replayed: ReplayResult
    over: int


@dataclass(frozen=True)
class Base:
    """What all candidates of one precision and patch share."""

    config: ExperimentConfig
    precision: Precision
    patch: tuple[int, int] | None
    val_batch_size: int


class TrainingPlanner:
    """Plans for one config, card and global batch. `plan` it once."""

    def __init__(
        self,
        config: ExperimentConfig,
        budget: Budget,
        global_batch: int,
        *,
        trust_config: bool = False,
        allow_patch: bool = False,
        only_micro_batch: int | None = None,
        on_event: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.config, self.budget, self.global_batch = config, budget, global_batch
        self.trust_config, self.allow_patch, self.on_event = trust_config, allow_patch, on_event
        self.only_micro_batch = only_micro_batch
        label = str(build_loss(config, for_prediction=True).label)
        self.loss = label
        # As in profiler/prediction/server.py: traces of other code are this run's alone.
        own = config.model.net_type in HASHED_NETWORKS
        self._loss_parts = label if own else f"{label}; run {uuid.uuid4().hex}"
        self._has_batch_norm = False
        self._uncounted: set[str] = set()
        self._results = RememberedResults()

    def plan(self, config_file: str | None) -> TrainingPlan:
        """All settings that fit, cheapest first; where none does, the nearest one. Raises what the network raises."""
        settings: list[PlannedSetting] = []
        bases = list(self._bases())
        self._has_batch_norm = has_batch_norm(
            build_model(bases[0].config, trust_config=self.trust_config).module
        )
        with young_garbage_only():
            for base in bases:
                settings += self._settings_of(base)
            if not settings:
                settings = [min((self._nearest(base) for base in bases), key=lambda one: one.needed_bytes)]
        return TrainingPlan(
            kind="training plan",
            version=1,
            source="predicted",
            config_file=config_file,
            torch_version=torch.__version__,
            loss=self.loss,
            global_batch=self.global_batch,
            budget=self.budget.as_block(),
            chosen=0,
            settings=sorted(settings, key=self._rank),
            notes=[*NOTES, *self._without()],
        )

    def _step_planner(self, base: Base) -> StepPlanner:
        planner = StepPlanner(
            _accumulating(base.config, 1), trust_config=self.trust_config, results=self._results
        )
        planner.uncounted = self._uncounted
        return planner

    def _without(self) -> list[str]:
        names = ", ".join(sorted(self._uncounted))
        return [f"the multiply-adds are without operators that have no formula: {names}"] if names else []

    def _rank(self, setting: PlannedSetting) -> tuple[int, ...]:
        patch = None if setting.patch_size is None else tuple(setting.patch_size)
        return (
            int(patch != self.config.training_patch_hw),
            setting.recomputed_macs,
            setting.recomputed_bytes,
            len(setting.changes),
            setting.accumulate,
        )

    def _bases(self) -> Iterator[Base]:
        own = PRECISIONS[self.config.system.mixed_precision]
        precisions = [own]
        if own == "fp32" and self.budget.bf16_hardware is not False:
            precisions.append("bf16")
        for patch in (self.config.training_patch_hw, *self._smaller_patches()):
            for precision in precisions:
                try:
                    config = config_with(self.config, TrainingSetting(precision, "none", patch))
                except ConfigError:
                    continue
                yield Base(config, precision, patch, self.config.data.val_batch_size)

    def _smaller_patches(self) -> list[tuple[int, int]]:
        own = self.config.training_patch_hw
        if not self.allow_patch or own is None:
            return []
        shares = [
            tuple(side * up // down // PATCH_MULTIPLE * PATCH_MULTIPLE for side in own)
            for up, down in PATCH_SHARES
        ]
        return [(height, width) for height, width in shares if min(height, width) >= PATCH_MULTIPLE]

    def _micro_batches(self) -> list[int]:
        sizes = [size for size in range(self.global_batch, 0, -1) if self.global_batch % size == 0]
        return [size for size in sizes if self.only_micro_batch in (None, size)]

    def _settings_of(self, base: Base) -> list[PlannedSetting]:
        """The cheapest setting of each micro-batch, down to the first that needs no recomputation."""
        found: list[PlannedSetting] = []
        # What is recomputed and what that costs is the same with and without accumulation; memory is not, and is
        # predicted for each setting as it would run.
        planner = self._step_planner(base)
        for micro_batch in self._micro_batches():
            accumulate = self.global_batch // micro_batch
            for val_batch_size in dict.fromkeys((base.val_batch_size, 1)):
                setting = self._cheapest(base, planner, micro_batch, accumulate, val_batch_size)
                if setting is not None:
                    break
            self.on_event(
                f"{base.precision}, micro-batch {micro_batch}: "
                + ("does not fit" if setting is None else f"{setting.recomputed_macs / 1e9:,.1f} GMACs again")
            )
            if setting is not None:
                found.append(setting)
                if setting.checkpointing == "none":
                    break
        return found

    def _cheapest(
        self, base: Base, planner: StepPlanner, micro_batch: int, accumulate: int, val_batch_size: int
    ) -> PlannedSetting | None:
        """By the fewest multiply-adds: none, light, full, or modules."""
        known: dict[Way, Predicted] = {}

        def excess(way: Way) -> int:
            if way not in known:
                known[way] = self._predict(planner, way, micro_batch, accumulate, val_batch_size)
            return known[way].over

        room = max(0, self.budget.usable_bytes - self._outside)
        candidates: list[tuple[tuple[int, int], Way]] = []
        way: Way
        for way in planner.named_ways():
            # Live bytes are at most the reserved ones. Each of the three computes no less again than the one before.
            if planner.quick_peak(way, micro_batch) <= room and excess(way) <= 0:
                candidates.append((planner.cost(way, micro_batch), way))
                break
        if not candidates or candidates[0][1] != "none":
            chosen = planner.choose(
                micro_batch,
                room,
                excess=lambda modules: excess(modules or "none"),
                below=candidates[0][0] if candidates else None,
            )
            if chosen is not None:
                candidates.append((chosen.cost, chosen.modules or "none"))
        if not candidates:
            return None
        cost, way = min(candidates, key=lambda one: one[0])
        return self._as_setting(base, planner, way, micro_batch, accumulate, val_batch_size, cost, known[way])

    @property
    def _outside(self) -> int:
        return self.budget.context_bytes + self.budget.workspace_bytes

    def _predict(
        self, planner: StepPlanner, way: Way, micro_batch: int, accumulate: int, val_batch_size: int
    ) -> Predicted:
        config = _accumulating(planner.in_way(way), min(2, accumulate))
        data = config.data.model_copy(update={"val_batch_size": val_batch_size, "batch_size": micro_batch})
        config = config.model_copy(update={"data": data})
        built = build_model(config, trust_config=self.trust_config)
        trace = training_trace(built, config, self._loss_parts, micro_batch, results=self._results)
        replayed = replay(trace)
        needed = replayed.peak_reserved_bytes + self._outside
        return Predicted(trace, replayed, max(0, needed - self.budget.usable_bytes))

    def _nearest(self, base: Base) -> PlannedSetting:
        """What takes the least memory, though it is too much."""
        micro_batch = self._micro_batches()[-1]
        accumulate = self.global_batch // micro_batch
        planner = self._step_planner(base)
        ways: list[Way] = list(planner.named_ways())
        least = planner.least(micro_batch)
        if least.modules:
            ways.append(least.modules)
        way = min(ways, key=lambda one: planner.quick_peak(one, micro_batch))
        predicted = self._predict(planner, way, micro_batch, accumulate, 1)
        cost = planner.cost(way, micro_batch)
        return self._as_setting(base, planner, way, micro_batch, accumulate, 1, cost, predicted)

    def _as_setting(
        self,
        base: Base,
        planner: StepPlanner,
        way: Way,
        micro_batch: int,
        accumulate: int,
        val_batch_size: int,
        cost: tuple[int, int],
        predicted: Predicted,
    ) -> PlannedSetting:
        trace, reserved = (
            predicted.trace,
            predicted.replayed.peak_reserved_bytes + self.budget.workspace_bytes,
        )
        basis = basis_of(trace, base.precision, cudnn_benchmark=False)
        named = isinstance(way, str)
        setting = PlannedSetting(
            micro_batch=micro_batch,
            accumulate=accumulate,
            precision=base.precision,
            checkpointing=cast(Checkpointing, way) if named else "modules",
            modules=[] if named else list(way),
            chosen_by="name" if named else "dynamic programming" if planner.is_chain else "greedy",
            patch_size=None if base.patch is None else list(base.patch),
            val_batch_size=val_batch_size,
            live_bytes=live_peak(trace, trace.step_starts[0])[0],
            reserved_bytes=reserved,
            reserved_interval_bytes=list(interval(basis, "reserved", reserved, None).bytes),
            needed_bytes=predicted.replayed.peak_reserved_bytes + self._outside,
            fits=predicted.over <= 0,
            recomputed_macs=cost[0] * accumulate,
            recomputed_bytes=cost[1] * accumulate,
            changes=self._changes(base, micro_batch, accumulate),
            memory_fingerprint="0" * 64,
        )
        fingerprint = memory_fingerprint(config_in_setting(self.config, setting))
        return setting.model_copy(update={"memory_fingerprint": fingerprint})

    def _changes(self, base: Base, micro_batch: int, accumulate: int) -> list[str]:
        """What of the result a setting changes, beside the order of sums."""
        changes = []
        own = PRECISIONS[self.config.system.mixed_precision]
        if base.precision != own:
            changes.append(f"{base.precision} in place of {own}: other rounding")
        if accumulate > 1 and self._has_batch_norm:
            changes.append(f"BatchNorm normalises {micro_batch} samples at a time, not {self.global_batch}")
        loss = self.config.training.loss
        frequency = loss.components.frequency
        if accumulate > 1 and frequency.transform == "swinmr" and frequency.weight:
            changes.append("the frequency loss over the batch has another weight with another micro-batch")
        if base.patch != self.config.training_patch_hw:
            changes.append(f"patch {base.patch}: trains another model")
        return changes


def has_batch_norm(module: nn.Module) -> bool:
    """Whether the network's result depends on which samples are in one micro-batch."""
    return any(isinstance(child, _BatchNorm) for child in module.modules())


def _accumulating(config: ExperimentConfig, accumulate: int) -> ExperimentConfig:
    """With that many micro-batches: of two the second holds what every later one does, the gradients of the others."""
    training = config.training.model_copy(update={"accumulate": accumulate})
    return config.model_copy(update={"training": training})
