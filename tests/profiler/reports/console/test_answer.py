"""The answer in at most twelve lines, at 40, 80 and 120 columns, framed and plain; tables of each width."""

import io
import json
import re

import pytest

from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.training_recommendation import recommend_training
from swinmr_profiling.profiler.record.files.reading import parse_profile
from swinmr_profiling.profiler.reports.console.summary import print_answer, print_summary
from swinmr_profiling.profiler.reports.console.terminal import Console, QuietConsole, table_lines
from swinmr_profiling.profiler.reports.console.training import print_beside_answer
from tests.made_profiles import profile as made_profile
from tests.training_profiles import MIB, memory_model, typed_model

CARDS = {"NVIDIA GeForce RTX 3060 12GB": 11_900, "NVIDIA GeForce RTX 4090": 24_080, "A100 80GB SXM": 81_000}


def profile(cards=CARDS, measured=True):
    """A small SwinMR's, with a prediction of 1 GiB a sample for these cards (MiB)."""
    found = parse_profile(json.dumps(made_profile()), "made").profile
    found.memory_model = typed_model(memory_model())
    budgets = [Budget(name, mib * MIB, context_bytes=400 * MIB) for name, mib in cards.items()]
    found.recommend(training=recommend_training(found.memory_model, budgets))
    if not measured:
        found.single_image, found.batch_profiling = None, {}
    return found


def printed(width=80, frame=False, **options):
    stream = io.StringIO()
    console = Console(stream, width)
    console.coloured = frame
    latency_comes = options.pop("latency_comes", False)
    print_answer(console, profile(**options), latency_comes=latency_comes)
    return stream.getvalue().removeprefix("\n")


def test_the_whole_answer():
    # 4090: 24080 MiB less 10 % are 21672; less 400 of context 21272: 20 samples of 1 GiB (20480) fit, 21 (21504)
    # do not. A small batch is rounded otherwise: see the rows below, from recommend_training itself.
    lines = printed().splitlines()
    assert lines[:4] == [
        "ANSWER:",
        "parameters  903,121 (3.45 MB)",
        "MACs        4.00 G = 8.00 GFLOPs, one forward of 1 x 1 x 64 x 64",
        "latency     102.25 ± 1.51 ms (n=10), 9.78 images/s on cpu",
    ]
    assert lines[4].split() == ["training", "on", "batch", "needs", "GiB", "interval", "source"]
    assert [line.split()[:2] for line in lines[5:8]] == [["RTX", "3060"], ["RTX", "4090"], ["A100", "80GB"]]
    for line, entry in zip(lines[5:8], profile().recommendation.training, strict=True):
        needed = entry.needed_bytes / 2**30
        # The made profile keeps no interval of its own: 5 % to both sides.
        row = f"{entry.batch_size} {needed:.2f} {needed * 0.95:.2f} to {needed * 1.05:.2f} predicted"
        assert " ".join(line.split()).endswith(row)
    assert lines[8] == "fp32, checkpointing none, patch 96x96; predicted, not yet verified on a GPU"
    assert len(lines) == 9


@pytest.mark.parametrize("frame", [False, True])
@pytest.mark.parametrize("width", [40, 80, 120])
def test_at_most_twelve_lines_within_the_columns(width, frame):
    many = {f"NVIDIA GeForce RTX {number} Ti SUPER": 12_000 for number in range(3060, 3090, 5)}
    lines = printed(width, frame, cards=many).splitlines()
    assert len(lines) <= 12
    bare = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert max(map(len, bare)) <= width
    assert any("and" in line and "more cards" in line for line in bare)
    assert ("╭" in bare[0]) == (frame and width >= 60)


def test_framed_and_plain_say_the_same():
    """NO_COLOR, TERM=dumb, a pipe: plain text with the same content."""
    plain = printed(80).split()[1:]
    framed = re.sub(r"\x1b\[[0-9;]*m|[╭╮╰╯─│]", " ", printed(84, frame=True)).split()[1:]
    assert framed == plain


def test_a_card_that_nothing_fits_and_a_latency_that_is_not_there_yet():
    text = printed(cards={"small": 600}, measured=False, latency_comes=True)
    assert "latency     measured below, and in the answer at the end\n" in text
    assert ["small", "nothing", "fits"] in [line.split()[:3] for line in text.splitlines()]
    assert "latency     not measured" in printed(measured=False)


def test_a_terminal_that_cannot_show_frames_gets_none():
    class Latin(io.StringIO):
        encoding = "latin-1"

    stream = Latin()
    console = Console(stream)
    console.coloured = True
    print_answer(console, profile())
    assert stream.getvalue().startswith("\nANSWER:\n")
    assert "?" not in stream.getvalue().replace("±", "")


def test_the_summary_ends_with_the_answer_and_its_latency():
    stream = io.StringIO()
    found = profile()
    print_summary(Console(stream), found)
    assert stream.getvalue().endswith(f"\n{printed()}")
    assert "latency     102.25" in printed()
    assert "Batch Size Recommendations:" in stream.getvalue()


@pytest.mark.parametrize("coloured", [False, True])
def test_quiet_prints_the_last_answer_alone_and_plain(coloured):
    stream = io.StringIO()
    console = QuietConsole(stream)
    console.coloured = coloured
    with console.after(lambda: print_answer(console, profile(measured=False), latency_comes=True)):
        console.step(1, "Creating model...")
    print_summary(console, profile())
    assert stream.getvalue() == printed()


def test_what_is_held_comes_after_the_answer_also_where_it_ends_early():
    stream = io.StringIO()
    console = Console(stream)

    def run():
        with console.after(lambda: console.line("the answer")):
            console.step(1, "Creating model...")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert stream.getvalue() == "the answer\n\n[1/5] Creating model...\n"


@pytest.mark.parametrize("levers", [1, 3])
def test_the_table_of_levers_is_there_where_there_are_levers(levers):
    found = profile()
    entries = [
        entry.model_copy(update={"levers": entry.levers[:levers]}) for entry in found.recommendation.training
    ]
    stream = io.StringIO()
    print_beside_answer(Console(stream), found.memory_model, entries)
    assert ("Predicted largest batch per device" in stream.getvalue()) == (levers > 1)


HEADINGS = ["name", "first", "second", "third"]
ROWS = [["a long name of a thing", "1,234,567.89", "12 GiB", "100 %"], ["b", "1", "2", "3"]]


@pytest.mark.parametrize(("width", "parts"), [(30, 2), (40, 2), (60, 1), (80, 1)])
def test_every_figure_of_a_table_is_whole_at_every_width(width, parts):
    lines = table_lines(HEADINGS, ROWS, width)
    assert max(map(len, lines)) <= width
    assert all(figure in "\n".join(lines) for row in ROWS for figure in row[1:])
    assert sum(line.startswith("name") for line in lines) == parts
    assert not any("…" in line for line in lines)
