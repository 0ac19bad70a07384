"""Lines of 80 columns, colour where it is wanted, silence where that is."""

import io

import pytest

from swinmr_profiling.profiler.record.blocks.architecture import CrossCheck
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.steps import print_counters
from swinmr_profiling.profiler.reports.console.terminal import Console, QuietConsole, wrapped


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize("indent", [0, 2, 10])
def test_long_lines_are_wrapped_and_lose_no_word(indent):
    text = " " * indent + " ".join(f"word{number}" for number in range(60))
    lines = wrapped(text)
    assert len(lines) > 4
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == text.strip()
    assert lines[0].startswith(" " * indent + "word0")
    assert all(line.startswith(" " * (indent + 2) + "word") for line in lines[1:])


def test_a_path_is_left_whole_to_be_copied():
    path = "/" + "x" * 100
    assert wrapped(f"✓ Results saved to: {path}")[-1].strip() == path
    assert wrapped("a" * 80) == ["a" * 80]
    assert wrapped("") == [""]


def test_what_other_counters_say_fits():
    stream = io.StringIO()
    check = {
        "counter": "thop",
        "figure": 5_252_874_240,
        "ours": 6_312_591_360,
        "inexact": True,
        "input_shapes": [[1, 1, 64, 64]],
        "convention": "multiply-adds (MACs) of the module types in its table, plus norms (2 to 4 per element), pooling",
        "parts": [
            {
                "macs": -1_132_462_080,
                "operator": "attention products in WindowAttention",
                "why": "not seen " * 12,
            }
        ],
        "agrees": True,
    }
    told = CrossCheck.told(**check, status="ok", size="small")
    print_counters(Console(stream), [told])
    # Two lines, and what the difference is made of for who asks.
    assert len(stream.getvalue().splitlines()) == 2
    assert "-1,132,462,080" not in stream.getvalue()
    print_counters(Console(stream, verbose=True), [told])
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "-1,132,462,080" in stream.getvalue()


@pytest.mark.parametrize(
    ("stream", "variables", "coloured"),
    [
        (Terminal, {}, True),
        (io.StringIO, {}, False),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"NO_COLOR": ""}, True),  # by no-color.org an empty one does not count
        (Terminal, {"TERM": "dumb"}, False),
    ],
)
def test_colour(plain_environment, monkeypatch, stream, variables, coloured):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    target = stream()
    console = Console(target)
    console.good("done")
    console.bad("failed")
    console.warning(ProfileWarning("code", "mind this"))
    marks = ("\x1b[32m✓\x1b[0m done", "\x1b[31m✗\x1b[0m failed", "\x1b[33m!\x1b[0m mind this")
    for mark in marks:
        assert (mark in target.getvalue()) == coloured
    assert ("\x1b" in target.getvalue()) == coloured


def test_quiet_says_what_went_wrong_on_standard_error(capsys):
    stream = io.StringIO()
    console = QuietConsole(stream)
    console.title("MODEL PROFILING")
    console.good("done")
    console.note("a note")
    console.bad("failed")
    console.warning(ProfileWarning("code", "mind this"))
    console.table(["name"], [["a"]])
    assert stream.getvalue() == ""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "✗ failed\n! mind this\n"
