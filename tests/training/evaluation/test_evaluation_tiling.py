"""Which tiles an evaluation takes: asked for by size, or fitted to a card that stands in for a GPU."""

from types import SimpleNamespace

import pytest
import torch

from swinmr_profiling.training.evaluation.evaluation import ReconstructionError
from swinmr_profiling.training.evaluation.evaluation_tiling import (
    TileRequest,
    first_cut_slice,
    measure_difference,
    tile_evaluation,
    tiling_lines,
)
from swinmr_profiling.training.tiling.tiled_network import TiledNetwork
from tests.training.tiling.made_networks import (
    MeanOfLargeImages,
    PadsBothSides,
    PositionTable,
    SqueezeExcite,
    around,
    edsr,
    of_module,
    swinmr,
)


class Card:
    """Takes images of so many pixels; is asked for the largest side."""

    name = "a card"

    def __init__(self, pixels):
        self.pixels = pixels
        self.asked = []

    def whole_fits(self, image_hw):
        return image_hw[0] * image_hw[1] <= self.pixels

    def largest_side(self, period, image_hw):
        self.asked.append((period, image_hw))
        side = int(self.pixels**0.5) // period * period
        return side or None


def tiled(built, sizes, request):
    built.module.eval()
    return tile_evaluation(built, sizes, request)


def test_auto_on_a_cpu_is_whole_images_and_says_so():
    built = edsr(upscale=1)
    tiling = tiled(built, [(64, 64)], TileRequest(None))
    assert tiling.network is built.module
    assert tiling.block["applied"] is False
    assert "this is a CPU" in tiling.block["reason"]
    assert tiling_lines(tiling.block) == [f"--tile auto: {tiling.block['reason']}"]


def test_auto_where_whole_images_fit():
    tiling = tiled(edsr(upscale=1), [(64, 64), (32, 100)], TileRequest(None, card=Card(4096)))
    assert tiling.block["applied"] is False
    assert tiling.block["reason"] == "whole images fit a card"


def test_auto_fits_tiles_to_the_card_and_leaves_whole_what_fits():
    card = Card(2000)
    built = swinmr(4)
    tiling = tiled(built, [(60, 60), (100, 20), (16, 16)], TileRequest(None, card=card))
    # 44^2 = 1936, a multiple of 4; 100 x 20 fits though it is longer than a tile.
    assert card.asked == [(4, (60, 60))]
    assert tiling.block["tile"] == [44, 44]
    assert tiling.block["whole_sizes"] == [[16, 16], [100, 20]]
    assert tiling.block["blend"] == "crop"
    assert not tiling.changes_result
    assert isinstance(tiling.network, TiledNetwork)
    assert tiling.network.is_cut((60, 60))
    assert not tiling.network.is_cut((100, 20))
    image = torch.rand(1, 1, 60, 60)
    with torch.no_grad():
        assert torch.allclose(tiling.network(image), built.module(image), atol=1e-5)
    assert "equal to whole images" in tiling_lines(tiling.block)[0]


def test_auto_refuses_tiles_that_make_another_image():
    with pytest.raises(
        ReconstructionError, match=r"1\.pool \(AdaptiveAvgPool2d\).*--tile N cuts all the same"
    ):
        tiled(around(SqueezeExcite()), [(60, 60)], TileRequest(None, card=Card(2000)))
    with pytest.raises(ReconstructionError, match="where in the image"):
        tiled(around(PositionTable()), [(60, 60)], TileRequest(None, card=Card(2000)))


def test_auto_where_no_tile_fits():
    with pytest.raises(ReconstructionError, match="no tile fits a card"):
        tiled(swinmr(4), [(60, 60)], TileRequest(None, card=Card(5)))


