"""Hand-made training blocks of a profile, in round MiB, so that what follows from them is derived by hand."""

import copy

import numpy as np
from pydantic import TypeAdapter

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrder, packed
from swinmr_profiling.profiler.measure.measurement import StepPeaks, TrainingMeasurement
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel, MemorySetting
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from tests import made_profiles

MIB = 2**20
GIB = 2**30


# What a probe of a training step tells; each test changes what it is about.
MEASURED = TrainingMeasurement(
    batch_size=1,
    accumulation=1,
    input_shape=[1, 1, 96, 96],
    validation_shape=[1, 1, 256, 256],
    precision="fp32",
    checkpointing="none",
    patch_size=[96, 96],
    loss="15 spatial",
    memory_kind="torch's CUDA allocator (without the CUDA context)",
    steps_run=3,
    step_ms=[],
    before_bytes=50,
    cold=StepPeaks(MIB, MIB, MIB),
    warm=StepPeaks(MIB, MIB, MIB),
    validation=StepPeaks(MIB, MIB, MIB),
    retries=0,
    out_of_memory=0,
    process_bytes=None,
    device_used_bytes=MIB,
    device_total_bytes=24 * GIB,
    reserved_at_end_bytes=MIB,
    expandable_segments=False,
    finite=True,
)


size_entry = made_profiles.size_row


def setting(
    sizes, precision="fp32", checkpointing="none", patch=(96, 96), is_config=False, validation_mib=300
):
    """A setting of `memory_model` without allocations to replay; sizes: batch -> (live MiB, reserved MiB)."""
    return {
        "precision": precision,
        "checkpointing": checkpointing,
        "patch_size": None if patch is None else list(patch),
        "is_config": is_config,
        "memory_fingerprint": "b" * 64,
        "checked": True,
        "not_aligned_because": None,
        "traced_batches": [1, 2, 3, 5],
        "affine_from_batch": 2,
        "aligned": True,
        "allocations": None,
        "sizes": {str(batch): size_entry(*figures) for batch, figures in sizes.items()},
        "peak": {
            "batch_size": 8,
            "phase": "backward",
            "operator": "native_layer_norm_backward.default",
            "by_category": {"parameters": 50 * MIB},
        },
        "terms": {
            "parameters": {"fixed_bytes": 50 * MIB, "bytes_per_sample": 0},
            "saved_activations": {"fixed_bytes": 0, "bytes_per_sample": 1000 * MIB},
        },
        "terms_hold": {"from_batch": 2, "to_batch": 8},
        "validation": {
            "input_shape": [1, 1, 256, 256],
            "allocated_bytes": validation_mib * MIB,
            "reserved_bytes": validation_mib * MIB,
        },
        "ddp_bucket_bytes": 60 * MIB,
    }


def replayed(fixed_mib, per_sample_mib, cached_mib=20, sizes=(1, 2, 4, 8), **fields):
    """A setting that is replayed: live fixed + per_sample x B MiB, and reserved `cached_mib` more, at every batch B.

    What is cached is released before anything larger is made. Even numbers from 10 MiB on: each its own segment.
    """
    mib = np.array([cached_mib, fixed_mib, 0], dtype=np.int64) * MIB
    per_sample = np.array([0, 0, per_sample_mib], dtype=np.int64) * MIB
    events = np.array([1, -1, 2, 3], dtype=np.int32)
    if not cached_mib:
        events, mib, per_sample = np.array([1, 2], dtype=np.int32), mib[1:], per_sample[1:]
    table = {batch: fixed_mib + per_sample_mib * batch for batch in sizes}
    rows = {batch: (live, live + cached_mib) for batch, live in table.items()}
    return {**setting(rows, **fields), "allocations": packed(AllocationOrder(events, mib, per_sample))}


# A table alone, as of a network whose allocations are not affine: live 100 + 1000 B MiB.
FP32 = {1: (1100, 1120), 2: (2100, 2140), 4: (4100, 4160), 8: (8100, 8300)}


