"""The table of adapters: one row made anew, and what is known of a row without predicting it."""

from pathlib import Path

import pytest

from swinmr_profiling.models.registry import build_model
from swinmr_profiling.scripts import table_of_adapters
from swinmr_profiling.scripts.table_of_adapters import NETWORKS, config_of, main
from tests.conftest import REPOSITORY

pytest.importorskip("diffusers")
pytest.importorskip("peft")
PAGE = Path(REPOSITORY) / "docs" / "fine_tuning.md"


def rows(text):
    names = tuple(f"| {one.name} |" for one in NETWORKS)
    lines = [line for line in text.splitlines() if line.startswith(names)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_a_row_of_the_page_is_made_anew(capsys):
    """And its trained parameters by hand: rank 4 on queries, keys, values and outputs of 16 blocks, each with attention
    to the latent (four layers C to C) and to the prompt (keys and values 768 to C).
    """
    assert main(["--only", "sd15", "--optimizer", "adamw", "--checkpointing", "full"]) == 0
    [row] = rows(capsys.readouterr().out)
    widths = [320] * 5 + [640] * 5 + [1280] * 6
    assert row[4] == f"{sum(4 * (6 * 2 * c + 2 * (c + 768)) for c in widths):,}"
    assert row in rows(PAGE.read_text(encoding="utf-8"))


def test_every_row_of_the_page_is_one_of_the_command():
    page = rows(PAGE.read_text(encoding="utf-8"))
    pixels = {(one.name, f"{one.pixels[0]} x {one.pixels[1]}") for one in NETWORKS}
    assert {(row[0], row[1]) for row in page} <= pixels
    assert {row[0] for row in page} == {one.name for one in NETWORKS}
    # Whoever fits in 12 GB fits in 24, with a larger batch.
    assert all(row[5] == "none" or int(row[5]) < int(row[7]) for row in page)


def test_the_largest_of_them_is_made_without_data():
    """FLUX.1-dev has 11.9 x 10^9 parameters; its adapters are by hand 19 blocks of twice (to_q, to_k, to_v alone are
    named: the text's projections have other names) and 38 single ones of width 3072.
    """
    [flux] = [one for one in NETWORKS if one.name == "flux1-dev"][:1]
    built = build_model(config_of(flux, 4, "adamw", "none"), data="never")
    trained = sum(p.numel() for p in built.module.parameters() if p.requires_grad)
    assert next(built.module.parameters()).is_meta
    assert sum(p.numel() for p in built.module.parameters()) - trained == 11_901_408_320
    assert trained == 4 * 2 * 3072 * (19 * 4 + 38 * 3) == 4_669_440
    assert built.inputs["training"][0].shape == (32 * 48, 64)


def test_a_name_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--only", "sd9"])
    assert ended.value.code == 2
    assert "sd15" in capsys.readouterr().err
    assert table_of_adapters.TARGETS == ("to_q", "to_k", "to_v", "to_out.0")
