"""A process that is asked once: its answer, its end without one, and that nothing of it is left."""

import os
import time

import pytest

from swinmr_profiling.process import ask_once


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes the body of `main` into a module that the process finds; returns its name."""

    def write(body):
        lines = "\n".join("    " + line for line in body.splitlines())
        (tmp_path / "asked.py").write_text(
            f"import json, os, signal, subprocess, sys\n\ndef main():\n{lines}\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        return "asked"

    return write


def test_the_answer_is_the_last_line(module, monkeypatch):
    monkeypatch.setenv("TAKEN_AWAY", "1")
    name = module(
        "print('a library talks')\n"
        "print(json.dumps({'twice': 2 * json.load(sys.stdin)['x'], 'set': os.environ['SET_HERE'],"
        " 'left': 'TAKEN_AWAY' in os.environ}))"
    )
    ended = ask_once(name, '{"x": 21}', 60, {"SET_HERE": "yes", "TAKEN_AWAY": None})
    assert ended.answer == {"twice": 42, "set": "yes", "left": False}
    assert ended.returncode == 0


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("sys.stderr.write('first\\nno such file\\n'); return 3", "exit status 3: no such file"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9: no message"),
        ("print('[1, 2]')", "exit status 0: no message"),  # JSON, but no object
        ("print('{\"cut')", "exit status 0: no message"),
    ],
)
def test_an_end_without_an_answer_is_told(module, body, how):
    ended = ask_once(module(body), "{}", 60)
    assert (ended.answer, ended.how) == (None, how)


@pytest.mark.parametrize("in_our_group", [False, True])
def test_whose_group_it_is_in(module, in_our_group):
    ended = ask_once(
        module("print(json.dumps({'group': os.getpgrp()}))"), "{}", 60, in_our_group=in_our_group
    )
    assert (ended.answer["group"] == os.getpgrp()) is in_our_group


def test_what_hangs_is_ended_with_all_that_it_started(module, tmp_path):
    started = tmp_path / "child"
    name = module(
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(started) + '.new'!r}, 'w').write(str(child.pid))\n"
        f"os.replace({str(started) + '.new'!r}, {str(started)!r})\n"
        "child.wait()"
    )
    with pytest.raises(TimeoutError, match=r"^no answer within 3 s$"):
        ask_once(name, "{}", 3)
    child = int(started.read_text())
    for _ in range(200):
        state = _state(child)
        if state in (None, "Z"):
            return
        time.sleep(0.05)
    pytest.fail(f"the child {child} is still there, in state {state}")


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None
