"""A draw of the campaign's rows; all of them with scripts/fault_campaign.py (docs/fault_campaign.md)."""

import json

import pytest

from tests.faults import invariant
from tests.faults.campaign import COLUMNS, read_records, table
from tests.faults.commands import COMMANDS, Moment
from tests.faults.complete_outputs import BrokenOutputError, of_files
from tests.faults.row_run import Workshop
from tests.faults.rows import FAULTS, Row, all_rows, drawn_rows
from tests.faults.shared_state import NoInjectionError

SEED = 18
# What the quick tests take of it: the commands that need no torch, and the main one.
QUICK = [
    Row("compare", "again", Moment("b", "/c.md"), "ENOSPC"),
    Row("recommend", "again", Moment("b", "/own.json", phase="late"), "SIGKILL"),
    Row("profile", "again", Moment("p", "Testing batch size: 4"), "SIGKILL of every child"),
    Row("resume", "again", Moment("r", "/profile.json", 2), "EIO"),
]
SLOW = drawn_rows(40, SEED)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    try:
        made = Workshop(tmp_path_factory.mktemp("f"))
    except NoInjectionError as error:
        pytest.skip(f"no fault can be injected here: {error}")
    yield made
    made.close()


def judge(outcome):
    assert outcome.violations == [], f"{outcome.row}: {outcome.violations}\n{outcome.stderr[-3000:]}"
    if not outcome.fired:
        pytest.skip(f"not run: {outcome.reason}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("row", QUICK, ids=str)
def test_quick_rows(workshop, row):
    judge(workshop.run(row))


@pytest.mark.slow
@pytest.mark.parametrize("row", SLOW, ids=str)
def test_drawn_rows(workshop, row):
    judge(workshop.run(row))


def test_the_draw_is_the_same_for_a_seed_and_leaves_no_fault_of_a_command_out():
    rows = all_rows()
    assert len({str(row) for row in rows}) == len(rows)
    drawn = drawn_rows(600, SEED)
    assert drawn == drawn_rows(600, SEED) != drawn_rows(600, SEED + 1)
    assert len(set(drawn)) == 600
    assert {(row.command, row.fault) for row in drawn} == {(row.command, row.fault) for row in rows}
    assert {row.command for row in drawn} == set(COMMANDS)
    assert {row.fault for row in drawn} == set(FAULTS)


def test_a_moment_that_is_not_reached_is_not_run(workshop):
    """And a row that did not strike never counts as passed."""
    outcome = workshop.run(Row("compare", "fresh", Moment("p", "no command prints this"), "ENOSPC"))
    assert (outcome.verdict, outcome.fired) == ("not run", False)
    assert "did not come to this moment" in outcome.reason
    # The last file has been written: nothing of an output follows.
    outcome = workshop.run(Row("compare", "fresh", Moment("r", "/c.csv"), "EIO"))
    assert (outcome.verdict, outcome.fired) == ("not run", False)


def test_the_invariant_sees_what_is_broken(tmp_path):
    """Each part of it, on outputs that a command of ours would not leave."""
    place = tmp_path
    for name in ("in", "out", "sentinel"):
        (place / name).mkdir()
    (place / "in/config.json").write_text("{}")
    before = invariant.snapshot(place)
    command = COMMANDS["compare"]
    row = Row("compare", "fresh", Moment("p", "x"), "EIO")
    (place / "out/c.csv").write_text("a,b\n1,2\n")
    then = invariant.at_moment(command, place)

    class Ended:
        returncode, stderr, stdout, args = 0, "", "", []

    def kinds(ended=Ended, left=()):
        return {kind for kind, _ in invariant.after_fault(row, place, before, then, ended, list(left), False)}

    assert kinds() == set()
    assert kinds(left=["sleep 600"]) == {"process left"}
    (place / "sentinel/new").write_text("x")
    assert kinds() == {"touched"}
    (place / "sentinel/new").unlink()
    (place / "in/config.json").write_text("[]")
    assert kinds() == {"touched"}
    before = invariant.snapshot(place)
    Ended.returncode, Ended.stderr = 1, "Traceback (most recent call last):\n  ...\nKeyError: 'x'\n"
    assert kinds() == {"code", "traceback"}
    Ended.returncode, Ended.stderr = 4, ""
    (place / "out/c.csv").write_text("a,b\n1")
    assert kinds() == {"broken output"}
    (place / "out/c.csv").unlink()
    assert kinds() == {"lost"}
    (place / "out/c.json").write_text('{"a": NaN}')
    with pytest.raises(BrokenOutputError, match="NaN"):
        of_files(place / "out")


def test_the_table_counts_by_hand(tmp_path):
    """Four records, one line cut off by a kill: two fired, one of them lost something."""

    def record(command, fault, verdict, **more):
        base = {"row": f"{command} {fault}", "command": command, "fault": fault, "verdict": verdict}
        base |= {"fired": verdict != "not run", "reason": None, "violations": [], "commit": "abc"}
        return base | more

    records = [
        record("train", "EIO", "passed"),
        record("train", "EIO", "not run", reason="because"),
        record("test", "SIGINT", "failed", violations=[["lost", "x"], ["lost", "y"], ["code", "1"]]),
    ]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in records) + '{"row": "cut')
    assert read_records(file) == records
    lines = table(records).splitlines()
    zeros = " | 0" * (len(COLUMNS) - 2)
    assert f"| train | 2 | 1 | 1 | 0 | 0{zeros} |" in lines
    assert f"| SIGINT | 1 | 1 | 0 | 1 | 1{zeros} |" in lines
    assert f"| **all** | 3 | 2 | 1 | 1 | 1{zeros} |" in lines
    assert "- 1: because" in lines
    # Of a draw that the test of SIGINT is not of.
    lines = table(records, {"train EIO"}).splitlines()
    assert f"| **all** | 2 | 1 | 1 | 0 | 0{zeros} |" in lines
    assert lines[-1] == "Beside the draw: 1 further rows, 1 fired, 1 with anything wrong."
