"""Charts in words and tables: for those who do not see them, and for those who want the figure itself."""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.record.blocks.batch import Batch, MeasuredBatch, Memory, Timing, ran, why_not
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.memory_view import MemoryBySize, parts_of
from swinmr_profiling.profiler.reports.views.view import ProfileView

Table = tuple[tuple[str, ...], ...]


def interval(timing: Timing) -> str:
    """The 95 % interval of the median, or why there is none."""
    if timing.ci95_median_ms is None:
        return "none (too few runs)"
    low, high = timing.ci95_median_ms
    return f"{figure(low)} to {figure(high)} ms"


def runs(timing: Timing) -> str:
    if timing.num_runs is None:
        return words.UNKNOWN
    if timing.runs_by_process and len(timing.runs_by_process) > 1:
        return f"{timing.num_runs} in {len(timing.runs_by_process)} processes"
    return str(timing.num_runs)


def activations(memory: Memory) -> str:
    """ "126.0 MiB"; what resident memory cannot tell from its noise says so."""
    text = words.mebibytes(memory.activation_bytes)
    noise = f" (within the noise of {words.mebibytes(memory.noise_bytes)})"
    return f"{text}{noise}" if memory.activation_within_noise else text


def latency_words(sizes: Sequence[MeasuredBatch]) -> str:
    texts = [f"batch {size.batch_size} {words.milliseconds(size.timing.median_ms)}" for size in sizes]
    return (
        "A dot for every timed run, in the order they ran from bottom to top; a line at the median; a band for the "
        f"95 % interval of the median. Medians: {', '.join(texts)}."
    )


def latency_table(sizes: Sequence[MeasuredBatch]) -> Table:
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
            runs(timing),
            words.milliseconds(timing.mean_ms),
            words.milliseconds(timing.std_ms),
            words.milliseconds(timing.median_ms),
            interval(timing),
            words.milliseconds(timing.min_ms),
            words.milliseconds(timing.p95_ms),
            words.milliseconds(timing.max_ms),
        )
        for size, timing in ((size, size.timing) for size in sizes)
    ]
    return (header, *rows)


def throughput_words(view: ProfileView, sizes: Sequence[MeasuredBatch]) -> str:
    texts = [f"batch {size.batch_size} {words.per_second(size.timing.images_per_second)}" for size in sizes]
    advice = view.profile.inference_advice
    knee = "" if advice is None else f" The knee is batch {advice.batch_size}: {advice.reason}."
    return f"Images per second against batch size: {', '.join(texts)}.{knee}"


def throughput_table(sizes: Sequence[Batch]) -> Table:
    rows = [
        (
            str(size.batch_size),
            words.per_second(size.timing.images_per_second) if ran(size) else ": ".join(why_not(size)),
        )
        for size in sizes
    ]
    return (("batch size", "throughput"), *rows)


def training_table(sizes: Sequence[Batch]) -> Table | None:
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
        if isinstance(one, TrainingFailure):
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


def memory_words(what: str, shown: MemoryBySize) -> str:
    """what: of which memory."""
    texts = [
        f"batch {bar.batch_size} {words.gibibytes(bar.total_bytes)} ({bar.source})" for bar in shown.bars
    ]
    cards = [f"{line.name} {words.gibibytes(line.total_bytes)}" for line in shown.lines]
    marks = [f"batch {batch} for {name}" for name, batch in shown.recommended]
    sentences = [f"Memory against batch size, {what}: {', '.join(texts)}."]
    if cards:
        sentences.append(f"Lines show the memory of {', '.join(cards)}.")
    if marks:
        sentences.append(f"Recommended: {', '.join(marks)}.")
    return " ".join(sentences)


def memory_table(shown: MemoryBySize) -> Table:
    categories, seen = parts_of(shown.bars), dict(shown.measured)
    header = ("batch size", "source", *(name.replace("_", " ") for name in categories), "in all, bytes")
    header += ("measured, bytes",) if seen else ()
    rows = []
    for bar in shown.bars:
        parts, ran_with = dict(bar.parts), seen.get(bar.batch_size)
        row = (str(bar.batch_size), bar.source, *(words.mebibytes(parts.get(name, 0)) for name in categories))
        measured = ("-" if ran_with is None else words.count(ran_with),)
        rows.append((*row, words.count(bar.total_bytes), *(measured if seen else ())))
    return (header, *rows)
