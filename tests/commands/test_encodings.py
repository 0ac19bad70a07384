"""Streams that lack the characters of a report, names that are not text, a full stream: nothing is swallowed."""

import contextlib
import csv
import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swinmr_profiling.profiler.reports.console.terminal import Console
from tests.commands.test_test import command_of
from tests.commands.test_written_files import folder, run, write_weights  # noqa: F401 (a fixture)
from tests.conftest import REPOSITORY, TINY_SWINIR, run_command
from tests.made_profiles import profile as made_profile
from tests.training_profiles import memory_model
from tests.training_profiles import profile as training_profile

ENCODINGS = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    # Python would otherwise take UTF-8 for the C locale.
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
COMMANDS = sorted(
    [
        f"scripts.{file.stem}"
        for file in (REPOSITORY / "scripts").glob("*.py")
        if "\ndef main(" in file.read_text(encoding="utf-8")
    ]
    + ["train", "test", "validate_setup"]
)


@pytest.fixture(params=ENCODINGS)
def environment(request):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, **ENCODINGS[request.param]}


@pytest.mark.sampled(1)
def test_the_recommendation_is_printed_whole(tmp_path, environment):
    """In latin-1 the report ended before its batch line, and the exit status was 0."""
    file = tmp_path / "t.json"
    file.write_text(json.dumps(training_profile(model=memory_model())))
    plain = run_command("scripts/recommend_batch_size.py", file, "--gpu-memory", "10GiB", cwd=tmp_path)
    done = run_command(
        "scripts/recommend_batch_size.py", file, "--gpu-memory", "10GiB", cwd=tmp_path, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "batch 8" in done.stdout
    assert "\u2713" in plain.stdout  # a check mark, which none of these encodings has
    assert len(done.stdout.splitlines()) == len(plain.stdout.splitlines())
    assert "?" in done.stdout


@pytest.mark.sampled(1)
def test_a_comparison_and_its_files(tmp_path, environment):
    """The terminal gets what it can show, the files are UTF-8 whatever the terminal is."""
    (tmp_path / "a.json").write_text(json.dumps(made_profile(config_file="configs/Schädel.json")))
    options = ("--csv", "c.csv", "--markdown", "c.md", "--html", "c.html")
    done = run_command("scripts/compare_profiles.py", "a.json", *options, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "903,121" in done.stdout
    for name in options[1::2]:
        (tmp_path / name).read_bytes().decode("utf-8")
    assert "Latency" in (tmp_path / "c.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_whole_profile_and_its_files(tmp_path, read_profile):
    """The measuring process too: the network prints what the terminal lacks."""
    (tmp_path / "own.py").write_text(
        "import torch\n"
        "class Network(torch.nn.Conv2d):\n"
        "    def __init__(self): super().__init__(1, 1, 3)\n"
        "    def forward(self, x):\n"
        "        print('\\u2713 forward'); return super().forward(x)\n",
        encoding="utf-8",
    )
    model = {"net_type": "custom", "target": "own:Network", "input_shapes": [[1, 8, 8]]}
    name = os.fsdecode("Schädel.json".encode())
    (tmp_path / name).write_text(json.dumps({"model": model}))
    options = (
        "--device",
        "cpu",
        "--trust-config",
        "--no-training",
        "--cross-check",
        "off",
        "--num-runs",
        "1",
    )
    command = [sys.executable, str(REPOSITORY / "scripts/profile_model.py"), "--config", name, *options]
    done = subprocess.run(
        [*command, "--batch-sizes", "1", "--csv", "c.csv", "--output", "-"],
        cwd=tmp_path,
        env={**os.environ, **ENCODINGS["C"]},
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    # JSON that is the same in any encoding.
    profile = read_profile(done.stdout.decode("ascii"))
    assert profile["batch_profiling"]["1"]["timing"]["num_runs"] == 1
    assert profile["config"]["config_file"].endswith("del.json")
    assert list(csv.reader(io.StringIO((tmp_path / "c.csv").read_bytes().decode("utf-8"))))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_sees_to_its_streams_before_anything_else(command, monkeypatch):
    if command == "swinmr_profiling.scripts.benchmark_swinmr":
        pytest.importorskip("spandrel")
    module = importlib.import_module(command) if "." in command else command_of(command)
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    with contextlib.suppress(SystemExit):
        module.main()
    monkeypatch.undo()
    assert [stream.errors for stream in streams] == ["replace", "replace"]


class Ascii(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="ascii")

    def text(self):
        self.flush()
        return self.buffer.getvalue().decode("ascii")


def test_a_console_on_any_stream_goes_on():
    stream = Ascii()
    console = Console(stream)
    console.good("first")
    console.line("second")
    assert stream.text() == "  ? first\nsecond\n"
    assert console.failed is False


def test_what_is_no_matter_of_reading_is_not_swallowed():
    class Broken(io.StringIO):
        def write(self, text):
            raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        Console(Broken()).line("text")
    closed = io.StringIO()
    console = Console(closed)
    closed.close()
    console.line("nobody reads it any more")


@pytest.mark.sampled(1)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("command", ["recommend_batch_size", "compare_profiles"])
def test_an_answer_that_a_full_disk_takes_is_an_error(tmp_path, command):
    (tmp_path / "t.json").write_text(json.dumps(training_profile(model=memory_model())))
    budget = ("--gpu-memory", "10GiB") if command == "recommend_batch_size" else ()
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / f"scripts/{command}.py"), "t.json", *budget],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 4
    assert done.stderr == "error: the report cannot be written: No space left on device\n"


@pytest.mark.slow
def test_nobody_reading_is_no_error(tmp_path):
    """`| head` takes what it wants and goes."""
    (tmp_path / "t.json").write_text(json.dumps(training_profile(model=memory_model())))
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts/compare_profiles.py"), "t.json"],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_volume_whose_name_is_no_text_loses_no_figure(folder, monkeypatch, capsys):  # noqa: F811
    """A file's name may be any bytes; its figures are written, the name as it can be."""
    import numpy as np

    (folder / "data").mkdir()
    name = os.fsdecode(os.fsencode(folder / "data") + b"/caf\xe9 $x^$.npy")
    np.save(name, np.random.default_rng(0).random((1, 32, 32)))
    raw = json.loads((folder / "run.json").read_text())
    raw["data"] |= {"source": "npy", "test_dir": "data", "patch_size": None}
    raw["model"] = {**TINY_SWINIR, "embed_dim": 8}
    (folder / "run.json").write_text(json.dumps(raw))
    write_weights(folder / "runs/tiny/checkpoints/best.pth")
    arguments = ("--config", "run.json", "--device", "cpu", "--output", "out")
    status, out, err = run("test", arguments, "", monkeypatch, capsys)
    assert status == 0, (out, err)
    [row] = csv.DictReader((folder / "out/slices.csv").read_text(encoding="utf-8").splitlines())
    assert "caf" in row["volume"]
    assert float(row["psnr_db"]) > 0
    assert json.loads((folder / "out/summary.json").read_text(encoding="utf-8"))["status"] == "complete"
