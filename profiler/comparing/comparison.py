"""Profiles side by side, as a record that writers format: values, ratios to the first, what is not comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from swinmr_profiling.profiler.comparing.comparability import (
    Reasons,
    against_counts,
    against_measurements,
    against_recommendations,
    against_training,
    disturbed,
    notable_differences,
    on_cpu,
    warned,
)
from swinmr_profiling.profiler.comparing.latency_difference import LatencyDifference, compare_latency
from swinmr_profiling.profiler.reports.views.training_view import Recommendation
from swinmr_profiling.profiler.reports.views.view import ProfileView

LATENCY = "latency"


@dataclass(frozen=True)
class Cell:
    """One figure of one profile.

    Attributes:
        value: None where it is not known; then `text` may say why.
        ratio: to the first profile's value; None for the first, and where it is not comparable.
        against: why no ratio is given although both values are known.
        difference: of latencies that may be compared.
    """

    value: float | int | None
    text: str = ""
    source: str = ""
    ratio: float | None = None
    against: Reasons = ()
    difference: LatencyDifference | None = None


@dataclass(frozen=True)
class Row:
    """One figure of every profile. unit: "count", "operations", "ms", "images/s", "bytes", "batch" or "text"."""

    kind: str
    label: str
    unit: str
    cells: tuple[Cell, ...]
    batch_size: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Everything a writer of a comparison needs. `notes`: by profile, what else differs from the first."""

    views: tuple[ProfileView, ...]
    rows: tuple[Row, ...]
    notes: tuple[Reasons, ...]

    def row(self, kind: str, batch_size: int | None = None) -> Row:
        return next(row for row in self.rows if row.kind == kind and row.batch_size == batch_size)


def compare(views: Sequence[ProfileView]) -> Comparison:
    """Compares profiles with the first of them. Raises ValueError without one."""
    if not views:
        raise ValueError("nothing to compare")
    rows = (
        *_architecture_rows(views),
        *_size_rows(views),
        *_training_rows(views),
        *_recommendation_rows(views),
    )
    notes = tuple(_notes(views, view) for view in views)
    return Comparison(tuple(views), rows, notes)


def _notes(views: Sequence[ProfileView], view: ProfileView) -> Reasons:
    if view is views[0]:
        return warned(view)
    same = ("the same file as the first",) if view.file == views[0].file else ()
    return (*same, *notable_differences(views[0], view), *warned(view))


def _ratios(cells: Sequence[Cell], reasons: Sequence[Reasons]) -> tuple[Cell, ...]:
    """Adds to each cell its ratio to the first, or why there is none."""
    base = cells[0].value
    found = [cells[0]]
    for cell, against in zip(cells[1:], reasons[1:], strict=True):
        if base is not None and cell.value is not None:
            ratio = cell.value / base if base and not against else None
            cell = replace(cell, ratio=ratio, against=against)
        found.append(cell)
    return tuple(found)


def _architecture_rows(views: Sequence[ProfileView]) -> Iterator[Row]:
    counted: list[tuple[str, str, str, Callable]] = [
        ("parameters", "Parameters", "count", lambda one: one.parameters),
        ("macs", "MACs", "operations", lambda one: one.macs),
        ("flops", "FLOPs", "operations", lambda one: one.flops),
    ]
    for kind, label, unit, read in counted:
        cells, reasons = [], []
        for view in views:
            one = view.architecture
            value = None if one is None else read(one)
            text = "" if one is None or kind == "parameters" else one.macs_convention
            cells.append(Cell(value, text, "" if one is None else one.source))
            known = one is not None and views[0].architecture is not None and kind != "parameters"
            reasons.append(against_counts(views[0], view) if known else ())
        if any(cell.value is not None for cell in cells):
            yield Row(kind, label, unit, _ratios(cells, reasons))


