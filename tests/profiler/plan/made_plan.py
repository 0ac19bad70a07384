"""A plan as its file holds it, made by hand."""

GIB = 2**30


def setting(micro_batch, accumulate, **changes):
    return {
        "micro_batch": micro_batch,
        "accumulate": accumulate,
        "precision": "fp32",
        "channels_last": False,
        "checkpointing": "none",
        "modules": [],
        "chosen_by": "name",
        "on_host": [],
        "patch_size": [96, 96],
        "val_batch_size": 1,
        "live_bytes": 5 * GIB,
        "reserved_bytes": 6 * GIB,
        "reserved_interval_bytes": [6 * GIB - 1000, 7 * GIB],
        "needed_bytes": 7 * GIB,
        "fits": True,
        "recomputed_macs": 0,
        "recomputed_bytes": 0,
        "to_host_bytes": 0,
        "to_device_bytes": 0,
        "changes": [],
        "memory_fingerprint": "0" * 64,
        **changes,
    }


def plan(**changes):
    modules = {
        "checkpointing": "modules",
        "modules": [f"layers.{n}.residual_group.blocks.0" for n in range(29)],
    }
    work = {
        "recomputed_macs": 138_550_000_000,
        "recomputed_bytes": 5 * GIB,
        "chosen_by": "dynamic programming",
    }
    return {
        "kind": "training plan",
        "version": 1,
        "source": "predicted",
        "config_file": "configs/train_config_large.json",
        "torch_version": "2.14.1",
        "loss": "15 spatial + 0.1 frequency",
        "global_batch": 8,
        "budget": {
            "name": "GeForce RTX 3060 12GB",
            "total_bytes": 12_488_540_160,
            "reserved_elsewhere_bytes": 0,
            "headroom_share": 0.1,
            "usable_bytes": 11_239_686_144,
            "context_bytes": 402_653_184,
            "workspace_bytes": 17_039_360,
        },
        "chosen": 1,
        "settings": [
            setting(2, 4),
            setting(8, 1, precision="bf16", changes=["bf16 in place of fp32"], **modules, **work),
        ],
        "notes": ["memory is predicted, as scripts/profile_model.py predicts it; nothing ran"],
        **changes,
    }
