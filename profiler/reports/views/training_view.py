"""The training side of a profile: sizes whose training step is known, and the batch to train with on each GPU."""

from __future__ import annotations

from dataclasses import dataclass

from swinmr_profiling.profiler.record.fields import Fields


@dataclass(frozen=True)
class TrainingSize:
    """`batch_profiling[N].training`: one batch size of the training step; bytes."""

    source: str
    error: str | None
    detail: str | None
    precision: str | None
    checkpointing: str | None
    patch_size: tuple[int, ...] | None
    input_shape: tuple[int, ...] | None
    peak_bytes: int | None
    peak_reserved_bytes: int | None
    process_bytes: int | None
    live_interval_bytes: tuple[float, float] | None
    reserved_interval_bytes: tuple[float, float] | None
    images_per_second: float | None
    steps_run: int | None


@dataclass(frozen=True)
class Lever:
    """The largest batch in another setting; None where nothing fits."""

    setting: str
    largest_batch: int | None
    source: str | None


@dataclass(frozen=True)
class Recommendation:
    """`recommendation.training[i]`: the batch size to train with on one GPU; None where none can be named."""

    name: str
    total_bytes: int | None
    usable_bytes: int | None
    context_bytes: int
    workspace_bytes: int
    setting: str
    precision: str | None
    patch: str
    batch_size: int | None
    largest_batch: int | None
    accumulate: int | None
    global_batch: int | None
    devices: int | None
    needed_bytes: int | None
    source: str
    verified: bool
    reason: str
    levers: tuple[Lever, ...]


def setting_text(block: Fields) -> str:
    """ "fp32, checkpointing none, patch 96 x 96"."""
    return f"{block.text('precision')}, checkpointing {block.text('checkpointing')}, {patch_text(block)}"


def patch_text(block: Fields) -> str:
    """ "patch 96 x 96" or "whole image"."""
    patch = block.shape("patch_size")
    return "whole image" if patch is None else f"patch {' x '.join(map(str, patch))}"


def read_training(block: Fields | None) -> TrainingSize | None:
    if block is None:
        return None
    return TrainingSize(
        source=block.text("source") or "measured",
        error=block.text("error"),
        detail=block.text("detail"),
        precision=block.text("precision"),
        checkpointing=block.text("checkpointing"),
        patch_size=block.shape("patch_size"),
        input_shape=block.shape("input_shape"),
        peak_bytes=block.integer("peak_bytes"),
        peak_reserved_bytes=block.integer("peak_reserved_bytes"),
        process_bytes=block.integer("process_bytes"),
        live_interval_bytes=block.interval("live_interval_bytes"),
        reserved_interval_bytes=block.interval("reserved_interval_bytes"),
        images_per_second=block.amount("images_per_second"),
        steps_run=block.integer("steps_run"),
    )


def read_recommendations(recommendation: Fields) -> tuple[Recommendation, ...]:
    return tuple(_recommendation(entry) for entry in recommendation.blocks("training"))


def _recommendation(entry: Fields) -> Recommendation:
    budget = entry.block("budget") or Fields({}, f"{entry.path}.budget")
    return Recommendation(
        name=budget.text("name") or "a GPU of unknown name",
        total_bytes=budget.integer("total_bytes"),
        usable_bytes=budget.integer("usable_bytes"),
        context_bytes=budget.integer("context_bytes") or 0,
        workspace_bytes=budget.integer("workspace_bytes") or 0,
        setting=setting_text(entry),
        precision=entry.text("precision"),
        patch=patch_text(entry),
        batch_size=entry.integer("batch_size"),
        largest_batch=entry.integer("largest_batch"),
        accumulate=entry.integer("accumulate"),
        global_batch=entry.integer("global_batch"),
        devices=entry.integer("devices"),
        needed_bytes=entry.integer("needed_bytes"),
        source=entry.text("source") or "predicted",
        verified=bool(entry.flag("verified")),
        reason=entry.text("reason") or "no reason is recorded",
        levers=tuple(
            Lever(setting_text(lever), lever.integer("largest_batch"), lever.text("source"))
            for lever in entry.blocks("levers")
        ),
    )
