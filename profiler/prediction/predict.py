"""From a config to the memory of its training step at any batch size: the entries of a profile's `memory_model`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.allocator.allocation_order import packed
from swinmr_profiling.profiler.measure.example_data import validation_shape
from swinmr_profiling.profiler.measure.training.own_step import OtherStep
from swinmr_profiling.profiler.prediction.memory_snapshot import snapshot_of, write_snapshot
from swinmr_profiling.profiler.prediction.own_step_trace import VALIDATION, observed
from swinmr_profiling.profiler.prediction.peak_basis import basis_of
from swinmr_profiling.profiler.prediction.replay import ReplayResult, live_peak, replay
from swinmr_profiling.profiler.prediction.settings import (
    ALIGNED_BATCHES,
    CHECK_BATCH,
    TrainingSetting,
    WrittenSnapshot,
)
from swinmr_profiling.profiler.prediction.trace.allocation_frames import without_folder
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, Trace
from swinmr_profiling.profiler.prediction.trace.traced_step import FINITE_ASSUMPTION, trace_lines
from swinmr_profiling.profiler.prediction.trace_family import TraceFamily, training_family
from swinmr_profiling.profiler.record.blocks.figures import MemoryCategory
from swinmr_profiling.profiler.record.blocks.memory_model import (
    AffineTerms,
    MemoryPeak,
    MemorySetting,
    PackedAllocations,
    PredictedSize,
    PredictedValidation,
    TermsHold,
)
from swinmr_profiling.profiler.record.limits import MAX_BATCH_SIZE
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.profiler.record.prediction_intervals import rests_on
from swinmr_profiling.profiler.record.units import MIB

# The table of sizes goes on until no card of today could hold it: 288 GB is the largest.
TABLE_END_BYTES = 288 * 10**9
UNTESTED_8_BIT = "states of bitsandbytes' optimizer (from its source as of 0.44)"
UNTESTED_ON_HOST = "what waits on the host (training.on_host) is let go and brought as on a CPU"
TABLE_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)


def write_step_snapshot(
    built: BuiltModel,
    config: ExperimentConfig,
    loss_parts: str,
    batch_size: int,
    file: Path,
    *,
    workspace_bytes: int,
    title: str,
    private: bool = False,
    step: OtherStep | None = None,
) -> WrittenSnapshot:
    """Writes the step of a batch size for PyTorch's memory viewer; its peak is that of the table of sizes.

    private: name files of the user's without their folders.

    Raises OSError, and whatever the network raises where it cannot be traced.
    """
    family, _ = training_family(built, config, loss_parts, check=True, step=step)
    trace, stacks = family.at(batch_size), None
    if step is None:  # the lines of another are not recorded
        recorder = trace_lines(built, config, batch_size)
        again = recorder.finish(batch_size, [])
        # What was predicted from is what is shown: lines of another run of events would be lies.
        if (
            np.array_equal(again.events, trace.events[: len(again.events)])
            and np.array_equal(again.operators, trace.operators[: len(again.operators)])
            and again.step_starts == trace.step_starts[: len(again.step_starts)]
        ):
            of_line = without_folder if private else lambda line: line
            stacks = [tuple(map(of_line, stack)) for stack in recorder.stacks]
    snapshot, written = snapshot_of(trace, stacks, workspace_bytes=workspace_bytes, title=title)
    write_snapshot(snapshot, file)
    return written


def size_entry(trace: Trace, result: ReplayResult, expandable: ReplayResult | None) -> PredictedSize:
    """One row of the table of sizes, bytes without workspaces and context."""
    return PredictedSize(
        live_bytes=live_peak(trace, trace.step_starts[0])[0],
        allocated_bytes=result.training.allocated_bytes,
        reserved_bytes=result.peak_reserved_bytes,
        reserved_expandable_bytes=None if expandable is None else expandable.peak_reserved_bytes,
    )


def predict_sizes(
    family: TraceFamily,
    asked: Sequence[int],
    *,
    expandable: bool,
    on_progress: Callable[[], None] = lambda: None,
) -> dict[str, PredictedSize]:
    """The table of sizes, up to the largest card; what was asked for is in it in any case.

    expandable: replay expandable segments too, for the sizes asked for.
    """
    found: dict[str, PredictedSize] = {}
    full = False
    for batch_size in sorted({*TABLE_BATCHES, *(size for size in asked if size <= MAX_BATCH_SIZE)}):
        # Beyond the check of traces that are not affine, each would have to be traced.
        is_dear = full or (family.affine is None and batch_size > CHECK_BATCH)
        if is_dear and batch_size not in asked:
            continue
        trace = family.at(batch_size)
        result = replay(trace)
        other = replay(trace, expandable=True) if expandable and batch_size in asked else None
        found[str(batch_size)] = size_entry(trace, result, other)
        full = full or result.peak_reserved_bytes > TABLE_END_BYTES
        on_progress()
    return found


def predict_setting(
    built: BuiltModel,
    config: ExperimentConfig,
    setting: TrainingSetting,
    loss_parts: str,
    *,
    asked: Sequence[int] = (),
    step: OtherStep | None = None,
    on_progress: Callable[[], None] = lambda: None,
) -> MemorySetting:
    """The `settings` entry of a memory model.

    built, config: in this very setting. asked: batch sizes that must be in the table. step: see `training_trace`.
    Raises whatever the network raises where it cannot be traced.
    """
    family, said = training_family(built, config, loss_parts, check=setting.is_config, step=step)
    if step is None:
        shape: list[int] | None = validation_shape(built, config)
        trained = sum(p.nbytes for p in built.module.parameters() if p.requires_grad)
    else:
        shape, trained, precision = observed(step, built, config, family.direct(ALIGNED_BATCHES[0]))
        setting = replace(setting, precision=precision)
        said = [*([] if shape is not None else [VALIDATION]), *said]
    return memory_setting(
        family,
        setting,
        asked,
        fingerprint=memory_fingerprint(config),
        trained_bytes=trained,
        validated_shape=shape,
        untested=[
            *([UNTESTED_8_BIT] if config.training.optimizer.type.endswith("_8bit") else []),
            *([UNTESTED_ON_HOST] if config.training.on_host else []),
        ],
        remarks=[*built.notes, *said],
        on_progress=on_progress,
    )


def memory_setting(
    family: TraceFamily,
    setting: TrainingSetting,
    asked: Sequence[int],
    *,
    fingerprint: str,
    trained_bytes: int,
    validated_shape: list[int] | None,
    untested: Sequence[str] = (),
    remarks: Sequence[str] = (),
    on_progress: Callable[[], None] = lambda: None,
) -> MemorySetting:
    """The entry of a family of traces.

    trained_bytes: of parameters that need a gradient. validated_shape: of the batch that they validate, if any.
    untested: rules of this setting that no GPU has confirmed. remarks: assumptions beside those of the traces.
    """
    sizes = predict_sizes(family, asked, expandable=setting.is_config, on_progress=on_progress)
    shown = max((size for size in asked if size <= MAX_BATCH_SIZE), default=1)
    trace = family.at(shown)
    result = replay(trace)
    validation = result.validation
    # Training loops leave cudnn.benchmark off, this project's too.
    basis = basis_of(trace, setting.precision, cudnn_benchmark=False)
    basis.untested += untested
    terms, terms_hold = _terms(family, list(map(int, sizes)))
    there, back = (size / MIB for size in trace.moved_bytes)
    moved = (
        f"training.on_host: in a step of batch {trace.batch_size} {there:,.1f} MiB go to the host and {back:,.1f} MiB "
        "come from there"
    )
    return MemorySetting(
        precision=setting.precision,
        checkpointing=setting.checkpointing,
        **({"checkpointed_modules": list(setting.modules)} if setting.modules else {}),
        patch_size=setting.patch,
        is_config=setting.is_config,
        memory_fingerprint=fingerprint,
        traced_batches=family.traced_batches,
        affine_from_batch=None if family.affine is None else ALIGNED_BATCHES[0],
        aligned=family.affine is not None,
        checked=family.checked,
        not_aligned_because=family.problem,
        allocations=None
        if family.affine is None
        else PackedAllocations.model_validate(packed(family.affine.order())),
        sizes=sizes,
        peak=MemoryPeak(
            batch_size=shown,
            phase=result.training.phase,
            operator=result.training.operator,
            by_category=result.training.by_category,
        ),
        terms=terms,
        terms_hold=terms_hold,
        validation=None
        if validation is None or validated_shape is None
        else PredictedValidation(
            input_shape=validated_shape,
            allocated_bytes=validation.allocated_bytes,
            reserved_bytes=_validation_alone(trace),
        ),
        ddp_bucket_bytes=trained_bytes,
        rests_on=rests_on(basis),
        assumptions=[
            *remarks,
            *([moved] if there or back else []),
            *(text for text in family.assumptions() if text != FINITE_ASSUMPTION),
        ],
    )


def _validation_alone(trace: Trace) -> int:
    """Bytes reserved where training itself needed nothing: the state that it keeps, and a validation batch."""
    start = trace.step_starts[-1]
    kept = (np.flatnonzero(trace.alive(start)) + 1).astype(np.int32)
    phases = np.concatenate([np.zeros(len(kept), dtype=np.int8), trace.event_phases[start:]])
    events = np.concatenate([kept, trace.events[start:]])
    alone = replace(trace, events=events, event_phases=phases, step_starts=[0])
    return replay(alone).peak_reserved_bytes


def _terms(
    family: TraceFamily, sizes: Sequence[int]
) -> tuple[dict[MemoryCategory, AffineTerms] | None, TermsHold | None]:
    """Each category at the peak as fixed_bytes + bytes_per_sample x batch, and between which sizes that holds.

    Bytes as asked for: rounded up to 512 they are no longer affine.
    """
    if family.affine is None:
        return None, None
    batches = [size for size in sizes if size >= ALIGNED_BATCHES[0]]
    events = {batch: live_peak(family.at(batch))[1] for batch in batches}
    # The regime of the largest sizes: the peak is at the same event in each.
    last = events[batches[-1]]
    held = [batch for batch in batches if events[batch] == last]
    base, affine = family.affine.base, family.affine
    alive = base.alive(last + 1)
    terms = {
        name: AffineTerms(
            fixed_bytes=int(affine.intercepts[alive & (base.categories == number)].sum()),
            bytes_per_sample=int(affine.slopes[alive & (base.categories == number)].sum()),
        )
        for number, name in enumerate(CATEGORIES)
    }
    return terms, TermsHold(from_batch=held[0], to_batch=held[-1])
