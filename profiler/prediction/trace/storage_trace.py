"""Which storages live when: a record of every allocation and release that operators make.

A dispatch mode sees the result of every operator; a weak reference tells when its storage is gone. Nothing is read from
a tensor but its size, so that tensors without data (meta) are as good as real ones.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from swinmr_profiling.profiler.allocator.convolution_workspaces import ConvolutionCall, workspace_bytes
from swinmr_profiling.profiler.prediction.cuda.cuda_convolutions import HANDLED, on_cuda
from swinmr_profiling.profiler.prediction.trace.assumed_values import (
    ASKS,
    INDEXED,
    NONZERO,
    NOT_ASKED,
    AssumedValues,
)
from swinmr_profiling.profiler.prediction.trace.remembered_results import RememberedResults
from swinmr_profiling.profiler.record.blocks.figures import MemoryCategory

# What the run is doing when something is allocated.
PHASES = (
    "setup", "inputs", "forward", "loss", "backward", "clipping", "optimizer", "averaging", "validation",
)  # fmt: skip
# What an allocation is. The first four and the last two are known when it is made, the others by how long it lives.
CATEGORIES: tuple[MemoryCategory, ...] = (
    "parameters", "loss_networks", "ema", "inputs", "gradients", "optimizer_state", "saved_activations", "temporaries",
    "communication", "workspaces",
)  # fmt: skip
# Stands between the operator and the stream, where that is not the one that computes.
ON_STREAM = " on "
aten = torch.ops.aten
FOREACH = "aten::_foreach_"
POINTWISE_FOREACH = {
    "abs", "add", "addcdiv", "addcmul", "clamp_max", "clamp_min", "div", "exp", "lerp", "log", "maximum", "minimum",
    "mul", "neg", "pow", "reciprocal", "rsqrt", "sign", "sqrt", "sub",
}  # fmt: skip
_PHASE = {name: number for number, name in enumerate(PHASES)}
_CATEGORY: dict[str, int] = {name: number for number, name in enumerate(CATEGORIES)}
_BY_LIFETIME = -1


@dataclass
class Trace:
    """All allocations of one run, in order.

    Attributes:
        batch_size: samples of one micro-batch.
        sizes: int64 (allocations,), bytes of the storage as asked for, not rounded.
        phases: int8 (allocations,), index into PHASES.
        categories: int8 (allocations,), index into CATEGORIES.
        operators: int32 (allocations,), index into operator_names, which say the stream, too (`streams`).
        events: int32 (events,), i + 1 where allocation i is made, -(i + 1) where it is released.
        event_phases: int8 (events,), the phase in which it happens.
        step_starts: positions in `events` where each step starts, and where the validation starts.
        assumptions: what a trace without values had to assume.
        autocast: dtypes of the autocast contexts that a step of the user's own opened.
        moved_bytes: to the host and from there, in the last step.
    """

    batch_size: int
    sizes: np.ndarray
    phases: np.ndarray
    categories: np.ndarray
    operators: np.ndarray
    operator_names: list[str]
    events: np.ndarray
    event_phases: np.ndarray
    step_starts: list[int]
    assumptions: list[str] = field(default_factory=list)
    autocast: list[str] = field(default_factory=list)
    moved_bytes: list[int] = field(default_factory=lambda: [0, 0])

    def live_bytes(self, granularity: int = 1) -> np.ndarray:
        """int64 (events,): bytes alive after each event, each storage rounded up to `granularity`."""
        rounded = -(-self.sizes // granularity) * granularity
        numbers = np.abs(self.events) - 1
        return np.cumsum(np.where(self.events > 0, rounded[numbers], -rounded[numbers]))

    def alive(self, end: int) -> np.ndarray:
        """bool (allocations,): which are alive after the first `end` events."""
        alive = np.zeros(len(self.sizes), dtype=bool)
        events = self.events[:end]
        alive[events[events > 0] - 1] = True
        alive[-events[events < 0] - 1] = False
        return alive

    def streams(self) -> np.ndarray:
        """int8 (allocations,): on which stream each is made, 0 for the one that computes."""
        names = [name.partition(ON_STREAM)[2] for name in self.operator_names]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(["", *names]))}
        found: np.ndarray = np.array([numbers[name] for name in names], dtype=np.int8)[self.operators]
        return found


class StorageTrace(TorchDispatchMode):
    """Records while it is entered. `phase` and `category` are set by whoever runs the traced code.

    device_type: only storages on this kind of device count. as_on_cuda: tensors without data take the layouts and the
    workspaces that CUDA's would. assumed: "file.py:12" -> what a tensor's value is taken for, where that line asks.
    """

    def __init__(
        self,
        device_type: str = "meta",
        *,
        as_on_cuda: bool = True,
        assumed: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.assumed = AssumedValues(assumed)
        self.device_type = device_type
        self.as_on_cuda = as_on_cuda and device_type == "meta"
        self.phase = "setup"
        self.category: str | None = None
        # False while what is made stands for what is not on the device.
        self.is_looking = True
        # Of each allocation its bytes, and the numbers of its phase, category and operator.
        self._made: list[tuple[int, int, int, int]] = []
        self._names: dict[str, int] = {}
        self._events: list[int] = []
        self._event_phases: list[int] = []
        self._step_starts: list[int] = []
        # By the identity of the storage's Python object, which lives as long as the storage does.
        self._live: dict[int, tuple[int, Any]] = {}
        self._recording = True
        self.results = RememberedResults()
        _sole_holders()  # found out before, not inside a traced backward pass

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name
        if self.device_type != "meta":
            # A real run has memory that no operator made (torch.from_numpy).
            for given in tree_leaves((args, kwargs)):
                if isinstance(given, Tensor):
                    self.enter(given, "made elsewhere")
        elif function in ASKS:
            found = self.assumed.answer(function, args, kwargs)
            if found is not NOT_ASKED:
                for made in tree_leaves(found):
                    if isinstance(made, Tensor):
                        self._note(made, function, args)
                return found
            if function in INDEXED:
                indices, places = self.assumed.without_masks(args[1])
                for made in places:
                    self._note(made, NONZERO, args)
                args = (args[0], indices, *args[2:])
        if function is aten.add.Tensor and sums_in_place(args):
            return args[0].add_(args[1])
        if self.as_on_cuda and function in HANDLED and args[0].device.type == "meta":
            return on_cuda(
                function, args, kwargs or {}, lambda made: self._note(made, function, args), self._run_cudnn
            )
        if name.startswith(FOREACH) and args[0] and args[0][0].device.type == "meta":
            result = _foreach_without_data(name, function, args, kwargs or {})
        elif self.device_type == "meta":
            result = self.results.call(function, args, kwargs or {})
        else:
            result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self._note(result, function, args)
        elif isinstance(result, (tuple, list)):
            for item in result:
                if isinstance(item, Tensor):
                    self._note(item, function, args)
                elif isinstance(item, (tuple, list)):
                    for inner in item:
                        if isinstance(inner, Tensor):
                            self._note(inner, function, args)
        return result

    def _run_cudnn(self, call: ConvolutionCall) -> None:
        """Records what cuDNN takes while it runs, and gives back."""
        size = workspace_bytes(call)
        if size:
            kept, self.category = self.category, "workspaces"
            held = torch.empty(size, dtype=torch.uint8, device="meta")
            self._allocate(held.untyped_storage(), f"cudnn.{call.kind}")
            self.category = kept

    def enter(self, tensor: Tensor, operator: str) -> None:
        """Records a tensor that was made out of sight, as if `operator` made it now; known ones are left alone."""
        if tensor.device.type != self.device_type:
            return
        storage = tensor.untyped_storage()
        if id(storage) not in self._live:
            self._allocate(storage, operator)

    def move_in(self, module: nn.Module) -> None:
        """Records what `module.to(device)` moves, in its order."""
        for tensor in tensors_in_moving_order(module):
            self.enter(tensor, "module.to(device)")

    def start_step(self) -> None:
        """Marks the beginning of a step (or of the validation)."""
        self._step_starts.append(len(self._events))

    def finish(self, batch_size: int, assumptions: list[str]) -> Trace:
        """Ends the recording: what is still alive stays so."""
        self._recording = False
        events = np.array(self._events, dtype=np.int32)
        event_phases = np.array(self._event_phases, dtype=np.int8)
        made = np.ascontiguousarray(np.array(self._made, dtype=np.int64).reshape(-1, 4).T)
        phases, given = made[1:3].astype(np.int8)
        return Trace(
            batch_size=batch_size,
            sizes=made[0],
            phases=phases,
            categories=categorise(phases, given, events, event_phases),
            operators=made[3].astype(np.int32),
            operator_names=list(self._names),
            events=events,
            event_phases=event_phases,
            step_starts=list(self._step_starts),
            assumptions=[*assumptions, *self.assumed.told()],
        )

    def _note(self, tensor: Tensor, function: Any, args: Any) -> None:
        if tensor.device.type != self.device_type:
            return
        storage = tensor.untyped_storage()
        known = self._live.get(id(storage))
        if known is None:
            self._allocate(storage, str(function))
        elif storage.nbytes() != self._made[known[0]][0]:  # resize_
            self._release(id(storage), known[0])
            self._allocate(storage, str(function))

    def _allocate(self, storage: torch.UntypedStorage, operator: str) -> None:
        size = storage.nbytes()
        if not size or not self.is_looking:
            return
        number, key, phase = len(self._made), id(storage), _PHASE[self.phase]
        category = _BY_LIFETIME if self.category is None else _CATEGORY[self.category]
        self._made.append((size, phase, category, self._names.setdefault(operator, len(self._names))))
        self._events.append(number + 1)
        self._event_phases.append(phase)
        self._live[key] = (number, weakref.ref(storage, lambda _: self._release(key, number)))

    def _release(self, key: int, number: int) -> None:
        known = self._live.get(key)
        if not self._recording or known is None or known[0] != number:
            return
        del self._live[key]
        self._events.append(-(number + 1))
        self._event_phases.append(_PHASE[self.phase])


def sums_in_place(args: tuple[Any, ...]) -> bool:
    """Whether a sum of two gradients would be written over the first, if nobody looked on.

    The autograd engine adds up the gradients of a tensor that is used twice, in place where it alone holds the first
    one (torch/csrc/autograd/input_buffer.cpp). A tensor that a dispatch mode has seen has a Python object, which counts
    as one more holder, so that every sum under a trace is a new tensor.
    """
    if torch._C._current_autograd_node() is None or torch.is_grad_enabled() or len(args) != 2:
        return False
    if not isinstance(args[1], Tensor) or args[0].shape != args[1].shape or args[0].dtype != args[1].dtype:
        return False
    return _holders(args[0]) == _sole_holders() and aten.is_non_overlapping_and_dense(args[0])


def _holders(tensor: Tensor) -> tuple[int, int, int]:
    """How many hold an argument of an operator, its storage, and its Python object; those who look on included."""
    storage = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    holders: int = tensor._use_count()  # type: ignore[attr-defined]
    return holders, storage, sys.getrefcount(tensor)


@cache
def _sole_holders() -> tuple[int, int, int]:
    """What `_holders` finds where the autograd engine is the only one, in this version of torch.

    Seen at h + tanh(h), whose two gradients torch sums in place.
    """
    found: list[tuple[int, int, int]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is aten.add.Tensor and torch._C._current_autograd_node() is not None:
                found.append(_holders(args[0]))
            return function(*args, **(kwargs or {}))

    with Watch(), torch.enable_grad():  # type: ignore[no-untyped-call]
        hidden = torch.ones(2, 2, requires_grad=True) * 2
        (hidden + torch.tanh(hidden)).mm(torch.ones(2, 2)).sum().backward()
    return found[0]


def _foreach_without_data(name: str, function: Any, args: Any, kwargs: Any) -> Any:
    """What an operator over a list of tensors allocates; the meta device would go through the list in Python.

    In place: nothing. Pointwise: a tensor like each of the first list.
    """
    if name.endswith("_"):
        return None
    if name.removeprefix(FOREACH) in POINTWISE_FOREACH:
        return [torch.empty_like(tensor) for tensor in args[0]]
    return function(*args, **kwargs)


def categorise(
    phases: np.ndarray, given: np.ndarray, events: np.ndarray, event_phases: np.ndarray
) -> np.ndarray:
    """int8 (allocations,), index into CATEGORIES: what was given, else by when an allocation is made and released.

    Made in the forward pass or the loss and alive in the backward pass: a saved activation. Made in the backward
    pass and alive after it: a gradient. Made by the optimizer and never released: its state. All else is temporary.
    """
    released = np.full(len(phases), len(PHASES), dtype=np.int8)  # never
    gone = events < 0
    released[-events[gone] - 1] = event_phases[gone]
    forward = np.isin(phases, (_PHASE["forward"], _PHASE["loss"]))
    found = np.full(len(phases), _CATEGORY["temporaries"], dtype=np.int8)
    found[forward & (released >= _PHASE["backward"])] = _CATEGORY["saved_activations"]
    # In a phase before the backward pass: in that of the next step.
    found[(phases == _PHASE["backward"]) & (released != _PHASE["backward"])] = _CATEGORY["gradients"]
    found[(phases == _PHASE["optimizer"]) & (released == len(PHASES))] = _CATEGORY["optimizer_state"]
    return np.where(given == _BY_LIFETIME, found, given).astype(np.int8)


def tensors_in_moving_order(module: nn.Module) -> list[Tensor]:
    """Parameters and buffers in the order in which `module.to(device)` moves them: children first."""
    found: list[Tensor] = []
    for child in module.children():
        found += tensors_in_moving_order(child)
    found += [parameter for parameter in module._parameters.values() if parameter is not None]
    return found + [buffer for buffer in module._buffers.values() if buffer is not None]
