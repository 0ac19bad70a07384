"""A stop signal while a command imports its libraries, or works where nothing has to be saved: one line, status 4."""

import os
import runpy
import signal
import subprocess
import sys
import time

import pytest

from swinmr_profiling import command
from tests.conftest import REPOSITORY

COMMANDS = (
    "train.py",
    "test.py",
    "validate_setup.py",
    *(
        f"scripts/{name}.py"
        for name in (
            "profile_model",
            "recommend_batch_size",
            "compare_profiles",
            "profile_pipeline",
            "generate_image",
            "check_on_gpu",
        )
    ),
)
# Stands in for the first library of its kind that the command imports: it says so, waits, and swallows exceptions, as
# some libraries do.
SLOW_LIBRARY = """
import sys, time
print("importing", flush=True)
try:
    time.sleep(60)
except BaseException:
    pass
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_during_imports_is_one_line(name, tmp_path):
    """pydantic is what every command imports first; it is replaced by a module that waits."""
    (tmp_path / "pydantic.py").write_text(SLOW_LIBRARY)
    (tmp_path / "numpy.py").write_text(SLOW_LIBRARY)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, str(REPOSITORY / name), "--config", "none.json"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=50)
    assert (process.returncode, err) == (4, "interrupted by SIGINT\n")


def test_a_signal_that_a_command_leaves_to_us_is_one_line(monkeypatch, capsys):
    before = {number: signal.getsignal(number) for number in command.STOP_SIGNALS}

    def main():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        except Exception:  # as a command that goes on with its next model
            return 0

    try:
        with pytest.raises(SystemExit) as ended:
            command.run(main)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended.value.code == command.EXIT_INTERRUPTED == 4
    assert capsys.readouterr().err == "interrupted by SIGTERM\n"


def test_importing_a_command_takes_no_signal(monkeypatch):
    before = {number: signal.getsignal(number) for number in command.STOP_SIGNALS}
    runpy.run_path(str(REPOSITORY / "scripts/compare_profiles.py"), run_name="a_module")
    assert {number: signal.getsignal(number) for number in command.STOP_SIGNALS} == before
