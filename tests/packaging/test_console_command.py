"""`swinmr-profile` of a wheel in a new environment, and the Dockerfile's lines in another."""

import json
import os
import subprocess

import pytest

from swinmr_profiling.program import SUBCOMMANDS
from tests.conftest import REPOSITORY
from tests.packaging.conftest import empty_environment

# By hand for the 4 groups of 60 channels: the number of configs/README.md and of the golden profiles.
PARAMETERS_OF_SMALL = 903_121


def dockerfile(instruction):
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    return [line.removeprefix(f"{instruction} ") for line in lines if line.startswith(f"{instruction} ")]


def files_of(folder):
    return {file for file in folder.rglob("*") if "__pycache__" not in file.parts}


@pytest.mark.slow
def test_the_installed_command_runs_the_main_job_in_any_folder(installed, tmp_path):
    command = installed.python.parent / "swinmr-profile"
    before = files_of(installed.package)

    def run(*arguments):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        given = [str(command), *map(str, arguments)]
        return subprocess.run(
            given, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
        )

    for name in SUBCOMMANDS:
        shown = run(name, "--help")
        assert shown.stdout.startswith(f"usage: swinmr-profile {name} [options]"), shown.stderr
    assert run("init").returncode == 0
    options = ("--image-size", 64, "--batch-sizes", 1, 2, "--num-runs", 3, "--device", "cpu")
    done = run("profile", "--config", "configs/train_config_small.json", *options)
    assert done.returncode == 0, done.stderr
    profile = json.loads((tmp_path / "results/profile_results.json").read_text())
    assert profile["architecture"]["total_parameters"] == PARAMETERS_OF_SMALL
    assert profile["environment"]["command_line"].startswith("swinmr-profile profile --config")
    answer = run("recommend", "results/profile_results.json", "--gpu", "RTX 3090")
    assert answer.returncode == 0, answer.stderr
    assert "RTX 3090" in answer.stdout
    # Nothing of a user's lies among the package's files.
    assert files_of(installed.package) == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"configs", "results"}


@pytest.mark.slow
def test_the_lines_of_the_dockerfile(copied_checkout, tmp_path):
    """In an environment that sees the packages already here: an image is not built, and nothing is downloaded."""
    python, packages = empty_environment(tmp_path / "environment")
    folders = {"/opt/swinmr-profiling": copied_checkout, "/work": tmp_path / "work"}
    folders["/work"].mkdir()
    assert dockerfile("COPY") == [". /opt/swinmr-profiling"]
    assert dockerfile("ENTRYPOINT") == ['["swinmr-profile"]']
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PATH": f"{python.parent}:{os.environ['PATH']}", "PIP_NO_DEPS": "1"}
    # pip reads it as the value of `build_isolation`.
    environment |= {"PIP_NO_BUILD_ISOLATION": "0", "PIP_FORCE_REINSTALL": "1"}
    where = None
    ran = []
    for line in (REPOSITORY / "Dockerfile").read_text().splitlines():
        instruction, _, text = line.partition(" ")
        if instruction == "WORKDIR":
            where = folders[text]
        elif instruction == "RUN":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=where,
                env=environment,
                capture_output=True,
                text=True,
                timeout=500,
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            ran.append(text.split()[0])
    assert ran == ["python", "swinmr-profile", "swinmr-profile"]
    assert (packages / "swinmr_profiling/train.py").is_file()
    profile = json.loads((folders["/work"] / "results/profile_results.json").read_text())
    assert profile["architecture"]["total_parameters"] == PARAMETERS_OF_SMALL
    assert list(profile["batch_profiling"]) == ["1", "2"]
