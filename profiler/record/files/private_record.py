"""What `--private` leaves out of a profile: whose machine it was, and where on it files lie."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import Any

from pydantic import JsonValue

NOT_RECORDED = "not recorded"
# Of `environment`: they name the user's folders, what was typed, the machine.
LEFT_OUT = ("executable", "command_line", "platform")


def relative_path(path: str | Path) -> str:
    """The path from the working folder where it lies below it, else as it is."""
    text = str(path)
    inside = os.path.relpath(text) if os.path.isabs(text) else text
    return text if inside.startswith("..") else inside


def private_content(content: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The content of a profile without paths above the working folder, command line and machine."""
    environment = content.get("environment")
    if isinstance(environment, dict):
        content = {**content, "environment": {**environment, **_left_out(environment)}}
    return {key: _without_paths(value) for key, value in content.items()}


def _left_out(environment: dict[str, JsonValue]) -> dict[str, str]:
    return {name: NOT_RECORDED for name in LEFT_OUT if name in environment}


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value]
    return without_path(value) if isinstance(value, str) else value


def without_path(text: str) -> str:
    """A text of a profile without the folders that it names."""
    # Inside a sentence, too, such as the reason of a failure.
    for folder, shown in ((os.getcwd() + os.sep, ""), (os.path.expanduser("~") + os.sep, "~" + os.sep)):
        if len(folder) > 2:
            text = text.replace(folder, shown)
    # Whatever else begins at the top: its last name alone.
    return PurePath(text).name if os.path.isabs(text) or text.startswith("~" + os.sep) else text