def typed_setting(block):
    """The setting as those take it who read profiles."""
    return MemorySetting.model_validate(block)


def typed_model(block):
    return None if block is None else MemoryModel.model_validate(block)


def typed_training(blocks):
    """Batch size -> its `training` block, typed."""
    return {
        size: TypeAdapter(TrainingRun | TrainingFailure).validate_python(one) for size, one in blocks.items()
    }


def memory_model(**changes):
    """Three settings, the first of them the config's. Batch B takes 120 + 1000 B MiB, 120 + 500 B, 120 + 100 B."""
    model = {
        "source": "predicted",
        "memory_fingerprint": "a" * 64,
        "torch_version": "2.14.1",
        "loss": "15 spatial",
        "optimizer": "adam",
        "ema": True,
        "accumulate": 1,
        "settings": [
            replayed(100, 1000, is_config=True),
            replayed(100, 500, precision="bf16"),
            replayed(100, 100, checkpointing="full"),
        ],
        "inference": {"sizes": {"1": size_entry(10, 20), "8": size_entry(80, 100)}},
        "interval_shares": {"live": [-0.01, 0.01], "reserved": [-0.02, 0.03]},
        "assumptions": ["every truth value asked of the data was true"],
        "untested_rules": ["workspaces of cuBLAS"],
    }
    return copy.deepcopy({**model, **changes})


def measured(needed_mib, images_per_second=None, **changes):
    """A measured `training` block that needs this much of the GPU."""
    block = {
        "source": "measured",
        "input_shape": [1, 1, 96, 96],
        "num_runs": 5,
        "precision": "fp32",
        "checkpointing": "none",
        "patch_size": [96, 96],
        "peak_bytes": (needed_mib - 40) * MIB,
        "peak_reserved_bytes": (needed_mib - 20) * MIB,
        "live_bytes": None,
        "requested_peak_bytes": (needed_mib - 50) * MIB,
        "process_bytes": needed_mib * MIB,
        "device_used_bytes": needed_mib * MIB,
        "live_interval_bytes": None,
        "reserved_interval_bytes": None,
        "by_category": None,
        "peak_phase": "backward",
        "peak_operator": None,
        "workspace_bytes": None,
        "context_bytes": 20 * MIB,
        "validation": {"input_shape": [1, 1, 256, 256], "allocated_bytes": MIB, "reserved_bytes": MIB},
        "ddp_bucket_bytes": 60 * MIB,
        "steps_run": 5,
        "step_ms": [],
        "images_per_second": images_per_second,
        "retries": 0,
        "cold_peak_bytes": (needed_mib - 30) * MIB,
        "assumptions": [],
    }
    return {**block, **changes}


def failed(kind="OOM", detail="CUDA out of memory"):
    return {"error": kind, "detail": detail, "source": "measured"}


def batches(blocks):
    """`batch_profiling` with these training blocks; the inference side failed, which does not matter here."""
    return {
        str(size): {
            "error": "skipped",
            "detail": "inference was not asked for",
            "batch_size": size,
            "input_shape": [size, 1, 256, 256],
            "training": block,
        }
        for size, block in blocks.items()
    }


def profile(model=None, blocks=None, gpu=None, recommendation=None, config_file="configs/own.json"):
    """A whole profile that the schema accepts, of a run that measured no inference."""
    return made_profiles.profile(
        {},
        config_file=config_file,
        status="partial",
        status_reason="made by hand",
        environment=made_profiles.environment(gpu),
        architecture=None,
        single_image=None,
        batch_profiling=batches(blocks or {}),
        memory_model=model,
        recommendation=recommendation,
    )


def gpu_of(total_mib, name="NVIDIA GeForce RTX 3090"):
    """`environment.gpu` of a machine with a GPU."""
    return {
        "name": name,
        "compute_capability": "8.6",
        "total_bytes": total_mib * MIB,
        "driver": "550",
        "cuda": "12.8",
        "cudnn": 91000,
    }
