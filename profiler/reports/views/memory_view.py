"""Memory against batch size, from a profile's blocks: what fills it, category by category, beside GPUs' sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrderError
from swinmr_profiling.profiler.batch_size.reserved import Interpolated, Replayed, reserved_of
from swinmr_profiling.profiler.record.fields import Fields, ProfileShapeError, printable
from swinmr_profiling.profiler.reports.views.size_view import SizeView
from swinmr_profiling.profiler.reports.views.training_view import Recommendation, TrainingSize, setting_text
from swinmr_profiling.profiler.reports.views.words import mebibytes, shape

# From the bottom of a bar to its top: what stays whatever the batch, then what grows with it.
CATEGORIES = (
    "parameters", "loss_networks", "ema", "optimizer_state", "gradients", "inputs", "saved_activations", "temporaries",
    "workspaces",
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
    parts: tuple[tuple[str, int], ...]
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


def inference_memory(sizes: Sequence[SizeView], gpu: Fields | None) -> InferenceMemory | None:
    """Bars of the sizes that ran; a GPU's memory is drawn where its allocator was measured."""
    bars, kind = [], None
    for size in sizes:
        if size.peak_bytes is None:
            continue
        kind = kind or size.memory_kind or "memory of an unknown kind"
        activations = min(max(int(size.activation_bytes or 0), 0), size.peak_bytes)
        parts = ((BEFORE, size.peak_bytes - activations), (ACTIVATIONS, activations))
        bars.append(MemoryBar(size.batch_size, parts, size.source))
    if not bars:
        return None
    total = None if gpu is None or "CUDA" not in kind else gpu.integer("total_bytes")
    lines = () if total is None else (MemoryLine(gpu.text("name") or "the GPU", total, None),)
    noisy = [str(size.batch_size) for size in sizes if size.activation_within_noise]
    if noisy:
        kind += f"; the activations of batch {', '.join(noisy)} are within its noise"
    return InferenceMemory(kind, tuple(bars), lines)


def training_memory(
    model: Fields | None,
    recommendations: Sequence[Recommendation],
    training: Mapping[int, TrainingSize],
) -> TrainingMemory | None:
    """What the training chart shows, or None where training was neither predicted nor measured."""
    measured = {
        batch: block.process_bytes or block.peak_reserved_bytes or block.peak_bytes
        for batch, block in training.items()
        if block.source == "measured" and block.error is None
    }
    measured = {batch: size for batch, size in measured.items() if size}
    lines = tuple(
        MemoryLine(one.name, one.total_bytes, one.usable_bytes)
        for one in recommendations
        if one.total_bytes is not None
    )
    recommended = tuple((one.name, one.batch_size) for one in recommendations if one.batch_size is not None)
    if model is None:
        bars = tuple(_measured_bar(batch, training[batch]) for batch in sorted(measured))
        if not bars:
            return None
        first = training[min(measured)]
        setting = f"{first.precision}, checkpointing {first.checkpointing}"
        return TrainingMemory(setting, bars, (), lines, recommended, None, None, (), ())
    settings = model.blocks("settings")
    own = next((setting for setting in settings if setting.flag("is_config")), None)
    if own is None:
        raise ProfileShapeError("memory_model.settings: none is the config's own")
    peak = own.block("peak")
    return TrainingMemory(
        setting=setting_text(own),
        bars=_predicted_bars(own, recommendations, tuple(training)),
        measured=tuple(sorted(measured.items())),
        lines=lines,
        recommended=recommended,
        peak=None if peak is None else f"{peak.text('phase')}, {peak.text('operator')}",
        validation=_validation_text(own.block("validation")),
        assumptions=tuple(model.texts("assumptions")),
        untested_rules=tuple(model.texts("untested_rules")),
    )


def _validation_text(block: Fields | None) -> str | None:
    if block is None:
        return None
    return f"{shape(block.shape('input_shape'))}: {mebibytes(block.integer('reserved_bytes'))} reserved"


def _measured_bar(batch: int, block: TrainingSize) -> MemoryBar:
    reserved = block.peak_reserved_bytes or block.peak_bytes or 0
    outside = max((block.process_bytes or reserved) - reserved, 0)
    parts = tuple((name, size) for name, size in ((RESERVED, reserved), (OUTSIDE, outside)) if size)
    return MemoryBar(batch, parts, "measured")


