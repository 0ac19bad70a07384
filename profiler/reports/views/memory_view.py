"""Memory against batch size: what fills it, category by category, beside GPUs' sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from swinmr_profiling.profiler.batch_size.reserved import reserved_of
from swinmr_profiling.profiler.record.blocks.batch import Batch, MeasuredBatch
from swinmr_profiling.profiler.record.blocks.figures import MemoryCategory
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.blocks.run_description import Gpu
from swinmr_profiling.profiler.record.blocks.training import TrainingRun
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.views.words import setting_text

# From the bottom of a bar to its top: what stays whatever the batch, then what grows with it.
CATEGORIES: tuple[MemoryCategory, ...] = (
    "parameters", "loss_networks", "ema", "optimizer_state", "gradients", "inputs", "saved_activations", "temporaries",
    "communication", "workspaces",
)  # fmt: skip
UNSPLIT = "tensors, not split"
ALLOCATOR = "allocator: rounding and caching"
WORKSPACES = "libraries' workspaces"
CONTEXT = "CUDA context"
OUTSIDE = "outside the allocator"
RESERVED = "reserved by the allocator"
BEFORE, ACTIVATIONS = "before the first forward: weights, libraries", "activations"
# The order in which a bar is filled, and the only names its parts have.
PART_ORDER = (BEFORE, ACTIVATIONS, RESERVED, UNSPLIT, *CATEGORIES, ALLOCATOR, OUTSIDE, WORKSPACES, CONTEXT)
NOT_TENSORS = (ALLOCATOR, OUTSIDE, WORKSPACES, CONTEXT)
MAX_BARS = 12
# Names and bytes.
Parts = tuple[tuple[str, int], ...]


def parts_of(bars: Sequence[MemoryBar]) -> list[str]:
    """The parts that occur, from the bottom up."""
    found = {name for bar in bars for name, _ in bar.parts}
    return [name for name in PART_ORDER if name in found]


class MemoryLine(NamedTuple):
    """A GPU's memory."""

    name: str
    total_bytes: int


@dataclass(frozen=True)
class MemoryBar:
    """Memory at one batch size, by category, bytes."""

    batch_size: int
    parts: Parts
    source: str

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.parts)


@dataclass(frozen=True)
class MemoryBySize:
    """What a chart of memory shows.

    what: of which memory: its kind, or the setting of training. recommended: (GPU, batch size). measured: (batch size,
    bytes), to be seen beside a prediction.
    """

    what: str
    bars: tuple[MemoryBar, ...]
    lines: tuple[MemoryLine, ...]
    recommended: tuple[tuple[str, int], ...] = ()
    measured: tuple[tuple[int, int], ...] = ()


def inference_memory(sizes: Sequence[Batch], gpu: Gpu | None) -> MemoryBySize | None:
    """Of the forward pass, measured; a GPU's memory is drawn where its allocator was measured."""
    measured = [size for size in sizes if isinstance(size, MeasuredBatch)]
    known = [
        size for size in measured if size.memory.peak_bytes is not None
    ]  # of the original script's not all
    if not known:
        return None
    kind = known[0].memory.kind or "memory of an unknown kind"
    bars = []
    for size in known:
        peak = size.memory.peak_bytes
        activations = min(max(size.memory.activation_bytes or 0, 0), peak)
        parts = ((BEFORE, peak - activations), (ACTIVATIONS, activations))
        bars.append(MemoryBar(size.batch_size, parts, size.source))
    lines = () if gpu is None or "CUDA" not in kind else (MemoryLine(gpu.name, gpu.total_bytes),)
    noisy = [str(size.batch_size) for size in measured if size.memory.activation_within_noise]
    if noisy:
        kind += f"; the activations of batch {', '.join(noisy)} are within its noise"
    return MemoryBySize(kind, tuple(bars), lines)


