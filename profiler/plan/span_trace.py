"""A trace that also knows in whose forward, and in whose part of the backward pass, each allocation is made."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from swinmr_profiling.models.recomputation.recomputed_modules import is_callable
from swinmr_profiling.profiler.allocator.caching_allocator import MIN_BLOCK_BYTES
from swinmr_profiling.profiler.counting.dispatch.complex_numbers import REAL_PER_COMPLEX, has_complex
from swinmr_profiling.profiler.counting.operators.operator_rules import Rule, rule_for
from swinmr_profiling.profiler.prediction.trace.storage_trace import StorageTrace, Trace

# AccumulateGrad's, which runs whenever a gradient is ready.
NO_ORDER = 2**63


@dataclass(frozen=True)
class Span:
    """One call of a module in the forward pass.

    begin, end: positions in the trace's events. sequence: autograd's number of the first node it can have made, from
    the first call's on.
    first, after: numbers of the calls that begin with it, and after it has ended, among all calls in order.
    inputs: numbers of the allocations that its tensors are in.
    """

    name: str
    begin: int
    end: int
    sequence: int
    first: int
    after: int
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class TracedSpans:
    """The last micro-batch of a trace.

    spans: in the order of their calls. backward: (position in the events, autograd's number of the node that runs),
    in the order of time. work: (position, MACs) of each operator that has any.
    """

    spans: list[Span]
    backward: list[tuple[int, int]]
    work: list[tuple[int, int]]

    def called_once(self) -> set[str]:
        """Names of modules that one forward pass calls once."""
        calls = Counter(span.name for span in self.spans)
        return {name for name, count in calls.items() if count == 1}


class ObservedForward:
    """Stands in the place of a forward and tells a trace when it runs; hooks would be looked for by some networks."""

    def __init__(self, trace: SpanTrace, module: nn.Module, name: str) -> None:
        self.trace, self.forward, self.name = trace, module.forward, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self.trace.begin(self.name, (args, kwargs))
        result = self.forward(*args, **kwargs)
        self.trace.end(call)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of the network, as the average of its weights is one, has forwards that nobody observes."""
        return copy.deepcopy(self.forward, memo)


def observable(module: nn.Module) -> list[str]:
    """Names of the modules that have parts and a forward of their own: what may be worth recomputing."""
    return [
        name
        for name, child in module.named_modules()
        if name and is_callable(child) and any(True for _ in child.children())
    ]


class SpanTrace(StorageTrace):
    """Observes modules of a network that nobody else uses. The last micro-batch with gradients is what is kept."""

    def __init__(
        self,
        module: nn.Module,
        device_type: str = "meta",
        *,
        as_on_cuda: bool = True,
        assumed: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(device_type, as_on_cuda=as_on_cuda, assumed=assumed)
        self._begun: list[tuple[str, int, int, tuple[int, ...]]] = []
        self._ended: dict[int, tuple[int, int]] = {}
        self._backward: list[tuple[int, int]] = []
        self._work: list[tuple[int, int]] = []
        self._rules: dict[Any, Rule] = {}
        # Operators whose multiply-adds nobody knows here: `work` is without them.
        self.uncounted: set[str] = set()
        for name in observable(module):
            child = module.get_submodule(name)
            child.forward = ObservedForward(self, child, name)  # type: ignore[method-assign]

    def begin(self, name: str, inputs: Any) -> int | None:
        """A module's forward begins with these arguments; the number of the call, None for one not followed."""
        if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return None
        if self._backward:  # of the micro-batch before
            self._begun, self._ended, self._backward, self._work = [], {}, [], []
        storages = {id(t.untyped_storage()) for t in tree_leaves(inputs) if isinstance(t, Tensor)}
        held = tuple(sorted(self._live[key][0] for key in storages if key in self._live))
        self._begun.append((name, len(self._events), torch._C._autograd._get_sequence_nr(), held))
        return len(self._begun) - 1

    def end(self, call: int | None) -> None:
        """The forward of `begin` ends."""
        if call is not None:
            self._ended[call] = (len(self._events), len(self._begun))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        node = torch._C._current_autograd_node()
        # Nodes of functions that are written in Python have no number.
        if node is not None and hasattr(node, "_sequence_nr"):
            number = node._sequence_nr()
            if number < NO_ORDER and not (self._backward and self._backward[-1][1] == number):
                self._backward.append((len(self._events), number))
        result = super().__torch_dispatch__(function, types, args, kwargs)
        rule = self._rules.get(function)
        if rule is None:
            rule = self._rules[function] = rule_for(function)
        if rule.action == "count" and rule.counted is not None:
            _, formula = rule.counted
            try:
                work = formula(result, *args, **(kwargs or {}))
            except Exception:  # a formula that wants values has none here
                self.uncounted.add(rule.name)
                work = None
            macs = sum(work.values()) if isinstance(work, dict) else work or 0
            if macs:
                self._work.append((len(self._events), macs * (REAL_PER_COMPLEX if has_complex(args) else 1)))
        elif rule.action == "unknown":
            self.uncounted.add(rule.name)
        return result

    def spans(self) -> TracedSpans:
        """Of the last micro-batch."""
        spans = []
        # A thread's numbers go on from trace to trace.
        zero = self._begun[0][2] if self._begun else 0
        for call, (name, begin, sequence, held) in enumerate(self._begun):
            end, after = self._ended.get(call, (begin, call + 1))
            spans.append(Span(name, begin, end, sequence - zero, call, after, held))
        backward = [(position, number - zero) for position, number in self._backward]
        return TracedSpans(spans, backward, list(self._work))


@dataclass(frozen=True)
class TracedStep:
    """A trace of training steps, and whose its last micro-batch is."""

    trace: Trace
    spans: TracedSpans

    @property
    def macs(self) -> int:
        """Of the last micro-batch's forward and backward, and what follows."""
        return sum(macs for _, macs in self.spans.work)

    @property
    def made_bytes(self) -> int:
        """Bytes (each storage rounded up to 512) allocated from the last micro-batch's first module on."""
        start = self.spans.spans[0].begin if self.spans.spans else 0
        made = self.trace.events[start:]
        sizes = self.trace.sizes[made[made > 0] - 1]
        return int((-(-sizes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES).sum())
