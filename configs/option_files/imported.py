"""What an importer hands over."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ImportedOptions:
    """An option file in this project's sections.

    Attributes:
        sections: the raw config, not yet checked against the schema.
        origins: path of a key here -> path of the key in the option file, for errors.
        messages: what was recognised, computed, and left out.
    """

    sections: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=lambda: {"model": "netG"})
    messages: list[str] = field(default_factory=list)

    def put(self, path: str, value: Any, origin: str | None = None) -> None:
        """Set the value at a dotted path, remembering the key it came from."""
        *parents, key = path.split(".")
        section = self.sections
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = value
        if origin is not None:
            self.origins[path] = origin


def folder_name(text: str) -> str:
    """`text` as an `experiment_name`: other characters become `_`."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", text).lstrip(".+-")[:100] or "experiment"


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(value: Any) -> float | None:
    """A number, also where YAML took "1e-4" for a text; None for anything else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if is_number(value) else None
