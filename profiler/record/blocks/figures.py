"""The kinds of figures a profile holds, each with its unit, and what every block of them has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Bytes = Annotated[int, Field(ge=0)]
PositiveBytes = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
Milliseconds = Annotated[float, Field(ge=0)]
# MiB: 2^20 bytes, as `_mb` always meant in these files.
Mebibytes = Annotated[float, Field(ge=0)]
PerSecond = Annotated[float, Field(ge=0)]
Dimension = Annotated[int, Field(ge=0)]
Shape = list[Dimension]
# [height, width] in pixels; null is the whole image.
PatchSize = Annotated[list[PositiveCount], Field(min_length=2, max_length=2)] | None
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# A batch size as a JSON key.
BatchKey = Annotated[str, Field(pattern=r"^[1-9][0-9]*$")]

# measured: it ran. counted: derived without running, exact. predicted: by a model of the allocator or of the work.
# extrapolated: from figures of other sizes.
Source = Literal["measured", "counted", "predicted", "extrapolated"]
Precision = Literal["fp32", "bf16", "fp16"]
Checkpointing = Literal["none", "light", "full"]
ErrorKind = Literal["OOM", "killed", "crashed", "exception", "skipped", "unsupported"]
MemoryCategory = Literal[
    "parameters",
    "loss_networks",
    "ema",
    "inputs",
    "gradients",
    "optimizer_state",
    "saved_activations",
    "temporaries",
    "workspaces",
]


class Block(BaseModel):
    """A block of a profile. Unknown keys are an error: a reader never shows what it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)
