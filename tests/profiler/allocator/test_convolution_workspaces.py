"""cuDNN's workspace of one convolution, worked out by hand from measurements of an RTX 4090."""

import pytest

from swinmr_profiling.profiler.allocator.convolution_workspaces import ConvolutionCall, workspace_bytes

MIB = 2**20


def call(channels_in, channels_out, hw, kernel=3, *, groups=1, element_bytes=2, channels_last=False, batch=1):
    height, width = hw
    return ConvolutionCall(
        "forward",
        (batch, channels_in, height, width),
        (channels_out, channels_in // groups, kernel, kernel),
        (batch, channels_out, height, width),
        groups,
        element_bytes,
        channels_last,
    )


def test_copies_of_input_output_and_weight():
    # ESRGAN x1 before its pixels are moved: 192 -> 64 channels of 480 x 640. x: 192 x 480 x 640 x 2 B = 112.5 MiB, y:
    # 37.5 MiB, w: 64 x 192 x 9 x 2 = 221,184 B; measured NCHW - channels-last is 157,508,096 B.
    assert workspace_bytes(call(192, 64, (480, 640))) == 117_964_800 + 39_321_600 + 221_184 + 512
    assert 117_964_800 + 39_321_600 + 221_184 + 512 == 157_508_096


def test_the_batch_scales_images_and_not_the_weight():
    one, two, three = (workspace_bytes(call(64, 64, (64, 64), batch=batch)) for batch in (1, 2, 3))
    assert three - two == two - one == 2 * 64 * 64 * 64 * 2


@pytest.mark.parametrize(
    "without",
    [
        call(192, 64, (480, 640), channels_last=True),
        call(192, 64, (480, 640), element_bytes=4),
        call(208, 52, (480, 640), kernel=1),
        call(64, 64, (480, 640), groups=64),
        call(32, 32, (1920, 2560)),
    ],
    ids=["channels_last", "fp32", "1x1", "depthwise", "narrow"],
)
def test_what_is_not_copied(without):
    assert workspace_bytes(without) == 0


def test_a_narrow_convolution_of_a_small_image_is_copied():
    # Sebica: 16 -> 8 channels of 480 x 640: 9.375 + 4.6875 MiB and 8 x 16 x 9 x 2 B, measured to 0.4 %.
    assert workspace_bytes(call(16, 8, (480, 640))) == int(14.0625 * MIB) + 2304 + 512


def test_large_images_are_those_that_the_cache_of_an_rtx_4090_does_not_hold():
    # 73,728 KiB of L2 (NVIDIA's Ada whitepaper); 32 channels of 768 x 768 in and out in 16 bits are just that.
    assert 2 * 32 * 768 * 768 * 2 == 73_728 * 1024
    assert workspace_bytes(call(32, 32, (768, 768))) == 73_728 * 1024 + 2 * 32 * 32 * 9 + 512
    assert workspace_bytes(call(32, 32, (768, 769))) == 0


def test_grouped_convolutions_are_copied_as_others():
    assert workspace_bytes(call(64, 64, (8, 8), groups=4)) == 2 * (64 * 64 * 2 + 64 * 16 * 9) + 512
