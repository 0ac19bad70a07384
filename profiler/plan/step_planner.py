"""Which modules of a config's network to recompute so that its training step stays within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.plan.chain_selection import Chain, Selection, chain_of, peak_grain, select
from swinmr_profiling.profiler.plan.greedy_selection import greedy_order, outermost, shortest_prefix
from swinmr_profiling.profiler.plan.segments import NoChainError, cut
from swinmr_profiling.profiler.plan.span_trace import Span, SpanTrace, TracedSpans, TracedStep
from swinmr_profiling.profiler.prediction.replay import live_peak
from swinmr_profiling.profiler.prediction.settings import (
    ALIGNED_BATCHES,
    KNOWS_CHECKPOINTING,
    LEVER_CHECKPOINTING,
)
from swinmr_profiling.profiler.prediction.trace.affine_trace import NotAlignedError, align
from swinmr_profiling.profiler.prediction.trace.remembered_results import RememberedResults
from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace
from swinmr_profiling.profiler.prediction.trace.traced_step import TRACED_STEPS, trace_training

# Modules inside one another that are tried, from the outermost in. Each takes a trace.
MOST_LEVELS = 4
# How often the budget of the chain is lowered by what a trace of the chosen set was above it.
MOST_CORRECTIONS = 6
# Beyond this share above the budget no trace is made to see whether the least set fits all the same.
CHAIN_MAY_SAY_MORE = 1.02
# From this batch size on allocations are affine in it, where they are at all.
LEAST_ALIGNED = ALIGNED_BATCHES[0]
Way = str | tuple[str, ...]


class StepPlanner:
    """Of one precision, layout and accumulation: the config's. Everything is traced when it is first needed."""

    def __init__(
        self,
        config: ExperimentConfig,
        *,
        trust_config: bool = False,
        as_on_cuda: bool = True,
        build: Callable[[ExperimentConfig], BuiltModel] | None = None,
        results: RememberedResults | None = None,
    ) -> None:
        """as_on_cuda, results: as `trace_training` takes them.

        build: makes the network of a config; None: `build_model`.
        """
        self.config, self.as_on_cuda = config, as_on_cuda
        self.build = build or partial(build_model, trust_config=trust_config)
        self.results = results or RememberedResults()
        self._steps: dict[tuple[Way, int, int], TracedStep] = {}
        self._chains: dict[int, Chain] = {}
        self._why_no_chain: str | None = None
        # Operators that the multiply-adds of its steps are without.
        self.uncounted: set[str] = set()

    @property
    def is_chain(self) -> bool:
        """Whether the last choice was by dynamic programming; known after `choose`."""
        return self._why_no_chain is None

    def in_way(self, way: Way) -> ExperimentConfig:
        """The config with another checkpointing: its name, or modules (none of them: "none")."""
        value = way if isinstance(way, str) else list(way) or "none"
        training = self.config.model_dump(mode="json")["training"] | {"gradient_checkpointing": value}
        return self.config.model_copy(
            update={"training": type(self.config.training).model_validate(training, strict=True)}
        )

    def step(self, way: Way, batch_size: int, *, steps: int = TRACED_STEPS) -> TracedStep:
        """The step in another way, traced without validation."""
        way = way or "none"
        key = (way, batch_size, steps)
        if key not in self._steps:
            kept: list[SpanTrace] = []

            def make(module: nn.Module, loss: nn.Module, *given: Any, **options: Any) -> SpanTrace:
                kept.append(SpanTrace(module, *given, **options))
                return kept[-1]

            config = self.in_way(way)
            trace = trace_training(
                self.build(config),
                config,
                batch_size,
                as_on_cuda=self.as_on_cuda,
                validation=False,
                steps=steps,
                make_trace=make,
                results=self.results,
            )
            self._steps[key] = TracedStep(trace, kept[-1].spans())
            self.uncounted |= kept[-1].uncounted
        return self._steps[key]

    def peak(self, way: Way, batch_size: int) -> int:
        """The most bytes alive in the steps (each storage rounded up to 512), by a trace of this very way."""
        trace = self.step(way, batch_size).trace
        return live_peak(trace, trace.step_starts[0])[0]

    def cost(self, way: Way, batch_size: int) -> tuple[int, int]:
        """Multiply-adds and bytes that a micro-batch computes and makes again, against none recomputed."""
        plain, other = (self._at(each, batch_size, TRACED_STEPS) for each in ("none", way))
        return max(0, other.macs - plain.macs), max(0, other.made_bytes - plain.made_bytes)

    def quick_peak(self, way: Way, batch_size: int) -> int:
        """`peak`, of a batch that is synthesised where allocations are affine in it."""
        trace = self.quick_trace(way, batch_size)
        return live_peak(trace, trace.step_starts[0])[0]

    def quick_trace(self, way: Way, batch_size: int) -> Trace:
        """The trace of a step, synthesised where allocations are affine in the batch."""
        return self._at(way, batch_size, TRACED_STEPS).trace

    def named_ways(self) -> list[str]:
        """none, and light and full where the network's own code knows them."""
        return list(LEVER_CHECKPOINTING if self.config.model.net_type in KNOWS_CHECKPOINTING else ("none",))

    def choose(
        self,
        batch_size: int,
        budget_bytes: int,
        excess: Callable[[tuple[str, ...]], int] | None = None,
        below: tuple[int, int] | None = None,
    ) -> Selection | None:
        """The modules of the least cost whose step stays within the budget; None where none do.

        budget_bytes: of live bytes, to begin with. excess: by how many bytes a set is too large, 0 where it fits; None:
        by a trace of this very set, whose peak is that of what is returned. below: a cost that is known to do; a chain
        is not searched for sets that cost as much.
        """
        measure = excess or (lambda modules: max(0, self.peak(modules, batch_size) - budget_bytes))
        try:
            chain = self._chain(batch_size)
        except NoChainError as error:
            self._why_no_chain = str(error)
            return self._greedy(batch_size, measure)
        target = budget_bytes
        for _ in range(MOST_CORRECTIONS):
            found = select(chain, target)
            if found is None:
                break
            if below is not None and found.cost >= below:
                return None  # with less memory they cost no less
            over = measure(found.modules)
            if over <= 0:
                return found if excess else replace(found, peak_bytes=self.peak(found.modules, batch_size))
            target = min(target - over, found.peak_bytes - 1)
        # The chain may say a little more than a trace of the set.
        least = _least_of(chain)
        costs_less = below is None or least.cost < below
        if (
            not costs_less
            or least.peak_bytes > CHAIN_MAY_SAY_MORE * budget_bytes
            or measure(least.modules) > 0
        ):
            return None
        return least if excess else replace(least, peak_bytes=self.peak(least.modules, batch_size))

    def least(self, batch_size: int) -> Selection:
        """The set with the lowest peak that is known."""
        try:
            chain = self._chain(batch_size)
        except NoChainError:
            names = greedy_order(self.step("none", batch_size))
            return self._as_selection(tuple(outermost(names)), batch_size)
        found = _least_of(chain)
        return replace(found, peak_bytes=self.peak(found.modules, batch_size))

    def _greedy(self, batch_size: int, measure: Callable[[tuple[str, ...]], int]) -> Selection | None:
        if measure(()) <= 0:
            return Selection((), self.peak("none", batch_size), 0, 0)
        order = greedy_order(self.step("none", batch_size))
        names = shortest_prefix(order, lambda modules: measure(tuple(modules)) <= 0)
        return None if names is None else self._as_selection(tuple(names), batch_size)

    def _as_selection(self, names: tuple[str, ...], batch_size: int) -> Selection:
        return Selection(names, self.peak(names, batch_size), *self.cost(names, batch_size))

    def _chain(self, batch_size: int) -> Chain:
        if self._why_no_chain is not None:
            raise NoChainError(self._why_no_chain)
        if batch_size not in self._chains:
            traced = self._at("none", batch_size, TRACED_STEPS)
            plain = cut(traced)
            recomputed = [
                (cut(self._at(tuple(level), batch_size, 1)), level) for level in levels_of(traced.spans)
            ]
            self._chains[batch_size] = chain_of(plain, recomputed)
        return self._chains[batch_size]

    def _at(self, way: Way, batch_size: int, steps: int) -> TracedStep:
        """The step of a batch size, synthesised where allocations are affine in it."""
        way = way or "none"
        if batch_size >= LEAST_ALIGNED and (way, batch_size, steps) not in self._steps:
            # The first two sizes that were asked for are traced, whichever they are.
            traced = [
                step
                for (of, batch, count), step in self._steps.items()
                if (of, count) == (way, steps) and batch >= LEAST_ALIGNED
            ]
            if len(traced) > 1:
                with suppress(NotAlignedError):
                    return synthesised(traced[0], traced[1], batch_size)
        return self.step(way, batch_size, steps=steps)


