"""Reading a config or an option file in the format that its name says: commented JSON, YAML or TOML."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.commented_json import decoded, parse_commented_json, read_bytes
from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.option_files.other_files import refuse_other_files

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
