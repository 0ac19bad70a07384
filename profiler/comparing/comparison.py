"""Profiles side by side, as a record that writers format: values, ratios to the first, what is not comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

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
from swinmr_profiling.profiler.record.blocks.batch import MeasuredBatch, ran, why_not
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.reports.views.view import ProfileView
from swinmr_profiling.profiler.reports.views.words import setting_text

LATENCY = "latency"
TrainingStep = TrainingRun | TrainingFailure | None


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


def _ratios(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Gives each cell its ratio to the first; `against` stays where both values are known and may not be compared."""
    base = cells[0].value
    found = [cells[0]]
    for cell in cells[1:]:
        if base is None or cell.value is None:
            cell = replace(cell, against=())
        elif base and not cell.against:
            cell = replace(cell, ratio=cell.value / base)
        found.append(cell)
    return tuple(found)


def _architecture_rows(views: Sequence[ProfileView]) -> Iterator[Row]:
    counted = [
        ("parameters", "Parameters", "count", attrgetter("total_parameters")),
        ("macs", "MACs", "operations", attrgetter("macs")),
        ("flops", "FLOPs", "operations", attrgetter("flops")),
    ]
    for kind, label, unit, read in counted:
        cells = []
        for view in views:
            one = view.profile.architecture
            text = "" if kind == "parameters" else view.macs_convention
            against = () if kind == "parameters" else against_counts(views[0], view)
            cells.append(Cell(None) if one is None else Cell(read(one), text, one.source, against=against))
        if any(cell.value is not None for cell in cells):
            yield Row(kind, label, unit, _ratios(cells))


def _size_rows(views: Sequence[ProfileView]) -> Iterator[Row]:
    batches = sorted({size.batch_size for view in views for size in view.sizes})
    for batch in batches:
        yield _latency_row(views, batch)
    figures = [
        ("throughput", "Throughput", "images/s", attrgetter("timing.images_per_second")),
        ("inference_memory", "Peak memory of inference", "bytes", attrgetter("memory.peak_bytes")),
    ]
    for kind, label, unit, read in figures:
        for batch in batches:
            cells = [_size_cell(views[0], view, batch, read) for view in views]
            if any(cell.value is not None for cell in cells):
                yield Row(kind, f"{label}, batch {batch}", unit, _ratios(cells), batch)
    largest = [max((size.batch_size for size in view.ran), default=None) for view in views]
    if any(size is not None for size in largest):
        cells = [Cell(size, source="measured" if size else "") for size in largest]
        yield Row("largest_inference_batch", "Largest batch that ran, inference", "batch", tuple(cells))


def _size_cell(first: ProfileView, view: ProfileView, batch: int, read: Callable) -> Cell:
    base, size = first.size(batch), view.size(batch)
    if size is None:
        return Cell(None, "not measured")
    if not ran(size):
        return Cell(None, why_not(size)[0])
    against = () if base is None else against_measurements(first, view, base, size)
    return Cell(read(size), source=size.source, against=against)


def _latency_row(views: Sequence[ProfileView], batch: int) -> Row:
    base = views[0].size(batch)
    cells = [_size_cell(views[0], view, batch, attrgetter("timing.median_ms")) for view in views]
    compared = list(_ratios(cells))
    for number, view in enumerate(views):
        other = view.size(batch)
        # With a ratio both ran.
        if (
            compared[number].ratio is not None
            and isinstance(base, MeasuredBatch)
            and isinstance(other, MeasuredBatch)
        ):
            slowed = (disturbed(views[0]), disturbed(view))
            difference = compare_latency(base.timing, other.timing, on_cpu=on_cpu(view), disturbed=slowed)
            compared[number] = replace(compared[number], difference=difference)
    return Row(LATENCY, f"Latency (median), batch {batch}", "ms", tuple(compared), batch)


def _training_rows(views: Sequence[ProfileView]) -> Iterator[Row]:
    batches = sorted({size.batch_size for view in views for size in view.sizes if size.training is not None})
    for batch in batches:
        blocks = [None if (size := view.size(batch)) is None else size.training for view in views]
        cells = [
            _training_cell(views[0], view, blocks[0], block)
            for view, block in zip(views, blocks, strict=True)
        ]
        label = f"Training memory (allocator's peak), batch {batch}"
        yield Row("training_memory", label, "bytes", _ratios(cells), batch)


def _training_cell(first: ProfileView, view: ProfileView, base: TrainingStep, block: TrainingStep) -> Cell:
    if block is None:
        return Cell(None, "not known")
    if isinstance(block, TrainingFailure):
        return Cell(None, block.error, block.source)
    against = against_training(first, view, base, block) if isinstance(base, TrainingRun) else ()
    return Cell(block.peak_bytes, source=block.source, against=against)


def _recommendation_rows(views: Sequence[ProfileView]) -> Iterator[Row]:
    inference = [view.profile.inference_advice for view in views]
    cells = tuple(
        Cell(None, "none") if one is None else Cell(one.batch_size, source=one.source) for one in inference
    )
    if any(cell.value is not None for cell in cells):
        yield Row("recommended_inference", "Recommended batch, inference", "batch", cells)
    # Of a card that is there twice the first entry counts.
    advice = [{one.budget.name: one for one in reversed(view.profile.training_advice)} for view in views]
    for gpu in dict.fromkeys(one.budget.name for view in views for one in view.profile.training_advice):
        entries = [of_card.get(gpu) for of_card in advice]
        largest = _ratios([_recommended_cell(entries[0], one, "largest_batch") for one in entries])
        yield Row("largest_training_batch", f"Largest batch, training, {gpu}", "batch", largest)
        chosen = tuple(_recommended_cell(None, one, "batch_size") for one in entries)
        yield Row("recommended_training", f"Recommended batch, training, {gpu}", "batch", chosen)


def _recommended_cell(
    first: TrainingRecommendation | None,
    one: TrainingRecommendation | None,
    which: Literal["batch_size", "largest_batch"],
) -> Cell:
    """first: what it is compared with, None where it is not."""
    if one is None:
        return Cell(None, "not known")
    batch = getattr(one, which)
    against = () if first is None else against_recommendations(first, one)
    return Cell(batch, "none" if batch is None else setting_text(one), one.source, against=against)
