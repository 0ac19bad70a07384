"""Which network of this project, or of spandrel, an option file names, and what its arguments are called there.

`networks.json` lists the names of each framework. An entry says what builds the network (`architecture`: spandrel's,
where `net_type` says no other; `by_scale` where each scale has its own), what the framework's own defaults are where
they are not the class's (`kwargs`), which argument takes the scale, what other arguments are called (`arguments`), what
the values of one stand for (`choices`; none: it changes nothing here), and which may have one value alone because the
class knows no other (`only`). `parameters` holds the number of parameters that the framework's own code makes at scale
4, for the tests.

The class of a network that is not known here is looked for in the repository that the file lies in. The code is read,
never run: what registers a name in BasicSR, traiNNer-redux and neosr, and what KAIR's `define_G` calls. It runs when
the network is built, as any class of a user's, with --trust-config.
"""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.option_files.imported import NOT_ARGUMENTS, GivenClass

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


# How far above an option file the repository may begin: options/train/EDVR/file.yml lies four below its root.
HIGHEST = 6
_ARCHS = {"BasicSR": "basicsr/archs", "traiNNer-redux": "traiNNer/archs", "neosr": "neosr/archs"}
# Networks whose trainers give them more than an image or a clip.
_OTHER_INPUTS = ("StyleGAN2Generator", "StyleGAN2GeneratorBilinear", "HiFaceGAN")
# What networks of clips call the number of their frames.
FRAMES = ("num_frame", "num_frames", "clip_size")
# KAIR's models that give the network an image or a clip alone (`plain2` and `plain4` give kernels and noise levels).
_KAIR_MODELS = ("plain", "gan", "vrt", None)


def class_beside(framework: str, name: Any, file: str | None) -> GivenClass | None:
    """The class or function that the framework's own code registers by a name.

    None: there is none above the file, or the network is known here.
    """
    place = _ARCHS.get(framework)
    if file is None or place is None or not isinstance(name, str) or name in _OTHER_INPUTS:
        return None
    if name in known_networks()[framework]:
        return None
    # traiNNer-redux registers in lower case.
    wanted = name.lower() if framework == "traiNNer-redux" else name
    for folder in _above(file, place):
        for code in sorted(folder.glob("*_arch.py")):
            for node in _parsed(code):
                if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or not _registers(node):
                    continue
                if wanted == (node.name.lower() if framework == "traiNNer-redux" else node.name):
                    return GivenClass(
                        f"{code.name}:{node.name}", str(folder), frames=_default_frames(node), found=True
                    )
    return None


def kair_class_beside(raw: dict[str, Any], file: str | None) -> GivenClass | None:
    """What KAIR's `models/select_network.py` calls for `netG.net_type`, with the arguments that it hands over."""
    train = (raw.get("datasets") or {}).get("train") or {}
    if file is None or raw.get("model") not in _KAIR_MODELS or "VFI" in str(train.get("dataset_type")):
        return None
    return kair_call(raw["netG"], file)


def kair_call(network: dict[str, Any], file: str | None) -> GivenClass | None:
    """What `define_G`, or `define_D`, calls for the `net_type` of `netG`, or `netD`; None where it is known here."""
    name = network.get("net_type")
    if file is None or not isinstance(name, str) or name in known_networks()["KAIR"]:
        return None
    for folder in _above(file, "models"):
        code = ast.Module(_parsed(folder / "select_network.py"), [])
        for node in ast.walk(code):
            if isinstance(node, ast.If) and ast.unparse(node.test) == f"net_type == {name!r}":
                found = _called(node.body, network)
                if found is not None:
                    module, class_name, kwargs = found
                    # Its modules name each other from the repository's root.
                    if folder.parent.joinpath(*module.split(".")).with_suffix(".py").is_file():
                        return GivenClass(f"{module}:{class_name}", str(folder.parent), kwargs, found=True)
    return None


def _above(file: str, place: str) -> Iterator[Path]:
    for folder in list(Path(file).resolve().parents)[:HIGHEST]:
        if (folder / place).is_dir():
            yield folder / place


def _parsed(code: Path) -> list[ast.stmt]:
    try:
        return ast.parse(code.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return []


def _registers(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """@ARCH_REGISTRY.register(), of whichever registry of networks."""
    called = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any(isinstance(one, ast.Attribute) and one.attr == "register" for one in called)


def _default_frames(node: ast.ClassDef | ast.FunctionDef) -> int | None:
    """The frames that a function, or a class's constructor, takes where it is not told, or None."""
    functions: Sequence[ast.stmt] = [node] if isinstance(node, ast.FunctionDef) else node.body
    for function in functions:
        if not isinstance(function, ast.FunctionDef) or function.name not in (node.name, "__init__"):
            continue
        named = function.args.args[len(function.args.args) - len(function.args.defaults) :]
        for argument, default in zip(named, function.args.defaults, strict=True):
            if argument.arg in FRAMES and isinstance(default, ast.Constant) and type(default.value) is int:
                return default.value
    return None


def _called(body: list[ast.stmt], network: dict[str, Any]) -> tuple[str, str, dict[str, Any]] | None:
    """Module, class and arguments of `from module import Class as net` and `netG = net(key=opt_net["key"], ...)`."""
    imported: dict[str, tuple[str, str]] = {}
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            imported |= {n.asname or n.name: (statement.module, n.name) for n in statement.names}
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
            continue
        call = statement.value
        if not isinstance(call.func, ast.Name) or call.func.id not in imported or call.args:
            continue
        kwargs = {}
        for keyword in call.keywords:
            given = keyword.value
            if keyword.arg is None:
                return None
            if isinstance(given, ast.Constant):
                kwargs[keyword.arg] = given.value
            elif isinstance(given, ast.Subscript) and isinstance(given.slice, ast.Constant):
                # KAIR reads what a file does not say as None.
                kwargs[keyword.arg] = network.get(str(given.slice.value))
            else:
                return None
        return (*imported[call.func.id], kwargs)
    return None
