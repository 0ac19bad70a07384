"""The largest size by hand, and that one period more does not fit by the same prediction."""

from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.profiler.allocator.workspaces import workspaces_for
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.largest_tile.card_sizes import CardSizes, budget_here
from swinmr_profiling.profiler.largest_tile.inference_fit import SizesOnCard, fit_inference, size_at
from swinmr_profiling.profiler.largest_tile.size_prediction import SizePredictor, predictor
from swinmr_profiling.profiler.prediction.trace import trace_cache
from swinmr_profiling.training.errors import DataError

MIB, GIB = 2**20, 2**30


class Twice(nn.Module):
    def forward(self, x):
        return x * 2


def twice(total_bytes, **budget):
    # The config names another network, of a library: its traces are this run's alone.
    config = config_from_dict({"model": {"net_type": "timm", "name": "resnet10t"}})
    spec = (InputSpec((1, 64, 64)),)
    built = BuiltModel("custom", Twice(), {"inference": spec, "training": spec, "cross_check": spec})
    return SizePredictor(config, built, "fp32", "contiguous", 1, Budget("card", total_bytes, **budget))


def test_the_largest_image_of_a_network_of_one_product_by_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_cache, "_folder", tmp_path)
    predicted = twice(2 * GIB)
    # From the second image on: the image, its result, and the last one's result; each 4 bytes a pixel, in a segment
    # that is a multiple of 2 MiB. n such: 6 n MiB reserved.
    # The headroom leaves 0.9 x 2048 = 1843.2 MiB: n <= 307. The interval's upper end is 1.58 % + 5 % and 192 MiB of
    # context more (profiler/record/prediction_intervals.py), of 2048 MiB: 6 n <= 1856 / 1.0658 = 1741.4, n <= 290.
    # 580 MiB = 152,043,520 pixels: 12,330^2 = 152,028,900, and 12,331^2 = 152,053,561.
    steps, search = SizesOnCard(predicted, 1).largest()
    assert steps == 12_330
    fits, beyond = predicted.at((12_330, 12_330)), predicted.at((12_331, 12_331))
    assert (fits.reserved_bytes, beyond.reserved_bytes) == (1740 * MIB, 1746 * MIB)
    assert (fits.fits, beyond.fits) == (True, False)
    assert fits.needed_interval_bytes[1] == -(-1740 * MIB * 10_658 // 10_000) + 192 * MIB
    assert fits.live_bytes == 3 * -(-4 * 12_330**2 // 512) * 512
    assert search.is_monotone


def test_the_headroom_decides_where_it_is_the_narrower(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_cache, "_folder", tmp_path)
    predicted = twice(2 * GIB, headroom_share=Fraction(1, 2), reserved_elsewhere_bytes=GIB // 2)
    # (2048 - 512) / 2 = 768 MiB: n = 128, exactly.
    steps, _ = SizesOnCard(predicted, 8).largest()
    assert predicted.at((steps * 8, steps * 8)).needed_bytes == 768 * MIB
    # 256 MiB = 67,108,864 pixels: 8192^2. One period more is 2 MiB more at least.
    assert steps * 8 == 8192


def test_what_lies_beside_it_makes_it_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_cache, "_folder", tmp_path)
    predicted = twice(2 * GIB)
    assert predicted.input_bytes((1000, 3000)) == 12_000_000
    # 1741.4 MiB less 600 MiB of 1.0658: (1856 - 600) / 1.0658 = 1178.4, n = 196, 392 MiB = 102,760,448 pixels.
    steps, _ = SizesOnCard(predicted, 1, held_bytes=600 * MIB).largest()
    assert steps == 10_137  # 10,137^2 = 102,758,769, 10,138^2 = 102,779,044


def test_sizes_of_an_aspect():
    assert size_at(5, 8, (1, 1)) == (40, 40)
    assert size_at(5, 8, (100, 250)) == (40, 96)  # 12.5 periods, to the even
    assert size_at(5, 8, (300, 100)) == (120, 40)


def config(**model):
    section = {
        "net_type": "swinmr",
        "img_size": 32,
        "window_size": 4,
        "depths": [2],
        "num_heads": [2],
        "embed_dim": 8,
    }
    return config_from_dict({"model": {**section, **model}, "data": {"use_patches": False}})


def fitted(total_bytes, image_hw=None, **model):
    return fit_inference(
        config(**model),
        Budget("card", total_bytes),
        config_file=None,
        settings=[("fp32", "contiguous")],
        image_hw=image_hw,
    )


def test_tiles_of_an_image_of_swinmr():
    found = fitted(230 * MIB, (900, 1501))
    (setting,) = found.settings
    assert found.period == 4
    assert (found.support.kind, found.support.rows, found.support.columns) == ("finite", [9, 9], [9, 9])
    side = setting.largest.size[0]
    assert setting.largest.fits
    assert not setting.next_larger.fits
    assert setting.next_larger.size == [side + 4, side + 4]
    image = setting.image
    assert (image.whole, image.blend, image.changes_result) == (False, "crop", False)
    height, width = image.tile
    assert image.peak.size == image.tile
    assert height % 4 == width % 4 == 0
    # By hand: a stride of the tile less the overlap of 18, rounded down to windows.
    stride = (height - 18) // 4 * 4
    assert height == width
    assert image.grid == [1 + -(-(900 - height) // stride), 1 + -(-(1501 - width) // stride)]
    # Beside the image, 5.4 MB, a tile is smaller than the largest.
    assert height < side


@pytest.mark.slow
def test_an_image_that_fits_is_whole():
    (setting,) = fitted(GIB, (64, 40)).settings
    assert (setting.image.whole, setting.image.tiles) == (True, 1)


def test_a_network_of_one_size_and_its_refusal():
    found = fitted(GIB, (64, 64), ape=True)
    (setting,) = found.settings
    assert setting.largest.size == [32, 32]
    assert setting.next_larger is None
    assert "img_size (32, 32) only" in setting.refused
    assert "img_size (32, 32) only" in setting.no_tiles
    assert found.support.kind == "unknown"


def test_sizes_of_the_card_for_evaluation():
    card = CardSizes(config(), Budget("card", 220 * MIB), None)
    assert card.whole_fits((64, 64))
    assert not card.whole_fits((512, 512))
    side = card.largest_side(4, (512, 64))
    assert side % 4 == 0
    assert 64 <= side < 512
    assert card.whole_fits((side, side))
    with pytest.raises(DataError, match="cannot be predicted at 2 x 64"):
        card.whole_fits((2, 64))


@pytest.fixture
def gpu_here(monkeypatch):
    """CUDA answers as an RTX 3060 with 1 GiB in use, the context of this process included."""
    total = 12_488_540_160
    properties = SimpleNamespace(name="NVIDIA GeForce RTX 3060", major=8, minor=6, total_memory=total)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (total - GIB, total))
    return total


def test_the_budget_of_the_gpu_that_is_here(gpu_here):
    budget, capability = budget_here(torch.device("cuda", 0))
    context = workspaces_for(torch.__version__, "8.6").context_bytes
    # Of the GiB in use the bare context is ours; kernels, 128 MiB, are loaded later.
    assert budget.reserved_elsewhere_bytes == GIB - (context - 128 * MIB)
    assert (capability, budget.total_bytes, budget.context_bytes) == ("8.6", gpu_here, context)
    assert budget.usable_bytes == (gpu_here - budget.reserved_elsewhere_bytes) * 9 // 10
    more, _ = budget_here(torch.device("cuda", 0), reserved_bytes=3 * GIB, headroom=Fraction(0))
    assert more.usable_bytes == gpu_here - 3 * GIB


@pytest.mark.parametrize(("precision", "layout"), [("bf16", "channels_last"), ("fp32", "contiguous")])
def test_a_setting_is_what_is_traced(precision, layout):
    found = predictor(config(), precision, layout, 3, Budget("card", GIB))
    assert found.config.system.channels_last == (layout == "channels_last")
    assert found.config.system.mixed_precision == ("bf16" if precision == "bf16" else False)
    # Of three images.
    assert found.input_bytes((10, 20)) == 3 * 10 * 20 * 4


def test_a_batch_needs_more(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_cache, "_folder", tmp_path)
    one, three = (predictor(config(), "fp32", "contiguous", batch, Budget("card", GIB)) for batch in (1, 3))
    assert three.at((64, 64)).live_bytes > 2 * one.at((64, 64)).live_bytes
