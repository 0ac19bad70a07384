"""What cuDNN takes from the allocator for one convolution, by layout, precision and cudnn.benchmark.

The prediction's rule for 16-bit convolutions is from one card with cudnn.benchmark on, forward passes only; training
loops leave it off. This measures both, and the backward passes, on the card at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from swinmr_profiling.profiler.allocator.convolution_workspaces import ConvolutionCall, workspace_bytes
from swinmr_profiling.profiler.gpu_check.record import ConvolutionCost, ConvolutionCosts
from swinmr_profiling.profiler.gpu_check.subprocesses import serve

# Batch, channels in and out, side, kernel: one that the rule says is copied, a pointwise, a depthwise and a narrow one.
LAYERS = {
    "3 x 3": (8, 64, 64, 256, 3, 1),
    "1 x 1": (8, 64, 64, 256, 1, 1),
    "depthwise": (8, 64, 64, 256, 3, 64),
    "narrow": (8, 32, 32, 512, 3, 1),
}
PRECISIONS = ("float16", "bfloat16", "float32")


class ConvolutionsRequest(BaseModel):
    """device: "cuda:0"."""

    device: str


def main() -> None:
    serve(ConvolutionsRequest, measure)


def measure(request: ConvolutionsRequest) -> ConvolutionCosts:
    """One row for each layer, precision, layout, benchmark and direction.

    Bytes beyond the result of a second call, which no trial of cudnn.benchmark is part of.
    """
    import torch

    device = torch.device(request.device)
    rows = [
        row
        for benchmark in (False, True)
        for precision in PRECISIONS
        for channels_last in (False, True)
        for name in LAYERS
        for row in _layer(device, name, precision, channels_last, benchmark)
    ]
    return ConvolutionCosts(status="measured", rows=rows, same_without_benchmark=same_without_benchmark(rows))


def same_without_benchmark(rows: list[ConvolutionCost]) -> bool:
    """Whether 16-bit NCHW convolutions take as much with cudnn.benchmark off as with it on."""
    found: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        if row.precision != "float32" and not row.channels_last:
            found.setdefault((row.layer, row.precision, row.kind), set()).add(row.bytes)
    return all(len(sizes) == 1 for sizes in found.values())


def _layer(
    device: Any, name: str, precision: str, channels_last: bool, benchmark: bool
) -> Iterator[ConvolutionCost]:
    import torch

    batch, inside, outside, side, kernel, groups = LAYERS[name]
    torch.backends.cudnn.benchmark = benchmark
    made = {"dtype": getattr(torch, precision), "device": device}
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.rand(batch, inside, side, side, **made).to(memory_format=layout)
    w = torch.rand(outside, inside // groups, kernel, kernel, **made).to(memory_format=layout)
    dy = torch.rand(batch, outside, side, side, **made).to(memory_format=layout)
    geometry = ([1, 1], [kernel // 2] * 2, [1, 1], False, [0, 0], groups)

    def backward(mask: list[bool]) -> Any:
        return torch.ops.aten.convolution_backward(dy, x, w, None, *geometry, mask)

    calls: dict[str, tuple[Callable[[], Any], Any]] = {
        "forward": (lambda: torch.ops.aten.convolution(x, w, None, *geometry), dy),
        "backward_data": (lambda: backward([True, False, False]), x),
        "backward_weight": (lambda: backward([False, True, False]), w),
    }
    for kind, (run, result) in calls.items():
        call = ConvolutionCall(
            kind, tuple(x.shape), tuple(w.shape), tuple(dy.shape), groups, x.element_size(), channels_last
        )
        yield ConvolutionCost(
            layer=name,
            kind=kind,
            precision=precision,
            channels_last=channels_last,
            benchmark=benchmark,
            bytes=_beside_result(device, run, result),
            predicted_bytes=workspace_bytes(call),
        )


def _beside_result(device: Any, run: Callable[[], Any], result: Any) -> int:
    import torch

    for _ in range(2):
        run()
        torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    kept = run()
    torch.cuda.synchronize(device)
    beside = torch.cuda.max_memory_allocated(device) - before - result.untyped_storage().nbytes()
    del kept
    return int(max(beside, 0))
