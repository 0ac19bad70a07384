"""How far networks look: by kernel arithmetic, by windows, and what has no end, by name."""

import pytest
import torch
from torch import nn

from swinmr_profiling.training.tiling.support import find_support, structural_period
from swinmr_profiling.training.tiling.tile_grid import Reach
from swinmr_profiling.training.tiling.tiled_network import TiledNetwork, choose_tiles
from tests.training.tiling.made_networks import (
    GlobalAttention,
    PadsBothSides,
    PositionTable,
    SkipResized,
    SqueezeExcite,
    SumAlongTheEdge,
    TwoStrides,
    Warps,
    around,
    configured,
    edsr,
    of_module,
    swinmr,
)


def downsampling():
    return of_module(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.Conv2d(4, 4, 3, stride=2, padding=1),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.ConvTranspose2d(4, 1, 2, stride=2),
        )
    )


FINITE = {
    # 1 + 2 x 2 + 1 + 1 of the convolutions before the enlargement, and one pixel of the result after it: half a pixel
    # of the input, so the next whole one.
    "EDSR": (edsr, 1, 2, Reach(8, 8)),
    # 15 convolutions at half the size (Zhang et al. 2018): 30 pixels.
    "FFDNet": (
        lambda: configured(
            net_type="restoration", architecture="FFDNet", img_size=48, kwargs={"in_nc": 1, "nc": 4, "nb": 15}
        ),
        2,
        1,
        Reach(30, 30),
    ),
    # The first convolution: 1. Regular windows of 4: all of the window, 4. Shifted by 2: the half window after it, 6.
    # Three convolutions: 9.
    "windows of 4": (swinmr, 4, 1, Reach(9, 9)),
    # Of 7, shifted by 3. From before: 1, 7, and the window from 3 to 10, 10, 13. From behind: 1, 7, and the window that
    # ends 4 pixels before the edge at 3: 11, 14.
    "windows of 7": (lambda: swinmr(7, size=56), 7, 1, Reach(13, 14)),
    # Two groups: 1, 4, 6; the group's convolution 7, the next window 8, 10; three convolutions 13.
    "two groups": (lambda: swinmr(4, (2, 2)), 4, 1, Reach(13, 13)),
    # 1; from an even edge the strided convolution sees pixels 2i - 1 to 2i + 1, so what lies behind reaches one small
    # pixel farther (i = 0 takes pixel -1), what lies before reaches: by hand below.
    "strided": (downsampling, 2, 1, None),
    "wraps not": (lambda: around(nn.Identity()), 1, 1, Reach(2, 2)),
}


@pytest.mark.parametrize("name", FINITE)
def test_support_of_networks_that_look_around(name):
    make, period, scale, reach = FINITE[name]
    built = make()
    state = {key: tensor.clone() for key, tensor in built.module.state_dict().items()}
    random = torch.get_rng_state()
    support = find_support(built)
    assert (support.kind, support.period, support.scale, support.reason) == ("finite", period, scale, "")
    if name == "strided":
        # Unknown is everything left of 0. Convolution: pixel 0. Strided, small pixel i sees 2i - 1 to 2i + 1: 0. The
        # next: 1. Enlarged: pixels 0 to 3, so 4. Unknown from 0 on, to the left: -1; small pixel -1 sees -3 to -1; the
        # next -2; enlarged -4: 4.
        reach = Reach(4, 4)
    assert support.rows == support.columns == reach
    # The network itself and the caller's random numbers are as they were.
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(built.module.state_dict()[key], tensor) for key, tensor in state.items())


def test_axes_are_told_apart():
    built = of_module(nn.Conv2d(1, 1, (1, 7), padding=(0, 3)))
    support = find_support(built)
    assert (support.rows, support.columns) == (Reach(0, 0), Reach(3, 3))
    # Only what lies before: a causal convolution.
    causal = of_module(nn.Sequential(nn.ZeroPad2d((4, 0, 0, 0)), nn.Conv2d(1, 1, (1, 5))))
    assert find_support(causal).columns == Reach(4, 0)


