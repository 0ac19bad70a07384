"""test.py --tile as a user runs it."""

from types import SimpleNamespace

import pytest
import torch

from swinmr_profiling.configs import load_config
from tests.commands.test_test import command_of, read_summary, run_test, write_config  # noqa: F401 (fixtures)

# Windows of 4 in two blocks look 9 pixels around: a tile of 24 of the phantom's 32 is enough.
SMALL_WINDOWS = {"model.window_size": 4}


def evaluated(write_config, run_test, tmp_path, *arguments):  # noqa: F811
    config = write_config(SMALL_WINDOWS)
    status, out, err = run_test("--config", config, "--output", tmp_path / "out", *arguments)
    assert status == 0, err
    return read_summary(tmp_path / "out"), " ".join(out.split())


def test_tiles_give_the_metrics_of_whole_images(write_config, run_test, tmp_path):  # noqa: F811
    # The weights are drawn: the same ones for both.
    torch.manual_seed(0)
    config = write_config(SMALL_WINDOWS)
    assert run_test("--config", config, "--output", tmp_path / "whole")[0] == 0
    torch.manual_seed(0)
    whole = read_summary(tmp_path / "whole")
    assert whole["tiling"] is None
    summary, out = evaluated(write_config, run_test, tmp_path, "--tile", 24)
    difference = summary["tiling"].pop("difference")
    assert difference["reason"] is None
    assert 0 <= difference["largest"] < 1e-5
    assert summary["tiling"] == {
        "asked": 24,
        "applied": True,
        "tile": [24, 24],
        "overlap": [18, 18],
        "multiple_of": 4,
        "blend": "crop",
        "whole_sizes": [],
        "changes_result": False,
        "reason": "tiles overlap by what the network looks beyond them (18 pixels)",
    }
    assert "tiles of 24 x 24, joined exactly" in out
    assert summary["latency"]["what"].startswith("one image in tiles")
    assert whole["latency"]["what"].startswith("network on one image")
    for convention in ("volume", "slice"):
        for metric in ("psnr_db", "ssim", "nmse"):
            value, wanted = (
                one["metrics"][convention][metric]["reconstruction"]["mean"] for one in (summary, whole)
            )
            assert value == pytest.approx(wanted, rel=1e-5)


def test_a_tile_that_is_too_small_is_marked_and_measured(write_config, run_test, tmp_path):  # noqa: F811
    summary, out = evaluated(write_config, run_test, tmp_path, "--tile", 16, "--tile-overlap", 4)
    block = summary["tiling"]
    assert (block["changes_result"], block["blend"], block["overlap"]) == (True, "smooth", [4, 4])
    assert 0 < block["difference"]["root_mean_square"] <= block["difference"]["largest"] < 1
    assert "tiling changes the result" in out
    assert f"largest difference {block['difference']['largest']:.1e}" in out


def test_auto_on_a_cpu(write_config, run_test, tmp_path):  # noqa: F811
    summary, out = evaluated(write_config, run_test, tmp_path, "--tile", "auto")
    assert summary["tiling"]["applied"] is False
    assert "--tile auto: whole images" in out


def test_refusals_end_in_one_line(write_config, run_test, capsys):  # noqa: F811
    config = write_config(SMALL_WINDOWS)
    status, _, err = run_test("--config", config, "--tile", 18)
    assert status == 2
    assert "18 pixels is no multiple of the network's 4: 16 or 20 would be" in err
    for arguments, words in (
        (("--tile", "0"), "at least 1"),
        (("--tile", "big"), "at least 1"),
        (("--tile-overlap", "4"), "--tile N, or --tile auto"),
    ):
        with pytest.raises(SystemExit) as end:
            command_of("test").main(["--config", str(config), *arguments])
        assert end.value.code == 2
        assert words in capsys.readouterr().err


def test_a_denoiser_is_refused(write_config, run_test):  # noqa: F811
    model = {
        "net_type": "unet_denoiser", "img_size": 32, "base_channels": 8, "channel_multipliers": [1, 2],
        "num_res_blocks": 1, "attention_resolutions": [16], "num_groups": 4, "head_channels": 8,
    }  # fmt: skip
    config = write_config({"model": model}, checkpoint=False)
    status, _, err = run_test("--config", config, "--tile", "auto")
    assert status == 2
    assert "--tile: a denoiser is sampled with whole images" in err


def test_auto_on_a_gpu_asks_what_fits_it(write_config, monkeypatch):  # noqa: F811
    total = 12_488_540_160
    properties = SimpleNamespace(name="NVIDIA GeForce RTX 3060", major=8, minor=6, total_memory=total)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (total, total))
    command = command_of("test")
    config = load_config(write_config({**SMALL_WINDOWS, "data.val_batch_size": 3})).config
    arguments = ["--config", "any.json", "--tile"]
    card = command.tile_request(command.parse([*arguments, "auto"]), config, torch.device("cuda", 0)).card
    assert card.name == "NVIDIA GeForce RTX 3060"
    assert card.whole_fits((64, 64))
    # Three images a batch, as val_batch_size says.
    predicted = card._predicted
    assert (predicted.batch_size, predicted.precision, predicted.layout) == (3, "fp32", "contiguous")
    named = command.tile_request(command.parse([*arguments, "64"]), config, torch.device("cuda", 0))
    assert (named.side, named.card) == (64, None)
