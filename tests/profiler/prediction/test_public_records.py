"""Published measurements of GPUs, reached by a trace without data and a replay of the allocator.

Bytes are compared to the byte, records in MiB to their last digit. Convolutions whose cuDNN workspace sits at the
peak are compared with the workspace named.
"""

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from swinmr_profiling.profiler.allocator.workspaces import workspaces_for
from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.prediction.cuda.cuda_emulation import cuda_on_meta
from swinmr_profiling.profiler.prediction.replay import NOTHING, replay
from swinmr_profiling.profiler.prediction.trace.storage_trace import StorageTrace, tensors_in_moving_order

MIB = 2**20


@pytest.fixture
def trace():
    """Records what runs in the test, as CUDA would run it."""
    with cuda_on_meta(), StorageTrace() as recorder:
        yield recorder


def show(record, predicted, published):
    """A line of scripts/benchmark_memory.py."""
    print(f"record: {record:48} {predicted!s:>24} {published!s:>12}")


def on_device(trace, module):
    """The module as `module.to("cuda")` leaves it."""
    copied = copy_to(module, ())[0]
    for tensor in tensors_in_moving_order(copied):
        trace.enter(tensor, "module.to(device)")
    return copied


def train(trace, model, input_shape, target_shape, steps=2):
    """`for x, y in loader: x, y = x.to(device), y.to(device)`, forward, cross-entropy, backward, SGD.

    The loader's batch takes the names before the next one is moved, so that the old one is gone by then; output and
    loss stay until the next are made.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        trace.start_step()
        trace.phase = "inputs"
        x = y = None
        x, y = torch.empty(input_shape, device="meta"), torch.empty(target_shape, device="meta")
        trace.phase = "forward"
        optimizer.zero_grad()
        output = model(x)
        trace.phase = "loss"
        loss = F.cross_entropy(output, y)
        trace.phase = "backward"
        loss.backward()
        trace.phase = "optimizer"
        optimizer.step()
    return trace.finish(input_shape[0], []), (x, y, output, loss)


def resnet50():
    return timm.create_model("resnet50.a1_in1k", pretrained=False).eval()


def test_resnet50_moved_to_the_device(trace):
    model = on_device(trace, resnet50())
    result = replay(trace.finish(1, []))
    assert model is not None
    show("resnet50 on the device", result.end_allocated_bytes, 102_475_264)
    show("resnet50 on the device, reserved", result.peak_reserved_bytes, 123_731_968)
    assert result.end_allocated_bytes == 102_475_264
    assert result.peak_reserved_bytes == 123_731_968


def resnet50_inference(trace):
    model = on_device(trace, resnet50())
    trace.start_step()
    trace.phase = "inputs"
    x = torch.empty(1, 3, 224, 224, device="meta")
    trace.phase = "forward"
    with torch.no_grad():
        output = model(x)
    assert output.shape == (1, 1000)
    return trace.finish(1, [])


def test_resnet50_inference_on_rocm(trace):
    result = replay(resnet50_inference(trace), workspaces=workspaces_for("2.4.0", "gfx90a"))
    show("resnet50 inference, ROCm", result.training.allocated_bytes, 113_516_032)
    show("resnet50 inference, ROCm, reserved", result.peak_reserved_bytes, 148_897_792)
    assert result.training.allocated_bytes == 113_516_032
    assert result.peak_reserved_bytes == 148_897_792


def with_convolutions_taking(trace, size):
    """The trace where each convolution also takes and gives back so many bytes, after its result is made."""
    is_convolution = [name.startswith("aten.convolution") for name in trace.operator_names]
    sizes, events, phases = trace.sizes.tolist(), [], []
    operators, starts = trace.operators.tolist(), list(trace.step_starts)
    for position, (event, phase) in enumerate(zip(trace.events.tolist(), trace.event_phases, strict=True)):
        starts = [
            len(events) if old == position else new
            for old, new in zip(trace.step_starts, starts, strict=True)
        ]
        events.append(event)
        phases.append(phase)
        if event > 0 and is_convolution[trace.operators[event - 1]]:
            sizes.append(size)
            operators.append(0)
            events += [len(sizes), -len(sizes)]
            phases += [phase, phase]
    return replace(
        trace,
        sizes=np.array(sizes),
        operators=np.array(operators),
        categories=np.zeros(len(sizes), dtype=np.int8),
        events=np.array(events),
        event_phases=np.array(phases),
        step_starts=starts,
    )


def test_resnet50_inference_on_cuda(trace):
    # An early convolution has a workspace of 3 to 6 MB; the cuBLAS workspace of the last layer comes after the peak and
    # fits into what is reserved.
    recorded = resnet50_inference(trace)
    workspaces = workspaces_for("2.4.0", "8.0")
    low, high = (
        replay(with_convolutions_taking(recorded, size), workspaces=workspaces).training.allocated_bytes
        for size in (3_000_000, 6_000_000)
    )
    show("resnet50 inference, CUDA, cuDNN 3 to 6 MB", f"{low} to {high}", 114_685_952)
    assert low <= 114_685_952 <= high
    assert low == pytest.approx(114_685_952, rel=0.01)


@pytest.mark.parametrize(
    ("second", "allocated", "digits", "reserved"),
    [
        ((), 3445, 0, None),
        ((nn.Conv2d(3, 3, 3, padding=1),), 4020, 0, None),
        ((nn.ReLU(inplace=True),), 3445, 0, None),
        ((nn.BatchNorm2d(3),), 4019.5, 1, 4034),
        ((nn.Dropout(),), 3589, 0, None),
        ((nn.Softmax2d(),), 3445, 0, None),
    ],
    ids=["one", "two", "relu", "batch_norm", "dropout", "softmax"],
)
def test_one_convolution_and_what_comes_after_it(trace, second, allocated, digits, reserved):
    # In units of the batch, 1000 x 3 x 224 x 224 x 4 bytes = 574.2 MiB, at the peak, log_softmax's backward: input,
    # target, output, its log-softmax, and the gradients of both: 6 (3445). A convolution or a batch norm saves its
    # input, too: 7 (4019.5). Dropout keeps a byte per number instead: 6.25 (3589). ReLU in place nothing, softmax its
    # result, which is the output.
    model = on_device(trace, nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), *second))
    recorded, held = train(trace, model, (1000, 3, 224, 224), (1000, 3, 224, 224))
    result = replay(recorded)
    assert held
    names = " + ".join(["Conv2d", *(type(module).__name__ for module in second)])
    show(f"{names}, MiB", round(result.training.allocated_bytes / MIB, digits), allocated)
    assert round(result.training.allocated_bytes / MIB, digits) == allocated
    if reserved is not None:
        assert result.peak_reserved_bytes == reserved * MIB


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.pool = nn.AvgPool2d(2, 2)
        self.linear = nn.Linear(98568, 10)

    def forward(self, x):
        return self.linear(self.pool(self.convolution(x)).flatten(1))


def test_convolution_pool_and_linear_with_cublas_in_two_threads(trace):
    model = on_device(trace, Pooled())
    recorded, held = train(trace, model, (128, 3, 224, 224), (128, 10))
    result = replay(recorded, workspaces=workspaces_for("2.0.1", "8.0"))
    assert held
    assert result.workspace_bytes == 2 * 8_519_680  # forward and backward
    show("Conv2d, AvgPool2d, Linear, MiB", round(result.training.allocated_bytes / MIB, 1), 530.9)
    show("Conv2d, AvgPool2d, Linear, at the end, MiB", round(result.end_allocated_bytes / MIB, 1), 97.8)
    show("Conv2d, AvgPool2d, Linear, reserved, MiB", result.peak_reserved_bytes / MIB, 604)
    assert round(result.training.allocated_bytes / MIB, 1) == 530.9
    assert round(result.end_allocated_bytes / MIB, 1) == 97.8
    assert result.peak_reserved_bytes == 604 * MIB


def test_convnext_forward_in_training_mode(trace):
    # Of 2022: the workspaces were outside the allocator.
    model = on_device(trace, torchvision.models.convnext_tiny()).train()
    trace.start_step()
    trace.phase = "inputs"
    x = torch.empty(4, 3, 224, 224, device="meta")
    trace.phase = "forward"
    output = model(x)
    result = replay(trace.finish(4, []), workspaces=NOTHING)
    assert output.shape == (4, 1000)
    show("convnext_tiny forward, MiB", round(result.training.allocated_bytes / MIB, 3), 539.976)
    assert round(result.training.allocated_bytes / MIB, 3) == 539.976
