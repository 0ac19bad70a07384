"""What SwinIR would refuse is refused before it is built, and the way out that is offered is accepted."""

import pytest

from swinmr_profiling.configs import ConfigError, config_from_dict
from swinmr_profiling.configs.network_limits import nearest_divisors, nearest_multiples


def swinir(**keys):
    return {"model": {"net_type": "swinir", **keys}}


def problems_of(raw: dict) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_from_dict(raw)
    return caught.value.problems


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        # 128 / 6 is 21.3: 126 = 21 x 6, 132 = 22 x 6; 4 and 8 divide 128.
        (
            {"embed_dim": 128},
            "model.embed_dim: embed_dim 128 is not divisible by 6 heads: 126 or 132, or num_heads 4 or 8",
        ),
        # Below one multiple there is none; 3 is divided by 1 and 3 only.
        (
            {"embed_dim": 3},
            "model.embed_dim: embed_dim 3 is not divisible by 6 heads: 6, or num_heads 3",
        ),
        # A width for 4 and 6 heads is a multiple of 12: 48 or 60. 50 has the divisors 1 2 5 10 25 50.
        (
            {"embed_dim": 50, "depths": [2, 2], "num_heads": [4, 6]},
            "model.embed_dim: embed_dim 50 is not divisible by 4 heads: 48 or 60, or num_heads 2 or 5",
        ),
        # Padded to 40 x 32 the features have more pixels than an embedding of 33 x 32: 4 x 8 = 32, 5 x 8 = 40.
        (
            {"ape": True, "img_size": [33, 32], "window_size": 8},
            "model.img_size: img_size 33 x 32 is not a multiple of window_size 8, which ape needs: 32 or 40 for 33, "
            "or ape false",
        ),
        (
            {"depths": [6] * 4},
            "model.num_heads: 6 entries, but depths has 4: both need one entry per block group",
        ),
        (
            {"img_size": [64, 12], "window_size": 16},
            "model.window_size: window_size 16 is larger than the image (img_size 64 x 12): at most 12, or a "
            "larger img_size",
        ),
        (
            {"upscale": 2},
            "model.upscale: upscale 2 needs an upsampler: set upsampler to pixelshuffle, "
            "pixelshuffledirect or "
            "nearest+conv, or upscale to 1",
        ),
        (
            {"upscale": 6, "upsampler": "pixelshuffle"},
            "model.upscale: pixelshuffle enlarges by a power of two or by 3, not by 6: upscale 4 "
            "or 8, or upsampler "
            "pixelshuffledirect",
        ),
        (
            {"upscale": 3, "upsampler": "nearest+conv"},
            "model.upscale: nearest+conv enlarges by 2, 4 or 8, not by 3: upscale 2, 4 or 8, or upsampler "
            "pixelshuffledirect",
        ),
        (
            {"in_chans": 3, "out_chans": 1},
            "model.out_chans: out_chans 1 with in_chans 3: without an upsampler the output is "
            "added to the input, "
            "so out_chans must be in_chans, or in_chans 1",
        ),
        (
            {"in_chans": 3, "out_chans": 1, "upscale": 2, "upsampler": "pixelshuffle"},
            "model.out_chans: out_chans 1 with in_chans 3: SwinIR adds an RGB mean to the output "
            "of a 3-channel "
            "network, so out_chans must be 3 or null",
        ),
        (
            {"embed_dim": 2, "num_heads": [1] * 6, "resi_connection": "3conv"},
            "model.resi_connection: 3conv has embed_dim // 4 channels inside, none for embed_dim "
            "2: embed_dim at "
            "least 4, or 1conv",
        ),
        (
            {"embed_dim": 8, "num_heads": [1] * 6, "mlp_ratio": 0.1},
            "model.mlp_ratio: mlp_ratio 0.1 leaves the MLP of embed_dim 8 without channels: at least 0.13",
        ),
    ],
)
def test_what_the_network_would_refuse_is_refused_with_a_way_out(keys, problem):
    assert problem in problems_of(swinir(**keys))


@pytest.mark.parametrize(
    "keys",
    [
        {"embed_dim": 126},
        {"embed_dim": 132},
        {"embed_dim": 128, "num_heads": [4] * 6},
        {"embed_dim": 48, "depths": [2, 2], "num_heads": [4, 6]},
        {"img_size": 8},
        {"img_size": [64, 16], "window_size": 16},
        {"upscale": 3, "upsampler": "pixelshuffle"},
        {"upscale": 8, "upsampler": "pixelshuffle"},
        {"upscale": 6, "upsampler": "pixelshuffledirect"},
        {"upscale": 4, "upsampler": "nearest+conv"},
        {"in_chans": 1, "out_chans": 2},
        {"in_chans": 3, "out_chans": 3},
        {"upsampler": "none"},
    ],
)
def test_the_ways_out_and_the_limits_themselves_are_accepted(keys):
    config_from_dict(swinir(**keys))


def test_nearest_neighbours_by_hand():
    assert nearest_multiples(128, 6) == [126, 132]
    assert nearest_multiples(5, 6) == [6]
    assert nearest_divisors(128, 6) == [4, 8]
    assert nearest_divisors(7, 3) == [1, 7]  # a prime
    assert nearest_divisors(4, 6) == [4]


@pytest.mark.parametrize(
    ("model", "data", "problem"),
    [
        (
            {},
            {"patch_size": [64, 300]},
            "data.patch_size: patch_size 64 x 300 is larger than the image (256 x 256, "
            "model.img_size): at most "
            "that, or use_patches false",
        ),
        (
            {"window_size": 16},
            {"patch_size": 12},
            "data.patch_size: patch_size 12 x 12 is smaller than the window (model.window_size "
            "16): at least 16",
        ),
        (
            {"ape": True},
            {"patch_size": 96},
            "data.patch_size: patch_size 96 x 96 does not suit model.ape, which ties the network "
            "to 256 x 256: set "
            "use_patches or ape to false",
        ),
    ],
)
def test_a_patch_that_does_not_suit_the_network(model, data, problem):
    assert problems_of({**swinir(**model), "data": data}) == [problem]
    config = config_from_dict({**swinir(**model), "data": {**data, "use_patches": False}})
    assert config.training_patch_hw == (256, 256)
