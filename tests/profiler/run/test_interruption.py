"""Signals, sent to a process of its own that waits inside `interruptible`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swinmr_profiling.profiler.run.interruption import (
    EXIT_SECOND_INTERRUPT,
    Interrupted,
    interruptible,
)
from swinmr_profiling.stop_signals import STOP_SIGNALS

ROOT = Path(__file__).resolve().parents[3]

# Waits for signals, says what came, then (as a command that saves its result does) waits once more, so that a
# second signal finds it saving.
PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
from swinmr_profiling.profiler.run.interruption import Interrupted, interruptible

def say(text):
    print(text, flush=True)

def wait():
    sys.stdin.readline()

with interruptible(lambda: say("sudden end")):
    try:
        say("ready")
        wait()
        say("done")
    except Interrupted as reason:
        say(f"saving: {reason}")
        wait()
        say("saved")
"""


class Program:
    def __init__(self, ignored=()):
        # A handler of signals is inherited across fork as the default, SIG_IGN as itself (as nohup does it).
        def ignore():
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(ROOT / "src")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=ignore,
        )

    def line(self):
        return self.process.stdout.readline().strip()

    def send(self, number):
        self.process.send_signal(number)

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        return self.process.wait(30)


@pytest.fixture
def start():
    programs = []

    def start(**options):
        programs.append(Program(**options))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        program.process.wait()
        program.process.stdin.close()
        program.process.stdout.close()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_signal_ends_the_work_and_lets_it_be_saved(start, number):
    program = start()
    assert program.line() == "ready"
    program.send(number)
    assert program.line() == f"saving: interrupted by {number.name}"
    program.go_on()
    assert program.line() == "saved"
    assert program.end() == 0


def test_a_second_ctrl_c_ends_at_once(start):
    program = start()
    assert program.line() == "ready"
    program.send(signal.SIGINT)
    assert program.line() == "saving: interrupted by SIGINT"
    program.send(signal.SIGINT)
    assert program.line() == "sudden end"
    assert program.end() == EXIT_SECOND_INTERRUPT
    assert program.line() == ""


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_saving_goes_on_when_the_terminal_closes_too(start, second):
    program = start()
    assert program.line() == "ready"
    program.send(signal.SIGINT)
    assert program.line() == "saving: interrupted by SIGINT"
    program.send(second)
    program.go_on()
    assert program.line() == "saved"
    assert program.end() == 0


def test_nohup_stays_in_force(start):
    program = start(ignored=[signal.SIGHUP])
    assert program.line() == "ready"
    program.send(signal.SIGHUP)
    program.go_on()
    assert program.line() == "done"
    assert program.end() == 0


def test_nohup_does_not_shield_from_other_signals(start):
    program = start(ignored=[signal.SIGHUP])
    assert program.line() == "ready"
    program.send(signal.SIGTERM)
    assert program.line() == "saving: interrupted by SIGTERM"


def test_no_handler_of_errors_swallows_it():
    assert not issubclass(Interrupted, Exception)

    def work():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)
        except Exception:
            pytest.fail("swallowed")

    with pytest.raises(Interrupted, match="interrupted by SIGTERM"), interruptible(lambda: None):
        work()


def test_handlers_are_given_back():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    with interruptible(lambda: None):
        inside = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    assert {number: signal.getsignal(number) for number in STOP_SIGNALS} == before
    assert all(
        inside[number] != before[number] for number in STOP_SIGNALS if before[number] is not signal.SIG_IGN
    )
    with pytest.raises(KeyError), interruptible(lambda: None):
        raise KeyError
    assert {number: signal.getsignal(number) for number in STOP_SIGNALS} == before


def test_a_signal_while_only_saving_is_left_does_not_touch_the_end():
    """What is done stays done: a complete run is not made a partial one by its last moment."""
    with interruptible(lambda: pytest.fail("ended")) as only_saving_is_left:
        only_saving_is_left()
        for number in STOP_SIGNALS[1:]:  # a second Ctrl-C would end this process
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
    with interruptible(lambda: pytest.fail("ended")) as only_saving_is_left:
        only_saving_is_left()
        os.kill(os.getpid(), signal.SIGINT)
