"""What operators do to the memory of tensors: who has written it, and whether it comes from the inputs.

A dispatch mode sees operators. Kernels that are called beside the dispatcher (compiled extensions, Triton, ctypes)
it does not see, but what they leave behind: memory that was allocated, that no operator has written, and that is read
all the same. And where a network turns values of its input into numbers or shapes, another input may take another
way: the operators that do so are tagged by PyTorch.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import FunctionCtx
from torch.multiprocessing.reductions import StorageWeakRef

# Memory as it comes, for somebody to write.
ALLOCATIONS = frozenset(
    [
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::empty_permuted",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::empty_quantized",
    ]
)
# Bytes. Memory of one number stands for a tensor of which only the shape is asked, expanded to it.
ONE_NUMBER = 16
# Operators that take a tensor for its shape alone.
READS_NOTHING = ("aten::sym_", "aten::new_", "prim::")
# beta times the first argument and a product: with a beta of 0 it is not read, and callers hand on any memory.
ADDS_A_PRODUCT = frozenset(["aten::addmm", "aten::addmv", "aten::addbmm", "aten::baddbmm", "aten::addr"])
DEPENDS_ON_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
# These PyTorch has not tagged: their results are as long as a mask or a list of lengths says.
SHAPED_BY_VALUES = frozenset(
    [
        "aten::_nested_tensor_from_mask",
        "aten::_pack_padded_sequence",
        "aten::_to_sparse",
        "aten::_to_sparse_csr",
        "aten::_to_sparse_csc",
        "aten::_to_sparse_bsr",
        "aten::_to_sparse_bsc",
        "aten::is_nonzero",
    ]
)


class _Access(NamedTuple):
    """What an operator overload does to its arguments: written ones by place or name."""

    allocates: bool
    reads: bool
    written: tuple[int | str, ...]
    asks_values: bool


@dataclass(eq=False)
class FunctionCall:
    """One call of a ``torch.autograd.Function`` that allocates: its class, the arguments of its forward.

    node: a weak reference to its node in the graph, which refers to this.
    told: whether what it did unseen has been counted or listed. counted: by a formula, which knows its backward, too.
    """

    name: str
    args: tuple[Any, ...]
    node: Any
    told: bool = False
    counted: bool = False


class Allocation(NamedTuple):
    """Memory that an operator has allocated: by which code, as "file.function", and in which function's forward."""

    # A weak reference keeps the address of a storage from being used again.
    storage: StorageWeakRef
    where: str
    call: FunctionCall | None


class Storages:
    """Follows the storages of plain tensors through the operators of one run.

    Args:
        inputs: what the run was given, in any nest. With ``follow`` what is made of them is known to come from them.
        follow: remember that. Costs a look at every result.

    Attributes:
        decided_by_values: operators that turned values of the inputs into numbers or shapes.
    """

    def __init__(self, inputs: Any = (), *, follow: bool = False) -> None:
        self.follow = follow
        self.decided_by_values: set[str] = set()
        self._accesses: dict[Any, _Access] = {}
        self._unwritten: dict[int, Allocation] = {}
        self._from_inputs: dict[int, StorageWeakRef] = {}
        if follow:
            self._note(self._from_inputs, inputs)

    def ran(self, name: str, func: Any, args: Any, kwargs: Any, out: Any) -> list[Allocation]:
        """Takes note of an operator that has run. Returns what it read of memory that nobody wrote."""
        access = self._accesses.get(func)
        if access is None:
            access = self._accesses[func] = _access(name, func)
        if access.allocates:
            where, call = _caller()
            for storage in _storages(out):
                self._unwritten[storage._cdata] = Allocation(StorageWeakRef(storage), where, call)
            return []
        read = args[1:] if name in ADDS_A_PRODUCT and kwargs.get("beta") == 0 else args
        unseen = self._unseen_reads(access, args, read, kwargs, out) if self._unwritten else []
        if self.follow:
            self._follow(name, access, args, kwargs, out)
        return unseen

    def _unseen_reads(self, access: _Access, args: Any, read: Any, kwargs: Any, out: Any) -> list[Allocation]:
        for storage in _storages(_written(access, args, kwargs)):
            self._unwritten.pop(storage._cdata, None)
        if not access.reads:
            return []
        results = {storage._cdata for storage in _storages(out)}
        # A view, by whatever name, has only taken the memory along.
        return self.take_unwritten((read, kwargs), but=results)

    def take_unwritten(self, values: Any, but: Iterable[int] = ()) -> list[Allocation]:
        """What of these tensors' memory no operator has written; it is not told a second time."""
        if not self._unwritten:
            return []
        return [
            self._unwritten.pop(key)
            for storage in _storages(values)
            if (key := storage._cdata) not in but and key in self._unwritten and storage.nbytes() > ONE_NUMBER
        ]

    def comes_from_inputs(self, values: Any) -> bool:
        return any(storage._cdata in self._from_inputs for storage in _storages(values))

    def _follow(self, name: str, access: _Access, args: Any, kwargs: Any, out: Any) -> None:
        if not self.comes_from_inputs((args, kwargs)):
            return
        if access.asks_values and (name != "aten::index" or _has_mask(args)):
            self.decided_by_values.add(name)
        self._note(self._from_inputs, out)
        self._note(self._from_inputs, _written(access, args, kwargs))

    @staticmethod
    def _note(known: dict[int, StorageWeakRef], values: Any) -> None:
        known.update({storage._cdata: StorageWeakRef(storage) for storage in _storages(values)})


