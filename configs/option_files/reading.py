"""Reading a config or an option file in the format that its name says: commented JSON, YAML or TOML.

What people give in place of a config is told by what it is, with the command that takes it.
"""

from __future__ import annotations

import importlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.commented_json import decoded, parse_commented_json, read_bytes
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


YAML_SUFFIXES = (".yml", ".yaml")
EXPONENT = re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")


def read_config_file(path: str | Path) -> tuple[dict[str, Any], bytes]:
    """What is in a file, and its bytes. Raises ConfigError, also for a file that is known to be something else."""
    refuse_other_files(path)
    raw = read_bytes(path)
    text, suffix = decoded(raw, path), Path(path).suffix.lower()
    if suffix in YAML_SUFFIXES:
        return _yaml(text, path), raw
    if suffix == ".toml":
        return _toml(text, path), raw
    return parse_commented_json(text, path), raw


def _yaml(text: str, path: str | Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            path, ['a YAML file needs the package PyYAML: pip install ".[restoration]"']
        ) from None
    try:
        content = yaml.load(text, Loader=_loader(yaml))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(path, [f"broken YAML{where}: {what}"]) from None
    except (ValueError, RecursionError) as error:  # a date that is none, a text nested without end
        raise ConfigError(path, [f"broken YAML: {str(error).splitlines()[0]}"]) from None
    return _sections(content, path)


@cache
def _loader(yaml: Any) -> Any:
    """The safe loader with YAML 1.2's numbers: PyYAML, which knows 1.1, takes 1e-4 for a text."""
    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    loader.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+0123456789."))
    return loader


def _toml(text: str, path: str | Path) -> dict[str, Any]:
    for name in ("tomllib", "tomli"):  # Python 3.10 has none of its own
        try:
            toml = importlib.import_module(name)
            break
        except ImportError:
            continue
    else:
        raise ConfigError(path, ['a TOML file needs the package tomli: pip install ".[restoration]"'])
    try:
        return _sections(toml.loads(text), path)
    except toml.TOMLDecodeError as error:
        raise ConfigError(path, [f"broken TOML: {str(error).splitlines()[0]}"]) from None
    except RecursionError:
        raise ConfigError(path, ["nested too deeply to be read"]) from None


def _sections(content: Any, path: str | Path) -> dict[str, Any]:
    if content is None:
        raise ConfigError(path, ["the file is empty"])
    if not isinstance(content, dict):
        kind = "a list" if isinstance(content, list) else "one value"
        raise ConfigError(path, [f"the top level is {kind}: sections with keys are expected"])
    return _plain(content)


def _plain(value: Any) -> Any:
    """Keys as texts, and dates as their text: what JSON can hold."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