def _least_of(chain: Chain) -> Selection:
    """The set with the lowest peak by the chain, to `peak_grain`."""
    low, high = chain.elsewhere - 1, chain.peak(())
    while high - low > peak_grain(high):
        middle = (low + high) // 2
        low, high = (low, middle) if select(chain, middle) else (middle, high)
    found = select(chain, high)
    assert found is not None
    return found


def synthesised(first: TracedStep, second: TracedStep, batch_size: int) -> TracedStep:
    """The step of another batch size. Raises NotAlignedError."""
    affine = align(first.trace, second.trace)
    spans, others = first.spans, second.spans
    if (spans.spans, spans.backward) != (others.spans, others.backward) or len(spans.work) != len(
        others.work
    ):
        raise NotAlignedError("modules are not called at the same places")
    between = second.trace.batch_size - first.trace.batch_size
    further = batch_size - first.trace.batch_size
    work = [
        (position, macs + (other - macs) * further // between)
        for (position, macs), (_, other) in zip(spans.work, others.work, strict=True)
    ]
    return TracedStep(affine.at(batch_size), TracedSpans(spans.spans, spans.backward, work))


def levels_of(spans: TracedSpans) -> list[list[str]]:
    """Sets of modules of which none is inside another: those called outermost, those called by these, and so on.

    A module whose caller calls nothing else beside it stands for no level of its own.
    """
    once = spans.called_once()
    levels: list[list[str]] = []

    def enter(calls: Sequence[Span], depth: int) -> None:
        for call in calls:
            inside = children(spans.spans, call)
            while len(inside) == 1 and children(spans.spans, inside[0]):
                inside = children(spans.spans, inside[0])
            if call.name in once:
                while len(levels) <= depth:
                    levels.append([])
                levels[depth].append(call.name)
            enter(inside, depth + 1 if call.name in once else depth)

    outermost = [
        span
        for span in spans.spans
        if not any(other.first < span.first and span.after <= other.after for other in spans.spans)
    ]
    enter(outermost, 0)
    return [level for level in levels if level][:MOST_LEVELS]


def children(spans: Sequence[Span], of: Span) -> list[Span]:
    """The calls that a call makes itself."""
    found: list[Span] = []
    place = of.first + 1
    while place < of.after:
        found.append(spans[place])
        place = spans[place].after
    return found
