"""What is being done, on a terminal's standard error; nothing where there is none."""

import io
import sys
import time

from swinmr_profiling.profiler.run.context import REFRESH_S, StatusLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_is_told_what_is_done_and_for_how_long(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    status = StatusLine()
    status.say("before it is shown")
    with status.shown():
        status.say("predicting the memory of training")
        time.sleep(3 * REFRESH_S)
    text = sys.stderr.getvalue()
    assert "predicting the memory of training (00:0" in text
    assert "before" not in text
    # Refreshed while nothing was said, and gone at the end.
    assert text.count("predicting") >= 2
    assert text.rstrip("\r").rpartition("\r")[2].strip() == ""


def test_a_pipe_gets_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    status = StatusLine()
    with status.shown():
        status.say("counting")
    assert sys.stderr.getvalue() == ""
