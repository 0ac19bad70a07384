"""Every table at 40, 80 and 120 columns and in a pipe: nothing stands out, nothing is cut, no figure is missing."""

import io
import json
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest

from swinmr_profiling.profiler.plan.console import print_plan
from swinmr_profiling.profiler.plan.plan_file import TrainingPlan
from swinmr_profiling.profiler.record.blocks.strategies import StrategyBlock
from swinmr_profiling.profiler.record.files.reading import parse_profile
from swinmr_profiling.profiler.reports.console.details import print_details
from swinmr_profiling.profiler.reports.console.steps import print_configuration, print_parameters
from swinmr_profiling.profiler.reports.console.strategies import print_strategies
from swinmr_profiling.profiler.reports.console.summary import print_summary
from swinmr_profiling.profiler.reports.console.terminal import Console
from tests.conftest import REPOSITORY, run_command
from tests.made_profiles import profile as made_profile
from tests.profiler.plan.made_plan import plan as made_plan
from tests.training_profiles import memory_model
from tests.training_profiles import profile as training_profile

WIDTHS = (40, 80, 120)
# By command and options; the profiles are written by the fixture.
TABLES = {
    "recommend": ("scripts/recommend_batch_size.py", "t.json", "--gpu", "RTX 3090", "--gpu-memory", "10GiB"),
    "recommend, verbose": ("scripts/recommend_batch_size.py", "t.json", "--gpu", "RTX 3090", "--verbose"),
    "compare": ("scripts/compare_profiles.py", "a.json", "t.json"),
    "list of GPUs": ("scripts/profile_model.py", "--list-gpus"),
    "list of networks": ("scripts/profile_model.py", "--list-models"),
    "list of spandrel's": ("scripts/profile_model.py", "--list-models", "spandrel"),
    "list of restoration's": ("scripts/profile_model.py", "--list-models", "restoration"),
}
# A word that no width holds is left whole: of a path, of a list of numbers.
FIGURE = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.])")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps(made_profile()))
    (tmp_path / "t.json").write_text(json.dumps(training_profile(model=memory_model())))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(command, monkeypatch, capsys, columns):
    """What a command prints on so many columns; None: where it goes to no terminal."""
    name, *options = command
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    capsys.readouterr()
    module = import_module(f"swinmr_profiling.{name.removesuffix('.py').replace('/', '.')}")
    assert module.main(list(options)) == 0
    return capsys.readouterr().out


def held(text, columns):
    """Holds a report against a width; returns its figures."""
    for line in text.splitlines():
        # A single word may be longer: it is left whole.
        assert len(line) <= columns or len(line.split()) <= 2, line
        assert line == line.rstrip()
    assert "\x1b" not in text
    return set(FIGURE.findall(text))


@pytest.mark.parametrize("table", TABLES)
def test_every_width_has_every_figure(table, folder, monkeypatch, capsys):
    texts = {columns: printed(TABLES[table], monkeypatch, capsys, columns) for columns in WIDTHS}
    figures = {columns: held(text, columns) for columns, text in texts.items()}
    assert figures[40] == figures[80] == figures[120]
    piped = printed(TABLES[table], monkeypatch, capsys, None)
    if "--list-models" in TABLES[table]:  # for grep and awk: a line each
        assert not any(line.startswith(" ") for line in piped.splitlines())
        assert piped.split() == texts[80].split()
    else:
        assert piped == texts[80]


@pytest.mark.slow
def test_the_pipelines_at_every_width(tmp_path, monkeypatch, capsys):
    """One by one and beside each other."""
    pytest.importorskip("diffusers")
    monkeypatch.chdir(tmp_path)
    command = ("scripts/profile_pipeline.py", "--pipeline", "sd21-base", "--pipeline", "sd15", "--detailed")
    texts = {columns: printed(command, monkeypatch, capsys, columns) for columns in (40, 120)}
    assert held(texts[40], 40) == held(texts[120], 120)


