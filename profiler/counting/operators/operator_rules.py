"""What is to be done with an operator: counted, taken apart, known to be free, or unknown.

Under autograd torch takes composite operators apart before a mode sees them; in inference mode it does not,
and a mode that looked only at names would count ``linear`` or ``scaled_dot_product_attention`` as nothing. So
whatever is not counted under its own name is decomposed here, and what cannot be decomposed is free or
unknown, by exact name.
"""

from typing import Any, NamedTuple

import torch

from swinmr_profiling.profiler.counting.formulas.products import mm
from swinmr_profiling.profiler.counting.operators.free_operators import FREE
from swinmr_profiling.profiler.counting.operators.operator_table import COUNTED, PRODUCT, CountedOperator
from swinmr_profiling.profiler.counting.operators.shapes_on_meta import is_answered, result_on_meta

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
        "prim::device",
        "prim::layout",
    }
)


class Rule(NamedTuple):
    """What to do with one operator overload; looked up once per overload and count."""

    name: str
    action: str  # "count", "decompose", "free", "unknown", "shape"
    counted: CountedOperator | None = None
    estimate: tuple[str, int] = ("none", 0)
    # Whether its result on meta may be known without a kernel.
    answered: bool = False


def operator_name(func: Any) -> str:
    """The dispatcher's name without the overload; "higher_order::name" for operators that take functions."""
    if isinstance(func, torch._ops.HigherOrderOperator):
        return f"higher_order::{func.name()}"
    name: str = func._schema.name
    return name


COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def runs_as_others(func: Any) -> bool:
    """Whether an operator is defined by others that run in its place, on every device and with gradients."""
    # Operators of the script interpreter (prim::) are none of the dispatcher's, and it raises for them.
    name = func.name()
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(
        name, COMPOSITE
    )


NESTED_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutogradNestedTensor
# What is made of others for plain tensors and has a kernel of its own for nested ones.
NESTED_PRODUCTS = frozenset({"aten::matmul"})
NESTED_FREE = frozenset(
    {"aten::reshape", "aten::chunk", "aten::contiguous", "aten::narrow", "aten::unflatten"}
)


def nested_rule_for(rule: Rule, func: Any) -> Rule:
    """The rule of an operator that is taken apart for plain tensors, where it gets nested ones."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), NESTED_COMPOSITE):
        return rule
    if rule.name in NESTED_PRODUCTS:
        return Rule(rule.name, "count", counted=CountedOperator(PRODUCT, mm))
    if rule.name in NESTED_FREE:
        return Rule(rule.name, "free")
    if any(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
        for key in (torch._C.DispatchKey.NestedTensorCPU, torch._C.DispatchKey.NestedTensorCUDA)
    ):
        return Rule(rule.name, "unknown")
    return rule


def first_written(func: Any, args: Any) -> Any:
    """The argument that an operator without a result writes."""
    written = (a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)
    return next((value for value, is_written in zip(args, written, strict=False) if is_written), None)


def decompose(func: Any, args: Any, kwargs: Any, *, nested: bool = False) -> Any:
    """Runs an operator as others. Those of the dispatcher come first: they are the ones that a device runs."""
    if nested and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), NESTED_COMPOSITE):
        return func._op_dk(NESTED_COMPOSITE, *args, **kwargs)
    if runs_as_others(func):
        return func._op_dk(COMPOSITE, *args, **kwargs)
    return func.decompose(*args, **kwargs)


def rule_for(func: Any) -> Rule:
    name = operator_name(func)
    if name in SHAPE_QUERIES:
        return Rule(name, "shape")
    if name in COUNTED:
        return Rule(name, "count", counted=COUNTED[name], answered=is_answered(name, func))
    is_operator = not isinstance(func, torch._ops.HigherOrderOperator)
    if is_operator and runs_as_others(func):
        return Rule(name, "decompose")
    if name in FREE:
        return Rule(name, "free", estimate=FREE[name], answered=is_operator and is_answered(name, func))
    # Whether torch has others for it that a compiler may run in its place; by itself it runs a kernel of its own.
    return Rule(name, "decompose" if is_operator and COMPOSITE in func.py_kernels else "unknown")


def run(rule: Rule, func: Any, args: Any, kwargs: Any) -> Any:
    """Runs an operator, or says what its result on meta would be."""
    known = result_on_meta(rule.name, args, kwargs) if rule.answered else None
    return run_beside_meta(func, args, kwargs) if known is None else known


def run_beside_meta(func: Any, args: Any, kwargs: Any) -> Any:
    """Runs an operator; where meta and other tensors meet, the others are taken to meta for it.

    Models make small constants on the CPU in their forward. An operator that would write into the CPU tensor
    is not retried: the tensor would keep a stale value that a later branch could read.
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
