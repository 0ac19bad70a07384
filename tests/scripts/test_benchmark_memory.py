"""The rows of ranks: kept in a file, gone on with, and what is refused. How they are made: tests/profiler/ranks."""

import json

import pytest

from swinmr_profiling.profiler.ranks import compared_rows
from swinmr_profiling.profiler.ranks.compared_rows import (
    NETWORKS,
    STRATEGIES,
    RankRow,
    earlier_rows,
    key_of,
)
from swinmr_profiling.scripts import benchmark_memory


def row(key, measured=1000):
    return RankRow(
        of=key, rank=0, predicted_bytes=999, measured_bytes=measured, share=0.5, gradient_bytes=2**25
    )


@pytest.fixture
def asked(monkeypatch):
    """The keys that are measured, which here takes no time."""
    found = []

    def measure(keys):
        for key in keys:
            found.append(key)
            yield row(key)

    monkeypatch.setattr(compared_rows, "compared_rows", measure)
    return found


def test_a_cut_run_goes_on(tmp_path, asked, capsys):
    """A row that is whole is not measured again; a line that was cut off is left out, and nothing is appended to it."""
    file = tmp_path / "ranks.jsonl"
    first = row(key_of("DiT", "DDP", 2), measured=990)
    other = row(key_of("DiT", "DDP", 2).model_copy(update={"torch": "2.0.0"}))
    cut = row(key_of("DiT", "ZeRO-1", 2)).model_dump_json()[:50]
    file.write_text(f"{first.model_dump_json()}\n{other.model_dump_json()}\n{cut}")
    arguments = ["--ranks", "2", "--networks", "DiT", "--output", str(file), "--resume"]
    assert benchmark_memory.main(arguments) == 0
    assert [(key.network, key.ranks, key.strategy) for key in asked] == [
        ("DiT", 2, strategy) for strategy in ("ZeRO-1", "FSDP2", "FSDP2, kept")
    ]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert "DDP" in lines[0]
    assert lines[0].endswith("1.00909  share 0.50")
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(written) == 5  # that of another version is kept
    # And nothing is left to do.
    asked.clear()
    assert benchmark_memory.main(arguments) == 0
    assert not asked
    assert len(earlier_rows(file)) == 5


def test_without_resume_everything_is_measured_anew(tmp_path, asked):
    file = tmp_path / "ranks.jsonl"
    file.write_text(row(key_of("DiT", "DDP", 1)).model_dump_json() + "\n")
    assert benchmark_memory.main(["--ranks", "1,4", "--output", str(file)]) == 0
    assert len(asked) == 2 * len(NETWORKS) * len(STRATEGIES) == len(earlier_rows(file))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--ranks", "2", "--networks", "VGG"], "'VGG' is none of SwinMR, U-Net, DiT, timm ViT"),
        (["--ranks", "2,none"], "'none': a whole number of at least 1"),
        (["--ranks", "2", "--resume"], "name the file with --output"),
    ],
)
def test_what_is_refused(arguments, told, capsys):
    with pytest.raises(SystemExit) as ended:
        benchmark_memory.main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_the_rows_of_the_page_meet_what_is_promised():
    """Those that are kept: every network, number of ranks and strategy within 0.5 %."""
    rows = earlier_rows(benchmark_memory.REPOSITORY / "results/reference/ranks.jsonl")
    wanted = {
        (network, ranks, strategy) for network in NETWORKS for ranks in (1, 2, 4) for strategy in STRATEGIES
    }
    assert {(key.network, key.ranks, key.strategy) for key in rows} == wanted
    page = (benchmark_memory.REPOSITORY / "docs/several_gpus.md").read_text(encoding="utf-8")
    for key, one in rows.items():
        assert key.samples == NETWORKS[key.network][1]
        assert abs(one.ratio - 1) < 0.005, key
        assert one.share >= 0.5, key
        assert one.gradient_bytes > 25 * 2**20
        cells = f"| {key.network} | {key.ranks} | {key.strategy} | {one.predicted_bytes:,} | {one.measured_bytes:,} |"
        assert cells in page