def strategies(console):
    def on_card(name):
        interval = [9_876_543_210 - 2**29, 9_876_543_210 + 2**29]
        return {
            "card": name,
            "batch_size": 12,
            "global_batch": 48,
            "needed_bytes": 9_876_543_210,
            "process_interval_bytes": interval,
        }

    block = {
        "source": "predicted",
        "devices": 4,
        "cards": [on_card("GeForce RTX 3060 12GB"), on_card("A100 80GB SXM")],
        "kept_bytes": 123_456_789,
        "validation_bytes": None,
        "export_bytes": 2_345_678_901,
        "sent": {"all_reduce": 345_678_901, "all_gather": 45_678_901},
        "ring_bytes": 456_789_012,
        "untested": ["NCCL's memory", "torch 2.12.0: not held against real runs"],
    }
    rows = [StrategyBlock.model_validate({**block, "strategy": name}) for name in ("ddp", "zero1", "fsdp")]
    print_strategies(console, rows)


def test_what_is_untested_of_strategies_is_one_line():
    stream = io.StringIO()
    strategies(Console(stream, 120))
    assert "  Untested on a GPU: NCCL's memory; torch 2.12.0.\n" in stream.getvalue()


def plan(console):
    print_plan(console, TrainingPlan.model_validate(made_plan()))


# 9,876,543,210 bytes and half a GiB around them; 138,550,000,000 multiply-adds.
@pytest.mark.parametrize(
    ("table", "expected"),
    [(strategies, {"9.20", "8.70", "9.70", "12", "48"}), (plan, {"138.55", "10.47", "8"})],
)
def test_strategies_and_plans_at_every_width(table, expected):
    texts = {}
    for columns in WIDTHS:
        stream = io.StringIO()
        table(Console(stream, columns, verbose=True))
        texts[columns] = stream.getvalue()
    figures = [held(text, columns) for columns, text in texts.items()]
    assert figures[0] == figures[1] == figures[2]
    assert expected <= figures[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_main_report_at_every_width(width):
    texts = []
    for columns in (width, 120):
        stream = io.StringIO()
        console = Console(stream, columns, verbose=True)
        found = parse_profile(json.dumps(made_profile()), "made").profile
        print_configuration(console, found.config)
        print_parameters(console, found.architecture)
        print_details(console, found)
        print_summary(console, found)
        texts.append(stream.getvalue())
    held(texts[0], width)
    # The narrow panel has fewer: no megabytes, no shape, no images per second.
    assert held(texts[1], 120) - held(texts[0], width) == set()


LINES = [
    ("scripts/profile_model.py", "--list-models", "spandrel"),
    ("scripts/profile_model.py", "--list-gpus"),
    ("scripts/profile_model.py", "--help"),
    ("scripts/profile_pipeline.py", "--help"),
    (
        "validate_setup.py",
        "--config",
        "c.json",
        "--device",
        "cpu",
        "--skip",
        "model",
        "--skip",
        "training step",
    ),
    ("train.py", "--config", "c.json", "--device", "cpu"),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", LINES, ids=lambda command: " ".join(command[:2]))
def test_a_reader_that_has_gone_is_no_error(command, tmp_path):
    """`| head -1`: the work goes on to its end, and standard error has nothing to say of it."""
    network = {"net_type": "swinir", "img_size": 32, "window_size": 8, "depths": [2], "num_heads": [2]}
    (tmp_path / "c.json").write_text(
        json.dumps(
            {
                "experiment_name": "tiny",
                "paths": {"root": "runs"},
                "model": {**network, "embed_dim": 12},
                "data": {"batch_size": 2, "patch_size": None, "use_patches": False},
                "training": {"total_steps": 2, "loss": {"components": {"perceptual": {"weight": 0}}}},
                "logging": {"tensorboard": False},
            }
        )
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / command[0]), *command[1:]],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    os.close(writer)
    assert "Pipe" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    if command[0] == "train.py":
        assert (tmp_path / "runs/tiny/checkpoints/last.pth").exists()


def test_a_full_disk_is_told(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / "scripts/profile_model.py"), "--list-models"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 4
    assert done.stderr == "error: the report cannot be written: No space left on device\n"


def test_a_run_without_a_terminal_is_the_same_with_no_color(folder):
    """And with TERM=dumb: plain text, same content."""
    command = ("scripts/recommend_batch_size.py", "t.json", "--gpu", "RTX 3090")
    plain = run_command(*command, cwd=folder).stdout
    for changed in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert run_command(*command, cwd=folder, env={**os.environ, **changed}).stdout == plain
