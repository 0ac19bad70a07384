"""The traces of one setting of a config, or of a step of the user's own, at every batch size that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.measure.training.own_step import OtherStep
from swinmr_profiling.profiler.prediction.own_step_trace import trace_configured
from swinmr_profiling.profiler.prediction.settings import ALIGNED_BATCHES, CHECK_BATCH
from swinmr_profiling.profiler.prediction.trace.affine_trace import AffineTrace, NotAlignedError, align
from swinmr_profiling.profiler.prediction.trace.remembered_results import RememberedResults
from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace
from swinmr_profiling.profiler.prediction.trace.trace_cache import cached, trace_key
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_inference, trace_training
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.training.step.own_step import OwnStepError


class TraceFamily:
    """Traces of one setting: traced where they were asked for directly, synthesised where that is exact."""

    def __init__(self, trace: Callable[[int], Trace], *, check: bool) -> None:
        """check: trace a third size to check the other two with, and batch 1 by itself."""
        self._trace = trace
        self._synthesised_from = ALIGNED_BATCHES[0] if check else 1
        self._direct: dict[int, Trace] = {}
        self.affine: AffineTrace | None = None
        self.problem: str | None = None
        first, second = (self.direct(batch) for batch in ALIGNED_BATCHES)
        try:
            self.affine = align(first, second)
        except NotAlignedError as error:
            self.problem = str(error)
        self.checked = False
        if check and self.affine is not None:
            self.checked = self.affine.explains(self.direct(CHECK_BATCH))
            if not self.checked:
                self.problem = f"batch {CHECK_BATCH} is not what batches {ALIGNED_BATCHES} promise"
                self.affine = None

    @property
    def traced_batches(self) -> list[int]:
        return sorted(self._direct)

    def direct(self, batch_size: int) -> Trace:
        """The trace of this very batch size."""
        if batch_size not in self._direct:
            self._direct[batch_size] = self._trace(batch_size)
        return self._direct[batch_size]

    def assumptions(self) -> list[str]:
        """What the traces had to assume, each once."""
        return list(dict.fromkeys(text for trace in self._direct.values() for text in trace.assumptions))

    def at(self, batch_size: int) -> Trace:
        """The trace of a batch size: synthesised where allocations are affine, else traced."""
        if (
            self.affine is not None
            and batch_size >= self._synthesised_from
            and batch_size not in self._direct
        ):
            with suppress(NotAlignedError):
                return self.affine.at(batch_size)
        return self.direct(batch_size)


def own_step_family(trace: Callable[[int], Trace]) -> tuple[TraceFamily, list[str]]:
    """Traces of a step of the user's own, and what is to be said of them. Raises OwnStepError."""
    try:
        family = TraceFamily(trace, check=True)
        family.direct(1)
    except OwnStepError as error:
        # BatchNorm, for one, does not train a single sample.
        family = TraceFamily(trace, check=False)
        return family, [f"batch 1 is inferred from batches {ALIGNED_BATCHES}: by itself it raises ({error})"]
    return family, []


def training_trace(
    built: BuiltModel,
    config: ExperimentConfig,
    loss_parts: str,
    batch_size: int,
    step: OtherStep | None = None,
    results: RememberedResults | None = None,
) -> Trace:
    """The trace of a batch size of a config's training step, from the disk where it is there.

    step: the one that the config names in place of ours. results: as `trace_training` takes them.
    """
    key = trace_key(memory_fingerprint(config), batch_size, "training", loss_parts)
    if step is not None:
        return cached(key, lambda: trace_configured(step, built, config, batch_size))
    return cached(key, lambda: trace_training(built, config, batch_size, results=results))


def training_family(
    built: BuiltModel,
    config: ExperimentConfig,
    loss_parts: str,
    *,
    check: bool,
    step: OtherStep | None = None,
) -> tuple[TraceFamily, list[str]]:
    """Traces of the training step of a config, and what is to be said of them. step, Raises: as above."""

    def trace(batch_size: int) -> Trace:
        return training_trace(built, config, loss_parts, batch_size, step)

    return (TraceFamily(trace, check=check), []) if step is None else own_step_family(trace)


def inference_family(built: BuiltModel, config: ExperimentConfig, parts: str) -> TraceFamily:
    """Traces of one forward pass without gradients on the whole image."""
    fingerprint = memory_fingerprint(config)

    def trace(batch_size: int) -> Trace:
        key = trace_key(fingerprint, batch_size, "inference", parts)
        return cached(key, lambda: trace_inference(built, config, batch_size))

    return TraceFamily(trace, check=False)
