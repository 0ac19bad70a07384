"""Charts in words and tables: for those who do not see them, and for those who want the figure itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.memory_view import MemoryBar, MemoryLine, parts_of
from swinmr_profiling.profiler.reports.views.size_view import SizeView

if TYPE_CHECKING:
    from swinmr_profiling.profiler.reports.views.view import ProfileView

Table = tuple[tuple[str, ...], ...]


def interval(size: SizeView) -> str:
    """The 95 % interval of the median, or why there is none."""
    if size.ci95_median_ms is None:
        return "none (too few runs)"
    low, high = size.ci95_median_ms
    return f"{figure(low)} to {figure(high)} ms"


def runs(size: SizeView) -> str:
    if size.num_runs is None:
        return words.UNKNOWN
    if size.runs_by_process and len(size.runs_by_process) > 1:
        return f"{size.num_runs} in {len(size.runs_by_process)} processes"
    return str(size.num_runs)


def activations(size: SizeView) -> str:
    """ "126.0 MiB"; what resident memory cannot tell from its noise says so."""
    text = words.mebibytes(size.activation_bytes)
    return (
        f"{text} (within the noise of {words.mebibytes(size.noise_bytes)})"
        if size.activation_within_noise
        else text
    )


def latency_words(sizes: Sequence[SizeView]) -> str:
    texts = [f"batch {size.batch_size} {words.milliseconds(size.median_ms)}" for size in sizes]
    return (
        "A dot for every timed run, in the order they ran from bottom to top; a line at the median; a band for the "
        f"95 % interval of the median. Medians: {', '.join(texts)}."
    )


def latency_table(sizes: Sequence[SizeView]) -> Table:
    header = (
        "batch size",
        "runs",
        "mean",
        "deviation",
        "median",
        "95 % interval of the median",
        "min",
        "p95",
        "max",
    )
    rows = [
        (
            str(size.batch_size),
            runs(size),
            words.milliseconds(size.mean_ms),
            words.milliseconds(size.std_ms),
            words.milliseconds(size.median_ms),
            interval(size),
            words.milliseconds(size.min_ms),
            words.milliseconds(size.p95_ms),
            words.milliseconds(size.max_ms),
        )
        for size in sizes
    ]
    return (header, *rows)


def throughput_words(view: ProfileView, sizes: Sequence[SizeView]) -> str:
    texts = [f"batch {size.batch_size} {words.per_second(size.images_per_second)}" for size in sizes]
    knee = (
        "" if view.advice is None else f" The knee is batch {view.advice.batch_size}: {view.advice.reason}."
    )
    return f"Images per second against batch size: {', '.join(texts)}.{knee}"


def throughput_table(sizes: Sequence[SizeView]) -> Table:
    rows = [
        (
            str(size.batch_size),
            words.per_second(size.images_per_second) if size.ran else f"{size.error}: {size.detail}",
        )
        for size in sizes
    ]
    return (("batch size", "throughput"), *rows)


def training_table(sizes: Sequence[SizeView]) -> Table | None:
    """The `training` blocks of the batch sizes, or None where there are none."""
    known = [(size, size.training) for size in sizes if size.training is not None]
    if not known:
        return None
    header = (
        "batch size",
        "source",
        "allocated",
        "reserved",
        "of the process",
        "live, interval",
        "reserved, interval",
        "images/s",
        "steps run",
    )
    rows = []
    for size, one in known:
        if one.error is not None:
            failed = (str(size.batch_size), one.source, f"{one.error}: {one.detail}")
            rows.append(failed + ("-",) * (len(header) - len(failed)))
            continue
        rows.append(
            (
                str(size.batch_size),
                one.source,
                words.mebibytes(one.peak_bytes),
                words.mebibytes(one.peak_reserved_bytes),
                words.mebibytes(one.process_bytes),
                _span(one.live_interval_bytes),
                _span(one.reserved_interval_bytes),
                "-" if one.images_per_second is None else f"{figure(one.images_per_second)}",
                words.count(one.steps_run),
            )
        )
    return (header, *rows)


def _span(interval_bytes: Sequence[float] | None) -> str:
    return "-" if interval_bytes is None else " to ".join(map(words.mebibytes, interval_bytes))


def memory_words(
    what: str,
    bars: Sequence[MemoryBar],
    lines: Sequence[MemoryLine],
    recommended: Sequence[tuple[str, int]],
) -> str:
    texts = [f"batch {bar.batch_size} {words.gibibytes(bar.total_bytes)} ({bar.source})" for bar in bars]
    cards = [f"{line.name} {words.gibibytes(line.total_bytes)}" for line in lines]
    marks = [f"batch {batch} for {name}" for name, batch in recommended]
    sentences = [f"Memory against batch size, {what}: {', '.join(texts)}."]
    if cards:
        sentences.append(f"Lines show the memory of {', '.join(cards)}.")
    if marks:
        sentences.append(f"Recommended: {', '.join(marks)}.")
    return " ".join(sentences)


def memory_table(bars: Sequence[MemoryBar], measured: Sequence[tuple[int, int]]) -> Table:
    categories = parts_of(bars)
    seen = dict(measured)
    header = ("batch size", "source", *(name.replace("_", " ") for name in categories), "in all, bytes")
    header += ("measured, bytes",) if seen else ()
    rows = []
    for bar in bars:
        parts = dict(bar.parts)
        row = (str(bar.batch_size), bar.source, *(words.mebibytes(parts.get(name, 0)) for name in categories))
        row += (words.count(bar.total_bytes),)
        rows.append(
            row + ((words.count(seen[bar.batch_size]) if bar.batch_size in seen else "-",) if seen else ())
        )
    return (header, *rows)
