"""One forward pass under torch.profiler, as a file that Perfetto and chrome://tracing open."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.measure.forward_pass import evaluating, finish_work, inputs_on
from swinmr_profiling.training.own_gradients import without_gradients


def write_forward_trace(
    built: BuiltModel,
    forward: Callable[..., Any],
    torch_device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    file: Path,
    *,
    channels_last: bool,
    compress: bool,
) -> int:
    """Measures one pass after one to warm up, writes it, and returns the number of events.

    forward, dtype: as in `measure_forward`. compress: with gzip, which the viewers read too.
    Raises OSError, and whatever the network raises.
    """
    inputs = inputs_on(built, batch_size, torch_device, channels_last=channels_last)
    profiled = without_gradients(
        built.module, lambda: _profiled(built, forward, inputs, torch_device, dtype, batch_size)
    )
    plain = file.with_name(file.name + ".json")
    try:
        profiled.export_chrome_trace(str(plain))
        # The profiler names the file that it wrote to, which is a temporary one, in a folder of the user's.
        own_name = json.dumps(str(plain))[1:-1].encode()
        content = plain.read_bytes().replace(own_name, b"measured forward pass")
        file.write_bytes(gzip.compress(content) if compress else content)
    finally:
        plain.unlink(missing_ok=True)
    return len(profiled.events() or ())


def _profiled(
    built: BuiltModel,
    forward: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    torch_device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
) -> profile:
    on_gpu = [ProfilerActivity.CUDA] if torch_device.type == "cuda" else []
    # A compiled network has no modules left to name.
    named = modules_named(built.module) if forward is built.module else nullcontext()
    with evaluating(built.module, torch_device, dtype):
        forward(*inputs)
        finish_work(torch_device)
        # Shapes, and not memory: recording each allocation makes the pass several times as long.
        with (
            profile(activities=[ProfilerActivity.CPU, *on_gpu], record_shapes=True) as found,
            named,
            record_function(f"forward pass, batch {batch_size}"),
        ):
            forward(*inputs)
            finish_work(torch_device)
    return found


@contextmanager
def modules_named(network: nn.Module) -> Iterator[None]:
    """While entered, each module's call is a range of the profiler, by its name in the network.

    Not by hooks: a network that is looked at so may go another way (models/swin/block_layers.py).
    """
    names = {id(part): name for name, part in network.named_modules() if name}
    called = nn.Module.__call__

    def call(part: nn.Module, *args: Any, **kwargs: Any) -> Any:
        name = names.get(id(part))
        if name is None:
            return called(part, *args, **kwargs)
        with record_function(f"{name} ({type(part).__name__})"):
            return called(part, *args, **kwargs)

    with mock.patch.object(nn.Module, "__call__", call):
        yield
