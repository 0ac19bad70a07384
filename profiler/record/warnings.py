"""What a reader of a profile must know; each is a code for programs and a line for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ProfileWarning:
    """One warning. `batch_size` is None for what concerns the whole run."""

    code: str
    message: str
    batch_size: int | None = None

    def to_json(self) -> dict:
        return asdict(self)
