"""The config of an experiment, section by section. `configs/README.md` is the guide to every key."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from swinmr_profiling.configs.errors import Problems
from swinmr_profiling.configs.field_types import (
    Count,
    CountOrNull,
    Expected,
    FilePathOrNull,
    Flag,
    Section,
    Seed,
    WholeNumber,
    image_hw,
)
from swinmr_profiling.configs.network_limits import denoising_problems, patch_problems
from swinmr_profiling.configs.sections.data import DataSection, PathsSection
from swinmr_profiling.configs.sections.denoiser import DENOISER_TYPES, DenoiserModelConfig, SamplingSection
from swinmr_profiling.configs.sections.model import (
    CustomModelConfig,
    ModelConfig,
    SwinIRModelConfig,
    TimmModelConfig,
)
from swinmr_profiling.configs.sections.training import TrainingSection

__all__ = [
    "CustomModelConfig",
    "DataSection",
    "EvaluationSection",
    "ExperimentConfig",
    "LoggingSection",
    "ModelConfig",
    "PathsSection",
    "SwinIRModelConfig",
    "SystemSection",
    "TimmModelConfig",
    "TrainingSection",
]


ModelSection = TypeVar("ModelSection", bound=Section)


class EvaluationSection(Section):
    """What `test.py` and validation report."""

    metrics: Annotated[
        list[Literal["psnr", "ssim", "nmse", "lpips"]], Expected('list of "psnr", "ssim", "nmse", "lpips"')
    ] = Field(["psnr", "ssim", "nmse"], description="Metrics.")
    convention: Annotated[Literal["volume", "slice"], Expected('"volume" or "slice"')] = Field(
        "volume",
        description="`volume`: fastMRI's definitions. `slice`: each slice with its own range, as SwinMR.",
    )
    save_images: Flag = Field(True, description="Whether images are saved.")
    num_samples_to_save: WholeNumber = Field(10, description="Images saved per evaluation.")
    lpips_weights: FilePathOrNull = Field(
        None,
        description="AlexNet backbone for LPIPS. null: looked for in the torch hub cache, never fetched.",
    )
    sampling: SamplingSection = Field(SamplingSection(), description="How a denoiser makes images.")


class LoggingSection(Section):
    """What a run writes down while it runs."""

    tensorboard: Flag = Field(True, description="TensorBoard files beside the JSON-lines log.")
    loggers: Annotated[list[Literal["wandb", "mlflow"]], Expected('list of "wandb" and "mlflow"')] = Field(
        [], description="Services that are told the same: Weights & Biases, MLflow (extra `loggers`)."
    )
    log_images: Flag = Field(True, description="Images of each validation in TensorBoard and the loggers.")
    log_interval: Count = Field(100, description="Optimizer steps between two lines of the log.")


class SystemSection(Section):
    """Precision, seeds and devices."""

    mixed_precision: Annotated[
        bool | Literal["bf16", "fp16", "pure_bf16"], Expected('true, false, "bf16", "fp16" or "pure_bf16"')
    ] = Field(
        False,
        description="Autocast. `true`: bf16 where supported. fp16 overflows in deep networks. `pure_bf16`: no "
        "autocast, the weights themselves are bf16, and gradients and the optimizer's states with them; small updates "
        "are lost in rounding, and there is no moving average (`training.ema_decay` 0).",
    )
    seed: Seed = Field(42, description="Seed of weights, shuffling, crops and training masks.")
    deterministic: Flag = Field(False, description="Only deterministic algorithms: repeatable, slower.")
    distributed: Flag = Field(
        False, description="Whether the run is meant for `torchrun` on several devices."
    )
    compile: Flag = Field(False, description="`torch.compile` the network.")
    channels_last: Flag = Field(False, description="Channels-last memory format.")
    attention: Annotated[
        Literal["auto", "math", "efficient", "flash"], Expected('"auto", "math", "efficient" or "flash"')
    ] = Field(
        "auto",
        description="The kernel of PyTorch's fused attention (`scaled_dot_product_attention`). `auto`: PyTorch's "
        "choice. Another is the only one allowed, in training, measurements and predictions; what it cannot compute "
        "is an error (`flash` takes neither fp32 nor a mask on CUDA).",
    )
    threads: CountOrNull = Field(None, description="CPU threads of torch. null: torch's own choice.")


class ExperimentConfig(Section):
    """One experiment: everything that a command needs to know beside its own options."""

    experiment_name: Annotated[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*$", max_length=100)],
        Expected("letters, digits and . _ + - (it names a folder), not starting with . + or -, at most 100"),
    ] = Field("experiment", description="Name of the run's folder. Left out of a file: the file's own name.")
    paths: PathsSection = Field(PathsSection(), description="Where runs write.")
    data: DataSection = Field(DataSection(), description="Images, patches, loading and degradation.")
    model: Annotated[ModelConfig, Field(discriminator="net_type")] = Field(description="The network.")
    training: TrainingSection = Field(
        TrainingSection(), description="Losses, optimizer, schedule and the loop."
    )
    evaluation: EvaluationSection = Field(EvaluationSection(), description="What is reported.")
    logging: LoggingSection = Field(LoggingSection(), description="What a run writes down.")
    system: SystemSection = Field(SystemSection(), description="Precision, seeds and devices.")

    def changed(self, section: str, **values: Any) -> ExperimentConfig:
        """The config with other values in one of its sections. They are taken as they are, and not checked."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=values)})

    @property
    def is_denoiser(self) -> bool:
        """Whether the network removes noise, and images are sampled with it."""
        return self.model.net_type in DENOISER_TYPES

    @property
    def denoiser(self) -> DenoiserModelConfig:
        """The `model` section of a denoiser. Raises TypeError for another network's."""
        if not isinstance(self.model, DenoiserModelConfig):
            raise TypeError(f"{self.model.net_type} is not a denoiser")
        return self.model

    def model_section(self, kind: type[ModelSection]) -> ModelSection:
        """The `model` section as the builder of its network reads it. Raises TypeError for another network's."""
        if not isinstance(self.model, kind):
            raise TypeError(f"the model section is of {self.model.net_type}, not a {kind.__name__}")
        return self.model

    @property
    def image_hw(self) -> tuple[int, int] | None:
        """(height, width) in pixels of a whole image, None where the network decides."""
        size = getattr(self.model, "img_size", None)
        return None if size is None else image_hw(size)

    @property
    def early_stopping_metric(self) -> str:
        """`training.early_stopping.metric`, with "auto" replaced by what it means for this network."""
        metric = self.training.early_stopping.metric
        if metric != "auto":
            return metric
        no_images = self.is_denoiser and not self.evaluation.sampling.validation_steps
        return "val_loss" if no_images else "val_psnr"

    @property
    def training_patch_hw(self) -> tuple[int, int] | None:
        """(height, width) in pixels of the network's input in training.

        That is the patch, or the whole image where no patch is used; None where neither is set
        (`timm` without `img_size`, `custom`).
        """
        if self.data.use_patches and self.data.patch_size is not None:
            return image_hw(self.data.patch_size)
        return self.image_hw

    def problems(self) -> Problems:
        """What its sections contradict in one another."""
        if self.is_denoiser or isinstance(self.model, SwinIRModelConfig):
            yield from patch_problems(self)
        if self.is_denoiser:
            yield from denoising_problems(self)
        if self.system.mixed_precision == "pure_bf16" and self.training.ema_decay > 0:
            yield (
                "training.ema_decay",
                "a moving average of bf16 weights stands still, its changes are lost in rounding: set 0, or "
                'system.mixed_precision "bf16"',
            )
        if self.system.compile and "activations" in self.training.on_host:
            yield (
                "training.on_host",
                "of a compiled network they are the compiler's: leave activations out, or system.compile",
            )
