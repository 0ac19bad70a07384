"""Watching a live pipeline: every operator of its run is counted as it is executed, for the network that runs it.

Nothing is run again. Caches, replaced forwards, hooks, adapters, offloading, quantised weights and tiles come out as
they ran, because the operators that ran are what is counted. Only compiled parts are counted from a trace of their
originals (compiled_parts.py), and are named.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.profiler.counting import KINDS
from swinmr_profiling.profiler.counting.components import (
    ComponentMode,
    ComponentTracker,
    component_of,
)
from swinmr_profiling.profiler.pipelines.live.anatomy import networks_of, wrapped_networks_of
from swinmr_profiling.profiler.pipelines.live.compiled_parts import (
    CompiledPart,
    compiled_parts,
    counted_at_boundary,
    other_compiled_code,
)
from swinmr_profiling.profiler.pipelines.live.watched_methods import watched_method

# Name of what ran outside every network: the pipeline's own products.
OUTSIDE = "(outside the networks)"
OUTSIDE_KEY = ""


PlainValue = int | float | str | bool | None


@dataclass
class PipelineCall:
    """One `pipe(...)`: what it was asked for, and how often its scheduler stepped."""

    arguments: dict[str, PlainValue]
    scheduler_steps: int = 0


@dataclass
class NetworkCount:
    """One network in a run. `reason` says why its figures are not the whole, `note` how they were found."""

    name: str
    calls: int = 0
    macs: int = 0
    softmax_macs: int = 0
    by_kind: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    reason: str | None = None
    note: str | None = None


@dataclass
class WatchedRun:
    """All that happened in one `watch`, complete when the block has ended.

    Attributes:
        calls: of the pipeline. seconds: of the block, the counting included.
        partial: what ended the block early, None where nothing did.
        networks: name -> count, of every network of the pipeline, and of OUTSIDE where that did any work.
        operators: how many were seen; counting_us: microseconds that noting one took.
        by_operator: MACs.
    """

    pipe: Any
    calls: list[PipelineCall] = field(default_factory=list)
    seconds: float | None = None
    partial: str | None = None
    networks: dict[str, NetworkCount] = field(default_factory=dict)
    by_operator: dict[str, int] = field(default_factory=dict)
    operators: int = 0
    counting_us: float | None = None
    remarks: list[str] = field(default_factory=list)
    shapes: dict[str, list[int]] = field(default_factory=dict)

    def missing(self, name: str, reason: str) -> None:
        """Something is, of a network that may have no count so far."""
        self.networks.setdefault(name, NetworkCount(name, calls=1)).reason = reason

    @property
    def macs(self) -> int:
        return sum(network.macs for network in self.networks.values())

    @property
    def scheduler_steps(self) -> int:
        return sum(call.scheduler_steps for call in self.calls)

    @property
    def never_called(self) -> list[str]:
        return [name for name, network in self.networks.items() if not network.calls and name != OUTSIDE]

    @property
    def incomplete(self) -> dict[str, str]:
        """Networks of which something is missing, and why."""
        return {name: network.reason for name, network in self.networks.items() if network.reason}


@contextmanager
def watching(pipe: Any) -> Iterator[WatchedRun]:
    """Counts what the pipeline does while the block runs, and leaves nothing behind on it.

    A block that raises leaves what was counted, with `partial` set.
    """
    run = WatchedRun(pipe)
    tracker = ComponentTracker(networks_of(pipe))
    mode = ComponentMode(tracker)
    parts = list(compiled_parts(wrapped_networks_of(pipe)))
    scheduler = getattr(pipe, "scheduler", None)
    started = time.perf_counter()
    try:
        with ExitStack() as stack:
            stack.enter_context(watched_method(pipe, "__call__", _noted_call(run)))
            if callable(getattr(scheduler, "step", None)):
                stack.enter_context(watched_method(scheduler, "step", _noted_step(run)))
            stack.enter_context(counted_at_boundary(parts, mode))
            stack.enter_context(other_compiled_code(mode))
            stack.enter_context(tracker)
            stack.enter_context(mode)
            yield run
    except BaseException as error:
        run.partial = one_line(error)
        raise
    finally:
        run.seconds = time.perf_counter() - started
        try:
            _fill(run, mode, parts)
        except Exception as error:  # the program must not fail because it was watched
            run.missing(OUTSIDE, f"the count could not be summed up: {type(error).__name__}: {error}")


def _noted_call(run: WatchedRun):
    running: list[PipelineCall] = []

    def around(pipe: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Any) -> Any:
        if running:
            return call()  # a pipeline that calls itself
        running.append(PipelineCall(_plain_arguments(pipe, args, kwargs)))
        run.calls.append(running[0])
        try:
            return call()
        finally:
            running.clear()

    return around


def _noted_step(run: WatchedRun):
    def around(scheduler: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Any) -> Any:
        if run.calls:
            run.calls[-1].scheduler_steps += 1
        return call()

    return around


def _plain_arguments(pipe: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, PlainValue]:
    """The numbers and texts among the arguments, by name, defaults included."""
    try:
        bound = inspect.signature(type(pipe).__call__).bind(pipe, *args, **kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    prompt = bound.arguments.get("prompt")
    plain = {
        name: value
        for name, value in bound.arguments.items()
        if isinstance(value, (int, float, str, bool, type(None))) and name != "self"
    }
    return plain | ({"prompts": len(prompt)} if isinstance(prompt, (list, tuple)) else {})


def _fill(run: WatchedRun, mode: ComponentMode, parts: list[CompiledPart]) -> None:
    tracker, by_operator = mode.tracker, Counter(mode.tallies.by_operator)
    # At once: what follows may fail, and this is known.
    run.by_operator = dict(by_operator.most_common())
    run.operators, run.counting_us = mode.clock.operators, mode.clock.us_per_operator
    run.shapes = tracker.first_shapes
    undone = (
        f"another thread raised {type(error).__name__}: what it left undone is not counted"
        for error in mode.thread_errors
    )
    run.remarks = [*sorted(mode.remarks), *undone]
    run.networks |= {name: _counted(name, tracker, mode) for name in tracker.networks}
    if any(tracker.macs_of(OUTSIDE_KEY).values()) or mode.uncounted_by.get(OUTSIDE_KEY):
        outside = _counted(OUTSIDE_KEY, tracker, mode)
        outside.name, outside.calls = OUTSIDE, 1
        run.networks[OUTSIDE] = outside
    for name, reason in tracker.not_seen.items():
        run.missing(name, reason)
    if unseen := [*mode.tracker.unseen_modules, *mode.unfinished()]:
        run.missing(OUTSIDE, f"work in other threads was not seen: {', '.join(unseen)}")
    for part in parts:
        _add_compiled(run, part, by_operator)
    run.by_operator = dict(by_operator.most_common())


def _counted(name: str, tracker: ComponentTracker, mode: ComponentMode) -> NetworkCount:
    by_kind = tracker.macs_of(name)
    uncounted = ", ".join(sorted(mode.uncounted_by.get(name, ())))
    return NetworkCount(
        name,
        tracker.calls_of(name),
        sum(by_kind.values()),
        mode.softmax_by[name],
        {kind: by_kind[kind] for kind in KINDS},
        reason=f"no formula for {uncounted}" if uncounted else None,
    )


def _add_compiled(run: WatchedRun, part: CompiledPart, by_operator: Counter[str]) -> None:
    network = run.networks[component_of(part.path)]
    calls = sum(noted.count for noted in part.calls.values())
    if part.eager_calls:
        network.note = f"{part.path} is compiled, and another dispatch mode made it run without compilation"
    if not calls:
        return
    network.note = f"{part.path} ran compiled: counted from a trace of its eager original, {calls} calls"
    for noted in part.calls.values():
        try:
            report = part.traced(noted)
        except Exception as error:
            network.reason = (
                f"{part.path} ran compiled and its original cannot be traced without data: {one_line(error)}"
            )
            continue
        network.macs += report.macs * noted.count
        network.softmax_macs += report.softmax_macs * noted.count
        for kind, macs in report.by_kind.items():
            network.by_kind[kind] += macs * noted.count
        for name, macs in report.by_operator.items():
            by_operator[name] += macs * noted.count
        if report.uncounted_operators:
            network.reason = f"no formula for {', '.join(report.uncounted_operators)}"
