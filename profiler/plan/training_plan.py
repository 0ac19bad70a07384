"""The settings under which a global batch trains on a card, cheapest first: searched with the prediction."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.writing.kept_files import HASHED_NETWORKS
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.plan.candidates import (
    Base,
    bases,
    by_moved_bytes,
    changes_of_result,
    has_batch_norm,
    has_convolutions,
    moved_bytes,
    placements,
)
from swinmr_profiling.profiler.plan.plan_file import PlannedSetting, TrainingPlan, config_in_setting
from swinmr_profiling.profiler.plan.step_planner import StepPlanner, Way
from swinmr_profiling.profiler.prediction.peak_basis import basis_of
from swinmr_profiling.profiler.prediction.replay import ReplayResult, live_peak, replay
from swinmr_profiling.profiler.prediction.trace.remembered_results import RememberedResults
from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace
from swinmr_profiling.profiler.prediction.trace.traced_step import young_garbage_only
from swinmr_profiling.profiler.prediction.trace_family import training_trace
from swinmr_profiling.profiler.record.blocks.figures import Checkpointing
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.profiler.record.prediction_intervals import interval
from swinmr_profiling.training.step.losses import build_loss

NOTES = (
    "memory is predicted, as scripts/profile_model.py predicts it; nothing ran",
    "the order is by multiply-adds and bytes computed again per optimizer step, then by bytes over the bus; how fast a "
    "setting is was not measured, and many small micro-batches may be slower than fewer with recomputation",
)
ON_HOST = "what waits on the host was held against real runs on CPUs; no GPU has confirmed it yet"
NOTHING_AGAIN = (0, 0)
# The other layout is tried where a step holds less than this share of what it held: other rounding has its price.
LAYOUT_GAIN = 0.99


@dataclass(frozen=True)
class Predicted:
    """A setting as it was traced. over: by how many bytes it is too large for the budget, 0 where it fits."""

    trace: Trace
    replayed: ReplayResult
    over: int
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
        self.loss = str(build_loss(config, for_prediction=True).label)
        # As in profiler/prediction/server.py: traces of other code are this run's alone.
        own = config.model.net_type in HASHED_NETWORKS
        self._loss_parts = self.loss if own else f"{self.loss}; run {uuid.uuid4().hex}"
        self._has_batch_norm = self._has_convolutions = False
        self._uncounted: set[str] = set()
        self._results = RememberedResults()
        self._hosted: dict[tuple[object, ...], StepPlanner] = {}

    def plan(self, config_file: str | None) -> TrainingPlan:
        """All settings that fit, cheapest first; where none does, the nearest one. Raises what the network raises."""
        settings: list[PlannedSetting] = []
        tried = list(bases(self.config, self.budget, allow_patch=self.allow_patch))
        module = build_model(tried[0].config, trust_config=self.trust_config).module
        self._has_batch_norm, self._has_convolutions = has_batch_norm(module), has_convolutions(module)
        with young_garbage_only():
            for base in tried:
                settings += self._settings_of(base)
            if not settings:
                # What waits on the host and what is computed again go together only where neither is enough.
                for base in tried:
                    settings += self._settings_with_everything(base)
            if not settings:
                settings = [min((self._nearest(base) for base in tried), key=lambda one: one.needed_bytes)]
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
            notes=[*NOTES, *([ON_HOST] if any(one.on_host for one in settings) else []), *self._without()],
        )

    def _step_planner(self, base: Base) -> StepPlanner:
        config = base.config.changed("training", accumulate=1)
        planner = StepPlanner(config, trust_config=self.trust_config, results=self._results)
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
            setting.to_host_bytes + setting.to_device_bytes,
            len(setting.changes),
            setting.accumulate,
        )

    def _micro_batches(self) -> list[int]:
        sizes = [size for size in range(self.global_batch, 0, -1) if self.global_batch % size == 0]
        return [size for size in sizes if self.only_micro_batch in (None, size)]

    def _settings_of(self, base: Base) -> list[PlannedSetting]:
        """The cheapest settings of each micro-batch, down to the first that needs nothing beside."""
        found: list[PlannedSetting] = []
        # What is recomputed and what that costs is the same with and without accumulation; memory is not, and is
        # predicted for each setting as it would run.
        planner = self._step_planner(base)
        other = self._helpful_layout(base, planner)
        before: PlannedSetting | None = None
        for micro_batch in self._micro_batches():
            setting = self._cheapest(base, planner, micro_batch)
            self.on_event(
                f"{base.precision}, micro-batch {micro_batch}: "
                + ("does not fit" if setting is None else f"{setting.recomputed_macs / 1e9:,.1f} GMACs again")
            )
            if setting is not None:
                found.append(setting)
                if setting.checkpointing == "none":
                    break
            if other is not None:
                turned = self._cheapest(*other, micro_batch)
                if turned is not None and (setting is None or _work(turned) < _work(setting)):
                    found.append(turned)
            # A smaller micro-batch is worth it only where less is moved.
            if (placed := self._least_moved(base, planner, micro_batch, before)) is not None:
                found.append(placed)
                before = placed
        return found

    def _helpful_layout(self, base: Base, planner: StepPlanner) -> tuple[Base, StepPlanner] | None:
        """The other layout of images, where a trace says that a step holds less in it."""
        if not self._has_convolutions:
            return None
        micro_batch = self._micro_batches()[0]
        fits_live = planner.quick_peak("none", micro_batch) <= self._room
        if fits_live and self._predict(base, planner, "none", micro_batch).over <= 0:
            return None
        other = base.in_other_layout()
        turned = self._step_planner(other)
        peaks = [each.quick_peak("none", micro_batch) for each in (turned, planner)]
        return (other, turned) if peaks[0] < LAYOUT_GAIN * peaks[1] else None

    def _least_moved(
        self, base: Base, planner: StepPlanner, micro_batch: int, before: PlannedSetting | None
    ) -> PlannedSetting | None:
        """Nothing recomputed, and as few bytes as possible over the bus, and fewer than in the setting before."""
        accumulate = self.global_batch // micro_batch
        possible = placements(base.config)
        plain = saved = planner.quick_trace("none", micro_batch)
        most = math.inf if before is None else before.to_host_bytes + before.to_device_bytes
        if before is not None and "activations" in before.on_host:
            # What a batch saves is the same in smaller pieces.
            possible = [names for names in possible if "activations" not in names]
        if any("activations" in names for names in possible):
            saved = self._saved_on_host(base, micro_batch)
        for moved, names in by_moved_bytes(possible, base.on_host, (plain, saved), accumulate, self._room):
            if moved >= most:
                break
            placed = base.with_on_host(names)
            hosted = self._step_planner(placed)
            predicted = self._predict(placed, hosted, "none", micro_batch)
            if predicted.over <= 0:
                return self._as_setting(placed, hosted, "none", micro_batch, NOTHING_AGAIN, predicted)
        return None

    def _saved_on_host(self, base: Base, micro_batch: int) -> Trace:
        """Of the same with the activations on the host as well."""
        key = (base.precision, base.patch)
        if key not in self._hosted:
            names = dict.fromkeys((*base.on_host, "activations"))
            self._hosted[key] = self._step_planner(base.with_on_host(tuple(names)))
        return self._hosted[key].quick_trace("none", micro_batch)

    def _settings_with_everything(self, base: Base) -> list[PlannedSetting]:
        """The smallest micro-batch with modules recomputed and all that can on the host, the activations last."""
        possible = placements(base.config)
        gentle = [names for names in possible if "activations" not in names]
        for names in dict.fromkeys((*gentle[-1:], *possible[-1:])):
            placed = base.with_on_host(names)
            setting = self._cheapest(placed, self._step_planner(placed), self._micro_batches()[-1])
            if setting is not None:
                return [setting]
        return []

    def _cheapest(self, base: Base, planner: StepPlanner, micro_batch: int) -> PlannedSetting | None:
        """By the fewest multiply-adds: none, light, full, or modules."""
        known: dict[Way, Predicted] = {}

        def excess(way: Way) -> int:
            if way not in known:
                known[way] = self._predict(base, planner, way, micro_batch)
            return known[way].over

        candidates: list[tuple[tuple[int, int], Way]] = []
        way: Way
        for way in planner.named_ways():
            # Live bytes are at most the reserved ones. Each of the three computes no less again than the one before.
            if planner.quick_peak(way, micro_batch) <= self._room and excess(way) <= 0:
                candidates.append((planner.cost(way, micro_batch), way))
            # What recomputes no product is the cheapest of those left: full computes whole blocks again, of several
            # products each, of which a checkpoint leaves out at most the last.
            if candidates and candidates[-1][0][0] == 0:
                break
        if not candidates or candidates[0][1] != "none":
            chosen = planner.choose(
                micro_batch,
                self._room,
                excess=lambda modules: excess(modules or "none"),
                below=candidates[0][0] if candidates else None,
            )
            if chosen is not None:
                candidates.append((chosen.cost, chosen.modules or "none"))
        if not candidates:
            return None
        cost, way = min(candidates, key=lambda one: one[0])
        return self._as_setting(base, planner, way, micro_batch, cost, known[way])

    @property
    def _outside(self) -> int:
        return self.budget.context_bytes + self.budget.workspace_bytes

    @property
    def _room(self) -> int:
        return max(0, self.budget.usable_bytes - self._outside)

    def _predict(self, base: Base, planner: StepPlanner, way: Way, micro_batch: int) -> Predicted:
        """As it would run; where the validation alone is too large, with smaller batches of it."""
        # Of two micro-batches the second holds what every later one does, the gradients of the others.
        accumulate = min(2, self.global_batch // micro_batch)
        in_way = planner.in_way(way).changed("training", accumulate=accumulate)
        val_batch_size = base.config.data.val_batch_size
        while True:
            config = in_way.changed("data", val_batch_size=val_batch_size, batch_size=micro_batch)
            built = build_model(config, trust_config=self.trust_config)
            trace = training_trace(built, config, self._loss_parts, micro_batch, results=self._results)
            replayed = replay(trace)
            over = max(0, replayed.peak_reserved_bytes - self._room)
            if not over or val_batch_size == 1 or replayed.training.reserved_bytes > self._room:
                return Predicted(trace, replayed, over, val_batch_size)
            val_batch_size //= 2

    def _nearest(self, base: Base) -> PlannedSetting:
        """What takes the least memory, though it is too much."""
        micro_batch = self._micro_batches()[-1]
        found = []
        for placed in (base, *(base.with_on_host(names) for names in placements(base.config)[-1:])):
            planner = self._step_planner(placed)
            least = planner.least(micro_batch).modules
            ways: list[Way] = [*planner.named_ways(), *([least] if least else [])]
            way = min(ways, key=lambda one: planner.quick_peak(one, micro_batch))
            predicted = self._predict(placed, planner, way, micro_batch)
            cost = planner.cost(way, micro_batch)
            found.append(self._as_setting(placed, planner, way, micro_batch, cost, predicted))
        return min(found, key=lambda one: one.needed_bytes)

    def _as_setting(
        self,
        base: Base,
        planner: StepPlanner,
        way: Way,
        micro_batch: int,
        cost: tuple[int, int],
        predicted: Predicted,
    ) -> PlannedSetting:
        trace, accumulate = predicted.trace, self.global_batch // micro_batch
        reserved = predicted.replayed.peak_reserved_bytes + self.budget.workspace_bytes
        basis = basis_of(trace, base.precision, cudnn_benchmark=False)
        named = isinstance(way, str)
        # Of more micro-batches than are traced each moves what the second did; the planner traces one.
        one = planner.quick_trace(way, micro_batch).moved_bytes if accumulate > 2 else trace.moved_bytes
        to_host, to_device = moved_bytes(one, trace.moved_bytes, accumulate)
        setting = PlannedSetting(
            micro_batch=micro_batch,
            accumulate=accumulate,
            precision=base.precision,
            channels_last=base.channels_last,
            checkpointing=cast(Checkpointing, way) if named else "modules",
            modules=[] if named else list(way),
            chosen_by="name" if named else "dynamic programming" if planner.is_chain else "greedy",
            on_host=list(base.on_host),
            patch_size=None if base.patch is None else list(base.patch),
            val_batch_size=predicted.val_batch_size,
            live_bytes=live_peak(trace, trace.step_starts[0])[0],
            reserved_bytes=reserved,
            reserved_interval_bytes=list(interval(basis, "reserved", reserved, None)),
            needed_bytes=predicted.replayed.peak_reserved_bytes + self._outside,
            fits=predicted.over <= 0,
            recomputed_macs=cost[0] * accumulate,
            recomputed_bytes=cost[1] * accumulate,
            to_host_bytes=to_host,
            to_device_bytes=to_device,
            changes=list(
                changes_of_result(self.config, base, micro_batch, accumulate, batch_norm=self._has_batch_norm)
            ),
            memory_fingerprint="0" * 64,
        )
        fingerprint = memory_fingerprint(config_in_setting(self.config, setting))
        return setting.model_copy(update={"memory_fingerprint": fingerprint})


def _work(setting: PlannedSetting) -> tuple[int, int]:
    return setting.recomputed_macs, setting.recomputed_bytes
