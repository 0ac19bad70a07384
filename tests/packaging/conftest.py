"""Ways to have the package: a checkout, a wheel, an editable install. Each with the commands that run it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

ROOMS = ("configs", "models", "profiler", "training")
COMMANDS = ("train.py", "test.py", "scripts")


@dataclass(frozen=True)
class Installation:
    """python: the interpreter. commands: the folder of train.py and scripts/. package: where the modules lie."""

    python: Path
    commands: Path
    package: Path

    def run(self, *arguments, cwd, timeout=500, **variables):
        """Runs Python with arguments, a command's file first."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [str(self.python), *map(str, arguments)],
            cwd=cwd,
            env={**environment, **{name: str(value) for name, value in variables.items()}},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def tracked_files():
    """The files of the repository that git knows or would take in."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (REPOSITORY / name).is_file()]


@pytest.fixture(scope="session")
def copied_checkout(tmp_path_factory):
    """A checkout that a build may write into."""
    folder = tmp_path_factory.mktemp("copy") / "checkout"
    for name in tracked_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def wheel(copied_checkout, tmp_path_factory):
    """The built wheel's file."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder]
    subprocess.run([*pip, copied_checkout], check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


def empty_environment(folder):
    """A virtual environment that also sees this one's other packages; its interpreter, where its own would lie."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin/python"
    paths = {"base": str(folder), "platbase": str(folder)}
    own_packages = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    # All but the package itself, which may be installed here too and would be found before an editable one.
    others = folder / "packages_of_the_tests"
    others.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "swinmr_profiling" not in entry.name:
            (others / entry.name).symlink_to(entry)
    line = f"import site; site.addsitedir({str(others)!r})\n"
    (own_packages / "packages_of_the_tests.pth").write_text(line)
    return python, own_packages


def new_environment(folder, *what):
    """Such an environment with the package installed."""
    python, own_packages = empty_environment(folder)
    install = [
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--force-reinstall",
        *map(str, what),
    ]
    run = subprocess.run([str(python), "-m", "pip", *install], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return python, own_packages


@pytest.fixture(scope="session")
def apart(tmp_path_factory):
    """The commands alone, in a folder without the rooms: what they import is what is installed."""
    folder = tmp_path_factory.mktemp("apart")
    for name in COMMANDS:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        copy(REPOSITORY / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def checkout():
    return Installation(Path(sys.executable), REPOSITORY, REPOSITORY / "src/swinmr_profiling")


@pytest.fixture(scope="session")
def installed(wheel, apart, tmp_path_factory):
    python, packages = new_environment(tmp_path_factory.mktemp("installed"), wheel)
    return Installation(python, apart, packages / "swinmr_profiling")


@pytest.fixture(scope="session")
def editable(copied_checkout, apart, tmp_path_factory):
    python, _ = new_environment(tmp_path_factory.mktemp("editable"), "-e", copied_checkout)
    return Installation(python, apart, copied_checkout / "src/swinmr_profiling")
