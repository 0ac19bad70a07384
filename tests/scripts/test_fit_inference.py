"""fit_inference.py as a user runs it: the table, the file, and every way in which it does not answer."""

import importlib
import json

import pytest
import torch

from swinmr_profiling.profiler.largest_tile.record import InferenceFit

NETWORK = {
    "net_type": "restoration",
    "architecture": "EDSR",
    "img_size": 64,
    "kwargs": {
        "num_in_ch": 1,
        "num_out_ch": 1,
        "num_feat": 8,
        "num_block": 1,
        "upscale": 2,
        "rgb_mean": [0.0],
    },
}
DENOISER = {
    "net_type": "unet_denoiser", "img_size": 32, "base_channels": 8, "channel_multipliers": [1, 2],
    "num_res_blocks": 1, "attention_resolutions": [16], "num_groups": 4, "head_channels": 8,
}  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command in this process on a network; returns (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    command = importlib.import_module("swinmr_profiling.scripts.fit_inference")

    def run(*arguments, model=NETWORK, **sections):
        raw = {"model": model, "data": {"use_patches": False}, **sections}
        (tmp_path / "net.json").write_text(json.dumps(raw))
        status = command.main(["--config", "net.json", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


def test_table_tiles_and_file(run, tmp_path):
    arguments = (
        "--gpu-memory",
        "1GiB",
        "--image",
        "3000x500",
        "--output",
        "fit.json",
        "--layout",
        "contiguous",
    )
    status, out, err = run(*arguments)
    assert status == 0, err
    found = InferenceFit.model_validate_json((tmp_path / "fit.json").read_text())
    assert [(one.precision, one.layout) for one in found.settings] == [
        ("fp32", "contiguous"),
        ("bf16", "contiguous"),
    ]
    for setting in found.settings:
        size, beyond = setting.largest, setting.next_larger
        # The card's rule, again: 10 % stays free, and the interval's end is on the card.
        assert size.needed_bytes <= 2**30 * 9 // 10 < 2**30
        assert size.needed_interval_bytes[1] <= 2**30
        assert beyond.needed_bytes > 2**30 * 9 // 10 or beyond.needed_interval_bytes[1] > 2**30
        assert beyond.size == [size.size[0] + 1] * 2
        assert "x".join(map(str, size.size)) in out
        assert {tuple(size.size), tuple(beyond.size)} <= {tuple(one.size) for one in setting.looked_at}
    # 1 + 2 + 1 + 1 convolutions, and one of the result: half a pixel, the next whole one.
    assert found.support.rows == found.support.columns == [6, 6]
    tiles = found.settings[0].image
    assert tiles.grid[0] == 1 + -(-(3000 - tiles.tile[0]) // (tiles.tile[0] - 12))
    assert tiles.tiles == tiles.grid[0] * tiles.grid[1]
    assert "equal to the whole image" in " ".join(out.split())


def test_the_images_own_proportions(run, tmp_path):
    arguments = (
        "--gpu-memory",
        "1GiB",
        "--precision",
        "fp32",
        "--layout",
        "contiguous",
        "--output",
        "fit.json",
    )
    status, _, err = run(*arguments, "--image", "100x200", "--aspect", "image")
    assert status == 0, err
    (setting,) = InferenceFit.model_validate_json((tmp_path / "fit.json").read_text()).settings
    height, width = setting.largest.size
    assert width == 2 * height


def test_nothing_fits(run):
    # The context alone is larger.
    status, out, err = run("--gpu-memory", "100MiB", "--precision", "fp32", "--layout", "contiguous")
    assert status == 3
    assert "no image fits 100MiB GPU" in err
    assert "fp32" in out


def test_a_denoiser_has_a_largest_image_and_no_tiles(run, tmp_path):
    arguments = (
        "--gpu-memory",
        "900MiB",
        "--layout",
        "contiguous",
        "--precision",
        "fp32",
        "--output",
        "fit.json",
    )
    status, out, err = run(*arguments, "--image", "4096", model=DENOISER)
    assert status == 0, err
    found = InferenceFit.model_validate_json((tmp_path / "fit.json").read_text())
    assert found.settings[0].largest.size[0] % 2 == 0
    assert found.settings[0].image is None
    assert "no tiles: a denoiser is sampled with whole images" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu", "RTX 3099"), "RTX 3099"),
        (("--gpu-memory", "1GiB", "--image", "0x8"), "HEIGHTxWIDTH"),
        (("--gpu-memory", "1GiB", "--image", "8x"), "HEIGHTxWIDTH"),
        (("--gpu-memory", "1GiB", "--precision", "fp8"), "one or more of fp32"),
        (("--gpu-memory", "1GiB", "--layout", "nhwc"), "one or more of contiguous"),
        (("--gpu-memory", "1GiB", "--aspect", "image"), "--image HxW"),
        (("--gpu-memory", "0GiB"), "a GPU has memory"),
        (("--gpu", "RTX 3060 12GB", "--gpu-memory", "1GiB"), "not allowed with"),
    ],
)
def test_wrong_options_end_in_one_line(arguments, words, run, capsys):
    with pytest.raises(SystemExit) as end:
        run(*arguments)
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_card_and_without_its_name(run):
    status, _, err = run()
    assert status == 2
    assert "no GPU is here: name one with --gpu" in err


def test_a_file_that_cannot_be_written_is_told_before_anything_is_searched(run):
    status, out, err = run("--gpu-memory", "1GiB", "--output", ".")
    assert (status, out) == (2, "")
    assert "--output" in err
    status, out, err = run("--gpu-memory", "1GiB", "--output", "net.json")
    assert (status, out) == (2, "")


def test_a_config_that_is_wrong(run):
    status, _, err = run("--gpu-memory", "1GiB", model={**NETWORK, "architecture": "EDSX"})
    assert status == 2
    assert "EDSR" in err


def test_a_network_of_one_size(run):
    model = {
        "net_type": "swinmr",
        "img_size": 32,
        "depths": [2],
        "num_heads": [2],
        "embed_dim": 8,
        "ape": True,
    }
    status, out, _ = run("--gpu-memory", "1GiB", "--precision", "fp32", "--layout", "contiguous", model=model)
    assert status == 0
    assert "refuses the next size" in out


ASKS = """
from torch import nn

class Asks(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x
"""


def test_a_network_that_asks_its_tensors_for_values(run, tmp_path):
    (tmp_path / "asks.py").write_text(ASKS)
    model = {"net_type": "custom", "target": "asks:Asks", "input_shapes": [[1, 32, 32]]}
    status, out, err = run("--gpu-memory", "1GiB", "--trust-config", model=model)
    assert (status, out) == (4, "")
    assert "the network cannot be traced" in err
    status, _, err = run("--gpu-memory", "1GiB", model=model)
    assert status == 2
    assert "--trust-config" in err
