"""Profiles made by hand in round figures, so that what a report or comparison says of them is derived by hand."""

import copy
import statistics

MIB, GIB = 2**20, 2**30


def timing(samples, batch_size, runs_by_process=None, interval="of the samples"):
    """A `timing` block; its figures follow from the samples."""
    ordered = sorted(samples)
    if interval == "of the samples":
        interval = [ordered[0], ordered[-1]] if len(samples) >= 6 else None
    mean = statistics.fmean(samples)
    return {
        "source": "measured",
        "input_shape": [batch_size, 1, 64, 64],
        "num_runs": len(samples),
        "num_processes": len(runs_by_process or [1]),
        "runs_by_process": runs_by_process or [len(samples)],
        "mean_ms": mean,
        "std_ms": statistics.stdev(samples) if len(samples) > 1 else None,
        "min_ms": ordered[0],
        "max_ms": ordered[-1],
        "median_ms": statistics.median(samples),
        "p90_ms": ordered[-1] if len(samples) >= 10 else None,
        "p95_ms": ordered[-1] if len(samples) >= 20 else None,
        "p99_ms": ordered[-1] if len(samples) >= 100 else None,
        "iqr_ms": 1.0 if len(samples) >= 4 else None,
        "ci95_median_ms": interval,
        "ci95_half_width_share": None,
        "ci95_target_half_width_share": 0.02,
        "fps": batch_size * 1000 / mean,
        "images_per_second": batch_size * 1000 / mean,
        "warmup_runs": 0,
        "stop_reason": "requested",
        "notes": [],
        "samples_ms": list(samples),
        "warmup_ms": [],
    }


def ran(batch_size, samples, runs_by_process=None, image=64, cuda=False, **changes):
    """A measured batch size: 500 MiB before, 10 MiB of activations an image."""
    shape = [batch_size, 1, image, image]
    activation = 10 * MIB * batch_size
    before, peak = 500 * MIB, 500 * MIB + activation
    memory = {
        "source": "measured",
        "input_shape": shape,
        "num_runs": len(samples),
        "kind": "CUDA caching allocator" if cuda else "resident memory of the whole process",
        "before_bytes": before,
        "after_bytes": before,
        "peak_bytes": peak,
        "activation_bytes": activation,
        "noise_bytes": 0,
        "activation_within_noise": False,
        "peak_reserved_bytes": 2 * peak if cuda else None,
        "cold_peak_bytes": peak,
        "warm_peak_bytes": peak,
    }
    for name in ("before", "after", "peak", "activation"):
        memory[f"{name}_mb"] = memory[f"{name}_bytes"] / MIB
    memory["peak_reserved_mb"] = 2 * peak / MIB if cuda else None
    block = {
        "source": "measured",
        "batch_size": batch_size,
        "input_shape": shape,
        "num_runs": len(samples),
        "attention": "blocked",
        "timing": {**timing(samples, batch_size, runs_by_process), "input_shape": shape},
        "memory": memory,
    }
    return {**block, **changes}


def failed(batch_size, error="OOM", detail="the kernel said so", image=64):
    return {
        "error": error,
        "detail": detail,
        "batch_size": batch_size,
        "input_shape": [batch_size, 1, image, image],
    }


def module(name, class_name, macs, parameters, children=()):
    return {
        "name": name.rpartition(".")[2],
        "path": name,
        "class": class_name,
        "macs": macs,
        "own": {},
        "parameters": parameters,
        "children": list(children),
    }


