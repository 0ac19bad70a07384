"""Operators whose CUDA kernels make more than their results: convolutions and resizing, on tensors without data.

Layouts of results, copies into the layout that a kernel reads, and cuDNN's workspace while it runs. Source:
aten/src/ATen/native/Convolution.cpp, ConvUtils.h and cuda/UpSampleNearest2d.cu of PyTorch 2.4 to 2.14.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from swinmr_profiling.profiler.allocator.convolution_workspaces import ConvolutionCall

aten = torch.ops.aten
CONVOLUTION, CONVOLUTION_BACKWARD = aten.convolution.default, aten.convolution_backward.default
RESIZES = (aten.upsample_nearest2d.default, aten.upsample_nearest2d.vec)
HANDLED = frozenset((CONVOLUTION, CONVOLUTION_BACKWARD, *RESIZES))
# Fewer channels of a channels-last image are resized in the plain layout.
LEAST_CHANNELS_LAST_RESIZED = 4
Layout = torch.memory_format
Note = Callable[[Tensor], None]
Run = Callable[[ConvolutionCall], None]


def on_cuda(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], note: Note, run: Run) -> Any:
    """What an operator of HANDLED returns on CUDA.

    note: is told of every tensor when it is made, results too. run: is told when cuDNN runs a convolution.
    """
    if function is CONVOLUTION:
        return _convolution(note, run, *args, **kwargs)
    if function is CONVOLUTION_BACKWARD:
        return _convolution_backward(note, run, *args, **kwargs)
    return _resize(function, args, kwargs, note)


# A depthwise convolution is PyTorch's own kernel's, or cuDNN's without a workspace: the same bytes.
def _convolution(
    note: Note, run: Run, x: Tensor, w: Tensor, bias: Tensor | None, stride: list[int], padding: list[int],
    dilation: list[int], transposed: bool, output_padding: list[int], groups: int,
) -> Tensor:  # fmt: skip
    shape = CONVOLUTION(x, w, bias, stride, padding, dilation, transposed, output_padding, groups).shape
    layout = _layout(x, w)
    copies = [_in_layout(tensor, layout, note) for tensor in (x, w)]
    out = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=layout)
    note(out)
    run(_call("forward", x, w, out, groups, layout))
    del copies
    return out


def _convolution_backward(
    note: Note, run: Run, dy: Tensor, x: Tensor, w: Tensor, bias_sizes: list[int] | None, stride: list[int],
    padding: list[int], dilation: list[int], transposed: bool, output_padding: list[int], groups: int,
    mask: list[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    layout = _layout(x, w)
    copies = [_in_layout(tensor, layout, note) for tensor in (dy, x, w)]
    gradients: list[Tensor | None] = [None, None, None]
    for number, (like, kind) in enumerate(((x, "backward_data"), (w, "backward_weight"))):
        if not mask[number]:
            continue
        made = torch.empty(like.shape, dtype=dy.dtype, device=dy.device, memory_format=layout)
        note(made)
        gradients[number] = made
        run(_call(kind, x, w, dy, groups, layout))
    if mask[2] and bias_sizes is not None:
        of_bias = torch.empty(bias_sizes, dtype=dy.dtype, device=dy.device)
        note(of_bias)
        gradients[2] = of_bias
    del copies
    return tuple(gradients)


def _resize(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], note: Note) -> Tensor:
    x: Tensor = args[0]
    out: Tensor = function(*args, **kwargs)
    note(out)
    wide = x.shape[1] >= LEAST_CHANNELS_LAST_RESIZED
    layout = (
        torch.channels_last
        if wide and suggest_memory_format(x) is torch.channels_last
        else torch.contiguous_format
    )
    copies = [_in_layout(tensor, layout, note) for tensor in (out, x)]
    del copies
    return out


def _call(kind: str, x: Tensor, w: Tensor, y: Tensor, groups: int, layout: Layout) -> ConvolutionCall:
    return ConvolutionCall(
        kind,
        tuple(x.shape),
        tuple(w.shape),
        tuple(y.shape),
        groups,
        x.element_size(),
        channels_last=layout is not torch.contiguous_format,
    )


def _layout(x: Tensor, w: Tensor) -> Layout:
    """Channels-last where the input or the weight is (cudnn_conv_suggest_memory_format)."""
    for layout, rank in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        either = any(suggest_memory_format(tensor) is layout for tensor in (x, w))
        if x.dim() == rank and x.dtype != torch.float64 and either:
            return layout
    return torch.contiguous_format


def _in_layout(tensor: Tensor, layout: Layout, note: Note) -> Tensor:
    if tensor.is_contiguous(memory_format=layout):
        return tensor
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device, memory_format=layout)
    note(copy)
    return copy
