"""Networks too large for the machine are refused before they allocate anything.

A size is one key of a config: timm's ViT at 65,536 x 65,536 pixels has a position embedding of 48 GiB. So a network is
first made without data, and what its tensors would need is held against the memory that is free. Of classes that cannot
be made without data, and of the user's own, each tensor is looked at while they are made.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.host_memory import available_bytes

# An operator on fewer elements than this, all operands multiplied, makes no tensor worth asking about.
ASKED_FROM_ELEMENTS = 2**24
# Tensors below that are asked about once so much of them has been made, and may leave no less than this free.
ASKED_EVERY_BYTES = 2**26
KEPT_FREE_BYTES = 2**27
GIB = 2**30
REMEDY = "make it smaller (img_size, widths, depths), or use a machine with more"


class TooLargeError(MemoryError):
    """A tensor, or all of a network, is larger than the memory that is free."""


class SizeGuard(TorchDispatchMode):
    """Refuses an operator whose result would be larger than the memory that is free now. Raises TooLargeError.

    Many small ones are refused where they have left next to nothing free.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made_bytes = self._asked_at_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _could_be_large(args, kwargs):
            wanted = _result_bytes(func, args, kwargs)
            if wanted > available_bytes():
                raise TooLargeError(_words("one of its tensors needs", wanted))
        result = func(*args, **kwargs)
        self._ask_now_and_then(result)
        return result

    def _ask_now_and_then(self, result: Any) -> None:
        self._made_bytes += _bytes(tensor for tensor in _tensors(result) if tensor.device.type == "cpu")
        if self._made_bytes - self._asked_at_bytes < ASKED_EVERY_BYTES:
            return
        self._asked_at_bytes = self._made_bytes
        if available_bytes() < KEPT_FREE_BYTES:
            raise TooLargeError(
                f"its tensors have left {available_bytes() / GIB:,.1f} GiB of memory free: {REMEDY}"
            )


def _could_be_large(args: Any, kwargs: Any) -> bool:
    """Whether operands and sizes, multiplied, reach the number of elements that is asked about."""
    if torch.device(kwargs.get("device") or "cpu").type == "meta":
        return False
    product = 1
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, Tensor):
            if leaf.is_meta:
                return False
            product *= max(leaf.numel(), 1)
        elif isinstance(leaf, (int, float)) and not isinstance(leaf, bool) and 1 < leaf < 2**60:
            product *= int(leaf)
    return product >= ASKED_FROM_ELEMENTS


def _result_bytes(func: Any, args: Any, kwargs: Any) -> int:
    """Bytes of the new tensors that an operator would make; 0 where that cannot be told without data."""
    if func._schema.is_mutable:
        return 0
    if kwargs.get("device") is not None or not _tensors((args, kwargs)):
        kwargs = {**kwargs, "device": torch.device("meta")}
    try:
        args, kwargs = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
        made = func(*args, **kwargs)
    except Exception:  # an operator without a rule for tensors without data
        return 0
    given = {tensor.untyped_storage()._cdata for tensor in _tensors((args, kwargs))}
    # A view makes nothing.
    return _bytes(tensor for tensor in _tensors(made) if tensor.untyped_storage()._cdata not in given)


def _tensors(nest: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(nest) if isinstance(leaf, Tensor)]


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _words(what: str, wanted_bytes: int) -> str:
    free = f"{available_bytes() / GIB:,.1f} GiB are free"
    return f"{what} {wanted_bytes / GIB:,.1f} GiB of memory, and {free}: {REMEDY}"


def without_data(make: Callable[[], nn.Module], *, must_fit: bool = True) -> nn.Module | None:
    """The network on meta, None for one that cannot be made so. No generator of random numbers is moved by it.

    Raises TooLargeError where its tensors together exceed the memory that is free, if it `must_fit`.
    """
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        with torch.device("meta"), warnings.catch_warnings():
            # A file's weights do not reach a network without data, which torch would say of each of them.
            warnings.filterwarnings("ignore", message=".*copying from a non-meta parameter")
            network = make()
        tensors = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    except (
        Exception
    ):  # either it reads values while it is made, or its options are wrong, which making it will tell
        return None
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
    wanted = _bytes(tensors.values())
    if must_fit and wanted > available_bytes():
        raise TooLargeError(_words("its weights and buffers need", wanted))
    return network


@contextmanager
def told_as_model_error(what: str) -> Iterator[None]:
    """Runs a block that makes a network; ends in one line (ModelError) for one too large."""
    try:
        yield
    except Exception as error:
        # A builder may have put the guard's word into its own.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, TooLargeError):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        raise ModelError(f"{what} is too large for this machine: {cause}") from error
