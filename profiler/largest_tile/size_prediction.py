"""What inference of an image of any size needs of a card: the network traced at that size, its allocations replayed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.writing.kept_files import HASHED_NETWORKS
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.largest_tile.record import Layout, SizeFigures
from swinmr_profiling.profiler.prediction.peak_basis import basis_of
from swinmr_profiling.profiler.prediction.replay import live_peak, replay
from swinmr_profiling.profiler.prediction.settings import TrainingSetting, config_with
from swinmr_profiling.profiler.prediction.trace.trace_cache import cached, trace_key
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_inference
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.profiler.record.prediction_intervals import interval

RUN = uuid.uuid4().hex


@dataclass
class SizePredictor:
    """One network in one precision and memory format, on one card.

    compute_capability: of the card, None: not known.
    """

    config: ExperimentConfig
    built: BuiltModel
    precision: Precision
    layout: Layout
    batch_size: int
    budget: Budget
    compute_capability: str | None = None
    seen: dict[tuple[int, int], SizeFigures] = field(default_factory=dict)

    def at(self, image_hw: tuple[int, int]) -> SizeFigures:
        """Raises whatever the network raises at a size that it does not take, or that cannot be traced."""
        if image_hw not in self.seen:
            self.seen[image_hw] = self._predict(image_hw)
        return self.seen[image_hw]

    def excess_bytes(self, figures: SizeFigures) -> int:
        """By how much a size is too large, at most 0 where it fits: the prediction, or its interval's upper end."""
        return max(
            figures.needed_bytes - self.budget.usable_bytes,
            figures.needed_interval_bytes[1] - self.budget.available_bytes,
        )

    def input_bytes(self, image_hw: tuple[int, int]) -> int:
        """Of a batch of such images alone."""
        inputs = self.built.at_size(image_hw).example_inputs(self.batch_size, "meta")
        return sum(tensor.nbytes for tensor in inputs)

    def _predict(self, image_hw: tuple[int, int]) -> SizeFigures:
        built = self.built.at_size(image_hw)
        # Traces of other code than this project's are this run's alone.
        own = "" if self.config.model.net_type in HASHED_NETWORKS else f"; run {RUN}"
        key = trace_key(
            memory_fingerprint(self.config),
            self.batch_size,
            "inference",
            f"image {image_hw[0]} x {image_hw[1]}{own}",
        )
        trace = cached(key, lambda: trace_inference(built, self.config, self.batch_size))
        budget = self.budget
        reserved = replay(trace).peak_reserved_bytes + budget.workspace_bytes
        needed = reserved + budget.context_bytes
        basis = basis_of(trace, self.precision, cudnn_benchmark=False)
        low, high = interval(basis, "process", needed, self.compute_capability)
        return SizeFigures(
            size=list(image_hw),
            live_bytes=live_peak(trace, trace.step_starts[0])[0],
            reserved_bytes=reserved,
            needed_bytes=needed,
            needed_interval_bytes=[low, high],
            fits=needed <= budget.usable_bytes and high <= budget.available_bytes,
        )


def predictor(
    config: ExperimentConfig,
    precision: Precision,
    layout: Layout,
    batch_size: int,
    budget: Budget,
    *,
    compute_capability: str | None = None,
    trust_config: bool = False,
) -> SizePredictor:
    """Raises ModelError and ConfigError for a network that does not go with the precision."""
    config = config_with(config, TrainingSetting(precision, "none", config.training_patch_hw))
    config = config.changed("system", channels_last=layout == "channels_last")
    built = build_model(config, trust_config=trust_config)
    return SizePredictor(config, built, precision, layout, batch_size, budget, compute_capability)
