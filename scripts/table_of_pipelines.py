#!/usr/bin/env python3
"""Writes docs/pipeline_classes.md: every pipeline class of diffusers, run with tiny networks, and counted.

    python scripts/table_of_pipelines.py --rows rows.jsonl [--only NAME,NAME] [--again STATUS] [--seconds 400]

A row compares what `profiler.watch` counted of a run with torch's FlopCounterMode / 2 around the same call, operator
by operator. Rows that `--rows` holds already are not made again; after `--seconds` no other row is begun, so that the
table can be made in pieces.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import sys
import traceback
import warnings
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

import torch  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_flop_count  # noqa: E402

import swinmr_profiling.command  # noqa: E402 - takes this folder off sys.path
from swinmr_profiling.configs.error_words import one_line  # noqa: E402
from swinmr_profiling.profiler.compute import create_profiler  # noqa: E402
from swinmr_profiling.profiler.options.option_types import parse_options  # noqa: E402
from swinmr_profiling.scripts.benchmarks.resumed_records import (  # noqa: E402
    add_record,
    begun_within,
    read_records,
    time_limit,
)
from swinmr_profiling.scripts.counter_cases.flop_counter import (  # noqa: E402
    differences,
    macs_by_operator,
    operator_name,
)
from swinmr_profiling.scripts.tiny_pipelines.pipeline_calls import BEFORE, call_of, components_of  # noqa: E402
from swinmr_profiling.scripts.tiny_pipelines.pipeline_components import NotConstructibleError  # noqa: E402

TABLE = REPOSITORY / "docs" / "pipeline_classes.md"
LONGEST_S = 120
# torch's counter has no formula for the fused attention of CPUs. It is lent the one that it has for those of GPUs.
CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def _cpu_attention(query, key, value, *args, out_val=None, **kwargs) -> int:
    return sdpa_flop_count(query, key, value)


EQUAL, DIFFERS, WATCHED = "watched and equal", "differs", "watched, not compared"
NOT_BUILT, NOT_RUN = "not constructible here", "not working here"
# Their constructors take other pipelines' parts, or anything: none is a pipeline by itself.
ABSTRACT = {
    "DiffusionPipeline": "the base class of all",
    "AutoPipelineForText2Image": "returns another class",
}


def pipeline_classes() -> dict[str, type]:
    """Public pipeline classes of the installed diffusers, by name."""
    import diffusers

    names = [name for name in dir(diffusers) if "Pipeline" in name and not name.startswith("_")]
    kinds = {name: getattr(diffusers, name) for name in sorted(names)}
    base = diffusers.DiffusionPipeline
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, base)}


def placeholders() -> dict[str, str]:
    """Names that diffusers exports for pipelines whose packages are not installed, and those packages."""
    import diffusers

    kinds = ((name, getattr(diffusers, name)) for name in dir(diffusers) if name.endswith("Pipeline"))
    return {name: ", ".join(kind._backends) for name, kind in kinds if getattr(kind, "_backends", None)}


def row_of(name: str, kind: type) -> dict:
    """One row. Whatever a pipeline raises is its row's reason."""
    if name in ABSTRACT:
        return {"name": name, "status": NOT_BUILT, "reason": ABSTRACT[name]}
    try:
        torch.manual_seed(0)
        pipe = kind(**components_of(kind))
        arguments = call_of(pipe)
    except NotConstructibleError as error:
        return {"name": name, "status": NOT_BUILT, "reason": one_line(error, 150)}
    except Exception as error:
        return {"name": name, "status": NOT_BUILT, "reason": one_line(error, 150), "where": _where(error)}
    pipe.set_progress_bar_config(disable=True)
    profiler = create_profiler()
    try:
        if name in BEFORE:
            arguments |= BEFORE[name](pipe)
        lent = {CPU_ATTENTION: _cpu_attention}
        with profiler.watch(pipe) as run, FlopCounterMode(display=False, custom_mapping=lent) as flops:
            pipe(**arguments)
    except Exception as error:
        return {"name": name, **_without_the_other(kind, profiler, error)}
    return {"name": name, **compared(run, flops)}


def _without_the_other(kind: type, profiler, error: Exception) -> dict:
    """What stopped a run: torch's counter, the watching, or the pipeline itself, which is then run alone."""
    reason = {"reason": one_line(error, 150), "where": _where(error)}
    try:
        pipe = kind(**components_of(kind))
        pipe.set_progress_bar_config(disable=True)
        arguments = call_of(pipe) | (BEFORE[kind.__name__](pipe) if kind.__name__ in BEFORE else {})
        pipe(**arguments)
    except Exception:
        return {"status": NOT_RUN, **reason}
    try:
        with profiler.watch(pipe) as run:
            pipe(**call_of(pipe))
    except Exception as ours:
        return {
            "status": DIFFERS,
            "reason": f"runs, and not while it is watched: {one_line(ours, 150)}",
            "where": _where(ours),
        }
    gaps = {"macs": run.macs, "operators": run.operators, "incomplete": run.incomplete}
    return {
        "status": WATCHED,
        **gaps,
        **reason,
        "reason": f"FlopCounterMode cannot run it: {one_line(error, 150)}",
    }


