"""What people give in place of a config, each told by what it is, with the command that takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.errors import ConfigError

COMMAND = "python scripts/profile_model.py"
CHECKPOINTS = (".pth", ".pt", ".ckpt", ".safetensors", ".bin")
# The first bytes of a zip archive (torch.save) and of a pickle (torch.save of old).
CHECKPOINT_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
SHOWN_KEYS = 5
# Sections of a config here; a file with one of them is meant as one.
OUR_SECTIONS = {"model", "training", "data", "paths", "system", "evaluation", "logging", "experiment_name"}
# Keys of swinmr-mriwizard's degradation files, and of files like them.
DEGRADATION_KEYS = {
    "degradations", "degradation", "degradation_pipeline", "noise", "blur", "kspace", "k_space", "undersampling",
    "downsampling", "motion", "bias_field", "acceleration", "mask_type", "gaussian_noise", "rician_noise", "artifacts",
    "partial_fourier", "kspace_undersampling", "ghosting", "ringing", "gibbs", "intensity", "probability",
}  # fmt: skip


def refuse_other_files(path: str | Path) -> None:
    """Raises ConfigError for a folder, for weights and for Python code, each with the command that takes it."""
    file = Path(path)
    try:
        if file.is_dir():
            raise ConfigError(path, [_folder(file)])
        suffix = file.suffix.lower()
        if not file.is_file():
            return
        if suffix == ".py":
            raise ConfigError(
                path,
                [
                    f"is Python code: {COMMAND} --module {path}:Class --inputs 1x3x256x256 --trust-config profiles a "
                    "class in it"
                ],
            )
        with open(file, "rb") as stream:
            start = stream.read(8)
    except ConfigError:
        raise
    except (OSError, ValueError):
        return  # told by whoever reads it
    if suffix in CHECKPOINTS or start.startswith(CHECKPOINT_STARTS):
        raise ConfigError(
            path, [f"is a checkpoint of weights: {COMMAND} --checkpoint {path} profiles its network"]
        )


def refuse_other_content(raw: dict[str, Any], path: str | Path) -> None:
    """Raises ConfigError where the content is a profile, a degradation file or a library's configuration."""
    if OUR_SECTIONS & raw.keys() and "schema_version" not in raw and not _is_hugging_face(raw):
        return
    text = _told(raw, path)
    if text is not None:
        raise ConfigError(path, [text])


def _told(raw: dict[str, Any], path: str | Path) -> str | None:
    if "schema_version" in raw and ("architecture" in raw or "batch_profiling" in raw):
        return (
            f"is a profile, not a config: python scripts/recommend_batch_size.py {path} reads it, "
            f"scripts/compare_profiles.py compares it; the config it was made from is named in it (config.config_file)"
        )
    if "_class_name" in raw:
        name = raw["_class_name"]
        return (
            f'is the configuration of diffusers\' {name}: put {{"model": {{"net_type": "diffusers", "class": '
            f'"{name}", "config": {{...}}}}}} in a file, with its keys in config'
        )
    if _is_hugging_face(raw):
        folder = Path(path).parent
        return (
            f'is the configuration of a transformers model: put {{"model": {{"net_type": "transformers", "folder": '
            f"{json.dumps(str(folder))}}}}} in a file and give that by --config"
        )
    if "pipeline" in raw and "denoiser" in raw:
        return (
            f"describes a diffusion pipeline: python scripts/profile_pipeline.py --pipeline {path} costs it"
        )
    found = DEGRADATION_KEYS & {str(key).lower() for key in raw}
    if found or (Path(path).stem.lower().startswith("degradation") and "netG" not in raw):
        return (
            f"is a degradation file ({', '.join(sorted(found)[:3]) or 'by its name'}), and says nothing of a network: "
            "describe undersampling and noise in data.degradation of a config, and give that config by --config"
        )
    if not OUR_SECTIONS & raw.keys():
        keys = ", ".join(list(raw)[:SHOWN_KEYS]) or "none"
        return (
            f"is not a config: its top level has {keys}, and neither `model` (this project), `netG` (KAIR, SwinMR) nor "
            "`network_g` with a `type` (BasicSR, traiNNer-redux, neosr)"
        )
    return None


def _is_hugging_face(raw: dict[str, Any]) -> bool:
    return "model_type" in raw and ("architectures" in raw or "transformers_version" in raw)


def _folder(folder: Path) -> str:
    if (folder / "model_index.json").is_file():
        command = f"python scripts/profile_pipeline.py --pipeline-dir {folder}"
        return f"is the folder of a diffusion pipeline: {command} costs it"
    if (folder / "config.json").is_file():
        return (
            f'is the folder of a model with a config.json: put {{"model": {{"net_type": "transformers", "folder": '
            f"{json.dumps(str(folder))}}}}} in a file and give that by --config"
        )
    return "is a folder: name a JSON, YAML or TOML file in it"
