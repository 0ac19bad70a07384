"""The inputs of every command, and the outputs of an earlier run of it: made once, copied for each row."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests import made_profiles
from tests.conftest import TINY_SWINIR
from tests.training_profiles import memory_model, profile, replayed

HERE = Path(__file__).resolve().parent
NETWORK = {"net_type": "custom", "target": "faulted_network:Network"}
TRAINING = {
    "experiment_name": "own",
    "paths": {"root": "../out"},
    "model": {**NETWORK, "input_shapes": [[1, 32, 32]]},
    "data": {
        "batch_size": 2,
        "source": "phantom",
        "phantom": {"slices": 10, "val_slices": 2},
        "patch_size": 32,
        "num_workers": 1,
    },
    "training": {
        "total_steps": 6,
        "loss": {"components": {"perceptual": {"weight": 0}}},
        "optimizer": {"lr": 1e-3},
        "ema_decay": 0.5,
        "validate_every_steps": 3,
        "checkpoint_every_steps": 2,
    },
    "evaluation": {"num_samples_to_save": 1},
    "logging": {"tensorboard": False, "log_interval": 1},
}


def write_inputs(template: str, inputs: Path, out: Path) -> None:
    """Writes what the command of this template reads; `out` is there for what it changes in place."""
    writer = {
        "profile": _profile,
        "resume": _profile,
        "recommend": _recommend,
        "fit": _fit,
        "compare": _compare,
        "pipeline": _pipelines,
        "generate": _pipelines,
        "train": _training,
        "test": _training,
        "export": _checkpoint,
        "plan": _plan,
    }[template]
    inputs.mkdir(parents=True)
    out.mkdir(parents=True)
    writer(inputs, out)


def _profile(inputs: Path, out: Path) -> None:
    shutil.copy(HERE / "faulted_network.py", inputs)
    model = {**NETWORK, "kwargs": {"width": 32}, "input_shapes": [[1, 64, 64]]}
    (inputs / "own.json").write_text(json.dumps({"model": model}))


def _recommend(inputs: Path, out: Path) -> None:
    from swinmr_profiling.configs import load_config
    from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint

    file = out / "own.json"
    body = json.dumps(TINY_SWINIR)
    file.write_text(
        f'{{\n  // my network\n  "model": {body},\n  "data": {{"use_patches": false, "batch_size": 1}}\n}}\n'
    )
    settings = [replayed(80, 1024, is_config=True), replayed(100, 200, checkpointing="full")]
    fingerprint = memory_fingerprint(load_config(file).config)
    content = profile(model=memory_model(settings=settings, memory_fingerprint=fingerprint))
    (inputs / "profile.json").write_text(json.dumps(content))


def _fit(inputs: Path, out: Path) -> None:
    kwargs = {"num_in_ch": 1, "num_out_ch": 1, "num_feat": 4, "num_block": 1, "upscale": 2, "rgb_mean": [0.0]}
    model = {"net_type": "restoration", "architecture": "EDSR", "img_size": 64, "kwargs": kwargs}
    (inputs / "net.json").write_text(json.dumps({"model": model, "data": {"use_patches": False}}))


def _compare(inputs: Path, out: Path) -> None:
    (inputs / "first.json").write_text(json.dumps(made_profiles.profile()))
    (inputs / "second.json").write_text(json.dumps(made_profiles.profile(config_file="configs/other.json")))


def _pipelines(inputs: Path, out: Path) -> None:
    made = inputs.parent.parent / "pipelines"
    if not made.exists():
        from tests.tiny_pipelines import PIPELINES

        making = made.with_name("making_pipelines")
        for kind, build in PIPELINES.items():
            build(making / f"{kind}-parts").save_pretrained(making / kind)
        making.rename(made)
    for kind in ("unet", "transformer"):
        shutil.copytree(made / kind, inputs / kind)


def _plan(inputs: Path, out: Path) -> None:
    content = {"model": TINY_SWINIR, "data": {"use_patches": False, "batch_size": 2}}
    (inputs / "plan.json").write_text(json.dumps(content))


def _training(inputs: Path, out: Path) -> None:
    shutil.copy(HERE / "faulted_network.py", inputs)
    (inputs / "train.json").write_text(json.dumps(TRAINING))


def _checkpoint(inputs: Path, out: Path) -> None:
    from swinmr_profiling.configs import config_from_dict
    from swinmr_profiling.models.registry import build_model
    from swinmr_profiling.training.run.checkpoints import write_checkpoint

    config = config_from_dict({"model": TINY_SWINIR})
    weights = build_model(config).module.state_dict()
    content = {"params": weights, "params_ema": None, "step": 7, "config": config.model_dump(mode="json")}
    write_checkpoint(content, inputs / "best.pth")
