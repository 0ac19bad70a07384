"""Setting values in the text of a commented JSON file: everything else, comments included, stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.commented_json import parse_commented_json
from swinmr_profiling.configs.errors import ConfigError

_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<mark>[{}\[\]:,])|(?P<other>[^\s{}\[\]:,"/]+)',
    re.DOTALL,
)


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
    spans = _value_spans(text)
    if (section, key) in spans:
        start, end = spans[section, key]
        return text[:start] + value + text[end:]
    if (section,) in spans:
        return _insert(text, spans[section,][0] + 1, f"{json.dumps(key)}: {value}")
    return _insert(text, spans[()][0] + 1, f"{json.dumps(section)}: {{{json.dumps(key)}: {value}}}")


def _insert(text: str, position: int, entry: str) -> str:
    """Puts an entry first into the object that opens before `position`, on a line of its own where the others are."""
    rest = re.match(r"([^\S\r\n]*(?://[^\r\n]*)?)(\r?\n)([^\S\r\n]*)", text[position:])
    following = next((m for m in _TOKEN.finditer(text, position) if m.lastgroup != "comment"), None)
    comma = "" if following is not None and following.group() == "}" else ","
    if rest is None:
        space = " " if comma and not text[position].isspace() else ""
        return f"{text[:position]}{entry}{comma}{space}{text[position:]}"
    comment, newline, margin = rest.groups()
    margin = margin if comma else margin + "  "
    position += len(comment)
    return f"{text[:position]}{newline}{margin}{entry}{comma}{text[position:]}"


def _value_spans(text: str) -> dict[tuple[str, ...], tuple[int, int]]:
    """Path of a key -> (start, end) of its value, for the top level (the empty path) and two levels of objects."""
    spans: dict[tuple[str, ...], tuple[int, int]] = {}
    path: list[str | None] = []  # the key whose value is open at each level; None inside a list
    starts: list[int] = []
    key: str | None = None
    pending: str | None = None  # a string that may turn out to be a key
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup == "comment":
            continue
        if token == ":" and pending is not None:
            key, pending = pending, None
            continue
        pending = None
        if token in ("{", "["):
            path.append(key)
            starts.append(match.start())
            key = None
        elif token in ("}", "]"):
            _close(spans, path, starts, match.end())
            key = None
        elif token == ",":
            key = None
        elif key is not None:
            if len(path) <= 2:
                spans[_names(path, key)] = match.span()
        elif match.lastgroup == "string":
            pending = json.loads(token)
    return spans


def _close(
    spans: dict[tuple[str, ...], tuple[int, int]], path: list[str | None], starts: list[int], end: int
) -> None:
    key, start = path.pop(), starts.pop()
    if not path:
        spans[()] = (start, end)
    elif key is not None and len(path) <= 2:
        spans[_names(path, key)] = (start, end)


def _names(path: list[str | None], key: str) -> tuple[str, ...]:
    """The first level is the file itself, which has no name."""
    return (*(str(name) for name in path[1:]), key)
