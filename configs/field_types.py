"""The types of config values, each with the words that say what is expected.

Those words are the only ones a user sees: in error lines and in the guide (configs/README.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self

from swinmr_profiling.configs.errors import CrossFieldError, Problems


@dataclass(frozen=True)
class Expected:
    """What a field accepts, in words that finish the sentence "expected ..."."""

    text: str


@dataclass(frozen=True)
class RelativeToConfig:
    """Marks a path that `resolve_paths` makes absolute, from the folder of the config file."""


class Section(BaseModel):
    """A part of a config: strict types, no unknown keys, unchangeable (dump, change the dict, rebuild)."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=True
    )

    def problems(self) -> Problems:
        """What in its values contradicts itself, though each is valid."""
        yield from ()

    @model_validator(mode="after")
    def _has_no_problems(self) -> Self:
        if found := list(self.problems()):
            raise CrossFieldError(found)
        return self


# An image side or channel count above this is a slip of the keyboard, and a tensor of it would fit nowhere.
MAX_SIZE = 65536
# Counts of steps, epochs, samples: far above any run, low enough for every 64-bit product of two of them.
MAX_COUNT = 10**9

_Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
_Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
_WholeNumber = Annotated[int, Field(ge=0, le=MAX_COUNT)]
_Pair = Annotated[list[_Size], Field(min_length=2, max_length=2)]

Flag = Annotated[bool, Expected("true or false")]
Size = Annotated[_Size, Expected("whole number, 1 to 65536")]
SizeOrNull = Annotated[_Size | None, Expected("whole number, 1 to 65536, or null")]
Count = Annotated[_Count, Expected("whole number, 1 to 10^9")]
CountOrNull = Annotated[_Count | None, Expected("whole number, 1 to 10^9, or null")]
WholeNumber = Annotated[_WholeNumber, Expected("whole number, 0 to 10^9")]
Seed = Annotated[Annotated[int, Field(ge=0, le=2**32 - 1)], Expected("whole number, 0 to 2^32 - 1")]
ImageSize = Annotated[_Size | _Pair, Expected("whole number of pixels, 1 to 65536, or [height, width]")]
InputShape = Annotated[list[Annotated[int, Field(ge=1, le=2**31)]], Field(max_length=8)]
Kwargs = Annotated[dict[str, Any], Expected("object of keyword arguments")]
ImageSizeOrNull = Annotated[
    _Size | _Pair | None, Expected("whole number of pixels, 1 to 65536, or [height, width], or null")
]
BatchSize = Annotated[_Count | Literal["auto"], Expected('whole number, 1 to 10^9, or "auto"')]
Counts = Annotated[list[_Count], Expected("list of whole numbers, each 1 to 10^9")]
BlockCounts = Annotated[
    Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1, max_length=1024)],
    Expected("list of whole numbers, each 1 to 1024, at least one"),
]

Positive = Annotated[Annotated[float, Field(gt=0)], Expected("number above 0")]
PositiveOrNull = Annotated[Annotated[float, Field(gt=0)] | None, Expected("number above 0, or null")]
NotNegative = Annotated[Annotated[float, Field(ge=0)], Expected("number, 0 or more")]
Probability = Annotated[Annotated[float, Field(ge=0, le=1)], Expected("number, 0 to 1")]
Rate = Annotated[Annotated[float, Field(ge=0, lt=1)], Expected("number, 0 to below 1")]
FractionOrNull = Annotated[
    Annotated[float, Field(gt=0, le=1)] | None, Expected("number above 0, at most 1, or null")
]
AccelerationOrNull = Annotated[Annotated[float, Field(ge=1)] | None, Expected("number, 1 or more, or null")]
OptimizerName = Annotated[
    Literal["adam", "adamw", "sgd", "adafactor", "muon", "adam_8bit", "adamw_8bit"],
    Expected('"adam", "adamw", "sgd", "adafactor", "muon", "adam_8bit" or "adamw_8bit"'),
]
Betas = Annotated[
    Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)],
    Expected("list of two numbers, each 0 to below 1"),
]
Fractions = Annotated[list[Annotated[float, Field(ge=0, le=1)]], Expected("list of numbers, each 0 to 1")]
NotNegativeList = Annotated[list[Annotated[float, Field(ge=0)]], Expected("list of numbers, each 0 or more")]

Text = Annotated[Annotated[str, Field(min_length=1, max_length=500)], Expected("text, 1 to 500 characters")]
_Path = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]
# Code of the user's own: of a module that Python finds, or of a file.
TARGET_PATTERN = r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*|[^\x00:]*\.py):[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
StepTargetOrNull = Annotated[
    Annotated[str, Field(pattern=TARGET_PATTERN, max_length=4096)] | None,
    Expected('"package.module:name" or "path/to/file.py:name", or null'),
]
AssumedValues = Annotated[
    dict[Annotated[str, Field(pattern=r"^[^\x00:]+:[1-9]\d*$", max_length=300)], bool | int | float],
    Expected('object of numbers by line of code: {"step.py:12": 0.5}'),
]
FilePath = Annotated[_Path, Expected("path"), RelativeToConfig()]
FilePathOrNull = Annotated[_Path | None, Expected("path or null"), RelativeToConfig()]


def image_hw(size: int | list[int]) -> tuple[int, int]:
    """(height, width) in pixels of an image size given as one number or as [height, width]."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])


class ImageNetworkSection(Section):
    """A `model` section of a network from images to images: what its `img_size` and `in_chans` mean."""

    if TYPE_CHECKING:  # each section's own fields, in its own order and with its own defaults
        img_size: int | list[int]
        in_chans: int

    @property
    def image_hw(self) -> tuple[int, int]:
        """(height, width) of a whole image in pixels."""
        return image_hw(self.img_size)

    @property
    def output_channels(self) -> int:
        """Channels of the output: `out_chans`, or `in_chans` where there is none or it is null."""
        out_chans = getattr(self, "out_chans", None)
        return self.in_chans if out_chans is None else out_chans
