"""Reader for JSON with `//` and `/* */` comments and trailing commas, as SwinMR and KAIR files have them.

Comments and trailing commas are overwritten with spaces before the standard parser runs, so that the line and
column in its errors are those of the file.
"""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from swinmr_profiling.configs.errors import ConfigError

# Configs are a few KiB; a file this large is data or a checkpoint given by mistake, so it is refused unread.
MAX_FILE_BYTES = 5 * 2**20
# The deepest key of the schema is five levels down; `kwargs` of a user's own class may go further.
MAX_DEPTH = 64
# Longer than any 64-bit count; Python itself refuses to read integers of more than 4,300 digits.
MAX_NUMBER_CHARS = 40

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT_OR_STRING = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|/\*", re.DOTALL)
_COMMA_OR_STRING = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_BRACKET_OR_STRING = re.compile(rf"{_STRING}|[\[\]{{}}]")
_CONSTANT_OR_STRING = re.compile(rf"{_STRING}|-?Infinity|NaN")

# The standard parser's wording -> what a reader of the file should do about it.
_PARSER_WORDING = {
    "Expecting ',' delimiter": "a comma or a closing bracket is missing before this",
    "Expecting property name enclosed in double quotes": "a key in double quotes is expected here",
    "Illegal trailing comma before end of object": "there is a comma too many here",
    "Illegal trailing comma before end of array": "there is a comma too many here",
    "Expecting ':' delimiter": "a colon is expected between a key and its value",
    "Expecting value": "a value is expected here",
    "Unterminated string starting at": "this string has no closing quote",
    "Invalid control character at": "a string runs past the end of its line: is a closing quote missing?",
    "Extra data": "the object has ended, but more text follows",
}


def read_commented_json(file: str | Path) -> tuple[dict[str, Any], bytes]:
    """Read one commented JSON file whose top level is an object.

    Returns:
        The object, and the file's bytes as they were read (for a checksum).

    Raises:
        ConfigError: missing, a folder, not a regular file, unreadable, larger than MAX_FILE_BYTES, not UTF-8
            (a byte order mark is accepted), or anything that `parse_commented_json` refuses.
    """
    raw = read_bytes(file)
    return parse_commented_json(decoded(raw, file), file), raw


def decoded(raw: bytes, file: str | Path) -> str:
    """The text of a file's bytes. Raises ConfigError where they are not UTF-8."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text (byte 0x{error.object[error.start]:02x} at offset {error.start})"
        raise ConfigError(file, [f"{problem}: save the file as UTF-8"]) from None


def parse_commented_json(text: str, file: str | Path | None = None) -> dict[str, Any]:
    """Parse commented JSON text. `file` only names the text in errors.

    Raises:
        ConfigError: empty, broken (with line and column), a duplicate key, NaN or Infinity, a number too
            long or too large, nested deeper than MAX_DEPTH, or a top level that is not an object.
    """
    text = without_comments(text, file)
    if not text.strip():
        raise ConfigError(file, ["the file is empty: it needs at least {...}"])
    _refuse_deep_nesting(text, file)
    _refuse_constants(text, file)
    repeated: list[str] = []

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated.extend(key for key, count in counts.items() if count > 1)
        return result

    try:
        value = json.loads(text, object_pairs_hook=to_dict, parse_int=_to_int, parse_float=_to_float)
    except json.JSONDecodeError as error:
        what = _PARSER_WORDING.get(error.msg, error.msg)
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(file, [f"broken JSON at {where}: {what}"]) from None
    except RecursionError:
        raise ConfigError(file, ["nested too deeply to be read"]) from None
    except ValueError as error:
        raise ConfigError(file, [str(error)]) from None
    if repeated:
        problems = [f'key "{key}" appears more than once in the same object: keep one' for key in repeated]
        raise ConfigError(file, problems)
    if not isinstance(value, dict):
        kind = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}.get(
            type(value), "a number"
        )
        raise ConfigError(file, [f"the top level is {kind}: an object {{...}} is expected"])
    _refuse_half_characters(value, file)
    return value


def without_comments(text: str, file: str | Path | None = None) -> str:
    """The text with spaces in the place of comments and trailing commas. Raises ConfigError for an open comment."""
    return _blank_trailing_commas(_blank_comments(text, file))


def read_bytes(file: str | Path) -> bytes:
    """A regular file's bytes. Raises ConfigError."""
    try:
        path = Path(file)
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ConfigError(file, ["is a folder: name a JSON file in it"])
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(file, ["is not a regular file: copy the config to a file"])
        if status.st_size > MAX_FILE_BYTES:
            size = f"{status.st_size / 2**20:.1f} MiB"
            limit = f"{MAX_FILE_BYTES // 2**20} MiB"
            raise ConfigError(file, [f"is {size}, a config is at most {limit}: is this the right file?"])
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(file, ["no such file: check the path"]) from None
    except PermissionError:
        raise ConfigError(file, ["may not be read: check its permissions"]) from None
    except OSError as error:
        raise ConfigError(file, [f"cannot be read: {error.strerror or error}"]) from None
    except ConfigError:
        raise
    except ValueError:  # a NUL in the name
        raise ConfigError(repr(str(file)), ["is not a file name"]) from None


def _place(text: str, offset: int) -> str:
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - text.rfind(chr(10), 0, offset)}"


def _blank_comments(text: str, file: str | Path | None) -> str:
    def blank(match: re.Match[str]) -> str:
        token = match.group()
        if token.startswith('"'):
            return token
        if token == "/*":
            raise ConfigError(file, [f"the comment at {_place(text, match.start())} has no closing */"])
        return re.sub(r"[^\r\n]", " ", token)

    return _COMMENT_OR_STRING.sub(blank, text)


def _blank_trailing_commas(text: str) -> str:
    def blank(match: re.Match[str]) -> str:
        token = match.group()
        if token != ",":
            return token
        before = match.start() - 1
        while before >= 0 and text[before].isspace():
            before -= 1
        # `[,]` is a mistake, not a trailing comma: leave it for the parser to refuse.
        return "," if before < 0 or text[before] in "[{,:" else " "

    return _COMMA_OR_STRING.sub(blank, text)


def _refuse_deep_nesting(text: str, file: str | Path | None) -> None:
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        token = match.group()
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        if depth > MAX_DEPTH:
            place = _place(text, match.start())
            raise ConfigError(file, [f"nested deeper than {MAX_DEPTH} levels at {place}"])


def _refuse_constants(text: str, file: str | Path | None) -> None:
    problems = [
        f"{match.group()} at {_place(text, match.start())} is not a JSON number: use a number or null"
        for match in _CONSTANT_OR_STRING.finditer(text)
        if not match.group().startswith('"')
    ]
    if problems:
        raise ConfigError(file, problems)


def _to_int(digits: str) -> int:
    if len(digits) > MAX_NUMBER_CHARS:
        raise ValueError(f"the number {digits[:12]}... has {len(digits)} digits: too long")
    return int(digits)


def _to_float(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {digits[:24]} is too large")
    return value


def _refuse_half_characters(value: dict[str, Any], file: str | Path | None) -> None:
    # "\ud800" parses, but such a string can be neither printed nor written again.
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(file, ["a string holds half a character (an unpaired \\ud800 escape)"]) from None
