"""A campaign over as many runs as it takes: records, one line of JSON a row, and the table of them."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.faults.commands import COMMANDS
from tests.faults.row_run import Workshop
from tests.faults.rows import FAULTS, Row, drawn_rows

# What a violation counts as in the table.
COLUMNS = {
    "measurements lost": ("lost", "broken output"),
    "wrong codes": ("code",),
    "tracebacks": ("traceback",),
    "processes left": ("process left",),
    "foreign files touched": ("touched",),
    "next run failed": ("next run",),
    "hangs": ("hang",),
}


def commit_of(repository: Path) -> str:
    """The commit of the checkout, with "+" where it has changes that are not committed."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def read_records(file: Path) -> list[dict[str, Any]]:
    """The records of a file, without a last line that was cut off."""
    records = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


def go_on(
    file: Path,
    rows: int,
    seed: int,
    *,
    work: Path,
    commit: str,
    seconds: float | None = None,
    commands: Collection[str] = COMMANDS,
) -> int:
    """Runs the drawn rows of these commands that the file has no record of; returns how many are still to do."""
    done = {record["row"] for record in read_records(file)}
    to_do = [row for row in drawn_rows(rows, seed) if str(row) not in done and row.command in commands]
    end = None if seconds is None else time.monotonic() + seconds
    if not to_do:
        return 0
    workshop = Workshop(work, commands)
    try:
        with file.open("a", encoding="utf-8") as stream:
            while to_do and (end is None or time.monotonic() < end):
                record = _run(workshop, to_do.pop(0))
                stream.write(json.dumps({"commit": commit, "seed": seed, **record}) + "\n")
                stream.flush()
    finally:
        workshop.close()
    return len(to_do)


def _run(workshop: Workshop, row: Row) -> dict[str, Any]:
    outcome = workshop.run(row).to_json()
    print(outcome["verdict"], outcome["row"], outcome["reason"] or outcome["violations"] or "", flush=True)
    return outcome


def table(records: Sequence[dict[str, Any]], drawn: Collection[str] | None = None) -> str:
    """Markdown: by command, by fault, and every combination of the two as "fired of drawn".

    drawn: names of the rows that are counted, None for all; of others there is a line at the end.
    """
    others = [record for record in records if drawn is not None and record["row"] not in drawn]
    records = [record for record in records if drawn is None or record["row"] in drawn]
    parts = [_counts("command", COMMANDS, records), _counts("fault", FAULTS, records), _matrix(records)]
    reasons = Counter(record["reason"] for record in records if record["verdict"] == "not run")
    parts.append(
        "\n".join(["Not run:", *(f"- {number}: {reason}" for reason, number in reasons.most_common())])
    )
    commits = Counter(record["commit"] for record in records)
    parts.append("Commits: " + ", ".join(f"{commit} ({number} rows)" for commit, number in commits.items()))
    if others:
        fired = sum(record["fired"] for record in others)
        wrong = sum(bool(record["violations"]) for record in others)
        parts.append(
            f"Beside the draw: {len(others)} further rows, {fired} fired, {wrong} with anything wrong."
        )
    return "\n\n".join(parts) + "\n"


def _counts(key: str, names: Iterable[str], records: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"| {key} | rows | fired | not run | {' | '.join(COLUMNS)} |",
        f"| --- | {' | '.join(['---:'] * (3 + len(COLUMNS)))} |",
    ]
    for name in [*names, None]:
        chosen = [record for record in records if name in (record[key], None)]
        if not chosen:
            continue
        fired = [record for record in chosen if record["fired"]]
        kinds = [{kind for kind, _ in record["violations"]} for record in chosen]
        found = [sum(bool(kind & set(counted)) for kind in kinds) for counted in COLUMNS.values()]
        figures = [len(chosen), len(fired), len(chosen) - len(fired), *found]
        lines.append(f"| {name or '**all**'} | {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


def _matrix(records: Sequence[dict[str, Any]]) -> str:
    drawn = Counter((record["fault"], record["command"]) for record in records)
    fired = Counter((record["fault"], record["command"]) for record in records if record["fired"])
    lines = [
        f"| fired of rows | {' | '.join(COMMANDS)} |",
        f"| --- | {' | '.join(['---:'] * len(COMMANDS))} |",
    ]
    for fault in FAULTS:
        cells = (f"{fired[fault, c]} of {drawn[fault, c]}" if drawn[fault, c] else "" for c in COMMANDS)
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    return "\n".join(lines)
