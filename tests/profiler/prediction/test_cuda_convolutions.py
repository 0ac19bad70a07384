"""What CUDA makes beside an operator's result: layouts, copies and workspaces, in bytes worked out by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.profiler.prediction.cuda.cuda_emulation import cuda_on_meta
from swinmr_profiling.profiler.prediction.replay import live_peak, replay
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, StorageTrace
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_inference, trace_training

HALF, FULL = torch.float16, torch.float32
# 16 x 64 x 32 x 32 numbers of 2 bytes: 2 MiB.
SHAPE, IMAGE = (16, 64, 32, 32), 2 * 2**20
WEIGHT = 64 * 64 * 9 * 2


def traced(run, *made):
    """The trace of run(*tensors), which are on the GPU before, and (operator, bytes) of what it allocated."""
    with cuda_on_meta(), StorageTrace() as trace:
        for tensor in made:
            trace.enter(tensor, "there before")
        trace.start_step()
        out = run(*made)
        found = trace.finish(1, [])
        del out
    names = [name.removeprefix("aten.") for name in found.operator_names]
    rows = [
        (names[operator], size) for operator, size in zip(found.operators, found.sizes.tolist(), strict=True)
    ]
    return found, rows[len(made) :]


def image(dtype=HALF, layout=torch.contiguous_format, shape=SHAPE):
    return torch.empty(shape, dtype=dtype, device="meta").to(memory_format=layout)


def weight(dtype=HALF, size=3, layout=torch.contiguous_format, groups=1):
    return torch.empty(64, 64 // groups, size, size, dtype=dtype, device="meta").to(memory_format=layout)


def test_a_half_precision_convolution_copies_input_weight_and_output():
    trace, rows = traced(lambda x, w: F.conv2d(x, w, padding=1), image(), weight())
    assert rows == [("convolution.default", IMAGE), ("cudnn.forward", 2 * IMAGE + WEIGHT + 512)]
    # The workspace is gone when the convolution has run.
    assert live_peak(trace) == (IMAGE + WEIGHT + IMAGE + 2 * IMAGE + WEIGHT + 512, 3)
    assert int(trace.live_bytes(512)[-1]) == 2 * IMAGE + WEIGHT
    peak = replay(trace).training
    assert peak.by_category["workspaces"] == 2 * IMAGE + WEIGHT + 512
    assert peak.operator == "cudnn.forward"


@pytest.mark.parametrize(
    ("x", "w", "made"),
    [
        (image(FULL), weight(FULL), [("convolution.default", 2 * IMAGE)]),
        (image(), weight(size=1), [("convolution.default", IMAGE)]),
        # Channels-last: nothing is copied. One of both is: the other is copied, and the result is channels-last.
        (
            image(layout=torch.channels_last),
            weight(layout=torch.channels_last),
            [("convolution.default", IMAGE)],
        ),
        (image(), weight(layout=torch.channels_last), [("convolution.default", IMAGE)] * 2),
    ],
    ids=["fp32", "1x1", "channels_last", "mixed"],
)
def test_other_convolutions_have_no_workspace(x, w, made):
    _, rows = traced(lambda x, w: F.conv2d(x, w, padding=w.shape[-1] // 2), x, w)
    assert rows == made


def test_the_result_has_the_layout_of_the_weight():
    with cuda_on_meta(), StorageTrace():
        out = F.conv2d(image(), weight(layout=torch.channels_last), padding=1)
        plain = F.conv2d(image(), weight(), padding=1)
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert plain.is_contiguous()


def test_depthwise_convolutions_are_pytorchs_own_or_cudnns_without_copies():
    with cuda_on_meta(), StorageTrace():
        assert F.conv2d(image(), weight(groups=64), groups=64, padding=1).shape == SHAPE
    for dtype in (HALF, torch.bfloat16):
        _, rows = traced(
            lambda x, w: F.conv2d(x, w, groups=64, padding=1), image(dtype), weight(dtype, groups=64)
        )
        assert rows == [("convolution.default", IMAGE)]


def test_the_backward_pass_has_a_workspace_for_each_gradient():
    x, w = image().requires_grad_(), weight().requires_grad_()
    _, rows = traced(lambda x, w: F.conv2d(x, w, padding=1).backward(image()), x, w)
    copies = 2 * IMAGE + WEIGHT + 512
    backward = [row for row in rows if "backward" in row[0]]
    assert backward == [
        ("convolution_backward.default", IMAGE),
        ("cudnn.backward_data", copies),
        ("convolution_backward.default", WEIGHT),
        ("cudnn.backward_weight", copies),
    ]


def test_a_frozen_weight_has_no_workspace_of_its_own():
    x = image().requires_grad_()
    _, rows = traced(lambda x, w: F.conv2d(x, w, padding=1).backward(image()), x, weight())
    assert [name for name, _ in rows if name.startswith("cudnn.backward")] == ["cudnn.backward_data"]


def test_the_workspace_is_affine_in_the_batch():
    sizes = []
    for batch in (2, 3, 4):
        shape = (batch, *SHAPE[1:])
        _, rows = traced(lambda x, w: F.conv2d(x, w, padding=1), image(shape=shape), weight())
        sizes.append(dict(rows)["cudnn.forward"])
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] == 2 * IMAGE // SHAPE[0]


def test_group_norm_copies_channels_last_into_the_plain_layout():
    # RealPLKSR in channels-last on an RTX 4090: 75 MiB more than without the copy.
    norm = nn.GroupNorm(4, 64, device="meta")
    layout = torch.channels_last
    _, rows = traced(norm, image(FULL, layout))
    assert [size for _, size in rows if size >= IMAGE] == [2 * IMAGE, 2 * IMAGE]  # the copy and the result
    _, rows = traced(norm, image(FULL))
    assert [size for _, size in rows if size >= IMAGE] == [2 * IMAGE]


def test_softmax_of_fp16_writes_fp32_without_a_copy_and_of_bf16_with_one():
    # LMLT on an RTX 4090: 80 MiB less than with the copy.
    def run(x):
        with torch.autocast("cuda", x.dtype):
            return x.softmax(-1)

    _, rows = traced(run, image(HALF))
    assert [size for _, size in rows] == [2 * IMAGE]
    _, rows = traced(run, image(torch.bfloat16))
    assert [size for _, size in rows] == [2 * IMAGE, 2 * IMAGE]


def test_few_channels_in_channels_last_are_resized_in_the_plain_layout():
    # Compact x4 on an RTX 4090: input and result once more, 59.77 MiB.
    small, large = 2 * 3 * 8 * 8 * 4, 2 * 3 * 16 * 16 * 4
    x = image(FULL, torch.channels_last, (2, 3, 8, 8))
    _, rows = traced(lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), x)
    assert [size for _, size in rows] == [large, large, small]
    _, rows = traced(
        lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), image(FULL, shape=(2, 3, 8, 8))
    )
    assert [size for _, size in rows] == [large]


def test_workspaces_are_a_category_of_their_own():
    assert CATEGORIES[-1] == "workspaces"
    trace, _ = traced(lambda x, w: F.conv2d(x, w, padding=1), image(), weight())
    assert (trace.categories == CATEGORIES.index("workspaces")).sum() == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("channels_last", [False, True])
def test_channels_last_has_a_trace_of_its_own(channels_last):
    # x, y: 2 x 8 x 16 x 16 numbers of 2 bytes; w: 8 x 8 x 9.
    system = {"mixed_precision": "bf16", "channels_last": channels_last}
    model = {"net_type": "custom", "target": "torch.nn:Identity", "input_shapes": [[8, 16, 16]]}
    config = config_from_dict({"model": model, "system": system})
    inputs = (InputSpec((8, 16, 16)),)
    shapes = {"inference": inputs, "training": inputs, "cross_check": inputs}
    built = BuiltModel("custom", nn.Conv2d(8, 8, 3, padding=1), shapes)
    for trace in (trace_inference(built, config, 2), trace_training(built, config, 2, validation=False)):
        workspaces = trace.sizes[trace.categories == CATEGORIES.index("workspaces")]
        copies = 2 * (2 * 2 * 8 * 16 * 16) + 2 * 8 * 8 * 9 + 512
        assert set(workspaces.tolist()) == (set() if channels_last else {copies})


def test_a_weight_in_another_layout_leaves_none_behind():
    model = {"net_type": "custom", "target": "torch.nn:Identity", "input_shapes": [[8, 16, 16]]}
    config = config_from_dict({"model": model, "system": {"mixed_precision": "bf16", "channels_last": True}})
    inputs = (InputSpec((8, 16, 16)),)
    built = BuiltModel(
        "custom", nn.Conv2d(8, 8, 3, bias=False), dict.fromkeys(("inference", "training"), inputs)
    )
    trace = trace_inference(built, config, 2)
    # The weight alone, 8 x 8 x 9 numbers of 4 bytes: the one in the plain layout is gone.
    assert trace.live_bytes()[trace.step_starts[0] - 1] == 8 * 8 * 9 * 4
