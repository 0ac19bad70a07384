"""Holds the memory prediction against public measurements of GPUs: one line per record, one table.

    python scripts/benchmark_public_records.py --sample 40             # minutes, the same 40 for the same --seed
    python scripts/benchmark_public_records.py --only inference/NCHW
    python scripts/benchmark_public_records.py --resume                # all, in hours; goes on where it stopped
    python scripts/benchmark_public_records.py --resume --time-budget 0 --page docs/public_records.md

The records and where they are from: results/reference/public_records/, beside what was predicted (`predicted.jsonl`). A
network counts only where a package makes it with the record's number of parameters. Nothing is asserted; `--resume`
keeps the rows of earlier runs of the output file.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

import swinmr_profiling.command  # noqa: E402 - takes this folder off sys.path
from swinmr_profiling.input_error import InputError  # noqa: E402
from swinmr_profiling.profiler.options.option_types import parse_options  # noqa: E402
from swinmr_profiling.scripts.benchmarks import resumed_records  # noqa: E402
from swinmr_profiling.scripts.public_records.record_page import page  # noqa: E402
from swinmr_profiling.scripts.public_records.record_table import (  # noqa: E402
    judged,
    predict,
    read_records,
    table,
)

DEFAULT_OUTPUT = "results/public_records.jsonl"
DEFAULT_SEED = 0


def chosen(options: argparse.Namespace, records: list) -> list:
    """The records that were asked for, in the order that the seed draws."""
    if options.only is not None:
        records = [record for record in records if options.only in record.key]
    random.Random(options.seed).shuffle(records)
    return records[: options.sample]


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    options = parse_options(
        argparse.ArgumentParser(description=__doc__.splitlines()[0]),
        arguments,
        {
            "--only": dict(metavar="TEXT", help="records whose key contains this: training/NCHW, swinir"),
            "--sample": dict(type=int, metavar="N", help="N records drawn by chance"),
            "--seed": dict(type=int, default=DEFAULT_SEED, help=f"of the sample (default {DEFAULT_SEED})"),
            "--resume": dict(action="store_true", help="leave out what the output file holds already"),
            "--time-budget": dict(type=float, metavar="S", help="begin no record after this many seconds"),
            "--records": dict(type=Path, metavar="FOLDER", help="other files of the same form"),
            "--page": dict(type=Path, metavar="FILE", help="write all rows as Markdown, too"),
            "--output": dict(type=Path, default=DEFAULT_OUTPUT, metavar="FILE", help="JSON lines"),
        },
    )
    # timm's networks of 2022 had attention without fused kernels; read when timm is imported.
    os.environ["TIMM_FUSED_ATTN"] = "0"
    published = read_records(options.records) if options.records else read_records()
    records = chosen(options, published.copy())
    if not records:
        raise InputError(f"no record of {options.only!r}")
    output = Path(options.output)
    earlier = resumed_records.read_records(output, "key") if options.resume else {}
    rows = {key: judged(row) for key, row in earlier.items()}
    output.parent.mkdir(parents=True, exist_ok=True)
    resumed_records.write_records(output, rows.values())
    left = [record for record in records if record.key not in rows]
    for record in resumed_records.begun_within(options.time_budget, left):
        row = rows[record.key] = predict(record)
        resumed_records.add_record(output, row)
        print(line_of(row), flush=True)
    if options.page is not None:
        options.page.write_text(page(rows.values(), published), encoding="utf-8")
    keys = {record.key for record in records}
    print("\n" + table(row for key, row in rows.items() if key in keys))
    return 0


def line_of(row: dict) -> str:
    """What a terminal shows of a record."""
    if row["status"] != "predicted":
        said = f"{row['status']}: {row['reason'][:90]}"
    elif row["kind"] == "training":
        said = f"{row['published']} ran: {row['ran']}; above: {row['above']}: {row['verdict']}"
        if row["misses_by"] is not None:
            said += f" by at least {abs(row['misses_by']):.1%}"
    else:
        low, high = (f"{size / 2**20:,.1f}" for size in row["interval"])
        inside = "inside" if row["inside"] else f"OUTSIDE, {row['operator']}"
        said = (
            f"{row['published'] / 2**20:,.1f} MiB published, {row['predicted'] / 2**20:,.1f} predicted "
            f"({row['deviation']:+.2%}), {low} to {high}: {inside}"
        )
    return f"{row['key']:60} {said} [{row['cpu_s']:.1f} s]"


if __name__ == "__main__":
    sys.exit(main())
