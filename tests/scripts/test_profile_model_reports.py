"""The reports of the main command: written beside the JSON, the same figures; several configs in one run."""

import csv
import json
import os
from pathlib import Path

import pytest

from tests.scripts.test_profile_model_bad_input import refused

FAULTS = Path(__file__).resolve().parent / "fault_injection"
QUICK = ("--num-runs", "7", "--warmup", "0", "--cross-check", "off", "--no-training")
FAILS_AT_BATCH_2 = """
import torch
class Network(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 2 and x.device.type == "cpu":
            raise ValueError("<b>no</b>")
        return x
"""


@pytest.mark.slow
def test_every_report_of_one_run(profile_model, tiny_config, tmp_path, read_profile):
    run = profile_model(
        *("--config", tiny_config(), "--batch-sizes", "1,2", *QUICK, "--output", "p.json", "--verbose"),
        *("--report", "out/r.html", "--csv", "out/r.csv", "--markdown", "out/r.md", "--plot", "out/charts"),
    )
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")
    macs, parameters = profile["architecture"]["macs"], profile["architecture"]["total_parameters"]
    for name in ("r.html", "r.md"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert f"{macs:,}" in text
        assert f"{parameters:,}" in text
        for block in profile["batch_profiling"].values():
            assert f"{block['timing']['median_ms']:,.2f} ms" in text
            assert f"{block['timing']['images_per_second']:,.2f} images/s" in text
    with (tmp_path / "out/r.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        timing = profile["batch_profiling"][row["batch_size"]]["timing"]
        assert float(row["median_ms"]) == timing["median_ms"]
        # Seven runs have quartiles and a deviation, and no percentile: empty cells.
        assert timing["iqr_ms"] >= 0
        assert float(row["std_ms"]) == timing["std_ms"]
        for name in ("p90_ms", "p95_ms", "p99_ms"):
            assert (timing[name], row[name]) == (None, "")
    charts = {file.name for file in (tmp_path / "out/charts").iterdir()}
    assert {"latency.svg", "latency.png", "throughput.svg", "memory_inference.png"} <= charts
    # --verbose: percentiles and the environment; nothing wider than the terminal but a path.
    longest = profile["batch_profiling"]["1"]["timing"]["max_ms"]
    [line] = [
        line for line in run.stdout.splitlines() if line.split()[:1] == ["1"] and len(line.split()) == 7
    ]
    assert line.split()[3:] == ["-", "-", "-", f"{longest:,.2f}"]
    assert "  - is not known: runs needed: p90 10, p95 20, p99 100\n" in run.stdout
    assert "float32_matmul_precision" in run.stdout
    assert all(len(line) <= 80 or "/" in line for line in run.stdout.splitlines())
    assert "\x1b" not in run.stdout


def test_quiet_run(profile_model, tiny_config, tmp_path, read_profile):
    run = profile_model(
        "--config", tiny_config(), "--batch-sizes", "1", *QUICK, "--output", "p.json", "--quiet"
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == "ANSWER for tiny.json:"
    assert [line.split()[0] for line in lines[1:]] == ["parameters", "MACs", "latency"]
    timing = read_profile(tmp_path / "p.json")["single_image"]["timing"]
    assert lines[3].startswith(f"latency     {timing['mean_ms']:.2f}")
    assert all(line.startswith("! ") for line in run.stderr.splitlines()), run.stderr
    assert read_profile(tmp_path / "p.json")["status"] == "complete"


@pytest.mark.slow
def test_several_configs_end_in_their_comparison_and_a_bad_one_loses_none(
    profile_model, tiny_config, tmp_path, read_profile
):
    deep = tiny_config("deep.json", model={"depths": [4]})
    (tmp_path / "bad.json").write_text('{"model": 1}')
    run = profile_model(
        *("--configs", tiny_config(), "bad.json", deep, "--batch-sizes", "1", *QUICK),
        *("--report", "c.html", "--csv", "c.csv", "--plot", "charts"),
    )
    assert run.returncode == 4
    assert "bad.json: exit status 2" in run.stderr
    assert "Traceback" not in run.stderr
    first, second = (read_profile(tmp_path / f"results/profile_{name}.json") for name in ("tiny", "deep"))
    assert not (tmp_path / "results/profile_bad.json").exists()
    ratio = second["architecture"]["macs"] / first["architecture"]["macs"]
    assert "PROFILES COMPARED" in run.stdout
    assert f"{ratio:.3f} x" in run.stdout
    with (tmp_path / "c.csv").open(newline="") as stream:
        rows = {(row["figure"], row["profile"]): row for row in csv.DictReader(stream)}
    assert float(rows["macs", "2"]["ratio_to_first"]) == ratio
    assert float(rows["latency", "2"]["value"]) == second["batch_profiling"]["1"]["timing"]["median_ms"]
    assert "profile_deep.json" in (tmp_path / "c.html").read_text(encoding="utf-8")
    assert (tmp_path / "charts/profile_deep/latency.svg").is_file()


@pytest.mark.slow
def test_a_network_that_raises_loses_no_other(
    profile_model, custom_config, tiny_config, tmp_path, read_profile
):
    custom = custom_config("import torch\nclass Network(torch.nn.Module):\n    pass\n")
    run = profile_model(
        "--configs", custom, tiny_config(), "--trust-config", "--batch-sizes", "1", *QUICK, "--output", "o"
    )
    assert run.returncode == 4, run.stderr
    assert read_profile(tmp_path / "o/profile_tiny.json")["status"] == "complete"
    assert "custom.json: exit status" in run.stderr


def test_two_configs_of_one_name_keep_two_profiles(tmp_path):
    from swinmr_profiling.profiler.run.profile_command import profile_files

    files = profile_files(["a/x.json", "b/x.json", "x_2.json"], tmp_path)
    assert [file.name for _, file in files] == ["profile_x.json", "profile_x_2.json", "profile_x_2_2.json"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--quiet", "--verbose"], ["--quiet", "--verbose"]),
        (["--configs", "a.json"], ["--config and --configs"]),
        (["--report", "tiny.json"], ["--report", "--config", "same file"]),
        (["--report", "x", "--csv", "./x"], ["--report", "--csv", "same file"]),
        (["--report", "."], ["--report", "folder"]),
        (["--report", "tiny.json/x/r.html"], ["--report", "cannot be written"]),
        (["--plot", "tiny.json"], ["--plot", "is a file"]),
    ],
)
def test_options_that_cannot_be_met_are_refused_before_measuring(
    profile_model, tiny_config, arguments, words
):
    tiny_config()
    run = profile_model("--config", "tiny.json", "--batch-sizes", "1", *QUICK, *arguments)
    refused(run, *words)


def test_several_configs_need_a_folder(profile_model, tiny_config):
    refused(profile_model("--configs", tiny_config(), "--output", "-"), "--output", "folder")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("package", "option"), [("jinja2", "--report"), ("matplotlib", "--report"), ("matplotlib", "--plot")]
)
def test_missing_packages_are_one_line_before_measuring(profile_model, tiny_config, package, option):
    faults = {"FAULTS": json.dumps({"missing_packages": [package]}), "PYTHONPATH": str(FAULTS)}
    run = profile_model("--config", tiny_config(), option, "out", env={**os.environ, **faults})
    refused(run, ".[report]", option, "Jinja2" if package == "jinja2" else "matplotlib")


@pytest.mark.slow
def test_report_of_a_partial_run(profile_model, tiny_config, tmp_path, custom_config):
    config = custom_config(FAILS_AT_BATCH_2)
    run = profile_model(
        *("--config", config, "--trust-config", "--batch-sizes", "1,2", *QUICK, "--output", "p.json"),
        *("--report", "r.html"),
    )
    assert run.returncode == 4, run.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "The run is partial: failed: batch 2" in page
    assert "Batch 2: exception" in page
    assert "<b>no</b>" not in page
    assert page.rstrip().endswith("</html>")
