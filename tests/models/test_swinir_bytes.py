"""What the network keeps, moves and holds at its peak, against the reference: counted by the real benchmark.

Times are for people to read; bytes do not depend on the machine, so they are held to here.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "benchmark_swinmr.py"

# Embed 60, fp32, no recomputation, on CUDA: 0.708 of the reference's bytes, where 0.70 was aimed at. A head dim
# of 10 is padded to 12 there, in q, k, v and the attended values; everything else is at its least.
WITH_PADDED_HEADS = 0.71


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    output = tmp_path_factory.mktemp("benchmark") / "rows.json"
    command = [
        sys.executable,
        str(SCRIPT),
        "--rows",
        "saved,peak,moved",
        "--threads",
        "1",
        "--output",
        str(output),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stderr
    measured = json.loads(output.read_text())["rows"]
    return {(row["row"], row["embed_dim"], row["device"]): row["ratio"] for row in measured}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "published", "small"),
    [
        ("saved none", 0.90, WITH_PADDED_HEADS),
        ("saved light", 0.62, 0.50),
        ("peak full", 0.25, 0.25),
        ("moved none", 0.62, 0.50),
    ],
)
def test_as_on_cuda(rows, row, published, small):
    assert rows[row, 180, "meta"] <= published
    assert rows[row, 60, "meta"] <= small


@pytest.mark.slow
def test_on_a_cpu(rows):
    """LayerNorm, GELU and probabilities are always computed again there, in cache."""
    for kind in ("saved none", "saved light"):
        assert rows[kind, 180, "cpu"] <= 0.62
        assert rows[kind, 60, "cpu"] <= 0.50
    assert rows["peak full", 180, "cpu"] <= 0.25
    assert rows["peak full", 60, "cpu"] <= 0.25


@pytest.mark.slow
def test_unknown_rows_are_refused():
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--rows", "speed"], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 2
    assert "speed is not one of forward, training" in run.stderr
