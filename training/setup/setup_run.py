"""Checks of what a run needs around it: disk, several processes, a profile of this very network."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

from swinmr_profiling.configs import ConfigError, config_from_dict
from swinmr_profiling.training.setup.setup_checks import Finding, SetupContext, failed, ok, readable, warning

# last.pth shares its file with the newest step; best.pth, and the file under way, come on top.
FILES_BESIDE_KEPT = 2
# The handshake itself takes seconds; more means that it hangs.
HANDSHAKE_TIMEOUT_S = 120.0


def checkpoint_bytes(context: SetupContext) -> int:
    """Size of one checkpoint: weights, moving average, optimizer states (an estimate: names and steps left out)."""
    from swinmr_profiling.models.swin.official_state_dict import official_state_dict
    from swinmr_profiling.training.step.optimizers import state_bytes

    assert context.built is not None
    training, module = context.config.training, context.built.module
    own = module.state_dict()
    weights = sum(tensor.nbytes for tensor in own.values())
    # Masks and indices are shared by all blocks, and by the average: one of each is in the file.
    computed = {id(t): t.nbytes for key, t in official_state_dict(module).items() if key not in own}
    averages = weights if training.ema_decay > 0 else 0
    return weights + averages + sum(computed.values()) + state_bytes(module.parameters(), training.optimizer)


def check_disk(context: SetupContext) -> list[Finding]:
    """Whether the checkpoints that this config keeps have room, and may be written."""
    from swinmr_profiling.training.run.run_folders import run_folders

    folder = run_folders(context.config).checkpoints
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    one = checkpoint_bytes(context)
    files = context.config.training.keep_checkpoints + FILES_BESIDE_KEPT
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return [
            failed(
                "disk", f"{folder} cannot be written: {error.strerror}", "set paths.root to a folder of yours"
            )
        ]
    free = shutil.disk_usage(existing).free
    wanted = f"{files} checkpoints of about {readable(one)} ({readable(files * one)})"
    detail = f"{wanted}, {readable(free)} free at {existing}"
    if files * one > free:
        return [
            failed("disk", detail, "free space, set paths.root elsewhere, or lower training.keep_checkpoints")
        ]
    return [ok("disk", detail)]


def check_run_folder(context: SetupContext) -> list[Finding]:
    """What training would resume from, and whether it fits the network. Raises CheckpointError."""
    from swinmr_profiling.training.run.checkpoints import check_architecture
    from swinmr_profiling.training.run.resumption import compare_with_checkpoint, refuse_other_adapters
    from swinmr_profiling.training.run.run_folders import checkpoint_folder

    assert context.built is not None
    config, name = context.config, "run folder"
    checkpoints = checkpoint_folder(config)
    found = checkpoints.latest()
    if found is None:
        return [ok(name, f"{checkpoints.folder} has no checkpoint: training starts anew")]
    content, file, complaints = found
    refuse_other_adapters(config, content, file)
    check_architecture(context.built.module, content, file)
    edits = compare_with_checkpoint(config, content, file)
    damaged = [warning(name, line, "remove the damaged file") for line in complaints]
    detail = f"training resumes from {file}, step {content['step']}"
    if edits.differences:
        edited = f"{detail}, with another config ({', '.join(map(str, edits.differences[:3]))})"
        return [warning(name, edited, "train.py --resume-recipe checkpoint keeps the old values"), *damaged]
    return [ok(name, detail), *damaged]


def check_distributed(context: SetupContext) -> list[Finding]:
    """Two gloo ranks on this machine; a failure only where the config means to train on several devices."""
    import torch
    import torch.distributed as dist

    from swinmr_profiling.training.setup.handshake_process import HandshakeError, shake_hands

    name, wanted = "distributed", context.config.system.distributed
    tell = failed if wanted else warning
    if not dist.is_available():
        return [tell(name, "this torch is built without torch.distributed", "install another build of torch")]
    try:
        seconds = shake_hands(min(context.timeout_s, HANDSHAKE_TIMEOUT_S))
    except HandshakeError as error:
        return [tell(name, f"two gloo ranks do not meet: {error}", "does a firewall block 127.0.0.1?")]
    findings = [ok(name, f"two gloo ranks met ({seconds:.0f} s)")]
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted and gpus < 2:
        advice = "torchrun with one process, or --device cpu"
        findings.append(warning(name, f"system.distributed is set, but {gpus} GPUs are seen", advice))
    return findings


def check_profile(context: SetupContext) -> list[Finding]:
    """Whether `training.profile` is there and is of this config's network."""
    config = context.config
    file = Path(config.training.profile)
    automatic = config.data.batch_size == "auto"
    tell = failed if automatic else warning
    why = ', which "batch_size": "auto" reads' if automatic else ""
    command = f"python scripts/profile_model.py --config {context.config_file} --output {file}"
    try:
        profile = json.loads(file.read_text(encoding="utf-8"))
        version, resolved = profile["schema_version"], profile["config"]["resolved"]
    except FileNotFoundError:
        return [tell("profile", f"{file} is not there{why}", command)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [tell("profile", f"{file} is not a profile ({type(error).__name__}: {error}){why}", command)]
    changed = _changed(_with_later_keys(resolved.get("model", {})), config.model_dump(mode="json")["model"])
    if changed:
        return [tell("profile", f"{file} is of another network ({', '.join(changed[:3])}){why}", command)]
    if automatic and not (profile.get("recommendation") or {}).get("training"):
        return [tell("profile", f"{file} recommends no training batch size{why}", command)]
    return [ok("profile", f"{file} is of this network (schema {version}, {profile.get('status')})")]


def _with_later_keys(model: dict[str, Any]) -> dict[str, Any]:
    """The network of an older profile with the keys that configs have got since, at their defaults."""
    try:
        return cast("dict[str, Any]", config_from_dict({"model": model}).model_dump(mode="json")["model"])
    except ConfigError:
        return model


def _changed(theirs: dict, ours: dict) -> list[str]:
    return [
        f"{key} {theirs.get(key)!r} there, {value!r} here"
        for key, value in ours.items()
        # A profile of another machine is of the same network.
        if key != "target_folder" and theirs.get(key) != value
    ]
