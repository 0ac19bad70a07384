"""Predictions made beforehand, in a process that sees no GPU: traces without data, replayed by the allocator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.profiler.allocator.workspaces import Workspaces, workspaces_for
from swinmr_profiling.profiler.batch_size.reserved import Interpolated
from swinmr_profiling.profiler.gpu_check.record import Peaks, Predicted, PredictedSize, Prediction
from swinmr_profiling.profiler.gpu_check.subprocesses import serve

if TYPE_CHECKING:  # needs torch
    from swinmr_profiling.profiler.prediction.trace.storage_trace import Trace

TABLE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class PredictionRequest(BaseModel):
    """One network; compute_capability is None without a GPU."""

    config: ExperimentConfig
    mode: Literal["training", "inference"]
    sizes: list[int]
    torch_version: str
    compute_capability: str | None
    trust_config: bool


def main() -> None:
    serve(PredictionRequest, predict)


def predict(request: PredictionRequest) -> Prediction:
    """The sizes asked for; one whose bytes are beyond 64 bits is left out."""
    import torch

    from swinmr_profiling.models.registry import build_model
    from swinmr_profiling.profiler.prediction.trace.traced_step import trace_inference, trace_training
    from swinmr_profiling.profiler.prediction.trace_family import TraceFamily

    config = request.config
    torch.manual_seed(config.system.seed)
    built = build_model(config, trust_config=request.trust_config)
    trace_of = trace_training if request.mode == "training" else trace_inference
    family = TraceFamily(lambda batch: trace_of(built, config, batch), check=False)
    workspaces = Workspaces(0, 0, 0, "none: no GPU")
    if request.compute_capability is not None:
        workspaces = workspaces_for(request.torch_version, request.compute_capability)
    sizes = {}
    for size in request.sizes:
        try:
            # Batch 1 often takes another way than those that the affine model is made of.
            trace = family.direct(1) if size == 1 else family.at(size)
        except OverflowError:
            continue
        sizes[size] = replayed(trace, workspaces)
    return Prediction(sizes=sizes, workspaces=workspaces.source, aligned=family.affine is not None)


def replayed(trace: Trace, workspaces: Workspaces) -> PredictedSize:
    """Bytes of a trace's peaks, with the default allocator and with expandable segments."""
    from swinmr_profiling.profiler.prediction.replay import ReplayResult, replay

    def peaks(result: ReplayResult) -> Peaks:
        validation = result.validation
        return Peaks(
            allocated_bytes=result.training.allocated_bytes,
            reserved_bytes=result.training.reserved_bytes,
            validation_allocated_bytes=None if validation is None else validation.allocated_bytes,
            validation_reserved_bytes=None if validation is None else validation.reserved_bytes,
        )

    plain = replay(trace, workspaces=workspaces)
    return PredictedSize(
        live_bytes=plain.training.live_bytes,
        phase=plain.training.phase,
        operator=plain.training.operator,
        workspace_bytes=plain.workspace_bytes,
        default=peaks(plain),
        expandable=peaks(replay(trace, workspaces=workspaces, expandable=True)),
    )


def predicted(prediction: Prediction | str, batch_size: int, allocator: str) -> Predicted:
    """What stands beside the measurement of a batch size. prediction: a text says why there is none."""
    if isinstance(prediction, str):
        return Predicted(source=None, reason=prediction)
    found = prediction.sizes.get(batch_size)
    if found is None:
        return Predicted(source=None, reason=f"batch {batch_size} is beyond what can be predicted")
    return Predicted(
        source="predicted",
        workspaces=prediction.workspaces,
        aligned=prediction.aligned,
        **found.model_dump(exclude={"default", "expandable"}),
        **found.of(allocator).model_dump(),
    )


def interpolated(table: Mapping[int, PredictedSize], allocator: str) -> Interpolated:
    """Bytes that training and validation reserve at any batch, for a search to look where it looks next."""
    peaks = {size: one.of(allocator) for size, one in table.items()}
    return Interpolated({size: (one.allocated_bytes, one.peak_reserved_bytes) for size, one in peaks.items()})
