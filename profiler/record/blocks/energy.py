"""Measured energy, and the time that the config's own data loader takes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from swinmr_profiling.profiler.record.blocks.figures import (
    Block,
    Count,
    Milliseconds,
    PerSecond,
    PositiveCount,
    Shape,
)


class EnergyFigure(Block):
    """Energy of many runs, one after the other, by a counter that goes on all the time.

    joules: of all runs. joules_per_step: of one optimizer step of `images_per_step` images; null for inference.
    """

    source: Literal["measured"]
    what: Literal["inference", "training_step"]
    batch_size: PositiveCount
    input_shape: Shape
    num_runs: PositiveCount
    duration_s: float = Field(gt=0)
    joules: float = Field(ge=0)
    mean_watts: float = Field(ge=0)
    joules_per_image: float = Field(ge=0)
    joules_per_step: float | None = Field(ge=0)
    images_per_step: PositiveCount | None


class Energy(Block):
    """`--energy`. covers: what the counter counts, whoever causes it. untried: no such machine has run this code."""

    source: Literal["measured"]
    reader: Literal["nvml", "rapl"]
    covers: str
    untried: bool
    figures: list[EnergyFigure]


class DataLoading(Block):
    """Batches of the config's training data, as fast as its own loader makes them, beside one training step.

    median_ms: from one batch to the next when nobody computes in between. step_ms: of a measured step of as many
    images, null where none was measured. waits: whether the loader is the slower of the two.
    """

    source: Literal["measured"]
    data_source: str
    batch_size: PositiveCount
    num_workers: Count
    num_batches: PositiveCount
    first_batch_ms: Milliseconds
    median_ms: Milliseconds
    images_per_second: PerSecond
    step_ms: Milliseconds | None
    waits: bool | None
