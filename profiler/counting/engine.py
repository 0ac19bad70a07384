"""The counter itself: a dispatch mode that looks every executed operator up in the table."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import nn

from swinmr_profiling.profiler.counting.complex_numbers import (
    REAL_PER_COMPLEX,
    THIRD_COUNTS,
    ComposedConvolutions,
    has_complex,
)
from swinmr_profiling.profiler.counting.elementwise import (
    elementwise_flops,
    softmax_macs,
    softmax_macs_inside,
)
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.profiler.counting.operator_rules import Rule, decompose, rule_for, run_beside_meta
from swinmr_profiling.profiler.counting.operator_table import PRODUCT
from swinmr_profiling.profiler.counting.threads import ThreadFollowingMode

DENSE_LAYOUTS = (torch.strided, torch._mkldnn)


class CountingMode(ThreadFollowingMode):
    """Counts every operator executed inside it, on any device, in forward and backward.

    What the code inside does in Python threads counts too (see threads.py).

    Args:
        tracker: attributes the work to modules.
        split_recomputed: keep what checkpointing runs again during a backward, and what a fused attention
            backward computes again, in ``apart["recomputed_macs"]`` and out of the MACs.
        create_graph: the backward is itself differentiated. Its operators then run with gradients enabled, as
            recomputed ones do, so that only work inside a module's forward is taken for recomputation.

    Attributes:
        by_kind, by_operator: MACs. complex_by_operator: those of them that are of complex numbers.
        uncounted: calls of operators that nobody has a formula for, and of what else was seen and not counted.
        apart: "recomputed_macs", and the estimates "elementwise_flops" and "softmax_macs".
        remarks: what a reader of the figures should know.
    """

    supports_higher_order_operators = True

    def __init__(self, tracker: ModuleTracker, *, split_recomputed: bool = False, create_graph: bool = False):
        super().__init__()
        self.tracker = tracker
        self.split_recomputed = split_recomputed
        self.create_graph = create_graph
        self.by_kind: Counter[str] = Counter()
        self.by_operator: Counter[str] = Counter()
        self.complex_by_operator: Counter[str] = Counter()
        self.uncounted: Counter[str] = Counter()
        self.apart: Counter[str] = Counter()
        self.remarks: set[str] = set()
        self._rules: dict[object, Rule] = {}
        self._weight_storages = {
            t.untyped_storage()._cdata
            for t in (*tracker.root.parameters(), *tracker.root.buffers())
            if type(t) in (nn.Parameter, torch.Tensor)
            and t.layout is torch.strided
            and not nn.parameter.is_lazy(t)
        }
        self._lock = threading.Lock()
        self._composed = ComposedConvolutions()

    def twin(self) -> "CountingMode":
        twin = super().twin()
        twin._composed = ComposedConvolutions()
        return twin

    def handed_over(self) -> Callable[[], AbstractContextManager]:
        owner = self.tracker.current()
        return lambda: self.tracker.credited_to(owner)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        rule = self._rules.get(func)
        if rule is None:
            rule = self._rules[func] = rule_for(func)
        if rule.action == "decompose":
            with self:
                return decompose(func, args, kwargs)
        if rule.action == "shape":
            return NotImplemented
        if rule.name == "higher_order::cond":
            return self._run_branch(*args)
        out = run_beside_meta(func, args, kwargs)
        is_third = self._composed.is_third(rule.name)
        with self._lock:
            self._ran_in.add(threading.get_ident())
            if rule.action == "count":
                self._count(rule, out, args, kwargs, is_third)
            elif rule.action == "free":
                self._estimate(rule, out, args)
            else:
                self.uncounted[rule.name] += 1
        return out

    def _run_branch(self, predicate, true_branch, false_branch, operands):
        """torch.cond: the branch that is taken. A predicate on meta has no value and raises."""
        with self:
            return (true_branch if predicate else false_branch)(*operands)

    def _estimate(self, rule: Rule, out, args) -> None:
        how, factor = rule.estimate
        if how == "softmax":
            self.apart["softmax_macs"] += softmax_macs(out)
        elif factor:
            self.apart["elementwise_flops"] += elementwise_flops(how, factor, out, args)

    def _count(self, rule: Rule, out, args, kwargs, is_third: bool) -> None:
        kind, formula = rule.counted
        if "out" in kwargs:
            # The result is handed to the formula first, wherever it was written.
            kwargs = {name: value for name, value in kwargs.items() if name != "out"}
        try:
            # How much a sparse factor multiplies depends on its values: listed, rather than counted as dense.
            sparse = any(isinstance(t, torch.Tensor) and t.layout not in DENSE_LAYOUTS for t in args)
            work = None if sparse else formula(out, *args, **kwargs)
        except Exception as error:
            # A wrong formula must not cost the user the rest of the count, nor pass unnoticed.
            self.remarks.add(f"the formula of {rule.name} failed ({type(error).__name__}: {error})")
            work = None
        if work is None:
            self.uncounted[rule.name] += 1
            return
        self.apart["softmax_macs"] += softmax_macs_inside(formula, args)
        module, path = self.tracker.current()
        works = work if isinstance(work, dict) else {self._kind(kind, module, args): work}
        is_complex = has_complex(args)
        times = REAL_PER_COMPLEX if is_complex else THIRD_COUNTS if is_third else 1
        recomputed = self.split_recomputed and self._is_recomputation()
        for work_kind, own in works.items():
            if work_kind == "recomputed" and not self.split_recomputed:
                work_kind = kind
            macs = own * times
            if recomputed or work_kind == "recomputed":
                self.apart["recomputed_macs"] += macs
            elif macs:
                self.by_kind[work_kind] += macs
                self.by_operator[rule.name] += macs
                self.tracker.own_macs[path][work_kind] += macs
                if is_complex or is_third:
                    # With the third convolution the first and the second are known to be complex, too.
                    self.complex_by_operator[rule.name] += own * REAL_PER_COMPLEX
                    self.tracker.own_complex_macs[path] += own * REAL_PER_COMPLEX

    def _kind(self, kind: str, module: nn.Module | None, args) -> str:
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
        """A backward runs with gradients disabled; checkpointing runs the forward again with them enabled."""
        if torch._C._current_graph_task_id() == -1 or not torch.is_grad_enabled():
            return False
        return self.tracker.in_module() or not self.create_graph
