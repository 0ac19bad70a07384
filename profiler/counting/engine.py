"""The counter itself: a dispatch mode that looks every executed operator up in the table."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nested._internal.nested_tensor import NestedTensor
from torch.utils._pytree import tree_leaves
from typing_extensions import Self

from swinmr_profiling.profiler.counting.attention_formulas import READS_LENGTHS
from swinmr_profiling.profiler.counting.complex_numbers import (
    REAL_PER_COMPLEX,
    THIRD_COUNTS,
    ComposedConvolutions,
    call_from_python,
    has_complex,
)
from swinmr_profiling.profiler.counting.elementwise import (
    elementwise_flops,
    softmax_macs,
    softmax_macs_inside,
)
from swinmr_profiling.profiler.counting.extensions import FUNCTIONS
from swinmr_profiling.profiler.counting.formulas import NeedsValuesError, Work
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.profiler.counting.nested import is_nested, work_by_parts
from swinmr_profiling.profiler.counting.operator_rules import (
    Rule,
    decompose,
    first_written,
    nested_rule_for,
    rule_for,
    run_beside_meta,
)
from swinmr_profiling.profiler.counting.operator_table import PRODUCT
from swinmr_profiling.profiler.counting.storages import Allocation, FunctionCall, Storages
from swinmr_profiling.profiler.counting.threads import ThreadFollowingMode

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
        by_kind, by_operator: MACs. complex_by_operator: those of them that are of complex numbers.
        by_phase, elementwise_by_phase: MACs and estimated FLOPs of "forward", "backward" and "optimizer".
        uncounted: calls of operators that nobody has a formula for, and of what else was seen and not counted.
        apart: "recomputed_macs", and the estimates "elementwise_flops" and "softmax_macs".
        remarks: what a reader of the figures should know.
        optimizing: whether an optimizer's step is under way.
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
        self.split_recomputed = split_recomputed
        self.create_graph = create_graph
        self.by_kind: Counter[str] = Counter()
        self.by_operator: Counter[str] = Counter()
        self.by_phase: Counter[str] = Counter()
        self.elementwise_by_phase: Counter[str] = Counter()
        self.complex_by_operator: Counter[str] = Counter()
        self.uncounted: Counter[str] = Counter()
        self.apart: Counter[str] = Counter()
        self.remarks: set[str] = set()
        self.optimizing = False
        self._rules: dict[object, Rule] = {}
        self._weight_storages = {
            t.untyped_storage()._cdata
            for t in (*tracker.root.parameters(), *tracker.root.buffers())
            if type(t) in (nn.Parameter, torch.Tensor)
            and t.layout is torch.strided
            and not nn.parameter.is_lazy(t)
        }
        self._lock = threading.RLock()
        self._composed = ComposedConvolutions()
        self.storages = Storages(inputs, follow=follow_inputs)

    def twin(self) -> Self:
        twin = super().twin()
        twin._composed = ComposedConvolutions()
        return twin

    def handed_over(self) -> Callable[[], AbstractContextManager[Any]]:
        owner = self.tracker.current()
        return lambda: self.tracker.credited_to(owner)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = self._rules.get(func)
        if rule is None:
            rule = self._rules[func] = rule_for(func)
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
            return self._run_branch(*args)
        out = run_beside_meta(func, args, kwargs)
        is_third = self._composed.is_third(rule.name)
        with self._lock:
            self._ran_in.add(threading.get_ident())
            self._tell_unseen(self.storages.ran(rule.name, func, args, kwargs, out))
            if rule.action == "count":
                self._count(rule, func, out, args, kwargs, is_third)
            elif rule.action == "free":
                self._estimate(rule, out, args)
            else:
                self.uncounted[rule.name] += 1
        return out

    def _run_branch(self, predicate: Any, true_branch: Any, false_branch: Any, operands: Any) -> Any:
        """torch.cond: the branch that is taken. A predicate on meta has no value and raises."""
        with self:
            return (true_branch if predicate else false_branch)(*operands)

    def _tell_unseen(self, allocations: Iterable[Allocation]) -> None:
        """Memory was read that no operator wrote: a known function's work is counted by name, the rest is listed."""
        for allocation in allocations:
            call = allocation.call
            if call is None:
                self.uncounted[f"unseen::{allocation.where}"] += 1
            elif not call.told:
                call.told = True
                if not self._count_function(call):
                    self.uncounted[f"unseen::{call.name}"] += 1

    def _count_function(self, call: FunctionCall) -> bool:
        known = FUNCTIONS.get(call.name)
        work = None if known is None else self._work(call.name, known.forward, None, call.args, {})
        if known is None or work is None:
            return False
        name, is_complex = f"function::{call.name}", has_complex(call.args)
        self._add(name, known.kind, work, is_complex)
        parts = work if isinstance(work, dict) else {known.kind: work}

        def before(gradients: object) -> None:
            with self._lock:
                gradient_work = {kind: known.backward * macs for kind, macs in parts.items()}
                gradient_work["recomputed"] = round(known.again * sum(parts.values()))
                self._add(f"{name}Backward", known.kind, gradient_work, is_complex)

        call.args, call.counted = (), True
        node = call.node()
        if node is not None:
            node.register_prehook(before)
        return True

    def left_pytorch(self, way: str, tensor: torch.Tensor) -> None:
        """Values of a tensor become NumPy's or Python's; what is done to them there is not seen."""
        with self._lock:
            if not self.storages.comes_from_inputs(tensor):
                return
            if way == "tolist":
                self.storages.decided_by_values.add("Tensor.tolist")
            elif tensor.is_floating_point() or tensor.is_complex():
                self.uncounted["unseen::Tensor.numpy"] += 1

    def returned(self, result: object) -> None:
        """What a network returns is read by whoever called it."""
        with self._lock:
            self._tell_unseen(self.storages.take_unwritten(tree_leaves(result)))

    def _phase(self) -> str:
        """Whose work this is: a gradient that a module's forward takes is the forward's."""
        in_backward = torch._C._current_graph_task_id() != -1
        if self.tracker.in_module():
            return "backward" if in_backward and self.tracker.in_module_of_this_backward() else "forward"
        return "backward" if in_backward else "optimizer" if self.optimizing else "forward"

    def _estimate(self, rule: Rule, out: Any, args: Any) -> None:
        how, factor = rule.estimate
        if how == "softmax":
            self.apart["softmax_macs"] += softmax_macs(out)
        elif factor:
            flops = elementwise_flops(how, factor, out, args)
            self.apart["elementwise_flops"] += flops
            self.elementwise_by_phase[self._phase()] += flops

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
            self.uncounted[rule.name] += 1
            return
        self.apart["softmax_macs"] += softmax_macs_inside(formula, out, args, kwargs)
        self._add(rule.name, kind, work, has_complex(args), is_third, args)

    def _add(
        self,
        name: str,
        kind: str,
        work: Work,
        is_complex: bool,
        is_third: bool = False,
        args: tuple[Any, ...] = (),
    ) -> None:
        """Enters the work of one call into the tallies."""
        module, path = self.tracker.current()
        works = work if isinstance(work, dict) else {self._kind(kind, module, args): work or 0}
        times = REAL_PER_COMPLEX if is_complex else THIRD_COUNTS if is_third else 1
        recomputed = self.split_recomputed and self._is_recomputation()
        phase = self._phase()
        for work_kind, own in works.items():
            if work_kind == "recomputed" and not self.split_recomputed:
                work_kind = kind
            macs = own * times
            if recomputed or work_kind == "recomputed":
                self.apart["recomputed_macs"] += macs
            elif macs:
                self.by_kind[work_kind] += macs
                self.by_operator[name] += macs
                self.by_phase[phase] += macs
                self.tracker.own_macs[path][work_kind] += macs
                if is_complex or is_third:
                    # With the third convolution the first and the second are known to be complex, too.
                    self.complex_by_operator[name] += own * REAL_PER_COMPLEX
                    self.tracker.own_complex_macs[path] += own * REAL_PER_COMPLEX

    def _kind(self, kind: str, module: nn.Module | None, args: Any) -> str:
        if kind not in ("linear", PRODUCT):
            return kind
        if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
            return "recurrent"
        if kind == "linear":
            return kind
        # The last two tensors are the factors; either may be the weight, or a view of it.
        factors = [t for t in args if isinstance(t, torch.Tensor)][-2:]
        weighted = isinstance(module, nn.Linear) or any(self._is_weight(t) for t in factors)
        return "linear" if weighted else "attention"

    def _is_weight(self, tensor: torch.Tensor) -> bool:
        return type(tensor) in (nn.Parameter, torch.Tensor) and (
            tensor.untyped_storage()._cdata in self._weight_storages
        )

    def _is_recomputation(self) -> bool:
        """A backward runs with gradients disabled; checkpointing runs the forward again with them enabled.

        So does a backward that is itself to be differentiated (a gradient penalty, a network whose forward takes
        gradients): its operators are called by autograd's engine, those of a forward from Python.
        """
        if torch._C._current_graph_task_id() == -1 or not torch.is_grad_enabled():
            return False
        if self.tracker.in_module_of_this_backward():
            return True
        return not self.create_graph and call_from_python() is not None
