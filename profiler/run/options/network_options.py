"""Which network: the options of `profile_model.py` beside `--config`, and the config that each of them amounts to."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from swinmr_profiling.configs import ConfigError, LoadedConfig, config_of_sections, load_config
from swinmr_profiling.configs.option_files.imported import GivenClass, folder_name
from swinmr_profiling.profiler.options.option_types import Options, first_of

NO_NETWORK = (
    "--config is missing: which network? For example --config configs/train_config.json, --checkpoint model.pth, "
    "--module FILE.py:Class --inputs 1x3x64x64"
)
# What `--list-models` lists.
LISTS = ["types", "spandrel", "restoration"]
# Of `--models`: a name alone is timm's.
PACKAGES = {"timm": "name", "spandrel": "architecture", "restoration": "architecture"}


def keyword_arguments(text: str) -> dict[str, JsonValue]:
    """A JSON object. Raises ArgumentTypeError."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not JSON ({error.msg}): give {{"name": value}}'
        ) from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'{text!r}: give an object, {{"name": value}}')
    return value


def input_shapes(text: str) -> list[list[int]]:
    """ "1x3x256x256,1x77" -> [[3, 256, 256], [77]]: without the batch, which must be 1. Raises ArgumentTypeError."""
    shapes = []
    for part in map(str.strip, text.split(",")):
        if not re.fullmatch(r"\d{1,9}(x\d{1,9})*", part):
            raise argparse.ArgumentTypeError(
                f"{part!r}: give sizes such as 1x3x256x256, inputs apart by commas"
            )
        batch, *shape = (int(number) for number in part.split("x"))
        if batch != 1:
            raise argparse.ArgumentTypeError(
                f"{part!r} begins with {batch}: the first number is the batch, give 1 here and sizes by --batch-sizes"
            )
        shapes.append(shape)
    return shapes


def names(text: str) -> list[str]:
    """ "resnet50,spandrel:HAT" -> its parts. Raises ArgumentTypeError for an empty one or one that is there twice."""
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(
            f"an empty entry in {text!r}: give names such as resnet50,vit_base_patch16_224"
        )
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"a name is twice in {text!r}")
    return found


NETWORK: Options = {
    "--checkpoint": dict(
        metavar="FILE",
        help=".pth, .pt, .ckpt, .safetensors: the network is found from its weights, nothing is run",
    ),
    "--module": dict(
        metavar="FILE.py:CLASS",
        help="a class of your own, with --trust-config; beside --config for the network of that option file",
    ),
    "--kwargs": dict(type=keyword_arguments, metavar="JSON", help="arguments of that class: '{\"dim\": 64}'"),
    "--inputs": dict(type=input_shapes, metavar="1xCxHxW,...", help="its inputs, each with a batch of 1"),
    "--configs": dict(
        nargs="+", metavar="FILE", help="several configs, and their comparison (--output: a folder)"
    ),
    "--models": dict(
        type=names,
        metavar="NAME,NAME,...",
        help="several networks of timm (or spandrel:NAME), compared likewise",
    ),
    "--save-config": dict(metavar="FILE", help="also write the config that this amounts to"),
    "--allow-unknown": dict(action="store_true", help="unknown keys of the config are warnings"),
    "--trust-config": dict(action="store_true", help="let the config import and run your own class"),
    "--list-models": dict(
        nargs="?",
        const="types",
        choices=LISTS,
        metavar="PACKAGE",
        help="list the network types and exit; spandrel, restoration: their architectures",
    ),
}


def source_conflict(parsed: argparse.Namespace) -> str | None:
    """What is wrong with the options that name the network, or None."""
    given = [
        option
        for option in ("config", "configs", "checkpoint", "module", "models")
        if getattr(parsed, option) is not None
    ]
    if parsed.list_models or parsed.list_gpus:
        return None
    several = f"--{' and --'.join(given[:2])}: name the network in one of them"
    return first_of(
        (not given, NO_NETWORK),
        (len(given) > 1 and given != ["config", "module"], several),
        (
            parsed.module is None and (parsed.kwargs is not None or parsed.inputs is not None),
            "--kwargs and --inputs describe the class of --module",
        ),
        (
            given == ["module"] and parsed.inputs is None,
            "--module: what does it take? For example --inputs 1x3x256x256 (batch x channels x height x width)",
        ),
        (
            parsed.save_config is not None and given[:1] in (["configs"], ["models"]),
            f"--save-config writes one config: not with --{''.join(given[:1])}",
        ),
    )


