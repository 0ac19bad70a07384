"""What one training step of one sample takes on a CUDA card, predicted without touching it."""

from __future__ import annotations

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.profiler.allocator.workspaces import workspaces_for
from swinmr_profiling.profiler.prediction.prediction_session import MAX_PROCESSES, PredictionSession
from swinmr_profiling.profiler.prediction.settings import setting_of
from swinmr_profiling.profiler.record.memory_fingerprint import PRECISIONS


def predict_single_step_bytes(
    config: ExperimentConfig, compute_capability: str | None, *, trust_config: bool, timeout_s: float
) -> int:
    """Bytes of device memory of a process that trains this config at batch 1 and validates one of its batches.

    What the allocator reserves, the libraries' workspaces and the CUDA context, as in a profile's
    `batch_profiling["1"].training.process_bytes`. timeout_s: for each trace.

    Raises WorkerError or RequestRefusedError for a network that cannot be traced.
    """
    setting = setting_of(config, PRECISIONS[config.system.mixed_precision])
    with PredictionSession(config, trust_config=trust_config, timeout_s=timeout_s) as session:
        [entry] = session.predict([setting], [1], processes=MAX_PROCESSES)
        assert session.opened is not None
        libraries = workspaces_for(session.opened.torch_version, compute_capability)
    return entry.sizes["1"].reserved_bytes + libraries.process_bytes + libraries.context_bytes