def architecture(macs=4_000_000_000, parameters=903_121, image=64):
    layers = [
        module("layers.0", "Group", macs // 4, 400_000),
        module("layers.1", "Group", macs // 2, 300_000),
    ]
    tree = module(
        "",
        "SwinIR",
        macs,
        parameters,
        [
            module("conv_first", "Conv2d", macs // 4, 600),
            module("layers", "ModuleList", 3 * macs // 4, 700_000, layers),
            module("conv_last", "Conv2d", 0, 541),
        ],
    )
    return {
        "source": "counted",
        "input_shape": [1, 1, image, image],
        "num_runs": 1,
        "total_parameters": parameters,
        "trainable_parameters": parameters,
        "buffer_elements": 0,
        "parameter_bytes": 4 * parameters,
        "buffer_bytes": 0,
        "model_size_mb": 4 * parameters / MIB,
        "parameters_by_module": {},
        "macs": macs,
        "flops": 2 * macs,
        "gmacs": macs / 1e9,
        "gflops": 2 * macs / 1e9,
        "flops_per_parameter": None,
        "counters": [],
        "by_kind": {"convolution": macs // 4, "linear": 3 * macs // 4},
        "by_operator": {},
        "by_module": tree,
        "uncounted_operators": {},
        "reconstruction": None,
    }


def environment(gpu=None, cpu="a processor", threads=2):
    return {
        "time_utc": "2026-01-01T00:00:00+00:00",
        "python": "3.11.0",
        "platform": "Linux",
        "cpu": {
            "name": cpu,
            "physical_cores": 2,
            "logical_cores": 2,
            "usable_cores": 2,
            "threads": threads,
            "interop_threads": 1,
            "capability": "AVX2",
        },
        "memory_total_bytes": 8 * GIB,
        "memory_available_bytes_at_start": 4 * GIB,
        "gpu": gpu,
        "packages": {"torch": "2.14.1", "fvcore": None},
        "float32_matmul_precision": "highest",
        "git": {"commit": "0" * 40, "dirty": True},
        "executable": "python",
        "command_line": "profile_model.py --config configs/own.json",
    }


def gpu(name="NVIDIA GeForce RTX 3090", total_mib=24_124):
    return {"name": name, "total_bytes": total_mib * MIB, "driver": "550", "cuda": "12.8", "cudnn": 91000}


# Ten runs around 100 ms, no two alike, and twenty around 180 ms.
SAMPLES_1 = [100.0 + 0.5 * number for number in (3, 0, 7, 1, 9, 4, 2, 8, 5, 6)]
SAMPLES_2 = [180.0 + 0.25 * number for number in range(20)]


def profile(
    batches=None, device="cpu", precision="fp32", image=64, config_file="configs/own.json", **changes
):
    """A whole, complete profile that the schema accepts; without training."""
    if batches is None:
        batches = {1: ran(1, SAMPLES_1, image=image), 2: ran(2, SAMPLES_2, image=image)}
    first = min((size for size, block in batches.items() if "timing" in block), default=None)
    inference = None
    if first is not None:
        best = max(
            (size for size, block in batches.items() if "timing" in block),
            key=lambda size: batches[size]["timing"]["images_per_second"],
        )
        inference = {
            "batch_size": best,
            "images_per_second": batches[best]["timing"]["images_per_second"],
            "latency_ms": batches[best]["timing"]["median_ms"],
            "peak_bytes": batches[best]["memory"]["peak_bytes"],
            "source": "measured",
            "verified": True,
            "reason": "the highest throughput of the sizes that ran",
            "purpose": "inference only",
        }
    content = {
        "schema_version": 2,
        "status": "complete",
        "status_reason": None,
        "config": {
            "model": "swinir",
            "image_size": image,
            "device": device,
            "config_file": config_file,
            "config_sha256": "b" * 64,
            "experiment_name": "own",
            "batch_sizes": sorted(batches),
            "precision": precision,
            "channels_last": False,
            "compile": False,
            "num_runs": None,
            "warmup": None,
            "time_budget_s": 10.0,
            "timeout_s": None,
            "seed": 0,
            "threads": None,
            "trust_config": False,
            "resolved": {},
        },
        "environment": environment(gpu() if device.startswith("cuda") else None),
        "architecture": architecture(image=image),
        "single_image": batches.get(1, failed(1, "skipped", "not asked for")),
        "batch_profiling": {str(size): block for size, block in batches.items()},
        "perceptual_metric": None,
        "memory_model": None,
        "recommendation": {"inference": inference, "training": []},
        "warnings": [],
    }
    return copy.deepcopy({**content, **changes})


def partial():
    """A run that ended before the network was analysed."""
    return profile(
        {},
        status="partial",
        status_reason="interrupted by SIGTERM",
        architecture=None,
        single_image=None,
        recommendation=None,
    )


def size_row(live_mib, reserved_mib):
    return {
        "live_bytes": live_mib * MIB,
        "allocated_bytes": (live_mib + 1) * MIB,
        "reserved_bytes": reserved_mib * MIB,
        "reserved_expandable_bytes": reserved_mib * MIB,
    }


def memory_model():
    """Live bytes 100 + 1000 B MiB from batch 2 on, the weights' 50 and the gradients' 50 fixed."""
    setting = {
        "precision": "fp32",
        "checkpointing": "none",
        "patch_size": [96, 96],
        "is_config": True,
        "traced_batches": [1, 2, 3, 5],
        "affine_from_batch": 2,
        "aligned": True,
        "allocations": None,
        "sizes": {
            "1": size_row(1100, 1120),
            "2": size_row(2100, 2140),
            "4": size_row(4100, 4160),
            "8": size_row(8100, 8300),
            "16": size_row(16100, 16400),
            "32": size_row(32100, 32800),
        },
        "memory_fingerprint": "a" * 64,
        "checked": True,
        "not_aligned_because": None,
        "peak": {
            "batch_size": 8,
            "phase": "backward",
            "operator": "native_layer_norm_backward",
            "by_category": {},
        },
        "terms": {
            "parameters": {"fixed_bytes": 50 * MIB, "bytes_per_sample": 0},
            "gradients": {"fixed_bytes": 50 * MIB, "bytes_per_sample": 0},
            "saved_activations": {"fixed_bytes": 0, "bytes_per_sample": 1000 * MIB},
        },
        "terms_hold": {"from_batch": 2, "to_batch": 32},
        "validation": {
            "input_shape": [1, 1, 256, 256],
            "allocated_bytes": 290 * MIB,
            "reserved_bytes": 300 * MIB,
        },
        "ddp_bucket_bytes": 0,
    }
    return {
        "source": "predicted",
        "memory_fingerprint": "a" * 64,
        "torch_version": "2.14.1",
        "loss": "15 spatial + 0.1 frequency",
        "optimizer": "adam",
        "ema": True,
        "accumulate": 1,
        "settings": [setting, {**setting, "checkpointing": "full", "is_config": False}],
        "inference": None,
        "interval_shares": None,
        "assumptions": ["every loss is finite"],
        "untested_rules": ["the size of the CUDA context"],
    }


def recommended(name, total_gib, batch_size, needed_mib, largest=None, **changes):
    """An entry of `recommendation.training`: context 300 MiB, workspaces 17 MiB."""
    lever = {"precision": "fp32", "checkpointing": "full", "patch_size": [96, 96], "is_config": False}
    entry = {
        "budget": {
            "name": name,
            "total_bytes": total_gib * GIB,
            "reserved_elsewhere_bytes": 0,
            "headroom_share": 0.1,
            "usable_bytes": total_gib * GIB * 9 // 10,
            "context_bytes": 300 * MIB,
            "workspace_bytes": 17 * MIB,
        },
        "precision": "fp32",
        "checkpointing": "none",
        "patch_size": [96, 96],
        "batch_size": batch_size,
        "largest_batch": batch_size if largest is None else largest,
        "accumulate": 1,
        "global_batch": batch_size,
        "devices": 1,
        "needed_bytes": needed_mib * MIB,
        "source": "predicted",
        "verified": False,
        "reason": "the largest that fits",
        "levers": [{**lever, "largest_batch": 40, "needed_bytes": GIB, "source": "predicted"}],
        "target_batch": None,
        "failure": None,
        "time": None,
    }
    return {**entry, **changes}


def predicted_training(batch_size, peak_mib):
    return {
        "source": "predicted",
        "input_shape": [batch_size, 1, 96, 96],
        "num_runs": 0,
        "precision": "fp32",
        "checkpointing": "none",
        "patch_size": [96, 96],
        "peak_bytes": peak_mib * MIB,
        "peak_reserved_bytes": (peak_mib + 20) * MIB,
        "process_bytes": (peak_mib + 320) * MIB,
        "live_interval_bytes": [(peak_mib - 10) * MIB, (peak_mib + 10) * MIB],
        "reserved_interval_bytes": [(peak_mib - 30) * MIB, (peak_mib + 70) * MIB],
        "images_per_second": None,
        "steps_run": 0,
        "live_bytes": peak_mib * MIB,
        "requested_peak_bytes": None,
        "device_used_bytes": None,
        "by_category": None,
        "peak_phase": "backward",
        "peak_operator": None,
        "workspace_bytes": 17 * MIB,
        "context_bytes": 300 * MIB,
        "validation": None,
        "ddp_bucket_bytes": 0,
        "step_ms": [],
        "retries": None,
        "cold_peak_bytes": None,
        "assumptions": [],
    }


def with_training(content=None):
    """A CPU's profile with the predicted memory of two GPUs: batch 4 fits 6 GiB, 9 fits 12 GiB."""
    content = profile() if content is None else content
    content["memory_model"] = memory_model()
    content["recommendation"] = content["recommendation"] or {"inference": None}
    content["recommendation"]["training"] = [
        recommended("RTX 2060 6GB", 6, 4, 4160 + 317),
        recommended("RTX 3060 12GB", 12, 9, 9400 + 317),
    ]
    for size, block in content["batch_profiling"].items():
        block["training"] = predicted_training(int(size), 100 + 1000 * int(size))
    return content


ORIGINAL = {
    "config": {"model": "swinir", "image_size": 64, "device": "cuda", "config_file": "configs/train_config.json"},
    "architecture": {
        "total_parameters": 903_121,
        "trainable_parameters": 903_121,
        "model_size_mb": 3.4451,
        "flops": 4_315_545_600,
        "gflops": 4.3155456,
    },
    "single_image": {
        "input_shape": [1, 1, 64, 64],
        "timing": {
            "mean_ms": 100.0, "std_ms": 5.0, "min_ms": 90.0, "max_ms": 120.0, "median_ms": 99.0, "fps": 10.0,
        },
        "memory": {"before_mb": 255.5, "after_mb": 255.5, "peak_mb": 512.25, "activation_mb": 256.75},
    },
    "batch_profiling": {
        "2": {
            "input_shape": [2, 1, 64, 64],
            "timing": {
                "mean_ms": 160.0, "std_ms": 5.0, "min_ms": 150.0, "max_ms": 170.0, "median_ms": 159.0, "fps": 6.25,
            },
            "memory": {"before_mb": 255.5, "after_mb": 255.5, "peak_mb": 768.0, "activation_mb": 512.5},
        },
        "4": {"error": "OOM"},
    },
}  # fmt: skip
