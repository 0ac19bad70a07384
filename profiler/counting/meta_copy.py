"""A copy of a model whose tensors are on the meta device: shapes without data, at no memory.

The copy is Python's own ``deepcopy``, which keeps what is shared shared (tied weights, a submodule registered
twice, an input that is one of the model's tensors), while a mode answers for the tensors wherever in the
object graph they are: parameters, buffers, plain attributes, tensors in lists and dataclasses. The user's
module is only read.
"""

import copy
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _CopyTensorsTo(TorchFunctionMode):
    """Answers the two ways in which deepcopy reaches tensor data.

    ``Tensor.__deepcopy__`` for tensors; ``Parameter.__deepcopy__`` is not overridable but clones its data,
    and the clone is. device None means a real copy where the tensor is; a tensor made by autograd (as an
    old-style weight_norm leaves one behind), which torch refuses to copy, is copied by value.
    """

    def __init__(self, device: str | None) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__ or func is torch.Tensor.clone:
            tensor = args[0]
            if nn.parameter.is_lazy(tensor):
                return _lazy_on(tensor, self.device)
            with torch._C.DisableTorchFunction(), torch.no_grad():
                return self._copy(tensor)
        return func(*args, **(kwargs or {}))

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        source = tensor.detach()
        copied = source.clone() if self.device is None else torch.empty_like(source, device=self.device)
        # Integer tensors cannot ask for gradients; a parameter sets its own flag.
        return copied.requires_grad_(tensor.requires_grad) if tensor.requires_grad else copied


def _bare(module: nn.Module) -> nn.Module:
    """The network inside torch.compile's, DataParallel's or DistributedDataParallel's wrapper."""
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), nn.Module):
            module = cast(nn.Module, module._orig_mod)
        else:
            return module


def _lazy_on(tensor: torch.Tensor, device: str | None) -> torch.Tensor:
    # Lazy tensors make their data on first use, on the device they remember.
    lazy: Callable[..., torch.Tensor] = type(tensor)
    return lazy(tensor.requires_grad, device=device or tensor.device, dtype=tensor.dtype)


def copy_to(module: nn.Module, inputs: Any, device: str | None = "meta") -> tuple[nn.Module, Any]:
    """Copies of a model and its inputs (any nest of containers), which share what the originals share.

    Args:
        module: left as it is. Wrappers for compilation and data parallelism are taken off the copy.
        inputs: whatever the model is called with.
        device: "meta", or None for a real copy on the tensors' own devices.

    Raises:
        Whatever deepcopy raises for an object that cannot be copied (a lock, an open file).
    """
    with _CopyTensorsTo(device):
        copied, copied_inputs = copy.deepcopy((_bare(module), inputs))
    for child in copied.modules():
        # The one kind of tensor whose own copying cannot be answered for.
        for name, parameter in child._parameters.items():
            if parameter is not None and nn.parameter.is_lazy(parameter):
                child._parameters[name] = _lazy_on(parameter, device)
    return copied, copied_inputs


@contextmanager
def restored(module: nn.Module) -> Iterator[None]:
    """Puts attributes, modes and buffer values back afterwards, for models that cannot be copied."""
    attributes = {}
    values = []
    for child in module.modules():
        attributes[child] = {
            name: value.copy() if isinstance(value, dict) else value for name, value in vars(child).items()
        }
        values += [(b, b.detach().clone()) for b in child._buffers.values() if b is not None]
    try:
        yield
    finally:
        for child, before in attributes.items():
            vars(child).clear()
            vars(child).update(before)
        with torch.no_grad():
            for buffer, value in values:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Leaves Python's, NumPy's and torch's random numbers as if nothing had been drawn."""
    python_state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy else None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python_state)
        if numpy and numpy_state is not None:
            numpy.random.set_state(numpy_state)