def source_of(parsed: argparse.Namespace) -> tuple[str, str]:
    """The option that names the one network, and what it says."""
    options = (option for option in ("config", "checkpoint", "module") if getattr(parsed, option) is not None)
    option = next(options)
    return f"--{option}", getattr(parsed, option)


def load_network(parsed: argparse.Namespace, source: str) -> LoadedConfig:
    """The config of a network. source: the config's file, the checkpoint, the class, or one name of `--models`.

    Raises ConfigError.
    """
    if parsed.checkpoint is not None:
        return _of_checkpoint(Path(source))
    if parsed.module is not None and parsed.config is None:
        return _of_class(source, parsed.kwargs or {}, parsed.inputs)
    if parsed.models is not None:
        return _of_name(source)
    network = None if parsed.module is None else _given_class(parsed)
    return load_config(source, allow_unknown=parsed.allow_unknown, network=network)


def _given_class(parsed: argparse.Namespace) -> GivenClass:
    """The class of `--module` in place of the network that the option file of `--config` names."""
    place, _, class_name = parsed.module.rpartition(":")
    target, folder = parsed.module, Path.cwd()
    if place.endswith(".py"):
        file = Path(place).expanduser().absolute()
        target, folder = f"{file.name}:{class_name}", file.parent
    return GivenClass(target, str(folder), parsed.kwargs, parsed.inputs)


def _of_checkpoint(file: Path) -> LoadedConfig:
    # Imported here: only a checkpoint needs torch in the command's own process.
    from swinmr_profiling.models.checkpoints.checkpoint_files import sha256_of
    from swinmr_profiling.models.checkpoints.checkpoint_network import found_network
    from swinmr_profiling.models.errors import ModelError

    try:
        found, sha256 = found_network(file), sha256_of(file)
    except ModelError as error:
        raise ConfigError(file, [str(error).removeprefix(f"{file}: ")]) from error
    size = found.section.get("img_size")
    side = "" if size is None else f"; whole image {_sides(size)} (--image-size changes it)"
    note = f"{file}: weights of {found.words}{side}"
    raw = found.sections or {"experiment_name": folder_name(file.stem), "model": found.section}
    return config_of_sections(raw, str(file.absolute()), sha256, [note])


def _sides(size: Any) -> str:
    return f"{size[0]} x {size[1]}" if isinstance(size, (list, tuple)) else f"{size} x {size}"


def _of_class(target: str, kwargs: dict[str, JsonValue], shapes: list[list[int]]) -> LoadedConfig:
    place, _, class_name = target.rpartition(":")
    file = Path(place)
    model: dict[str, Any] = {
        "net_type": "custom",
        "target": target,
        "kwargs": kwargs,
        "input_shapes": shapes,
    }
    sha256, source = _sha256_of(model), target
    if place.endswith(".py"):
        try:
            sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        except OSError as error:
            raise ConfigError(file, [f"--module: cannot be read: {error.strerror or error}"]) from None
        model |= {"target": f"{file.name}:{class_name}", "target_folder": str(file.absolute().parent)}
        source = str(file.absolute())
    raw = {"experiment_name": folder_name(class_name or "module"), "model": model}
    return config_of_sections(raw, source, sha256)


def _of_name(given: str) -> LoadedConfig:
    package, _, name = given.rpartition(":")
    if package not in PACKAGES:
        package, name = "timm", given
    model = {"net_type": package, PACKAGES[package]: name}
    return config_of_sections(
        {"experiment_name": folder_name(name), "model": model}, f"{package}:{name}", _sha256_of(model)
    )


def _sha256_of(section: Mapping[str, JsonValue]) -> str:
    return hashlib.sha256(json.dumps(section, sort_keys=True).encode()).hexdigest()
