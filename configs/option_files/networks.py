"""Which network of this project, or of spandrel, an option file names, and what its arguments are called there.

`networks.json` lists the names of each framework. An entry says what builds the network (`architecture`: spandrel's,
where `net_type` says no other; `by_scale` where each scale has its own), what the framework's own defaults are where
they are not the class's (`kwargs`), which argument takes the scale, what other arguments are called (`arguments`), what
the values of one stand for (`choices`; none: it changes nothing here), and which may have one value alone because the
class knows no other (`only`). `parameters` holds the number of parameters that the framework's own code makes at scale
4, for the tests.
"""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.option_files.imported import NOT_ARGUMENTS

TABLE = Path(__file__).resolve().parent / "networks.json"
_SCALE_NAMES = ("scale", "upscale", "upscaling_factor", "upsampling", "up_scale", "sf", "upscale_factor")
_ESRGAN_UNSHUFFLED = {1: (16, 4), 2: (4, 2)}


@cache
def known_networks() -> dict[str, dict[str, Any]]:
    """Framework -> name of a network -> entry."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def network_section(framework: str, network: dict[str, Any], scale: int, file: str | None) -> dict[str, Any]:
    """The `model` section of a file's network.

    Raises ConfigError, in one line: a network that is not known here, or an argument that the class does not have.
    """
    place = "netG" if framework == "KAIR" else "network_g"
    key = "net_type" if framework == "KAIR" else "type"
    name, names = network.get(key), known_networks()[framework]
    entry = names.get(name) if isinstance(name, str) else None
    if entry is None:
        near = difflib.get_close_matches(str(name), list(names), n=1, cutoff=0.8)
        hint = f"did you mean {near[0]}? Else " if near else ""
        raise ConfigError(
            file,
            [
                f"{place}.{key}: {json.dumps(name, default=str)[:60]} of {framework} is not a network that is known "
                f"here (known: {_shortened(names)}): {hint}add the class that builds it: --module FILE.py:Class "
                "--trust-config"
            ],
        )
    given = {
        argument: value
        for argument, value in network.items()
        if argument not in NOT_ARGUMENTS and argument not in entry.get("ignored", ())
    }
    if entry.get("net_type") == "swinir":
        return _swinir(given, scale, entry)
    return _by_name(entry, given, scale, place, file)


def _by_name(
    entry: dict[str, Any], given: dict[str, Any], scale: int, place: str, file: str | None
) -> dict[str, Any]:
    kwargs = dict(entry.get("kwargs", {}))
    net_type = entry.get("net_type", "spandrel")
    owner = "spandrel's " if net_type == "spandrel" else "this project's "
    owner += entry.get("architecture", "networks")
    problems = []
    for argument, value in given.items():
        if argument in _SCALE_NAMES and entry.get("scale"):
            scale = value
        elif argument in entry.get("only", {}):
            allowed = entry["only"][argument]
            if value != allowed:
                text = f"{json.dumps(value)[:60]} makes another network than {owner}"
                problems.append(f"{place}.{argument}: {text}, which has {json.dumps(allowed)} alone")
        elif argument in entry.get("arguments", {}):
            kwargs[entry["arguments"][argument]] = value
        elif argument in entry.get("choices", {}):
            choices = entry["choices"][argument]
            if choices and str(value).lower() not in choices:
                problems.append(
                    f"{place}.{argument}: {json.dumps(value)[:60]} is none of {', '.join(choices)}"
                )
            kwargs.update(choices.get(str(value).lower(), {}))
        else:
            problems.append(f"{place}.{argument}: no counterpart in {owner}")
    architecture = entry.get("architecture") or entry["by_scale"].get(str(scale))
    if architecture is None:
        problems.append(f"scale: {scale}, and the network has {', '.join(entry['by_scale'])} alone")
    if problems:
        raise ConfigError(file, problems)
    if entry.get("scale") and architecture == entry.get("architecture"):
        kwargs[entry["scale"]] = scale
    if entry.get("unshuffles") and scale in _ESRGAN_UNSHUFFLED and given.get("use_pixel_unshuffle", True):
        # RRDBNet takes smaller images than it is given: each 2 x 2 (or 4 x 4) pixels become channels.
        times, factor = _ESRGAN_UNSHUFFLED[scale]
        kwargs.update(scale=4, in_nc=kwargs.get("in_nc", 3) * times, shuffle_factor=factor)
    return {"net_type": net_type, "architecture": architecture, "kwargs": kwargs}


def _swinir(given: dict[str, Any], scale: int, entry: dict[str, Any]) -> dict[str, Any]:
    """This project's own SwinIR: the same keys."""
    section = {"net_type": "swinir", "upscale": scale, **entry.get("kwargs", {})}
    for argument, value in given.items():
        if argument != "use_checkpoint":  # told by the training section
            section["upscale" if argument in _SCALE_NAMES else argument] = value
    return section


def network_scale(kwargs: dict[str, Any]) -> Any:
    """How often the network of these arguments is larger in its output; 1 where they do not say."""
    return next((kwargs[name] for name in _SCALE_NAMES if name in kwargs), 1)


def _shortened(names: dict[str, Any]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")