def test_a_size_marks_what_changes_and_the_difference_is_measured():
    built = around(SqueezeExcite())
    tiling = tiled(built, [(60, 60)], TileRequest(24))
    assert tiling.changes_result
    sample = {"input": torch.rand(1, 1, 60, 60), "name": ["volume, slice 0"]}
    measure_difference(tiling, built.module, sample, torch.device("cpu"), None)
    difference = tiling.block["difference"]
    with torch.no_grad():
        whole, made = built.module(sample["input"]), tiling.network(sample["input"])
    gap = (made - whole).abs().max() / whole.abs().max()
    assert difference["largest"] == pytest.approx(float(gap), rel=1e-4)
    assert 0 < difference["root_mean_square"] <= difference["largest"]
    lines = tiling_lines(tiling.block)
    assert "tiling changes the result" in lines[0]
    assert "volume, slice 0 in tiles and whole" in lines[1]


def test_a_whole_image_that_does_not_fit_is_told():
    class Full(torch.nn.Module):
        def forward(self, x):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    built = around(SqueezeExcite())
    tiling = tiled(built, [(60, 60)], TileRequest(24))
    sample = {"input": torch.rand(1, 1, 60, 60), "name": ["one"]}
    measure_difference(tiling, Full(), sample, torch.device("cpu"), None)
    assert tiling.block["difference"]["largest"] is None
    assert "not measured: the whole image does not fit" in tiling_lines(tiling.block)[1]


def test_tiles_that_should_be_equal_are_compared_too():
    built = swinmr(4)
    tiling = tiled(built, [(60, 60)], TileRequest(28))
    sample = {"input": torch.rand(1, 1, 60, 60), "name": ["one"]}
    measure_difference(tiling, built.module, sample, torch.device("cpu"), None)
    assert not tiling.changes_result
    assert 0 <= tiling.block["difference"]["largest"] < 1e-5


def test_what_a_network_does_with_large_images_alone_is_seen_in_a_slice():
    built = around(MeanOfLargeImages())
    tiling = tiled(built, [(20, 20), (60, 60)], TileRequest(24))
    assert not tiling.changes_result  # as far as strips can tell
    small, large = SimpleNamespace(image_hw=(20, 20), slices=3), SimpleNamespace(image_hw=(60, 60), slices=1)
    assert first_cut_slice(tiling, [small, large]) == 3
    assert first_cut_slice(tiling, [small]) is None
    sample = {"input": torch.rand(1, 1, 60, 60), "name": ["volume, slice 3"]}
    measure_difference(tiling, built.module, sample, torch.device("cpu"), None)
    assert tiling.changes_result
    assert (
        "tiling changes the result; volume, slice 3 in tiles is not the whole image"
        in tiling_lines(tiling.block)[0]
    )


def test_sides_between_multiples_are_marked_and_refused_by_auto():
    built = of_module(PadsBothSides())
    assert not tiled(built, [(64, 48)], TileRequest(32)).changes_result
    tiling = tiled(built, [(64, 48), (67, 48)], TileRequest(32))
    assert tiling.changes_result
    assert "an image of 67 x 48 is no multiple of 8" in tiling.block["reason"]
    # An image that no tile cuts does not matter.
    assert not tiled(built, [(64, 48), (31, 29)], TileRequest(32)).changes_result
    with pytest.raises(ReconstructionError, match=r"67 x 48 is no multiple of 8.*--tile N cuts all the same"):
        tiled(built, [(64, 48), (67, 48)], TileRequest(None, card=Card(2000)))


def test_images_no_larger_than_the_tile_go_in_whole():
    built = swinmr(4)
    tiling = tiled(built, [(48, 30)], TileRequest(48))
    assert tiling.network is built.module
    assert "none is larger than 48 pixels" in tiling.block["reason"]


@pytest.mark.parametrize(
    ("make", "side", "words"),
    [
        (lambda: swinmr(4), 26, "no multiple of the network's 4: 24 or 28 would be"),
        (lambda: swinmr(4, ape=True), 24, "takes no image of another size"),
    ],
)
def test_sizes_that_cannot_be(make, side, words):
    with pytest.raises(ReconstructionError, match=words):
        tiled(make(), [(60, 60)], TileRequest(side))
