"""Tests that are killed from outside leave no command of theirs, also none that is held at its moment."""

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from tests.conftest import REPOSITORY
from tests.faults.shared_state import NoInjectionError, build_library
from tests.fork_server import ends_before

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="no descriptors of processes here")
HELD = """
import sys, time
from pathlib import Path
from tests.faults.fault_server import FaultServer
from tests.faults.shared_state import SharedState
library, folder = map(Path, sys.argv[1:])
state = SharedState(folder / "state")
state.set_moment("p", "now")
server = FaultServer(library, with_torch=False)
running = server.start([str(folder / "command.py")], folder, {"FAULT_STATE": str(state.file)})
while not state.reached:
    time.sleep(0.01)
print(state.reached, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("first", ["the child", "the tests"])
def test_who_ends_first(first):
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        time.sleep(0 if first == "the child" else 600)
        os._exit(0)
    if first == "the tests":
        ours.close()
    assert ends_before(child, theirs) is (first == "the child")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.slow
def test_a_command_that_is_held_ends_with_the_tests(tmp_path):
    try:
        library = build_library(tmp_path)
    except NoInjectionError as error:
        pytest.skip(f"no fault can be injected here: {error}")
    (tmp_path / "command.py").write_text("print('now', flush=True)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))}
    given = [sys.executable, "-c", HELD, str(library), str(tmp_path)]
    tests = subprocess.Popen(given, env=environment, stdout=subprocess.PIPE, text=True)
    held = psutil.Process(int(tests.stdout.readline()))
    tests.kill()
    tests.communicate()
    gone, _ = psutil.wait_procs([held], timeout=60)
    assert gone or held.status() == psutil.STATUS_ZOMBIE
