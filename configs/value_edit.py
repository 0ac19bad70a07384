"""Setting values in the text of a commented JSON file: everything else, comments included, stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.commented_json import parse_commented_json, without_comments
from swinmr_profiling.configs.errors import ConfigError

# A key, with the comma before it and the colon behind.
_KEY = re.compile(r'[\s,]*("(?:[^"\\\n]|\\.)*")\s*:\s*')


def edit_values(text: str, values: Mapping[str, Any], file: str | Path | None = None) -> str:
    """The text with the values at dotted paths of two keys ("data.batch_size") set.

    A key that is not there is added at the start of its section, a section that is not there at the start of the file.
    The result is parsed again and compared: nothing but these values has changed.

    Raises:
        ConfigError: the text is broken, a section is not an object, or the edit does not come out as it should.
    """
    wanted = parse_commented_json(text, file)
    for path, value in values.items():
        section, key = path.split(".")
        if not isinstance(wanted.setdefault(section, {}), dict):
            raise ConfigError(file, [f"{section}: expected an object {{...}}: nothing was written"])
        wanted[section][key] = value
        text = _set(text, section, key, json.dumps(value))
    if parse_commented_json(text, file) != wanted:
        raise ConfigError(file, [f"cannot be edited in place: set {', '.join(values)} by hand"])
    return text


def _set(text: str, section: str, key: str, value: str) -> str:
    spans: dict[tuple[str, ...], tuple[int, int]] = {}
    plain = without_comments(text)
    start = plain.index("{")
    _find_values(plain, start, (), spans)
    if (section, key) in spans:
        start, end = spans[section, key]
        return text[:start] + value + text[end:]
    if (section,) in spans:
        return _insert(text, spans[section,][0] + 1, f"{json.dumps(key)}: {value}")
    return _insert(text, start + 1, f"{json.dumps(section)}: {{{json.dumps(key)}: {value}}}")


def _insert(text: str, position: int, entry: str) -> str:
    """Puts an entry first into the object that opens before `position`, on a line of its own where the others are."""
    rest = re.match(r"([^\S\r\n]*(?://[^\r\n]*)?)(\r?\n)([^\S\r\n]*)", text[position:])
    comma = "" if without_comments(text)[position:].lstrip().startswith("}") else ","
    if rest is None:
        space = " " if comma and not text[position].isspace() else ""
        return f"{text[:position]}{entry}{comma}{space}{text[position:]}"
    comment, newline, margin = rest.groups()
    margin = margin if comma else margin + "  "
    position += len(comment)
    return f"{text[:position]}{newline}{margin}{entry}{comma}{text[position:]}"


def _find_values(
    plain: str, start: int, path: tuple[str, ...], spans: dict[tuple[str, ...], tuple[int, int]]
) -> None:
    """Adds path of a key -> (start, end) of its value, for the object that opens there and the objects in it."""
    position = start + 1
    while found := _KEY.match(plain, position):
        name = (*path, json.loads(found[1]))
        _, position = json.JSONDecoder().raw_decode(plain, found.end())
        spans[name] = (found.end(), position)
        if plain[found.end()] == "{" and not path:
            _find_values(plain, found.end(), name, spans)