def _predicted_bars(
    own: Fields, recommendations: Sequence[Recommendation], asked: Sequence[int]
) -> tuple[MemoryBar, ...]:
    """Bars of the table's sizes up to the first that no GPU of the chart holds, and of the recommended batches."""
    table = own.block("sizes") or Fields({}, f"{own.path}.sizes")
    rows = {}
    for size in table.keys():  # noqa: SIM118
        if not re.fullmatch(r"[1-9][0-9]{0,9}", size):
            raise ProfileShapeError(f"{table.path}: {printable(size[:40])!r} is no batch size")
        rows[int(size)] = table.block(size)
    extra = ()
    if recommendations:
        first = recommendations[0]
        extra = ((WORKSPACES, first.workspace_bytes), (CONTEXT, first.context_bytes))
    known = {
        batch: {"live_bytes": live, "reserved_bytes": reserved}
        for batch, row in rows.items()
        if row is not None
        and (live := row.integer("live_bytes"))
        and (reserved := row.integer("reserved_bytes"))
    }
    terms = _terms(own)
    bars = {
        batch: _predicted_bar(batch, row["live_bytes"], row["reserved_bytes"], terms, extra)
        for batch, row in known.items()
    }
    chosen = {one.batch_size for one in recommendations if one.batch_size} - set(bars)
    if known and chosen:
        of_any_batch = _reserved(own, known)
        for batch in chosen:
            reserved = of_any_batch.reserved_bytes(batch)
            bars[batch] = _predicted_bar(batch, reserved, reserved, terms, extra, of_any_batch.source)
    limit = max((one.total_bytes for one in recommendations if one.total_bytes is not None), default=None)
    return _chosen(bars, limit, {one.batch_size for one in recommendations} | set(asked))


def _reserved(own: Fields, known: dict[int, dict[str, int]]) -> Replayed | Interpolated:
    """What is reserved at a batch that is not in the table."""
    setting = {
        "sizes": {str(batch): row for batch, row in known.items()},
        "allocations": own.raw("allocations"),
        "affine_from_batch": own.integer("affine_from_batch"),
    }
    try:
        return reserved_of(setting)
    except (AllocationOrderError, KeyError, TypeError) as error:
        raise ProfileShapeError(f"{own.path}: {printable(str(error))[:200]}") from None


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


def _terms(own: Fields) -> dict[str, tuple[int, int]] | None:
    """Category -> fixed bytes, bytes per sample; with the batches it holds for under "hold"."""
    block, hold = own.block("terms"), own.block("terms_hold")
    if block is None or hold is None:
        return None
    low, high = hold.integer("from_batch"), hold.integer("to_batch")
    if low is None or high is None:
        return None
    found = {"hold": (low, high)}
    for name in block.keys():  # noqa: SIM118
        if name not in CATEGORIES:
            raise ProfileShapeError(f"{block.path}: {printable(name[:40])!r} is no category of memory")
        term = block.block(name)
        if term is not None:
            found[name] = (int(term.number("fixed_bytes") or 0), int(term.number("bytes_per_sample") or 0))
    return found


def _split(
    batch: int, terms: dict[str, tuple[int, int]] | None, *, beyond: bool = False
) -> list[tuple[str, int]] | None:
    """Bytes of each category; beyond: of a batch above the largest that the terms are known to hold for, too."""
    if terms is None or batch < terms["hold"][0] or (batch > terms["hold"][1] and not beyond):
        return None
    sizes = [(name, terms[name][0] + terms[name][1] * batch) for name in CATEGORIES if name in terms]
    return None if any(size < 0 for _, size in sizes) else [part for part in sizes if part[1]]


def _predicted_bar(
    batch: int,
    live: int,
    reserved: int,
    terms: dict[str, tuple[int, int]] | None,
    extra: tuple[tuple[str, int], ...],
    source: str = "predicted",
) -> MemoryBar:
    parts = _split(batch, terms, beyond=source == "extrapolated")
    if parts is None or sum(size for _, size in parts) > reserved:
        parts = [(UNSPLIT, min(live, reserved))]
    parts.append((ALLOCATOR, reserved - sum(size for _, size in parts)))
    return MemoryBar(batch, tuple(part for part in (*parts, *extra) if part[1]), source)
