"""The counter for a program that is not ours: what it does is counted, and it goes on whatever the counter meets."""

import time
from contextlib import suppress
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from typing_extensions import Self

from swinmr_profiling.profiler.counting.components.component_tracker import ComponentTracker, component_of
from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.operators.operator_rules import Rule


class ComponentMode(CountingMode):
    """A CountingMode over a ComponentTracker, which raises nothing of its own and keeps time.

    Attributes:
        operators: how many were seen. counting_seconds: what noting them took, beside running them.
        uncounted_by: network ("" outside all) -> operators that were not counted, with the calls.
    """

    tracker: ComponentTracker

    def __init__(self, tracker: ComponentTracker) -> None:
        super().__init__(tracker)
        self.clock = _Clock()
        self.uncounted_by: dict[str, set[str]] = {}
        self.softmax_by: dict[str, int] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # Otherwise whatever is compiled would run without compilation while it is watched, and nobody would know.
        return True

    def twin(self) -> Self:
        twin = super().twin()
        twin._inside = 0
        return twin

    _inside = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        started = time.perf_counter()
        self._inside += 1
        try:
            return self.dispatched(func, types, args, kwargs or {})
        finally:
            self._inside -= 1
            if not self._inside:
                self.clock.total += time.perf_counter() - started

    def rule_of(self, func: Any) -> Rule:
        try:
            return super().rule_of(func)
        except Exception as error:  # an operator of a kind that PyTorch has newly
            self.remarks.add(f"{func} is not known: {type(error).__name__}: {error}")
            return Rule(str(func), "unknown")

    def executed(self, rule: Rule, func: Any, args: Any, kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return func(*args, **kwargs)
        finally:
            self.clock.inside += time.perf_counter() - started
            self.clock.operators += 1

    def note(self, rule: Rule, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        sums = self.tallies
        before, softmax = dict(sums.uncounted), sums.apart["softmax_macs"]
        try:
            super().note(rule, func, args, kwargs, out)
        except Exception as error:  # the program must not fail because it is watched
            sums.uncounted[rule.name] += 1
            self.remarks.add(f"noting {rule.name} failed: {type(error).__name__}: {error}")
        if sums.uncounted != before:
            for name, calls in sums.uncounted.items():
                if before.get(name) != calls:
                    self._uncounted_here(name)
        if sums.apart["softmax_macs"] != softmax:
            name = component_of(self.tracker.current().path)
            more = sums.apart["softmax_macs"] - softmax
            self.softmax_by[name] = self.softmax_by.get(name, 0) + more

    def left_pytorch(self, way: str, tensor: torch.Tensor) -> None:
        """In a network, values that go to another library may be multiplied there; outside, images become pictures."""
        if way == "tolist" or not self.tracker.in_component():
            return
        if tensor.is_floating_point() or tensor.is_complex():
            with suppress(Exception):
                self.tallies.uncounted[f"unseen::Tensor.{way}"] += 1
                self._uncounted_here(f"unseen::Tensor.{way}")

    def _uncounted_here(self, name: str) -> None:
        self.uncounted_by.setdefault(component_of(self.tracker.current().path), set()).add(name)

    def is_innermost(self) -> bool:
        """Whether this mode is the one that an operator of this thread meets first."""
        stack = _get_current_dispatch_mode_stack()
        return bool(stack) and stack[-1] is self


class _Clock:
    """Seconds of all threads together: in the mode, of these in the operators themselves."""

    def __init__(self) -> None:
        self.operators = 0
        self.total = 0.0
        self.inside = 0.0

    @property
    def us_per_operator(self) -> float | None:
        """Microseconds that noting one took, beside running it."""
        return (self.total - self.inside) / self.operators * 1e6 if self.operators else None
