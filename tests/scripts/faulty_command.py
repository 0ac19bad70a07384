"""`profile_model.py` on a network that fails when it is told to, as the tests of faults start it."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import psutil

from tests.conftest import REPOSITORY

HERE = Path(__file__).resolve().parent
COMMAND = REPOSITORY / "scripts/profile_model.py"
# The command itself takes some seconds; a hang of its own must not hang the tests.
PATIENCE_S = 240
TWO_RUNS = ("--num-runs", "2", "--warmup", "0")
SHORT_RUNS = ("--time-budget", "0.6")


class Command:
    """`profile_model.py` on the faulty network, with batch sizes 1, 4 and 8 and two runs each.

    Two requested runs are made in one process; `runs` in their place may let a size have three.
    """

    def __init__(self, folder):
        self.folder = folder
        self.token = uuid.uuid4().hex
        self.faults = {}
        self.environment = {**os.environ, "FAULT_TEST": self.token}
        shutil.copy(HERE / "faulty_network.py", folder)
        self.output = folder / "profile.json"

    def start(self, *options, fault=None, moment="batch", batch=4, sizes="1,4,8", runs=TWO_RUNS, **popen):
        model = {
            "net_type": "custom",
            "target": "faulty_network:Faulty",
            "kwargs": {"fault": fault, "moment": moment, "batch": batch},
            "input_shapes": [[1, 8, 8]],
        }
        config = self.folder / "faulty.json"
        config.write_text(json.dumps({"model": model}))
        if self.faults:
            self.environment["FAULTS"] = json.dumps({"repository": str(REPOSITORY), **self.faults})
            self.environment["PYTHONPATH"] = str(HERE / "fault_injection")
        arguments = ["--config", config, "--trust-config", "--device", "cpu", "--batch-sizes", sizes]
        arguments += [*runs, "--cross-check", "off", "--output", self.output, "--no-training"]
        popen = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        return subprocess.Popen(
            [sys.executable, COMMAND, *map(str, arguments), *options],
            cwd=self.folder,
            env=self.environment,
            text=True,
            start_new_session=True,
            **popen,
        )

    def run(self, *options, **how):
        process = self.start(*options, **how)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def left_behind(self):
        """Processes of this command that still run (told by their environment)."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("FAULT_TEST") == self.token and process.status() != "zombie":
                    found.append(process.cmdline())
            except (psutil.Error, OSError):
                continue
        return found


def assert_measured(profile, *sizes):
    for size in sizes:
        timing = profile["batch_profiling"][size]["timing"]
        assert timing["num_runs"] == 2
        assert len(timing["samples_ms"]) == 2


def wait_for(process, words):
    """Reads the command's output until a line holds the words."""
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the command ended before {words!r}")
