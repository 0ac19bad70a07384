"""The record of one run: what is known so far of one network on one machine. The one place where its shape stands."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, field_serializer, model_validator

from swinmr_profiling.profiler.record.blocks.architecture import Architecture
from swinmr_profiling.profiler.record.blocks.batch import Batch, PerceptualMetric
from swinmr_profiling.profiler.record.blocks.energy import DataLoading, Energy
from swinmr_profiling.profiler.record.blocks.figures import BatchKey, Block
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.recommended import (
    InferenceRecommendation,
    Recommendation,
    TrainingRecommendation,
)
from swinmr_profiling.profiler.record.blocks.run_description import Environment, NoEnvironment, RunConfig
from swinmr_profiling.profiler.record.blocks.strategies import StrategyBlock
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.warnings import ProfileWarning

SCHEMA_VERSION = 2


class Profile(Block):
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
    warnings: list[ProfileWarning]
    # Where they were asked for: --energy, --loader.
    energy: Energy | None = None
    data_loading: DataLoading | None = None
    # --strategy.
    strategies: list[StrategyBlock] | None = None

    @model_validator(mode="after")
    def _complete_profiles_say_something(self) -> Profile:
        if (self.status == "partial") != (self.status_reason is not None):
            raise ValueError("status_reason says why a profile is partial, and is null where it is complete")
        if self.status == "complete" and self.architecture is None:
            raise ValueError("a complete profile has an architecture")
        if self.status == "complete" and self.single_image is None and self.memory_model is None:
            raise ValueError("a complete profile was measured or predicted")
        return self

    @classmethod
    def begun(cls, config: RunConfig) -> Profile:
        """Of a run of which nothing is known yet."""
        unknown = ("architecture", "single_image", "perceptual_metric", "memory_model", "recommendation")
        return cls(
            schema_version=SCHEMA_VERSION,
            status="partial",
            status_reason="the run has not ended",
            config=config,
            environment=NoEnvironment(),
            batch_profiling={},
            warnings=[],
            **dict.fromkeys(unknown),
        )

    @property
    def sizes(self) -> tuple[Batch, ...]:
        """From small to large; the single image is batch 1. Each has the batch size that it is named by."""
        blocks = {int(size): block for size, block in self.batch_profiling.items()}
        if self.single_image is not None:
            blocks.setdefault(1, self.single_image)
        return tuple(blocks[size].model_copy(update={"batch_size": size}) for size in sorted(blocks))

    @property
    def training(self) -> dict[int, TrainingRun | TrainingFailure]:
        """The training step of each batch size that has one."""
        steps = {int(size): block.training for size, block in self.batch_profiling.items()}
        return {size: step for size, step in steps.items() if step is not None}

    @property
    def machine(self) -> Environment | None:
        """None for a run that ended before it looked, and for a file of the original script."""
        return self.environment if isinstance(self.environment, Environment) else None

    @property
    def inference_advice(self) -> InferenceRecommendation | None:
        """None before anything is recommended, and where nothing ran."""
        return None if self.recommendation is None else self.recommendation.inference

    @property
    def training_advice(self) -> list[TrainingRecommendation]:
        """One entry per budget; none before anything is recommended."""
        return [] if self.recommendation is None else self.recommendation.training

    def warn(self, warning: ProfileWarning) -> bool:
        """Adds a warning; False when it is there already."""
        if warning in self.warnings:
            return False
        self.warnings.append(warning)
        return True

    def set_training(self, batch_size: int, training: TrainingRun | TrainingFailure) -> None:
        """Of one batch size. In a block of its own: the single image, which shares it, is of inference alone."""
        block = self.batch_profiling[str(batch_size)]
        self.batch_profiling[str(batch_size)] = block.model_copy(update={"training": training})

    def recommend(self, **parts: Any) -> Recommendation:
        """Takes parts of a recommendation in the place of earlier ones; the others stay."""
        before = self.recommendation or Recommendation(inference=None, training=[])
        self.recommendation = before.model_copy(update=parts)
        return self.recommendation

    @field_serializer("batch_profiling", mode="wrap")
    def _ascending(self, value: dict[str, Batch], serialize: SerializerFunctionWrapHandler) -> Any:
        return serialize(dict(sorted(value.items(), key=lambda item: int(item[0]))))
