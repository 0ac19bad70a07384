"""The benchmark drives the command in fresh processes and prints their figures; what they are is not asserted."""

import re

import pytest

from tests.conftest import run_command

pytest.importorskip("diffusers")


@pytest.mark.slow
def test_one_pipeline(tmp_path):
    run = run_command(
        "scripts/benchmark_pipelines.py", "--pipelines", "sana-600m-512", "--side", "512", cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    assert re.search(r"sana-600m-512 +\d+\.\d\d +\d+\.\d\d +[01]\.\d\d", run.stdout), run.stdout


@pytest.mark.slow
def test_what_watching_takes(tmp_path):
    run = run_command("scripts/benchmark_pipelines.py", "--watching", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert re.search(r"^FluxPipeline +\d+ +-?\d+\.\d +-?\d+\.\d$", run.stdout, re.MULTILINE), run.stdout