def _access(name: str, func: Any) -> _Access:
    schema = getattr(func, "_schema", None)
    arguments = () if schema is None else schema.arguments
    written = tuple(
        argument.name if argument.kwarg_only else place
        for place, argument in enumerate(arguments)
        # Collectives say in no schema what they fill.
        if name.startswith("c10d::") or (argument.alias_info is not None and argument.alias_info.is_write)
    )
    reads = not (name.endswith("_like") or name.startswith(READS_NOTHING))
    tags = set(getattr(func, "tags", ()))
    return _Access(
        name in ALLOCATIONS, reads, written, bool(tags & DEPENDS_ON_VALUES) or name in SHAPED_BY_VALUES
    )


def _written(access: _Access, args: Any, kwargs: Any) -> list[Any]:
    """The arguments that an operator writes."""
    places = (place for place in access.written if not isinstance(place, int) or place < len(args))
    return [kwargs.get(place) if isinstance(place, str) else args[place] for place in places]


def _has_mask(args: Any) -> bool:
    """Whether a tensor is indexed by one of booleans: as many results as it has ones."""
    return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _storages(value: Any) -> Iterator[torch.UntypedStorage]:
    for tensor in _tensors(value):
        if (
            type(tensor) in (torch.Tensor, nn.Parameter)
            and tensor.layout is torch.strided
            and not tensor.is_nested
        ):
            yield tensor.untyped_storage()


# Where a node keeps its call.
CALL = "_counted_call"
_TORCH = str(Path(torch.__file__).resolve().parent)
# All of counting/.
_HERE = str(Path(__file__).resolve().parent.parent)


def _caller() -> tuple[str, FunctionCall | None]:
    """The code that called an operator, passing over PyTorch's own, and the function whose forward that is part of.

    A module that runs within a function (one that checkpoints) does work of its own.
    """
    frame: FrameType | None = sys._getframe(1)
    where: str | None = None
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((_TORCH, _HERE)):
            where = where or f"{Path(code.co_filename).stem}.{code.co_name}"
            if code.co_name in ("forward", "backward"):
                return where, _function_call(frame)
        frame = frame.f_back
    return where or "autograd", None


def _function_call(frame: Any) -> FunctionCall | None:
    """The function in whose ``forward(ctx, ...)`` or ``backward(ctx, ...)`` a frame runs."""
    code = frame.f_code
    if not code.co_argcount or code.co_varnames[0] == "self":
        return None
    values = frame.f_locals
    node = values.get(code.co_varnames[0])
    if not isinstance(node, FunctionCtx) or not hasattr(type(node), "_forward_cls"):
        return None
    name = type(node)._forward_cls.__name__  # type: ignore[attr-defined]
    known = getattr(node, CALL, None)
    if code.co_name == "backward":
        counted = known is not None and known.counted
        return FunctionCall(f"{name}.backward", (), weakref.ref(node), told=counted)
    if known is None:
        args = [values[argument] for argument in code.co_varnames[1 : code.co_argcount] if argument in values]
        if code.co_flags & inspect.CO_VARARGS:
            args += values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
        known = FunctionCall(name, tuple(args), weakref.ref(node))
        setattr(node, CALL, known)
    return known
