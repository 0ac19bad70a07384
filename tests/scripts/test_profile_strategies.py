"""profile_model.py --devices N --strategy: predicted for real, written, reported, and asked again from the profile."""

import json

import pytest

from tests.conftest import run_command
from tests.training.conftest import TINY_RUN


@pytest.mark.slow
def test_the_table_of_strategies_from_the_config_to_the_reports(tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(TINY_RUN))
    run = run_command(
        "scripts/profile_model.py", "--config", "tiny.json", "--device", "cpu", "--predict-only", "--cross-check",
        "off", "--batch-sizes", "1", "--gpu-memory", "2GiB", "--devices", "2", "--strategy", "ddp,fsdp", "--output",
        "p.json", "--report", "p.html", "--markdown", "p.md", cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    profile = json.loads((tmp_path / "p.json").read_text())
    ddp, fsdp = profile["strategies"]
    assert (ddp["strategy"], fsdp["strategy"], ddp["devices"]) == ("ddp", "fsdp", 2)
    [entry] = profile["recommendation"]["training"]
    # What is recommended is the traced DDP, not an addition to the prediction for one GPU.
    assert entry["needed_bytes"] == ddp["cards"][0]["needed_bytes"]
    assert entry["batch_size"] == ddp["cards"][0]["batch_size"]
    low, high = (f"{size / 2**30:.2f}" for size in ddp["cards"][0]["process_interval_bytes"])
    assert run.stdout.count(f"{low} to {high}") == 3  # the table of strategies, and the answer twice
    assert fsdp["kept_bytes"] < ddp["kept_bytes"]
    for line in ("2GiB GPU x 2", "ddp", "fsdp"):
        assert line in run.stdout
        assert line in (tmp_path / "p.md").read_text()
        assert line in (tmp_path / "p.html").read_text()
    again = run_command(
        "scripts/recommend_batch_size.py", "p.json", "--gpu-memory", "2GiB", "--devices", "2", cwd=tmp_path
    )
    assert again.returncode == 0, again.stderr
    row = next(line.split() for line in again.stdout.splitlines() if line.strip().startswith("ddp "))
    assert int(row[1]) == entry["batch_size"]
