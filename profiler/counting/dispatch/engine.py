"""The counter itself: a dispatch mode that looks every executed operator up in the table."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.nested._internal.nested_tensor import NestedTensor
from torch.utils._pytree import tree_leaves
from typing_extensions import Self

from swinmr_profiling.profiler.counting.dispatch.complex_numbers import ComposedConvolutions, has_complex
from swinmr_profiling.profiler.counting.dispatch.storages import Allocation, FunctionCall, Storages
from swinmr_profiling.profiler.counting.dispatch.thread_nodes import NotedNodes
from swinmr_profiling.profiler.counting.dispatch.threads import ThreadFollowingMode
from swinmr_profiling.profiler.counting.formulas import NeedsValuesError, Work
from swinmr_profiling.profiler.counting.formulas.attention import READS_LENGTHS
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker, Owner
from swinmr_profiling.profiler.counting.operators.elementwise import (
    elementwise_flops,
    softmax_macs,
    softmax_macs_inside,
)
from swinmr_profiling.profiler.counting.operators.extensions import FUNCTIONS
from swinmr_profiling.profiler.counting.operators.nested import is_nested, work_by_parts
from swinmr_profiling.profiler.counting.operators.operator_rules import (
    Rule,
    decompose,
    first_written,
    nested_rule_for,
    rule_for,
    run,
)
from swinmr_profiling.profiler.counting.tallies import Tallies

DENSE_LAYOUTS = (torch.strided, torch._mkldnn)  # type: ignore[attr-defined]


class CountingMode(ThreadFollowingMode):
    """Counts every operator executed inside it, on any device, in forward and backward.

    What the code inside does in Python threads counts too (see threads.py).

    Args:
        tracker: attributes the work to modules.
        split_recomputed: keep what checkpointing runs again during a backward, and what a fused attention
            backward computes again, in ``apart["recomputed_macs"]`` and out of the MACs.
        create_graph: the step differentiates gradients that it takes itself. Code of custom backwards then runs with
            gradients enabled, as recomputed code does, so that only work inside a module's forward is taken for it.
        inputs: what the network is called with. With ``follow_inputs``, which a real run is worth, what its values
            decide is told, and where they leave PyTorch.

    Attributes:
        tallies: the sums.
        remarks: what a reader of the figures should know.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        tracker: ModuleTracker,
        *,
        split_recomputed: bool = False,
        create_graph: bool = False,
        inputs: Any = (),
        follow_inputs: bool = False,
    ) -> None:
        super().__init__()
        self.tracker = tracker
        self.tallies = Tallies(tracker, split_recomputed=split_recomputed, create_graph=create_graph)
        self.remarks: set[str] = set()
        self._rules: dict[object, Rule] = {}
        self._lock = threading.RLock()
        self.composed = ComposedConvolutions()
        self.storages = Storages(inputs, follow=follow_inputs)

    def twin(self) -> Self:
        twin = super().twin()
        twin.composed = ComposedConvolutions()
        return twin

    def handed_over(self) -> Callable[[], AbstractContextManager[Callable[[Any], object]]]:
        owner = self.tracker.current()
        self.composed.in_other_threads = True
        return lambda: self._in_another_thread(owner)

    @contextmanager
    def _in_another_thread(self, owner: Owner) -> Iterator[Callable[[Any], object]]:
        if not self.tallies.split_recomputed:
            # Under a mode of functions PyTorch leaves its fast paths, which no training takes.
            with self.tracker.credited_to(owner):
                yield lambda result: None
            return
        noted = NotedNodes(self.tracker)
        with self.tracker.credited_to(owner, noted.note), noted:
            yield noted.note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.dispatched(func, types, args, kwargs or {})

    def dispatched(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Runs and enters one operator. (PyTorch wraps each class's ``__torch_dispatch__``, which takes its time.)"""
        rule = self._rules.get(func)
        if rule is None:
            rule = self._rules[func] = self.rule_of(func)
        if rule.action == "shape" or NestedTensor in types:
            # A jagged tensor makes operators on its values of what is done to it.
            return NotImplemented
        if rule.action == "decompose":
            nested = any(map(is_nested, args))
            if nested:
                rule = nested_rule_for(rule, func)
            if rule.action == "decompose":
                with self:
                    return decompose(func, args, kwargs, nested=nested)
        if rule.name == "higher_order::cond":
            predicate, true_branch, false_branch, operands = args
            with self:  # the branch that is taken; a predicate on meta has no value and raises
                return (true_branch if predicate else false_branch)(*operands)
        out = self.executed(rule, func, args, kwargs)
        self.note(rule, func, args, kwargs, out)
        return out

    def rule_of(self, func: Any) -> Rule:
        """What is to be done with an operator overload that was not met before."""
        return rule_for(func)

    def executed(self, rule: Rule, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator's own result."""
        return run(rule, func, args, kwargs)

    def note(self, rule: Rule, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Enters an operator that has run."""
        is_third = self.composed.is_third(rule.name)
        with self._lock:
            self._ran_in.add(threading.get_ident())
            self._tell_unseen(self.storages.ran(rule.name, func, args, kwargs, out))
            if rule.action == "count":
                self._count(rule, func, out, args, kwargs, is_third)
            elif rule.action == "free":
                self._estimate(rule, out, args)
            else:
                self.tallies.uncounted[rule.name] += 1

    def _tell_unseen(self, allocations: Iterable[Allocation]) -> None:
        """Memory was read that no operator wrote: a known function's work is counted by name, the rest is listed."""
        for allocation in allocations:
            call = allocation.call
            if call is None:
                self.tallies.uncounted[f"unseen::{allocation.where}"] += 1
            elif not call.told:
                call.told = True
                if not self._count_function(call):
                    self.tallies.uncounted[f"unseen::{call.name}"] += 1

    def _count_function(self, call: FunctionCall) -> bool:
        known = FUNCTIONS.get(call.name)
        work = None if known is None else self._work(call.name, known.forward, None, call.args, {})
        if known is None or work is None:
            return False
        name, is_complex = f"function::{call.name}", has_complex(call.args)
        self.tallies.add(name, known.kind, work, is_complex)
        parts = work if isinstance(work, dict) else {known.kind: work}

        def before(gradients: object) -> None:
            with self._lock:
                gradient_work = {kind: known.backward * macs for kind, macs in parts.items()}
                gradient_work["recomputed"] = round(known.again * sum(parts.values()))
                self.tallies.add(f"{name}Backward", known.kind, gradient_work, is_complex)

        call.args, call.counted = (), True
        if (node := call.node()) is not None:
            node.register_prehook(before)
        return True

    def left_pytorch(self, way: str, tensor: torch.Tensor) -> None:
        """Values of a tensor become NumPy's, Python's or another library's; what is done to them there is not seen."""
        with self._lock:
            if not self.storages.comes_from_inputs(tensor):
                return
            if way == "tolist":
                self.storages.decided_by_values.add("Tensor.tolist")
            elif tensor.is_floating_point() or tensor.is_complex():
                self.tallies.uncounted[f"unseen::Tensor.{way}"] += 1

    def returned(self, result: object) -> None:
        """What a network returns is read by whoever called it."""
        with self._lock:
            self._tell_unseen(self.storages.take_unwritten(tree_leaves(result)))

    def _estimate(self, rule: Rule, out: Any, args: Any) -> None:
        how, factor = rule.estimate
        if how == "softmax":
            self.tallies.apart["softmax_macs"] += softmax_macs(out)
        elif factor:
            self.tallies.estimate(elementwise_flops(how, factor, out, args))

    def _work(self, name: str, formula: Callable[..., Work], out: Any, args: Any, kwargs: Any) -> Work:
        if "out" in kwargs:
            # The result is handed to the formula first, wherever it was written.
            kwargs = {key: value for key, value in kwargs.items() if key != "out"}
        try:
            if any(map(is_nested, (*args, *kwargs.values()))):
                return work_by_parts(formula, out, args, kwargs)
            # How much a sparse factor multiplies depends on its values: listed, rather than counted as dense.
            sparse = any(isinstance(t, torch.Tensor) and t.layout not in DENSE_LAYOUTS for t in args)
            return None if sparse else formula(out, *args, **kwargs)
        except NeedsValuesError:
            raise
        except Exception as error:
            # A wrong formula must not cost the user the rest of the count, nor pass unnoticed.
            self.remarks.add(f"the formula of {name} failed ({type(error).__name__}: {error})")
            return None

    def _count(self, rule: Rule, func: Any, out: Any, args: Any, kwargs: Any, is_third: bool) -> None:
        assert rule.counted is not None
        kind, formula = rule.counted
        if formula in READS_LENGTHS:
            lengths = [
                a for a in args if isinstance(a, torch.Tensor) and a.dtype in (torch.int32, torch.int64)
            ]
            if self.storages.comes_from_inputs(lengths):
                self.storages.decided_by_values.add(rule.name)
        result = first_written(func, args) if out is None else out
        work = self._work(rule.name, formula, result, args, kwargs)
        if work is None:
            self.tallies.uncounted[rule.name] += 1
            return
        self.tallies.apart["softmax_macs"] += softmax_macs_inside(formula, out, args, kwargs)
        self.tallies.add(rule.name, kind, work, has_complex(args), is_third, args)
