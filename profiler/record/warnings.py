"""What a reader of a profile must know; each is a code for programs and a line for people."""

from __future__ import annotations

from pydantic import ConfigDict, StrictInt, StrictStr
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ProfileWarning:
    """One warning. `batch_size` is None for what concerns the whole run."""

    code: StrictStr
    message: StrictStr
    batch_size: StrictInt | None = None