def training_memory(profile: Profile, sizes: Sequence[Batch]) -> MemoryBySize | None:
    """Of the training step in the config's own setting, predicted where it was not measured.

    None where it was neither.
    """
    training = {size.batch_size: size.training for size in sizes if size.training is not None}
    runs = {
        batch: run
        for batch, run in training.items()
        if isinstance(run, TrainingRun) and run.source == "measured" and _bytes_of(run)
    }
    advice = profile.training_advice
    lines = tuple(MemoryLine(one.budget.name, one.budget.total_bytes) for one in advice)
    recommended = tuple((one.budget.name, one.batch_size) for one in advice if one.batch_size is not None)
    if profile.memory_model is not None:
        own = profile.memory_model.config_setting
        measured = tuple((batch, _bytes_of(run)) for batch, run in runs.items())
        bars = _predicted_bars(own, advice, tuple(training))
        return MemoryBySize(setting_text(own), bars, lines, recommended, measured)
    if not runs:
        return None
    first = next(iter(runs.values()))
    setting = f"{first.precision}, checkpointing {first.checkpointing}"
    bars = tuple(_measured_bar(batch, run) for batch, run in runs.items())
    return MemoryBySize(setting, bars, lines, recommended)


def _bytes_of(run: TrainingRun) -> int:
    """What it took of the machine, as far as that is known."""
    return run.process_bytes or run.peak_reserved_bytes or run.peak_bytes


def _measured_bar(batch: int, block: TrainingRun) -> MemoryBar:
    reserved = block.peak_reserved_bytes or block.peak_bytes
    outside = max((block.process_bytes or reserved) - reserved, 0)
    parts = tuple((name, size) for name, size in ((RESERVED, reserved), (OUTSIDE, outside)) if size)
    return MemoryBar(batch, parts, "measured")


def _predicted_bars(
    own: MemorySetting, advice: Sequence[TrainingRecommendation], asked: Sequence[int]
) -> tuple[MemoryBar, ...]:
    """Bars of the table's sizes up to the first that no GPU of the chart holds, and of the recommended batches."""
    extra: Parts = ()
    if advice:
        budget = advice[0].budget
        extra = ((WORKSPACES, budget.workspace_bytes), (CONTEXT, budget.context_bytes))
    bars = {
        int(batch): _predicted_bar(own, int(batch), row.live_bytes, row.reserved_bytes, extra)
        for batch, row in own.sizes.items()
    }
    of_any_batch = reserved_of(own)
    for batch in {one.batch_size for one in advice if one.batch_size} - set(bars):
        reserved = of_any_batch.reserved_bytes(batch)
        bars[batch] = _predicted_bar(own, batch, reserved, reserved, extra, of_any_batch.source)
    limit = max((one.budget.total_bytes for one in advice), default=None)
    return _chosen(bars, limit, {one.batch_size for one in advice} | set(asked))


def _chosen(bars: dict[int, MemoryBar], limit: int | None, wanted: set[int | None]) -> tuple[MemoryBar, ...]:
    shown = []
    for batch in sorted(bars):
        shown.append(batch)
        if limit is not None and bars[batch].total_bytes > limit:
            break
    # Too many bars: the sizes in between go first, from the small end, then whatever is left over.
    for droppable in (lambda size: size & (size - 1) and size not in wanted, lambda size: size not in wanted):
        for batch in list(shown):
            if len(shown) > MAX_BARS and batch != shown[-1] and droppable(batch):
                shown.remove(batch)
    return tuple(bars[batch] for batch in shown[: 2 * MAX_BARS])


def _split(own: MemorySetting, batch: int, *, beyond: bool) -> list[tuple[str, int]] | None:
    """Bytes of each category; beyond: of a batch above the largest that the terms are known to hold for, too."""
    terms, hold = own.terms, own.terms_hold
    if terms is None or hold is None or batch < hold.from_batch or (batch > hold.to_batch and not beyond):
        return None
    sizes = [
        (name, term.fixed_bytes + term.bytes_per_sample * batch)
        for name in CATEGORIES
        if (term := terms.get(name)) is not None
    ]
    return None if any(size < 0 for _, size in sizes) else [part for part in sizes if part[1]]


def _predicted_bar(
    own: MemorySetting, batch: int, live: int, reserved: int, extra: Parts, source: str = "predicted"
) -> MemoryBar:
    parts = _split(own, batch, beyond=source == "extrapolated")
    if parts is None or sum(size for _, size in parts) > reserved:
        parts = [(UNSPLIT, min(live, reserved))]
    parts.append((ALLOCATOR, reserved - sum(size for _, size in parts)))
    return MemoryBar(batch, tuple(part for part in (*parts, *extra) if part[1]), source)