def compared(run, flops: FlopCounterMode) -> dict:
    """The count beside torch's, operator by operator; a gap is what torch's counter has no formula for."""
    theirs, lent = macs_by_operator(flops), operator_name(CPU_ATTENTION)
    known = {*map(operator_name, flop_registry), lent}
    different = differences(run.by_operator, theirs)
    wrong = {key: count for key, count in different.items() if key in known}
    gap = {key: count for key, count in different.items() if key not in known}
    if theirs.get(lent):
        gap[lent] = theirs[lent]
    reason = ", ".join(f"{k} {v:+,}" for k, v in wrong.items())
    return {
        "status": EQUAL if not wrong and not run.incomplete else DIFFERS,
        "macs": run.macs,
        "gap": gap,
        "called": {name: one.calls for name, one in run.networks.items() if one.calls},
        "never_called": run.never_called,
        "reason": "; ".join(filter(None, (reason, *run.incomplete.values()))),
        "operators": run.operators,
    }


def _where(error: Exception) -> str:
    """The last place, the last in diffusers, and the second in it (the call itself stands in the first)."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "diffusers" in frame.filename]
    shown = [frames[-1], *ours[-1:], *ours[:2][-1:]]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in shown)


def seeded_sample(names: list[str], size: int, seed: int = 0) -> list[str]:
    """As many names, the same for the same seed."""
    return sorted(random.Random(seed).sample(sorted(names), size))


def timed_row(name: str, kind: type) -> dict:
    """A row, given up after LONGEST_S; what libraries print meanwhile is dropped."""
    with time_limit(LONGEST_S), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return row_of(name, kind)


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Makes the rows that are missing, and the page when none is."""
    parsed = parse_options(
        argparse.ArgumentParser(description=__doc__.splitlines()[0]),
        arguments,
        {
            "--rows": dict(type=Path, required=True, metavar="FILE", help="JSON lines, one a class"),
            "--only": dict(metavar="NAME,NAME", help="make these anew"),
            "--again": dict(
                metavar="STATUS", help="make anew what has this status, such as 'not working here'"
            ),
            "--seconds": dict(type=float, metavar="N"),
        },
    )
    import diffusers

    diffusers.utils.logging.set_verbosity_error()
    rows = read_records(parsed.rows, "name")
    kinds = pipeline_classes()
    wanted = (
        parsed.only.split(",")
        if parsed.only
        else [name for name in kinds if name not in rows or rows[name]["status"] == parsed.again]
    )
    for name in begun_within(parsed.seconds, wanted):
        row = rows[name] = timed_row(name, kinds[name])
        add_record(parsed.rows, row)
        print(
            f"{name:<48}{row['status']:<24}{row.get('reason', '')[:90]}  {row.get('where', '')}", flush=True
        )
    missing = [name for name in kinds if name not in rows]
    print(
        f"{len(kinds) - len(missing)} of {len(kinds)} rows; equal: "
        f"{sum(row['status'] == EQUAL for row in rows.values())}"
    )
    if not missing:
        TABLE.write_text(page({name: rows[name] for name in kinds}), encoding="utf-8")
        print(f"written: {TABLE}")
    return 0


ORDER = {EQUAL: 0, WATCHED: 1, DIFFERS: 2, NOT_RUN: 3, NOT_BUILT: 4}


def page(rows: dict[str, dict]) -> str:
    """The page."""
    import diffusers
    import transformers

    counts = {status: sum(row["status"] == status for row in rows.values()) for status in ORDER}
    versions = (
        f"diffusers {diffusers.__version__}, transformers {transformers.__version__}, "
        f"torch {torch.__version__.partition('+')[0]}"
    )
    lines = [
        "# Pipeline classes of diffusers, watched",
        "",
        f"{versions}: every public pipeline class, built from tiny components of our own with random weights "
        "(`scripts/tiny_pipelines/pipeline_components.py`) and run once on a CPU. "
        f"**{counts[EQUAL]}** of {len(rows)} were watched "
        "and have the MACs of torch's FlopCounterMode / 2 around the same call to the unit, operator by operator. "
        "Made by `scripts/table_of_pipelines.py`, with the packages of the extra `test`.",
        "",
        "| what | classes |",
        "| --- | ---: |",
        *(f"| {status} | {count} |" for status, count in counts.items()),
        "",
        "A gap is what torch's counter leaves out, by operator: it has no formula for the fused attention of CPUs. For "
        "this table it was lent the formula that it has for those of GPUs, which gives what is counted here. "
        "*Not working here* are pipelines that stop by "
        "themselves, watched or not, in this release of diffusers or with our components; *not constructible here* "
        "those with a component that nobody here has made small yet, or that wants a package of its own. Neither says "
        "that such a pipeline could not be watched: watching asks nothing about a pipeline's class.",
        "",
        "| class | result | MACs | gap by operator | never called | reason |",
        "| --- | --- | ---: | --- | --- | --- |",
    ]
    for name, row in sorted(rows.items(), key=lambda item: (ORDER[item[1]["status"]], item[0])):
        gap = ", ".join(f"{key} {count:+,}" for key, count in row.get("gap", {}).items())
        never = ", ".join(row.get("never_called", ()))
        macs = f"{row['macs']:,}" if "macs" in row else ""
        reason = row.get("reason", "").replace("|", "/").replace("<", "&lt;")
        lines.append(f"| {name} | {row['status']} | {macs} | {gap} | {never} | {reason} |")
    absent = placeholders()
    if absent:
        lines += [
            "",
            "Exported names whose packages are not installed, so that they are no classes: "
            + "; ".join(f"{name} ({packages})" for name, packages in absent.items())
            + ".",
        ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
