"""Memory against batch size: what fills it, category by category, beside GPUs' sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swinmr_profiling.profiler.batch_size.reserved import reserved_of
from swinmr_profiling.profiler.record.blocks.figures import MemoryCategory
from swinmr_profiling.profiler.record.blocks.memory_model import (
    MemoryModel,
    MemorySetting,
    PredictedValidation,
)
from swinmr_profiling.profiler.record.blocks.run_description import Gpu
from swinmr_profiling.profiler.reports.views.size_view import SizeView
from swinmr_profiling.profiler.reports.views.training_view import Recommendation, TrainingSize, setting_text
from swinmr_profiling.profiler.reports.views.words import mebibytes, shape

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


@dataclass(frozen=True)
class MemoryLine:
    """A GPU's memory; `usable_bytes` is what headroom and other programs leave, None where that is not known."""

    name: str
    total_bytes: int
    usable_bytes: int | None


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
class InferenceMemory:
    """Memory of the forward pass, measured."""

    kind: str
    bars: tuple[MemoryBar, ...]
    lines: tuple[MemoryLine, ...]


@dataclass(frozen=True)
class TrainingMemory:
    """Memory of the training step in the config's own setting, predicted where it was not measured."""

    setting: str
    bars: tuple[MemoryBar, ...]
    measured: tuple[tuple[int, int], ...]  # (batch size, bytes), to be seen beside a prediction
    lines: tuple[MemoryLine, ...]
    recommended: tuple[tuple[str, int], ...]  # (GPU, batch size)
    peak: str | None
    validation: str | None
    assumptions: tuple[str, ...]
    untested_rules: tuple[str, ...]


def inference_memory(sizes: Sequence[SizeView], gpu: Gpu | None) -> InferenceMemory | None:
    """Bars of the sizes that ran; a GPU's memory is drawn where its allocator was measured."""
    bars, kind = [], ""
    for size in sizes:
        if size.peak_bytes is None:
            continue
        kind = kind or size.memory_kind or "memory of an unknown kind"
        activations = min(max(size.activation_bytes or 0, 0), size.peak_bytes)
        parts = ((BEFORE, size.peak_bytes - activations), (ACTIVATIONS, activations))
        bars.append(MemoryBar(size.batch_size, parts, size.source))
    if not bars:
        return None
    lines = () if gpu is None or "CUDA" not in kind else (MemoryLine(gpu.name, gpu.total_bytes, None),)
    noisy = [str(size.batch_size) for size in sizes if size.activation_within_noise]
    if noisy:
        kind += f"; the activations of batch {', '.join(noisy)} are within its noise"
    return InferenceMemory(kind, tuple(bars), lines)


def training_memory(
    model: MemoryModel | None,
    recommendations: Sequence[Recommendation],
    training: Mapping[int, TrainingSize],
) -> TrainingMemory | None:
    """What the training chart shows, or None where training was neither predicted nor measured."""
    measured = {
        batch: size
        for batch, block in training.items()
        if block.source == "measured"
        and block.error is None
        and (size := block.process_bytes or block.peak_reserved_bytes or block.peak_bytes)
    }
    lines = tuple(MemoryLine(one.name, one.total_bytes, one.usable_bytes) for one in recommendations)
    recommended = tuple((one.name, one.batch_size) for one in recommendations if one.batch_size is not None)
    if model is None:
        bars = tuple(_measured_bar(batch, training[batch]) for batch in sorted(measured))
        if not bars:
            return None
        first = training[min(measured)]
        setting = f"{first.precision}, checkpointing {first.checkpointing}"
        return TrainingMemory(setting, bars, (), lines, recommended, None, None, (), ())
    own = model.config_setting
    return TrainingMemory(
        setting=setting_text(own),
        bars=_predicted_bars(own, recommendations, tuple(training)),
        measured=tuple(sorted(measured.items())),
        lines=lines,
        recommended=recommended,
        peak=f"{own.peak.phase}, {own.peak.operator}",
        validation=_validation_text(own.validation),
        assumptions=tuple(model.assumptions),
        untested_rules=tuple(model.untested_rules),
    )


def _validation_text(block: PredictedValidation | None) -> str | None:
    return (
        None if block is None else f"{shape(block.input_shape)}: {mebibytes(block.reserved_bytes)} reserved"
    )


def _measured_bar(batch: int, block: TrainingSize) -> MemoryBar:
    reserved = block.peak_reserved_bytes or block.peak_bytes or 0
    outside = max((block.process_bytes or reserved) - reserved, 0)
    parts = tuple((name, size) for name, size in ((RESERVED, reserved), (OUTSIDE, outside)) if size)
    return MemoryBar(batch, parts, "measured")


def _predicted_bars(
    own: MemorySetting, recommendations: Sequence[Recommendation], asked: Sequence[int]
) -> tuple[MemoryBar, ...]:
    """Bars of the table's sizes up to the first that no GPU of the chart holds, and of the recommended batches."""
    extra: Parts = ()
    if recommendations:
        first = recommendations[0]
        extra = ((WORKSPACES, first.workspace_bytes), (CONTEXT, first.context_bytes))
    bars = {
        int(batch): _predicted_bar(own, int(batch), row.live_bytes, row.reserved_bytes, extra)
        for batch, row in own.sizes.items()
    }
    of_any_batch = reserved_of(own)
    for batch in {one.batch_size for one in recommendations if one.batch_size} - set(bars):
        reserved = of_any_batch.reserved_bytes(batch)
        bars[batch] = _predicted_bar(own, batch, reserved, reserved, extra, of_any_batch.source)
    limit = max((one.total_bytes for one in recommendations), default=None)
    return _chosen(bars, limit, {one.batch_size for one in recommendations} | set(asked))


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