def _size_rows(views: Sequence[ProfileView]) -> Iterator[Row]:
    batches = sorted({size.batch_size for view in views for size in view.sizes})
    for batch in batches:
        yield _latency_row(views, batch)
    figures: list[tuple[str, str, str, Callable]] = [
        ("throughput", "Throughput", "images/s", lambda size: size.images_per_second),
        ("inference_memory", "Peak memory of inference", "bytes", lambda size: size.peak_bytes),
    ]
    for kind, label, unit, read in figures:
        for batch in batches:
            cells = [_size_cell(view, batch, read) for view in views]
            if any(cell.value is not None for cell in cells):
                reasons = [_size_reasons(views[0], view, batch) for view in views]
                yield Row(kind, f"{label}, batch {batch}", unit, _ratios(cells, reasons), batch)
    largest = [max((size.batch_size for size in view.ran), default=None) for view in views]
    if any(size is not None for size in largest):
        ran = tuple(Cell(size, source="measured" if size else "") for size in largest)
        yield Row("largest_inference_batch", "Largest batch that ran, inference", "batch", ran)


def _size_cell(view: ProfileView, batch: int, read: Callable) -> Cell:
    size = view.size(batch)
    if size is None:
        return Cell(None, "not measured")
    return Cell(read(size), source=size.source) if size.ran else Cell(None, size.error or "no timing")


def _size_reasons(first: ProfileView, other: ProfileView, batch: int) -> Reasons:
    one, two = first.size(batch), other.size(batch)
    if one is None or two is None:
        return ()
    return against_measurements(first, other, one, two)


def _latency_row(views: Sequence[ProfileView], batch: int) -> Row:
    base = views[0].size(batch)
    cells = [_size_cell(view, batch, lambda size: size.median_ms) for view in views]
    reasons = [_size_reasons(views[0], view, batch) for view in views]
    compared = list(_ratios(cells, reasons))
    for number, view in enumerate(views):
        cell, other = compared[number], view.size(batch)
        if number and cell.ratio is not None and base is not None and other is not None:
            difference = compare_latency(
                base,
                other,
                on_cpu=on_cpu(view),
                disturbed=(disturbed(views[0]), disturbed(view)),
            )
            compared[number] = replace(cell, difference=difference)
    return Row(LATENCY, f"Latency (median), batch {batch}", "ms", tuple(compared), batch)


def _training_rows(views: Sequence[ProfileView]) -> Iterator[Row]:
    batches = sorted({size.batch_size for view in views for size in view.sizes if size.training is not None})
    for batch in batches:
        blocks = [None if (size := view.size(batch)) is None else size.training for view in views]
        cells: list[Cell] = []
        reasons: list[Reasons] = []
        for view, block in zip(views, blocks, strict=True):
            if block is None:
                cells.append(Cell(None, "not known"))
                reasons.append(())
                continue
            cells.append(Cell(block.peak_bytes, block.error or "", block.source))
            reasons.append(() if blocks[0] is None else against_training(views[0], view, blocks[0], block))
        label = f"Training memory (allocator's peak), batch {batch}"
        yield Row("training_memory", label, "bytes", _ratios(cells, reasons), batch)


def _recommendation_rows(views: Sequence[ProfileView]) -> Iterator[Row]:
    cells = tuple(
        Cell(None, "none") if view.advice is None else Cell(view.advice.batch_size, source=view.advice.source)
        for view in views
    )
    if any(cell.value is not None for cell in cells):
        yield Row("recommended_inference", "Recommended batch, inference", "batch", cells)
    gpus = dict.fromkeys(one.name for view in views for one in view.recommendations)
    for gpu in gpus:
        entries = [next((one for one in view.recommendations if one.name == gpu), None) for view in views]
        first = entries[0]
        reasons = [
            () if first is None or one is None else against_recommendations(first, one) for one in entries
        ]
        largest = [_recommended_cell(one, None if one is None else one.largest_batch) for one in entries]
        yield Row(
            "largest_training_batch", f"Largest batch, training, {gpu}", "batch", _ratios(largest, reasons)
        )
        chosen = tuple(_recommended_cell(one, None if one is None else one.batch_size) for one in entries)
        yield Row("recommended_training", f"Recommended batch, training, {gpu}", "batch", chosen)


def _recommended_cell(one: Recommendation | None, batch: int | None) -> Cell:
    if one is None:
        return Cell(None, "not known")
    return Cell(batch, "none" if batch is None else one.setting, one.source)
