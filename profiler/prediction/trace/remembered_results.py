"""Shapes of results that were found once: an operator without data is a function of its arguments' shapes.

PyTorch finds the result of many operators on the meta device in Python, in about a millisecond each; a network calls
few of them with arguments that no layer and no step before had.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
Shape = tuple[torch.Size, tuple[int, ...], torch.dtype]


class RememberedResults:
    """Calls operators of tensors without data. A result that is new memory is made anew in each call."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[bool, list[Shape]]] = {}
        # As profiler/measure/example_data.py finds them.
        self.output_shapes: dict[Any, tuple[int, ...]] = {}

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `function(*args, **kwargs)` returns; where it is not only shapes that decide, that very call."""
        key = _key(function, args, kwargs) if _returns_new_memory(function) else None
        if key is None:
            return function(*args, **kwargs)
        known = self._known.get(key)
        if known is not None:
            several, shapes = known
            made = [
                torch.empty_strided(size, stride, dtype=dtype, device="meta")
                for size, stride, dtype in shapes
            ]
            return tuple(made) if several else made[0]
        result = function(*args, **kwargs)
        several = isinstance(result, tuple)
        results = result if several else (result,)
        given = {
            leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)
        }
        if all(_is_new_memory(item, given) for item in results):
            self._known[key] = several, [(item.shape, item.stride(), item.dtype) for item in results]
        return result


class Remembering(TorchDispatchMode):
    """Answers for what runs under it: for a forward pass without data of which only shapes are wanted."""

    def __init__(self, results: RememberedResults) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.results = results

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.results.call(function, args, kwargs or {})


@cache
def _returns_new_memory(function: Any) -> bool:
    """Whether the schema says so: it writes to no argument, and returns tensors that are views of none."""
    schema = function._schema
    return (
        not schema.is_mutable
        and bool(schema.returns)
        and all(str(found.type) == "Tensor" and found.alias_info is None for found in schema.returns)
    )


def _key(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What decides the result; None where it is more than shapes and plain values."""
    try:
        given = _decisive(args)
        return (function, given, *((name, _decisive(value)) for name, value in kwargs.items()))
    except _MoreThanShapesError:
        return None


class _MoreThanShapesError(Exception):
    """An argument whose shape does not say all."""


def _decisive(value: Any) -> tuple[Any, ...]:
    """An argument, or several, as what is equal where results are. Each kind has another first entry."""
    kind = type(value)
    if kind is Tensor or kind is nn.Parameter:
        if not value.is_meta or value.is_sparse:
            raise _MoreThanShapesError
        return value.shape, value.stride(), value.storage_offset(), value.dtype, value.is_conj()
    if kind is tuple or kind is list:
        return (kind, *[_decisive(item) for item in value])
    if isinstance(value, PLAIN):
        return kind, value  # 1, 1.0 and True are one key
    raise _MoreThanShapesError


def _is_new_memory(item: Any, given: set[int]) -> bool:
    """A meta tensor that lies in its memory as `empty_strided` would lay it, and in none of the arguments'.

    given: the storages of the arguments; `_unsafe_view` returns one of them, of which its schema says nothing.
    """
    if not isinstance(item, Tensor) or item.device.type != "meta" or item.layout is not torch.strided:
        return False
    if item.storage_offset() or item.is_conj() or item.is_neg() or item.untyped_storage()._cdata in given:
        return False
    last = sum((size - 1) * step for size, step in zip(item.shape, item.stride(), strict=True))
    numbers = 0 if item.numel() == 0 else last + 1
    return item.untyped_storage().nbytes() == numbers * item.element_size()
