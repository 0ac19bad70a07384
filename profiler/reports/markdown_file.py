"""A profile as Markdown, to be pasted into an issue."""

from __future__ import annotations

import re
from collections.abc import Sequence

from swinmr_profiling.profiler.record.blocks.batch import ran, why_not
from swinmr_profiling.profiler.reports.charts.chart_texts import activations, interval, runs, training_table
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.cards import cards_of, what_is_missing
from swinmr_profiling.profiler.reports.views.view import ProfileView

# What Markdown or the HTML in it would take for more than a letter.
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!$@])")


def escaped(text: str) -> str:
    """A text that comes out as it is, on one line."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def table(rows: Sequence[Sequence[str]], align_right_from: int = 1) -> list[str]:
    """Lines of a table; the first row is the header."""
    lines = [f"| {' | '.join(escaped(cell) for cell in row)} |" for row in rows]
    marks = ["---" if column < align_right_from else "---:" for column in range(len(rows[0]))]
    return [lines[0], f"| {' | '.join(marks)} |", *lines[1:]]


def markdown_text(view: ProfileView) -> str:
    """The whole file."""
    where = f"{view.device} ({view.hardware}), {view.profile.config.precision or 'precision not recorded'}"
    lines = [
        f"# Profile of {escaped(view.title)}",
        "",
        f"{escaped(view.model)}, image size {escaped(view.image_size)}, {escaped(where)}; {escaped(view.config_file)}",
        "",
    ]
    if missing := what_is_missing(view):
        lines += ["What this profile does not hold:", "", *(f"- {escaped(line)}" for line in missing), ""]
    cards = [("", "", "exact", "source", "of what")]
    cards += [(card.label, card.value, card.exact, card.source, card.detail) for card in cards_of(view)]
    lines += [*table(cards, align_right_from=5), ""]
    if view.sizes:
        lines += ["## Batch sizes", "", *table(_size_rows(view)), ""]
    training = training_table(view.sizes)
    if training is not None:
        lines += ["## The training step", "", *table(training), ""]
    if view.operators:
        rows = [("operator", "MACs"), *((name, words.count(macs)) for name, macs in view.operators)]
        lines += ["## Operators with the most MACs", "", *table(rows), ""]
    if view.profile.training_advice:
        lines += ["## Batch size to train with", "", *table(_recommendation_rows(view)), ""]
    if view.strategies:
        lines += ["## Several GPUs (predicted, not verified on a GPU)", "", *table(view.strategies, 2), ""]
        lines += ["Of the rank that needs most, whatever the batch, in MiB:", ""]
        lines += [*table(view.strategies_kept), "", escaped(view.strategies_untested), ""]
    if view.energy:
        lines += ["## Energy and data loading (measured)", ""]
        lines += [*(f"- {escaped(name)}: {escaped(value)}" for name, value in view.energy), ""]
    if warnings := view.profile.warnings:
        lines += ["## Warnings", "", *(f"- {escaped(one.message)}" for one in warnings), ""]
    if view.environment:
        rows = [("", ""), *view.environment]
        lines += ["<details><summary>Environment</summary>", "", *table(rows, 2), "", "</details>", ""]
    return "\n".join(lines)


def _size_rows(view: ProfileView) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            "batch size",
            "source",
            "median",
            "95 % interval",
            "runs",
            "throughput",
            "peak memory",
            "activations",
        )
    ]
    for size in view.sizes:
        if not ran(size):
            rows.append((str(size.batch_size), ": ".join(why_not(size)), *["-"] * 6))
            continue
        rows.append(
            (
                str(size.batch_size),
                size.source,
                words.milliseconds(size.timing.median_ms),
                interval(size.timing),
                runs(size.timing),
                words.per_second(size.timing.images_per_second),
                words.mebibytes(size.memory.peak_bytes),
                activations(size.memory),
            )
        )
    return rows


def _recommendation_rows(view: ProfileView) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("GPU", "batch per device", "largest that fits", "needs", "usable", "source", "setting and reason")
    ]
    for one in view.profile.training_advice:
        rows.append(
            (
                one.budget.name,
                "none" if one.batch_size is None else str(one.batch_size),
                "none" if one.largest_batch is None else str(one.largest_batch),
                words.gibibytes(one.needed_bytes),
                words.gibibytes(one.budget.usable_bytes),
                f"{one.source}, {'has run' if one.verified else 'not verified'}",
                f"{words.setting_text(one)}. {one.reason}",
            )
        )
    return rows
