"""compare_profiles.py, driven as a user drives it."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import run_command
from tests.made_profiles import ORIGINAL, SAMPLES_1, profile, ran, with_training
from tests.scripts.test_profile_model_bad_input import refused

FAULTS = Path(__file__).resolve().parent / "fault_injection"


@pytest.fixture
def compare_profiles(tmp_path):
    """Writes profiles and compares them; keyword `profiles` maps file names to contents."""

    def run(*arguments, profiles=None, env=None):
        for name, content in (profiles or {}).items():
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / name).write_text(text, encoding="utf-8")
        return run_command("scripts/compare_profiles.py", *arguments, cwd=tmp_path, env=env)

    return run


def slower(factor):
    return profile({1: ran(1, [sample * factor for sample in SAMPLES_1])})


def test_table_ratios_and_verdict(compare_profiles):
    run = compare_profiles("a.json", "b.json", profiles={"a.json": slower(1), "b.json": slower(1.5)})
    assert run.returncode == 0, run.stderr
    assert max(map(len, run.stdout.splitlines())) <= 80
    assert "\x1b" not in run.stdout
    # Medians of SAMPLES_1: 102.25 ms; 1.5 times that.
    for words in ("102.25 ms", "153.38 ms", "1.500 x", "significantly slower, p < 0.001", "903,121"):
        assert words in run.stdout
    assert run.stderr == ""


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_the_terminal_s_width_is_kept_and_no_figure_is_cut(compare_profiles, columns):
    """10,571.8 MiB of three profiles side by side were printed as `2,498...predicted)`."""
    contents = [with_training() for _ in range(3)]
    for content, mib in zip(contents, (10_571.8, 2_498.25, 99_999.9), strict=True):
        content["batch_profiling"]["1"]["training"]["peak_bytes"] = round(mib * 2**20)
    names = ["a.json", "b.json", "c.json"]
    environment = {**os.environ, "COLUMNS": str(columns)}
    run = compare_profiles(*names, profiles=dict(zip(names, contents, strict=True)), env=environment)
    assert run.returncode == 0, run.stderr
    assert max(map(len, run.stdout.splitlines())) <= columns
    assert max(map(len, run.stdout.splitlines())) > columns - 20
    for figure in ("10,571.8 MiB", "2,498.2 MiB", "99,999.9 MiB"):
        assert f" {figure}" in run.stdout
    assert "…" not in run.stdout


def test_every_format(compare_profiles, tmp_path):
    files = {"a.json": profile(), "old.json": ORIGINAL}
    outputs = ("--html", "out/c.html", "--markdown", "out/c.md", "--csv", "out/c.csv", "--quiet")
    run = compare_profiles("a.json", "old.json", *outputs, profiles=files)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    for name in ("c.html", "c.md", "c.csv"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert "other counting convention: fvcore against exact multiply-adds" in text
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("factor", "share", "code"),
    [(1.5, "5%", 5), (1.5, "0.05", 5), (1.5, "60%", 0), (1.03, "0%", 0), (0.5, "5%", 0)],
)
def test_the_gate_of_a_ci(compare_profiles, factor, share, code):
    files = {"a.json": slower(1), "b.json": slower(factor)}
    run = compare_profiles("a.json", "b.json", "--fail-if-slower", share, profiles=files)
    if code:
        assert "b.json: batch 1: 50.0% slower" in refused_with_output(run, code)
    assert run.returncode == code, run.stderr


def refused_with_output(run, code):
    assert run.returncode == code
    [line] = [line for line in run.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in run.stderr
    return line


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["not valid JSON"]),
        (json.dumps(profile())[:-400], ["not valid JSON"]),
        ('{"a": 1}', ["is not a profile"]),
        (json.dumps(profile(schema_version=99)), ["schema version 99", "update"]),
        (json.dumps(profile()).replace("102.25", "NaN"), ["NaN"]),
        (json.dumps(profile(batch_profiling={"1": []})), ["batch_profiling.1", "damaged"]),
    ],
)
def test_files_that_are_no_profile(compare_profiles, content, words):
    run = compare_profiles("a.json", "bad.json", profiles={"a.json": profile(), "bad.json": content})
    refused(run, "bad.json", *words)


@pytest.mark.slow
def test_bad_arguments(compare_profiles, tmp_path):
    files = {"a.json": profile()}
    refused(compare_profiles(profiles=files), "PROFILE.json")
    refused(compare_profiles("none.json"), "none.json", "no such file")
    refused(compare_profiles("a.json", "--fail-if-slower", "fast"), "--fail-if-slower", "5%")
    refused(compare_profiles("a.json", "--fail-if-slower", "5"), "5% is a share")
    # A profile is never written over by its own comparison, nor one output by another.
    refused(compare_profiles("a.json", "--csv", "a.json"), "--csv", "a.json")
    refused(compare_profiles("a.json", "--csv", "c", "--markdown", "./c"), "--csv", "--markdown")
    (tmp_path / "file").write_text("")
    run = compare_profiles("a.json", "--html", "file/c.html")
    assert run.returncode == 2
    assert "file/c.html" in run.stderr.splitlines()[-1]
    assert json.loads((tmp_path / "a.json").read_text()) == profile()


@pytest.mark.slow
def test_without_jinja_the_html_is_refused_before_anything_is_read(compare_profiles):
    faults = {"FAULTS": json.dumps({"missing_packages": ["jinja2"]}), "PYTHONPATH": str(FAULTS)}
    environment = {**os.environ, **faults}
    refused(compare_profiles("none.json", "--html", "c.html", env=environment), "Jinja2", ".[report]")
    run = compare_profiles("a.json", "--csv", "c.csv", profiles={"a.json": profile()}, env=environment)
    assert run.returncode == 0, run.stderr


def test_hostile_and_strange_texts_end_no_terminal(compare_profiles, tmp_path):
    content = profile(config_file="\x1b[31m<script>alert(1)</script>\u202e\ud800.json")
    content["config"]["experiment_name"] = "\x1b]0;title\x07"
    run = compare_profiles("a.json", "--html", "c.html", profiles={"a.json": json.dumps(content)})
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout
    assert "<script>alert" not in (tmp_path / "c.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_command_needs_no_torch(compare_profiles, tmp_path):
    """It starts in a blink, on a machine that only looks at results."""
    code = (
        "import runpy, sys; sys.argv = ['compare_profiles.py', 'a.json', '--quiet'];\n"
        f"try: runpy.run_path({str(Path(__file__).resolve().parents[2] / 'scripts/compare_profiles.py')!r}, "
        "run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    (tmp_path / "check.py").write_text(code)
    (tmp_path / "a.json").write_text(json.dumps(profile()))
    import subprocess

    run = subprocess.run(
        [sys.executable, "check.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