WHOLE = {
    "1.pool (AdaptiveAvgPool2d)": lambda: around(SqueezeExcite()),
    "1 (GroupNorm)": lambda: around(nn.GroupNorm(2, 4)),
    "1 (InstanceNorm2d)": lambda: around(nn.InstanceNorm2d(4)),
    "1 (GlobalAttention)": lambda: around(GlobalAttention()),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_takes_all_of_the_image_is_named(name):
    support = find_support(WHOLE[name](), limit=64)
    assert support.kind == "whole"
    assert support.reason.startswith(f"{name} takes something from all")
    assert support.least_tile is None


def test_a_groupnorm_of_a_denoiser_is_named():
    built = configured(
        net_type="unet_denoiser", img_size=32, base_channels=8, channel_multipliers=[1, 2], num_res_blocks=1,
        attention_resolutions=[16], num_groups=4, head_channels=8,
    )  # fmt: skip
    assert "norm1 (GroupNorm)" in find_support(built, limit=64).reason


@pytest.mark.parametrize("module", [PositionTable(), SumAlongTheEdge()])
def test_what_depends_on_the_place_is_found_though_nothing_spreads(module):
    support = find_support(around(module))
    assert support.kind == "position"
    assert "where in the image" in support.reason


def test_a_table_of_one_size_is_refused_in_the_networks_words():
    support = find_support(swinmr(ape=True))
    assert support.kind == "unknown"
    assert "img_size (48, 48) only" in support.reason


def test_a_network_that_looks_farther_than_is_looked_for():
    # 2 x 40 = 80 pixels, little by little: no module is to blame, nor one that only holds them.
    many = nn.Sequential(nn.Sequential(*(nn.Conv2d(1, 1, 5, padding=2) for _ in range(40))))
    many = of_module(many)
    assert find_support(many, limit=64).kind == "wide"
    assert find_support(many, limit=80).rows == Reach(80, 80)


def test_a_period_that_no_module_tells_is_found_by_trying():
    built = around(TwoStrides())
    assert structural_period(built) == 1
    support = find_support(built)
    # Before: 1, then half-size pixel 0 and its neighbour 1: pixels 0 to 3, 4, and 5 by the last convolution.
    assert (support.kind, support.period, support.rows) == ("finite", 2, Reach(5, 5))


class InsistsOnFloat32(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1, 3, 3))

    def forward(self, x):
        return nn.functional.conv2d(x.float(), self.weight, padding=1)


def test_a_network_that_insists_on_float32():
    support = find_support(of_module(InsistsOnFloat32()))
    assert (support.kind, support.rows) == ("finite", Reach(1, 1))


def test_a_network_that_makes_no_image():
    support = find_support(of_module(nn.Sequential(nn.Flatten(), nn.LazyLinear(3))))
    assert support.kind == "unknown"


@pytest.mark.parametrize("deformable", [False, True])
def test_a_network_that_reads_where_the_image_sends_it_has_no_end(deformable):
    # Fed unknown places, torchvision's deformable convolution ends the process, and grid_sample takes the edge.
    if deformable:
        pytest.importorskip("torchvision")
    support = find_support(of_module(nn.Sequential(Warps(deformable))))
    assert support.kind == "wide"
    assert support.reason.startswith("0 (Warps) reads pixels at places that it computes from the image")


def test_a_grid_that_no_image_changes_is_none_of_these():
    class Shift(nn.Module):
        def forward(self, x):
            grid = nn.functional.affine_grid(torch.eye(2, 3).to(x)[None], x.shape, align_corners=False)
            return nn.functional.grid_sample(x, grid, align_corners=False)

    assert find_support(of_module(Shift())).kind in ("finite", "position")


@pytest.mark.parametrize(("network", "period"), [(PadsBothSides, 8), (SkipResized, 2)])
def test_tiles_are_the_whole_image_only_at_multiples(network, period):
    torch.manual_seed(0)
    built = of_module(network().double().eval())
    support = find_support(built)
    assert (support.kind, support.period) == ("finite", period)
    for image_hw, equal in (((64, 96), True), ((64, 91), False), ((67, 96), False)):
        assert bool(support.odd_side(image_hw)) is not equal
        tiles = choose_tiles(support, (48, 48), image_sizes=[(48, 48), image_hw])
        assert tiles.changes_result is not equal
        # And so it is: tiles as they were chosen without knowing the image.
        exact = TiledNetwork(built.module, choose_tiles(support, (48, 48)).plan)
        x = torch.rand(1, 1, *image_hw, dtype=torch.float64)
        with torch.no_grad():
            assert torch.allclose(exact(x), built.module(x), atol=1e-10) is equal
