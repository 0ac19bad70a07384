"""Several networks of a program that is not ours: which of them runs, in whatever order, and what each does.

What it does is counted, and it goes on whatever the counter meets.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from typing_extensions import Self

from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.profiler.counting.operators.operator_rules import Rule


def component_of(path: str) -> str:
    """The network that a path of the tracker belongs to; "" for what ran outside all of them."""
    return path.partition(".")[0]


class ComponentTracker(ModuleTracker):
    """A ModuleTracker over several networks, by name. Nothing is registered on them.

    A call of a network is one of the network itself or, from outside it, of one of its children (``vae.decode`` calls
    the VAE's decoder, never the VAE's own forward).

    Attributes:
        calls: path of the module that was called from outside its network -> calls.
        first_shapes: that path -> shape of the first tensor of its last call.
        not_seen: network -> why what it does does not pass the dispatcher.
    """

    def __init__(self, networks: dict[str, nn.Module]) -> None:
        self.networks = networks
        self.calls: Counter[str] = Counter()
        self.first_shapes: dict[str, list[int]] = {}
        self.not_seen: dict[str, str] = {}
        super().__init__(nn.Module())
        for name, network in networks.items():
            try:
                self._index(network, name, (self.root,))
            except ValueError as error:  # an optimized script
                self.not_seen[name] = str(error)
            else:
                self.root._modules[name] = network

    def called(self, path: str, args: Any = (), kwargs: Any = None) -> None:
        """Notes a call that came from outside the network."""
        self.calls[path] += 1
        tensors = torch.utils._pytree.tree_leaves((args, kwargs))
        first = next((t for t in tensors if isinstance(t, torch.Tensor) and t.dim() > 1), None)
        if first is not None:
            self.first_shapes[path] = list(first.shape)

    def calls_of(self, name: str) -> int:
        """Calls of a network: those of its busiest module."""
        return max((n for path, n in self.calls.items() if component_of(path) == name), default=0)

    def macs_of(self, name: str) -> Counter[str]:
        """MACs of a network by kind; "": outside all networks."""
        found: Counter[str] = Counter()
        for path, by_kind in self.own_macs.items():
            if component_of(path) == name:
                found.update(by_kind)
        return found

    @contextmanager
    def hooks_off(self) -> Iterator[None]:
        """Takes the hooks off for a while: compiled code would be compiled anew for them."""
        super().__exit__()
        try:
            yield
        finally:
            super().__enter__()

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        stack = self._stack
        caller = stack[-1].path
        try:
            super()._enter_module(module, args)
        except ValueError as error:
            # A script that no count can see into must not end the program that runs it.
            self.not_seen[type(module).__name__] = str(error)
            return
        path = stack[-1].path
        if path is not caller and path and component_of(path) != component_of(caller):
            self.called(path, args)


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
        self.uncounted_by: defaultdict[str, set[str]] = defaultdict(set)
        self.softmax_by: Counter[str] = Counter()

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
        before, softmax = Counter(sums.uncounted), sums.apart["softmax_macs"]
        try:
            super().note(rule, func, args, kwargs, out)
        except Exception as error:  # the program must not fail because it is watched
            sums.uncounted[rule.name] += 1
            self.remarks.add(f"noting {rule.name} failed: {type(error).__name__}: {error}")
        for name in sums.uncounted - before:
            self._uncounted_here(name)
        if more := sums.apart["softmax_macs"] - softmax:
            self.softmax_by[component_of(self.tracker.current().path)] += more

    def left_pytorch(self, way: str, tensor: torch.Tensor) -> None:
        """In a network, values that go to another library may be multiplied there; outside, images become pictures."""
        if way == "tolist" or not component_of(self.tracker.running().path):
            return
        if tensor.is_floating_point() or tensor.is_complex():
            with suppress(Exception):
                self.tallies.uncounted[f"unseen::Tensor.{way}"] += 1
                self._uncounted_here(f"unseen::Tensor.{way}")

    def _uncounted_here(self, name: str) -> None:
        self.uncounted_by[component_of(self.tracker.current().path)].add(name)

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
