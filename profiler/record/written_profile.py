"""The profile JSON, typed: the one place where its shape is written down. `profile.schema.json` comes from here.

python -m swinmr_profiling.profiler.record.written_profile > profiler/record/profile.schema.json
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from swinmr_profiling.profiler.record.blocks.architecture import Architecture
from swinmr_profiling.profiler.record.blocks.batch import Batch, Timing
from swinmr_profiling.profiler.record.blocks.figures import BatchKey, Block, Count, PositiveCount, Shape
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.recommended import Recommendation
from swinmr_profiling.profiler.record.blocks.run_description import Environment, RunConfig
from swinmr_profiling.profiler.record.profile import SCHEMA_VERSION

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# In characters; a key of a damaged file may be of any length.
LONGEST_PLACE = 120


class PerceptualMetric(Block):
    """What one LPIPS comparison of two images costs."""

    source: Literal["measured"]
    metric: Literal["lpips"]
    backbone: str
    input_shape: Shape
    num_runs: PositiveCount
    total_parameters: Count
    macs: Count
    flops: Count
    timing: Timing


class Warned(Block):
    """A warning: a code for programs, a line for people. batch_size is null for what concerns the whole run."""

    code: str
    message: str
    batch_size: int | None


class NoEnvironment(Block):
    """Of a run that ended before the machine was looked at."""


class WrittenProfile(Block):
    """A profile of one network on one machine, as scripts/profile_model.py writes it.

    _mb is MiB (2^20 bytes), _ms milliseconds, macs real multiply-adds (a complex one is four), flops = 2 x macs.
    What is unknown is null.
    """

    schema_version: Literal[SCHEMA_VERSION]  # type: ignore[valid-type]
    status: Literal["complete", "partial"]
    status_reason: str | None
    config: RunConfig
    environment: Environment | NoEnvironment
    architecture: Architecture | None
    single_image: Batch | None
    batch_profiling: dict[BatchKey, Batch]
    perceptual_metric: PerceptualMetric | None
    memory_model: MemoryModel | None
    recommendation: Recommendation | None
    warnings: list[Warned]

    @model_validator(mode="after")
    def _complete_profiles_say_something(self) -> WrittenProfile:
        if (self.status == "partial") != (self.status_reason is not None):
            raise ValueError("status_reason says why a profile is partial, and is null where it is complete")
        if self.status == "complete" and self.architecture is None:
            raise ValueError("a complete profile has an architecture")
        if self.status == "complete" and self.single_image is None and self.memory_model is None:
            raise ValueError("a complete profile was measured or predicted")
        return self


def check_written(content: dict[str, Any]) -> WrittenProfile:
    """The content of a profile file in the present version, typed. Raises ValueError: its first fault, in one line."""
    try:
        return WrittenProfile.model_validate(content)
    except ValidationError as error:
        fault = first_fault(error)
        raise ValueError(fault) from None


def first_fault(error: ValidationError) -> str:
    """`batch_profiling.4.timing.mean_ms: ...`, of the block that came nearest where several were possible."""
    faults = error.errors(include_url=False, include_input=False)
    # Of a block that may be one of several kinds it is the kind with the fewest faults, and there the deepest one.
    tried = [_alternative(fault["loc"]) for fault in faults]
    nearest, _ = min(
        zip(faults, tried, strict=True), key=lambda one: (tried.count(one[1]), -len(one[0]["loc"]))
    )
    keys = [str(part) for part in nearest["loc"] if isinstance(part, int) or not _is_alternative(part)]
    place = ".".join(keys)
    if len(place) > LONGEST_PLACE:
        place = f"{place[: LONGEST_PLACE - 3]}..."
    return f"{place or 'the profile'}: {nearest['msg'].removeprefix('Value error, ')}"


def _alternative(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Up to the last alternative of a union that was tried."""
    parts = list(location)
    while parts and (isinstance(parts[-1], int) or not _is_alternative(parts[-1])):
        parts.pop()
    return tuple(parts)


def _is_alternative(part: str) -> bool:
    """Beside keys and places in lists, a location names the alternatives by class."""
    return part[:1].isupper() or part.startswith("function-")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a profile file."""
    return {"$schema": DIALECT, **WrittenProfile.model_json_schema(by_alias=True)}


def main() -> None:
    print(json.dumps(json_schema(), indent=1))


if __name__ == "__main__":
    main()
