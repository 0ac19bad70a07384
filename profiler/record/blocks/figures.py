"""The kinds of figures a profile holds, each with its unit, and what every block of them has."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import Self

# No count of a network comes near; beyond a float's range nothing could be divided or drawn.
LARGEST_FIGURE = 10**24

Bytes = Annotated[int, Field(ge=0)]
PositiveBytes = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
# Of another program, whole or not.
Figure = int | float
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
BatchKey = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,9}$")]

# measured: it ran. counted: derived without running, exact. predicted: by a model of the allocator or of the work.
# extrapolated: from figures of other sizes.
Source = Literal["measured", "counted", "predicted", "extrapolated"]
# pure_bf16: bf16 weights without autocast; the others are autocast on fp32 weights, or none.
Precision = Literal["fp32", "bf16", "fp16", "pure_bf16"]
# modules: those that the config names, or that a plan chose.
Checkpointing = Literal["none", "light", "full", "modules"]
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
    # Of several processes: buckets of gradients, and what is gathered or about to be scattered.
    "communication",
    "workspaces",
]


class Figures(BaseModel):
    """A block whose numbers are such as a profile can hold."""

    # The namespace: pydantic before 2.10 warns of every name that begins with "model_".
    model_config = ConfigDict(strict=True, allow_inf_nan=False, protected_namespaces=())

    @field_validator("*", mode="after")
    @classmethod
    def _is_a_figure(cls, value: Any) -> Any:
        numbers = (
            value if isinstance(value, list) else value.values() if isinstance(value, dict) else (value,)
        )
        if any(isinstance(number, int | float) and abs(number) >= LARGEST_FIGURE for number in numbers):
            raise ValueError("a number beyond any figure of a profile")
        return value


class Block(Figures):
    """A block of a profile. Unknown keys are an error: a reader never shows what it does not know."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    def to_json(self) -> dict[str, Any]:
        """The block as it stands in the file: keys that nobody set are absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def _repr_html_(self) -> str:
        """How a notebook shows the block."""
        from swinmr_profiling.profiler.record.notebook_html import as_html

        return as_html(self.to_json())

    @classmethod
    def imported(cls, **known: Any) -> Self:
        """A block of a file of the original script, whose values were checked one by one: all others are None."""
        unknown = dict.fromkeys(cls.model_fields.keys() - known.keys())
        return cast(Self, cls.model_construct(set(known), **known, **unknown))


class Measured(Block):
    """What all measured figures say of themselves."""

    source: Literal["measured"]
    input_shape: Shape
    num_runs: PositiveCount
