"""The class of an option file's network that this project does not know, in the repository that the file lies in.

The code is read, never run: what registers a name in BasicSR, traiNNer-redux and neosr, and what KAIR's `define_G`
calls. It runs when the network is built, as any class of a user's, with --trust-config.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.option_files.imported import GivenClass
from swinmr_profiling.configs.option_files.networks import known_networks

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
