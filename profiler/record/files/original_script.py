"""What the script wrote that this repository's layout comes from: schema version 0.

`config`, `architecture`, `single_image`, `batch_profiling`, no `schema_version`, no raw samples. Its `flops` are what
fvcore calls flops: multiply-adds, with five per element of every norm. They become `macs` and are never FLOPs.
"""

from __future__ import annotations

from typing import Any, get_args

from pydantic import ConfigDict, Field

from swinmr_profiling.profiler.record.blocks.architecture import Architecture
from swinmr_profiling.profiler.record.blocks.batch import Batch, FailedBatch, MeasuredBatch, Memory, Timing
from swinmr_profiling.profiler.record.blocks.figures import (
    BatchKey,
    Count,
    ErrorKind,
    Figures,
    Milliseconds,
    Shape,
)
from swinmr_profiling.profiler.record.blocks.run_description import NoEnvironment, RunConfig
from swinmr_profiling.profiler.record.profile import SCHEMA_VERSION, Profile
from swinmr_profiling.profiler.record.units import GIGA, MIB

ORIGINAL_SCRIPT = 0
IMPORTED_REASON = "imported from the original script, which recorded no more"


class _Original(Figures):
    """A block of the original file. Keys that are not read may be anything."""

    model_config = ConfigDict(protected_namespaces=())


class OriginalConfig(_Original):
    """What was profiled."""

    model: str | None = None
    image_size: Any = None
    device: str | None = None
    config_file: str | None = None


class OriginalArchitecture(_Original):
    """Counts; `flops` are multiply-adds."""

    total_parameters: Count | None
    trainable_parameters: Count | None = None
    model_size_mb: float | None = Field(None, ge=0)
    flops: Count | None = None


class OriginalTiming(_Original):
    """Of an unknown number of runs. Its `fps` is left alone: some of these scripts mean batches, some images."""

    mean_ms: Milliseconds | None = None
    std_ms: Milliseconds | None = None
    min_ms: Milliseconds | None = None
    max_ms: Milliseconds | None = None
    median_ms: Milliseconds | None = None


class OriginalMemory(_Original):
    """In MiB."""

    before_mb: float | None = None
    after_mb: float | None = None
    peak_mb: float | None = None
    activation_mb: float | None = None


class OriginalBatch(_Original):
    """A batch size that ran (`timing`), or did not (`error`)."""

    input_shape: Shape | None = None
    error: str | None = None
    detail: str | None = None
    timing: OriginalTiming | None = None
    memory: OriginalMemory | None = None

    def as_batch(self, batch_size: int) -> Batch:
        """Raises ValueError where there is neither a timing nor an error."""
        size = {"batch_size": batch_size, "input_shape": self.input_shape}
        if self.error is not None:
            kind = self.error if self.error in get_args(ErrorKind) else "exception"
            return FailedBatch.imported(error=kind, detail=self.detail or self.error, **size)
        if self.timing is None:
            raise ValueError(f"batch {batch_size}: neither timing nor error")
        mean_ms = self.timing.mean_ms
        timing = Timing.imported(
            source="measured",
            **self.timing.model_dump(),
            images_per_second=batch_size * 1000 / mean_ms if mean_ms else None,
            notes=[],
        )
        return MeasuredBatch.imported(source="measured", timing=timing, memory=self._memory(), **size)

    def _memory(self) -> Memory:
        if self.memory is None:
            return Memory.imported(source="measured")
        found = self.memory.model_dump()
        found |= {
            name.replace("_mb", "_bytes"): None if value is None else round(value * MIB)
            for name, value in found.items()
        }
        return Memory.imported(source="measured", kind="as the original script measured it", **found)


class OriginalProfile(_Original):
    """The whole file."""

    config: OriginalConfig
    architecture: OriginalArchitecture
    single_image: OriginalBatch | None = None
    batch_profiling: dict[BatchKey, OriginalBatch | None] | None = None

    def as_profile(self) -> Profile:
        """In the present layout. What was not recorded is None, also where a profile of today always has a value.

        Only reports and comparisons read such a profile; nothing is recommended from it and no run goes on from it.
        """
        counts = self.architecture
        size_mb, macs = counts.model_size_mb, counts.flops
        architecture = Architecture.imported(
            source="counted",
            input_shape=None if self.single_image is None else self.single_image.input_shape,
            num_runs=1,
            total_parameters=counts.total_parameters,
            trainable_parameters=counts.trainable_parameters,
            parameter_bytes=None if size_mb is None else round(size_mb * MIB),
            model_size_mb=size_mb,
            macs=macs,
            gmacs=None if macs is None else macs / GIGA,
            counters=[],
        )
        batches = self.batch_profiling or {}
        return Profile.model_construct(
            schema_version=SCHEMA_VERSION,
            status="partial",
            status_reason=IMPORTED_REASON,
            config=RunConfig.imported(**self.config.model_dump(), resolved={}),
            environment=NoEnvironment(),
            architecture=architecture,
            single_image=None if self.single_image is None else self.single_image.as_batch(1),
            batch_profiling={
                size: one.as_batch(int(size)) for size, one in batches.items() if one is not None
            },
            perceptual_metric=None,
            memory_model=None,
            recommendation=None,
            warnings=[],
        )
