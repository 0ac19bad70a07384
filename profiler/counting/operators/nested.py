"""Nested tensors: a product of ragged batches is one product for each of their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from swinmr_profiling.profiler.counting.formulas import NeedsValuesError, Work


def is_nested(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_nested


def part_shapes(tensor: torch.Tensor) -> list[list[int]]:
    """The shapes of a nested tensor's parts, or of the tensor itself."""
    parts = tensor.unbind() if tensor.is_nested else (tensor,)
    return [[int(n) for n in part.shape] for part in parts]


def nested_numel(tensor: torch.Tensor) -> int:
    """Elements of all parts. A jagged one's are its values, of which the lengths need not be known."""
    if not tensor.is_nested:
        return tensor.numel()
    return int(tensor.values().numel()) if tensor.layout is torch.jagged else int(tensor.numel())


def sum_of_parts(count: Callable[..., int], out: Any, args: Any, kwargs: Any) -> int:
    """What is counted of each part, summed."""
    return sum(count(result, *taken, **named) for result, taken, named in _calls(out, args, kwargs))


def work_by_parts(formula: Callable[..., Work], out: Any, args: Any, kwargs: Any) -> Work:
    """The work of an operator with nested arguments: of one call for each part, as a batch of one.

    Raises:
        NeedsValuesError: the lengths of a jagged tensor are not known (they are values, and meta tensors have none).
    """
    total: dict[str, int] = {}
    plain = 0
    for part_out, part_args, part_kwargs in _calls(out, args, kwargs):
        work = formula(part_out, *part_args, **part_kwargs)
        if work is None:
            return None
        if isinstance(work, dict):
            for kind, macs in work.items():
                total[kind] = total.get(kind, 0) + macs
        else:
            plain += work
    return total or plain


def _calls(out: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The call once for each part, with that in the place of each nested tensor and the others as they are."""
    leaves, spec = tree_flatten((out, tuple(args), kwargs))
    parts = [_unbind(leaf) if is_nested(leaf) else None for leaf in leaves]
    for number in range(next(len(part) for part in parts if part is not None)):
        chosen = [leaf if part is None else part[number] for leaf, part in zip(leaves, parts, strict=True)]
        part_out, part_args, part_kwargs = tree_unflatten(chosen, spec)
        yield part_out, part_args, part_kwargs


def _unbind(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout is torch.jagged and tensor.offsets().is_meta:  # type: ignore[attr-defined]
        raise NeedsValuesError("the lengths of a jagged tensor are values")
    return [part.unsqueeze(0) for part in tensor.unbind()]
