"""Checks a raw dict against the schema and words what is wrong, one line per key.

Unknown keys are found here, before the typed check, so that a slip in one key hides no other problem.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from swinmr_profiling.configs.errors import ConfigError, CrossFieldError
from swinmr_profiling.configs.field_types import Expected, Section
from swinmr_profiling.configs.schema import ExperimentConfig
from swinmr_profiling.configs.sections.model import MODEL_SECTIONS

_SHOWN_CHARS = 60
# A section with more unknown keys than this is not a config: the rest is counted, not listed.
_SHOWN_UNKNOWN = 50
# Below this likeness (difflib's ratio) a suggestion misleads more than it helps.
_LIKENESS = 0.6


def check(
    raw: dict[str, Any],
    file: str | None = None,
    allow_unknown: bool = False,
    origins: dict[str, str] | None = None,
) -> tuple[ExperimentConfig, list[str]]:
    """A valid config of raw sections, and the warnings that came with it.

    Args:
        raw: the sections, as read from JSON. Not changed.
        file: named in errors.
        allow_unknown: unknown keys are dropped with a warning instead of refused.
        origins: path here -> path in the file, where the file was laid out differently.

    Raises:
        ConfigError: with every problem of the config, one line per key.
    """
    problems: list[str] = []
    warnings: list[str] = []
    cleaned = _without_unknown(
        raw, ExperimentConfig, "", warnings if allow_unknown else problems, allow_unknown
    )
    config, found = _validate(cleaned)
    problems += found
    if config is None or problems:
        raise ConfigError(file, _in_the_files_words(problems, origins or {}))
    return config, _in_the_files_words(warnings, origins or {})


def nearest(key: str, known: list[str]) -> str | None:
    """The known key most like `key`, None where none is like it."""
    found = difflib.get_close_matches(key.lower(), known, n=1, cutoff=_LIKENESS)
    return found[0] if found else None


def section_of(info: FieldInfo, value: Any) -> type[Section] | None:
    """The section class of a field; for `model` the one that `net_type` in `value` picks. None for values."""
    if info.discriminator:
        net_type = value.get("net_type") if isinstance(value, dict) else None
        return MODEL_SECTIONS.get(net_type) if isinstance(net_type, str) else None
    annotation = info.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def _without_unknown(
    raw: dict[str, Any], section: type[Section], prefix: str, report: list[str], drop: bool
) -> dict[str, Any]:
    known = list(section.model_fields)
    result: dict[str, Any] = {}
    misspelt: dict[str, Any] = {}
    unknown = 0
    for key, value in raw.items():
        if key not in known:
            unknown += 1
            if unknown > _SHOWN_UNKNOWN:
                continue
            suggestion = nearest(key, known)
            if suggestion is None:
                way_out = f"known here: {', '.join(known)}" if len(known) <= 12 else "see configs/README.md"
            else:
                way_out = f"did you mean {suggestion}?"
                misspelt.setdefault(suggestion, value)
            report.append(f"{prefix}{key}: unknown key{', ignored' if drop else ''}; {way_out}")
            continue
        inner = section_of(section.model_fields[key], value)
        if inner is not None and isinstance(value, dict):
            value = _without_unknown(value, inner, f"{prefix}{key}.", report, drop)
        result[key] = value
    if unknown > _SHOWN_UNKNOWN:
        report.append(f"{prefix.rstrip('.') or 'top level'}: {unknown - _SHOWN_UNKNOWN} more unknown keys")
    if not drop:
        # The config is refused anyway: checking on with the key that was meant keeps follow-on errors away.
        result = {**misspelt, **result}
    return result


def _validate(raw: dict[str, Any]) -> tuple[ExperimentConfig | None, list[str]]:
    """The typed check.

    Checks across keys run only on sound values, so after a failure the blamed keys are set aside (their
    defaults stand in) and the rest is checked again, until nothing new comes up.
    """
    lines: list[str] = []
    blamed: set[str] = set()
    remaining = raw
    while True:
        try:
            config = ExperimentConfig.model_validate(remaining)
        except ValidationError as error:
            # A text that names a key set aside may be about its stand-in value: not the file's fault.
            fresh = [
                (path, text)
                for path, text in _one_per_key(error, remaining)
                if path not in blamed and not _names_any(text, blamed)
            ]
            if not fresh:
                return None, lines
            lines.extend(f"{path}: {text}" for path, text in fresh)
            blamed.update(path for path, _ in fresh)
            remaining = _without(raw, blamed)
        else:
            return (None if lines else config), lines


def _one_per_key(error: ValidationError, raw: dict[str, Any]) -> list[tuple[str, str]]:
    # Each branch of a union, and each entry of a list, reports its own failure: one line per key will do.
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for item in error.errors(include_url=False):
        for path, text in _explain(item, raw):
            found.setdefault((path, text if item["type"] == "value_error" else ""), (path, text))
    return list(found.values())


def _names_any(text: str, paths: set[str]) -> bool:
    return bool({path.rpartition(".")[2] for path in paths} & set(re.findall(r"\w+", text)))


def _without(raw: dict[str, Any], paths: set[str], prefix: str = "") -> dict[str, Any]:
    return {
        key: _without(value, paths, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in raw.items()
        if f"{prefix}{key}" not in paths
    }


def _explain(item: Any, raw: dict[str, Any]) -> list[tuple[str, str]]:
    path, info, value = _locate(item["loc"], raw)
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, CrossFieldError):
        return [(f"{path}.{inner}" if path else inner, text) for inner, text in cause.problems]
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return [("model.net_type", _net_type_text(value))]
    if info is None:
        return [(path or "config", f"expected an object {{...}}, got {shown(value)}")]
    expected = expected_text(info)
    if item["type"] == "missing":
        return [(path, f"missing: {expected} is required")]
    return [(path, f"expected {expected}, got {shown(value)}{_meant(value, expected)}")]


def _meant(value: Any, expected: str) -> str:
    """The accepted word that a value differs from by case or a letter or two; nothing where it is like none."""
    if not isinstance(value, str):
        return ""
    suggestion = nearest(value, re.findall(r'"([^"{}]+)"', expected))
    return f'; did you mean "{suggestion}"?' if suggestion else ""


def _locate(loc: tuple[int | str, ...], raw: Any) -> tuple[str, FieldInfo | None, Any]:
    """Path, field and raw value of the innermost field of the schema on pydantic's way to an error."""
    section: type[Section] | None = ExperimentConfig
    path: list[str] = []
    info: FieldInfo | None = None
    value = raw
    parts = list(loc)
    while parts and section is not None:
        key = str(parts.pop(0))
        if key not in section.model_fields:
            break
        info = section.model_fields[key]
        path.append(key)
        value = value.get(key) if isinstance(value, dict) else None
        if info.discriminator and parts:
            parts.pop(0)  # the tag that picked the branch is not a key of the file
        section = section_of(info, value)
    return ".".join(path), info, value


def _in_the_files_words(lines: list[str], origins: dict[str, str]) -> list[str]:
    if not origins:
        return lines
    # Longest first: "model.upscale" may come from "scale" while the rest of "model" comes from "netG".
    paths = sorted(origins, key=len, reverse=True)
    path = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?![\w-])" for name in paths))
    return [path.sub(lambda match: origins[match.group()], line) for line in lines]


def expected_text(info: FieldInfo) -> str:
    """What a field accepts, in words; an object for a section."""
    return next((entry.text for entry in info.metadata if isinstance(entry, Expected)), "an object {...}")


def _net_type_text(model: Any) -> str:
    known = ", ".join(f'"{name}"' for name in MODEL_SECTIONS)
    if not isinstance(model, dict) or "net_type" not in model:
        return f"missing: one of {known} is required"
    net_type = model["net_type"]
    suggestion = nearest(net_type, list(MODEL_SECTIONS)) if isinstance(net_type, str) else None
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    return f"expected one of {known}, got {shown(net_type)}{hint}"


def shown(value: Any) -> str:
    """A value as the file has it, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
