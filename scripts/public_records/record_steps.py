"""What was measured in the public records, run on tensors without data."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.prediction.cuda.cuda_emulation import cuda_on_meta
from swinmr_profiling.profiler.prediction.trace.storage_trace import (
    StorageTrace,
    Trace,
    tensors_in_moving_order,
)

STEPS = 2
RESTORATION_SHAPE = (1, 3, 480, 640)


def restoration_inference(network: nn.Module, dtype: torch.dtype, *, channels_last: bool) -> Trace:
    """traiNNer-redux's benchmark: forward passes in one autocast context, the last result kept meanwhile."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    with cuda_on_meta():
        module = _on_device(network, layout).eval()
        image = torch.empty(RESTORATION_SHAPE, device="meta").to(memory_format=layout)
        with StorageTrace() as trace, torch.no_grad():
            _enter(trace, module, image)
            output = None
            with torch.autocast("cuda", dtype):
                for _ in range(STEPS):
                    trace.start_step()
                    trace.phase = "forward"
                    output = module(image)
            found = trace.finish(1, [])
        del output
    return found


def timm_training(network: nn.Module, size: int, batch_size: int, *, channels_last: bool) -> Trace:
    """timm's benchmark.py, torch 1.12: fp16 autocast around all but the update, gradients set to zero and not to None,
    no scaler, SGD with Nesterov momentum one parameter at a time."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    with cuda_on_meta():
        module = _on_device(network, layout).train()
        images = torch.empty(batch_size, 3, size, size, device="meta").to(memory_format=layout)
        targets = torch.empty(batch_size, dtype=torch.int64, device="meta")
        with StorageTrace() as trace:
            _enter(trace, module, images, targets)
            trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
            optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9, nesterov=True, foreach=False)
            for _ in range(STEPS):
                trace.start_step()
                _timm_step(trace, module, optimizer, images, targets)
            found = trace.finish(batch_size, [])
    return found


def _timm_step(trace, module, optimizer, images, targets) -> None:
    trace.phase = "forward"
    optimizer.zero_grad(set_to_none=False)
    with torch.autocast("cuda", torch.float16):
        output = module(images)
        if isinstance(output, (tuple, list)):
            output = output[0]
        trace.phase = "loss"
        loss = F.cross_entropy(output, targets)
        trace.phase = "backward"
        loss.backward()
    trace.phase = "optimizer"
    optimizer.step()


def _on_device(network: nn.Module, layout: torch.memory_format) -> nn.Module:
    return copy_to(network, ())[0].to(memory_format=layout)


def _enter(trace: StorageTrace, module: nn.Module, *inputs: torch.Tensor) -> None:
    trace.category = "parameters"
    for tensor in tensors_in_moving_order(module):
        trace.enter(tensor, "module.to(device)")
    trace.category = "inputs"
    for tensor in inputs:
        trace.enter(tensor, "input")
    trace.category = None
