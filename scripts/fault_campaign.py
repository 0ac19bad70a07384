#!/usr/bin/env python3
"""Strikes the commands with faults at moments of their progress, and says what was lost.

    python scripts/fault_campaign.py --rows 600 --seed 1 --resume build/faults.jsonl
    python scripts/fault_campaign.py --rows 600 --seed 1 --resume build/faults.jsonl --seconds 240
    python scripts/fault_campaign.py --resume build/faults.jsonl --table

For who works on this project: it runs from a checkout, with the packages of the tests, on Linux with a C compiler.
Exit status: 0 all rows done and nothing wrong, 2 bad arguments or a machine without the means, 4 rows are left, 5
something was lost, left or touched, a traceback or an undocumented status was seen.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.profiler.options.exit_codes import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_GATE_FAILED,
    EXIT_PARTIAL,
)
from swinmr_profiling.profiler.options.option_types import (
    OneLineParser,
    non_negative_int,
    parse_options,
    positive_int,
    positive_seconds,
)

REPOSITORY = Path(__file__).resolve().parent.parent


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse_options(
        OneLineParser(prog="fault_campaign.py", description="Strike the commands with faults."),
        arguments,
        {
            "--resume": dict(
                required=True, type=Path, metavar="FILE", help="the records; rows in it are not run again"
            ),
            "--rows": dict(
                type=positive_int, default=600, metavar="N", help="combinations to draw (default 600)"
            ),
            "--seed": dict(type=non_negative_int, default=1, help="of the draw (default 1)"),
            "--seconds": dict(type=positive_seconds, metavar="S", help="begin no row after so many seconds"),
            "--commands": dict(metavar="NAME,...", help="only the rows of these (default: of all)"),
            "--work": dict(
                type=Path, metavar="DIR", help="keeps the templates, and the folders of rows that failed"
            ),
            "--table": dict(action="store_true", help="run nothing: print the table of the records"),
        },
    )
    sys.path.insert(0, str(REPOSITORY))
    from tests.faults.campaign import commit_of, go_on, read_records, table
    from tests.faults.commands import COMMANDS
    from tests.faults.rows import drawn_rows
    from tests.faults.shared_state import NoInjectionError

    left = 0
    if not parsed.table:
        parsed.resume.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            try:
                left = go_on(
                    parsed.resume,
                    parsed.rows,
                    parsed.seed,
                    work=parsed.work or Path(folder),
                    commit=commit_of(REPOSITORY),
                    seconds=parsed.seconds,
                    commands=parsed.commands.split(",") if parsed.commands else COMMANDS,
                )
            except NoInjectionError as error:
                print(f"error: no fault can be injected here: {error}", file=sys.stderr)
                return EXIT_BAD_INPUT
    records = read_records(parsed.resume)
    print(table(records, {str(row) for row in drawn_rows(parsed.rows, parsed.seed)}))
    if left:
        print(f"{left} rows are left: the same command goes on", file=sys.stderr)
        return EXIT_PARTIAL
    return EXIT_GATE_FAILED if any(record["verdict"] == "failed" for record in records) else EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
