"""The counter itself: a dispatch mode that looks every executed operator up in the table.

Under autograd torch takes composite operators apart before a mode sees them; in inference mode it does not,
and a mode that looked only at names would count ``linear`` or ``scaled_dot_product_attention`` as nothing. So
whatever is not counted under its own name is decomposed here, and what cannot be decomposed is free or
unknown, by exact name.
"""

from collections import Counter
from typing import NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .elementwise import elementwise_flops, softmax_macs, softmax_macs_inside
from .free_operators import FREE
from .module_tree import ModuleTracker
from .operator_table import COUNTED, PRODUCT, CountedOperator

# Operators by which tensor subclasses answer for their shape: nothing is executed, the subclass must reply
# itself.
SHAPE_QUERIES = frozenset(
    {
        "aten::dim",
        "aten::is_contiguous",
        "aten::is_non_overlapping_and_dense",
        "aten::is_strides_like_format",
        "aten::numel",
        "aten::size",
        "aten::storage_offset",
        "aten::stride",
        "aten::sym_is_contiguous",
        "aten::sym_numel",
        "aten::sym_size",
        "aten::sym_storage_offset",
        "aten::sym_stride",
        "prim::layout",
    }
)


DENSE_LAYOUTS = (torch.strided, torch._mkldnn)


class Rule(NamedTuple):
    """What to do with one operator overload; looked up once per overload and count."""

    name: str
    action: str  # "count", "decompose", "free", "unknown", "shape"
    counted: CountedOperator | None = None
    estimate: tuple[str, int] = ("none", 0)


def operator_name(func) -> str:
    """The dispatcher's name without the overload; "higher_order::name" for operators that take functions."""
    if isinstance(func, torch._ops.HigherOrderOperator):
        return f"higher_order::{func.name()}"
    return func._schema.name


COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def runs_as_others(func) -> bool:
    """Whether an operator is defined by others that run in its place, on every device and with gradients."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE)


def has_python_decomposition(func) -> bool:
    """Whether torch has others for it that a compiler may run in its place; by itself it runs a kernel of its own."""
    return COMPOSITE in func.py_kernels


def decompose(func, args, kwargs):
    """Runs an operator as others. Those of the dispatcher come first: they are the ones that a device runs."""
    if runs_as_others(func):
        return func._op_dk(COMPOSITE, *args, **kwargs)
    return func.decompose(*args, **kwargs)


def rule_for(func) -> Rule:
    name = operator_name(func)
    if name in SHAPE_QUERIES:
        return Rule(name, "shape")
    if name in COUNTED:
        return Rule(name, "count", counted=COUNTED[name])
    is_operator = not isinstance(func, torch._ops.HigherOrderOperator)
    if is_operator and runs_as_others(func):
        return Rule(name, "decompose")
    if name in FREE:
        return Rule(name, "free", estimate=FREE[name])
    if is_operator and has_python_decomposition(func):
        return Rule(name, "decompose")
    return Rule(name, "unknown")


def takes_floating_point(args, kwargs) -> bool:
    """Whether a real, complex or quantized tensor goes in: without one there is nothing to multiply."""
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    return any(
        isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex() or t.is_quantized)
        for t in leaves
    )


class CountingMode(TorchDispatchMode):
    """Counts every operator executed inside it, on any device, in forward and backward.

    Args:
        tracker: attributes the work to modules.
        split_recomputed: keep what checkpointing runs again during a backward, and what a fused attention
            backward computes again, in ``recomputed_macs`` and out of ``macs``.
        create_graph: the backward is itself differentiated. Its operators then run with gradients enabled, as
            recomputed ones do, so that only work inside a module's forward is taken for recomputation.
    """

    supports_higher_order_operators = True

    def __init__(self, tracker: ModuleTracker, *, split_recomputed: bool = False, create_graph: bool = False):
        super().__init__()
        self.tracker = tracker
        self.split_recomputed = split_recomputed
        self.create_graph = create_graph
        self.by_kind: Counter[str] = Counter()
        self.by_operator: Counter[str] = Counter()
        self.uncounted: Counter[str] = Counter()
        self.recomputed_macs = 0
        self.elementwise_flops = 0
        self.softmax_macs = 0
        self.remarks: set[str] = set()
        self._rules: dict[object, Rule] = {}
        self._weight_storages = {
            t.untyped_storage()._cdata
            for t in (*tracker.root.parameters(), *tracker.root.buffers())
            if type(t) in (nn.Parameter, torch.Tensor)
            and t.layout is torch.strided
            and not nn.parameter.is_lazy(t)
        }

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
        if rule.action == "count":
            self._count(rule, out, args, kwargs)
        elif rule.action == "free":
            how, factor = rule.estimate
            if how == "softmax":
                self.softmax_macs += softmax_macs(out)
            elif factor:
                self.elementwise_flops += elementwise_flops(how, factor, out, args)
        elif takes_floating_point(args, kwargs):
            self.uncounted[rule.name] += 1
        return out

    def _run_branch(self, predicate, true_branch, false_branch, operands):
        """torch.cond: the branch that is taken. A predicate on meta has no value and raises."""
        with self:
            return (true_branch if predicate else false_branch)(*operands)

    def _count(self, rule: Rule, out, args, kwargs) -> None:
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
        self.softmax_macs += softmax_macs_inside(formula, args)
        module, path = self.tracker.current()
        works = work if isinstance(work, dict) else {self._kind(kind, module, args): work}
        recomputed = self.split_recomputed and self._is_recomputation()
        for work_kind, macs in works.items():
            if work_kind == "recomputed" and not self.split_recomputed:
                work_kind = kind
            if recomputed or work_kind == "recomputed":
                self.recomputed_macs += macs
            elif macs:
                self.by_kind[work_kind] += macs
                self.by_operator[rule.name] += macs
                self.tracker.own_macs[path][work_kind] += macs
        if isinstance(out, torch.Tensor) and out.is_complex():
            self.remarks.add(
                "products of complex numbers count one MAC per complex multiply-add (four real ones)"
            )

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


def run_beside_meta(func, args, kwargs):
    """Runs an operator; where meta and other tensors meet, the others are taken to meta for it.

    Models make small constants on the CPU in their forward. An operator that would write into the CPU tensor
    is not
    retried: the tensor would keep a stale value that a later branch could read.
    """
    try:
        return func(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
        devices = {t.device.type for t in leaves if isinstance(t, torch.Tensor)}
        schema = getattr(func, "_schema", None)
        if "meta" not in devices or len(devices) == 1 or schema is None or schema.is_mutable:
            raise
        leaves = [t.to("meta") if isinstance(t, torch.Tensor) else t for t in leaves]
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
        return func(*args, **kwargs)
