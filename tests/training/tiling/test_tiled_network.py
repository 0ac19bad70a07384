"""Images in tiles against the same images whole, in float64."""

import dataclasses

import pytest
import torch
from torch import nn

from swinmr_profiling.training.step.losses import first_tensor
from swinmr_profiling.training.tiling.support import find_support
from swinmr_profiling.training.tiling.tile_grid import Span, TileError
from swinmr_profiling.training.tiling.tiled_network import (
    TiledNetwork,
    checked_side,
    choose_tiles,
    edge_weights,
)
from tests.training.tiling.made_networks import SqueezeExcite, around, configured, edsr, swinmr

# The summed differences of float32 results; of float64 ones they are below 1e-12.
EQUAL = 1e-10


def both_ways(built, tile, image_hw, overlap=None, support=None):
    """(whole, tiled, the choice) of one random image of the network in float64."""
    chosen = choose_tiles(support or find_support(built), tile, overlap)
    network = built.module.double().eval()
    tiled = TiledNetwork(network, chosen.plan)
    (image,) = built.at_size(image_hw).example_inputs(2, dtype=torch.float64, seed=3)[:1]
    with torch.no_grad():
        return network(image), tiled(image), chosen


# Odd sizes among them: the last tile begins at a window and is smaller. Of SwinMR reflect-padding fills it up.
CASES = {
    "EDSR": (edsr, (24, 24), [(48, 48), (61, 40), (24, 25), (97, 31)]),
    "SwinMR": (lambda: swinmr(4), (28, 28), [(56, 56), (60, 44), (53, 41), (28, 30)]),
    "windows of 7": (lambda: swinmr(7, size=56), (42, 42), [(98, 49), (90, 47)]),
    "long tiles": (lambda: swinmr(4), (24, 40), [(56, 81)]),
    "upscaled SwinIR": (
        lambda: swinmr(4, upscale=2, upsampler="pixelshuffledirect", in_chans=1), (32, 32), [(56, 56), (50, 40)]
    ),
    "two groups": (lambda: swinmr(4, (2, 2)), (36, 36), [(80, 63)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_tiles_that_overlap_enough_are_the_whole_image(name):
    make, tile, images = CASES[name]
    built = make()
    support = find_support(built)
    for image_hw in images:
        whole, tiled, chosen = both_ways(built, tile, image_hw, support=support)
        assert chosen.plan.blend == "crop"
        assert not chosen.changes_result
        assert tiled.shape == whole.shape
        assert float((tiled - whole).abs().max()) <= EQUAL


def test_one_pixel_less_of_overlap_is_not_the_whole_image():
    # What makes the test above one: the support is no larger than it must be.
    built = edsr(upscale=1)
    support = find_support(built)
    less = dataclasses.replace(support.rows, before=support.rows.before - 1)
    short = dataclasses.replace(support, rows=less, columns=less)
    whole, tiled, _ = both_ways(built, (24, 24), (60, 60), support=short)
    assert float((tiled - whole).abs().max()) > 1e-9


def test_tiles_that_begin_between_windows_are_not_the_whole_image():
    built = swinmr(4)
    shifted = dataclasses.replace(find_support(built), period=1)
    whole, tiled, _ = both_ways(built, (27, 27), (60, 60), support=shifted)
    assert float((tiled - whole).abs().max()) > 1e-6


def test_a_wider_overlap_is_the_whole_image_and_a_narrower_one_is_marked():
    built = edsr(upscale=1)
    support = find_support(built)
    assert support.rows.both == 14
    whole, tiled, chosen = both_ways(built, (32, 32), (70, 70), overlap=20, support=support)
    assert (chosen.plan.rows.both, chosen.changes_result) == (20, False)
    assert float((tiled - whole).abs().max()) <= EQUAL
    whole, tiled, chosen = both_ways(built, (32, 32), (70, 70), overlap=6, support=support)
    assert (chosen.plan.blend, chosen.changes_result) == ("smooth", True)
    assert "6 pixels is less than the 14" in chosen.reason
    gap = (tiled - whole).abs()
    assert float(gap.max()) > 1e-6
    # Away from seams nothing differs: the first tile ends at 32, which touches 7 pixels; the next begins at 26.
    assert float(gap[..., :25, :25].max()) <= EQUAL


def test_a_tile_that_the_support_fills_is_averaged_and_says_what_would_do():
    # Support 9 and 9 of windows of 4: 20 and a window, 24.
    support = find_support(swinmr(4))
    chosen = choose_tiles(support, (16, 16))
    assert chosen.changes_result
    assert "at least 24 pixels" in chosen.reason
    assert not choose_tiles(support, (24, 24)).changes_result


def test_squeeze_excite_is_marked_by_the_name_of_its_pool():
    built = around(SqueezeExcite())
    whole, tiled, chosen = both_ways(built, (24, 24), (50, 50))
    assert chosen.changes_result
    assert "1.pool (AdaptiveAvgPool2d) takes something from all" in chosen.reason
    assert float((tiled - whole).abs().max()) > 1e-6


def test_refusals():
    support = find_support(swinmr(4))
    with pytest.raises(TileError, match="no multiple of the network's 4: 24 or 28 would be"):
        choose_tiles(support, (24, 26))
    with pytest.raises(TileError, match="4 would be"):
        checked_side(3, 4)
    with pytest.raises(TileError, match="overlaps"):
        choose_tiles(support, (24, 24), overlap=24)
    with pytest.raises(TileError, match="cannot be given tiles: it takes no image of another size"):
        choose_tiles(find_support(swinmr(4, ape=True)), (24, 24))


def test_weights_of_averaged_tiles_add_up_to_one():
    # Tiles of 8 pixels, 4 of them shared: sin^2 of a rise is cos^2 of a fall.
    found = [Span(0, 8, 0, 6), Span(4, 12, 6, 12)]
    total = torch.zeros(24, dtype=torch.float64)
    for span in found:
        total[span.start * 2 : span.end * 2] += edge_weights(span, found, 2)
    assert torch.allclose(total, torch.ones(24, dtype=torch.float64))
    weights = edge_weights(found[0], found, 1)
    assert weights[:4].tolist() == [1, 1, 1, 1]
    assert weights[4:].tolist() == pytest.approx([0.961939766, 0.691341716, 0.308658284, 0.038060234])


def test_averaged_tiles_of_a_constant_are_that_constant():
    # Also where three tiles lie over one another, the last shifted inward.
    support = dataclasses.replace(find_support(around(SqueezeExcite())), period=2)
    chosen = choose_tiles(support, (16, 16), overlap=8)
    tiled = TiledNetwork(nn.Identity(), chosen.plan)
    image = torch.full((1, 2, 43, 17), 3.5)
    assert torch.allclose(tiled(image), image, atol=1e-6)


def test_small_images_go_in_whole_and_half_precision_is_joined_in_float32():
    built = edsr()
    chosen = choose_tiles(find_support(built), (24, 24))
    seen = []

    class Spy(nn.Module):
        def forward(self, x):
            seen.append(tuple(x.shape))
            return (x.to(torch.bfloat16),)

    tiled = TiledNetwork(Spy(), chosen.plan, frozenset({(40, 20)}))
    image = torch.rand(1, 1, 24, 20)
    assert first_tensor(tiled(image)).dtype == torch.bfloat16
    tiled(torch.rand(1, 1, 40, 20))
    assert seen == [(1, 1, 24, 20), (1, 1, 40, 20)]
    seen.clear()
    assert tiled(torch.rand(1, 1, 30, 20)).dtype == torch.float32
    assert seen == [(1, 1, 24, 20), (1, 1, 24, 20)]


def test_a_network_that_makes_no_image_of_a_tile():
    tiled = TiledNetwork(nn.Flatten(), choose_tiles(find_support(edsr()), (24, 24)).plan)
    with pytest.raises(TileError, match="no image"):
        tiled(torch.rand(1, 1, 30, 30))


@pytest.mark.slow
def test_published_depths_of_swinmr_in_float64():
    # A group of six blocks with windows of 8: 24 pixels. Of the six published groups 6 x 24 + 7, here 2 x 24 + 7.
    built = configured(
        net_type="swinmr", img_size=96, window_size=8, depths=[6, 6], num_heads=[2, 2], embed_dim=8
    )
    support = find_support(built)
    assert support.rows.before == support.columns.after == 55
    whole, tiled, _ = both_ways(built, (128, 128), (190, 131), support=support)
    assert float((tiled - whole).abs().max()) <= EQUAL
