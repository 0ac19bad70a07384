"""The `training` section: losses, optimizer, schedule, loop.

The defaults are the published SwinMR recipe, but for the transform of the frequency loss (its `transform`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from swinmr_profiling.configs.errors import Problems
from swinmr_profiling.configs.field_types import (
    AssumedValues,
    Betas,
    Count,
    CountOrNull,
    Counts,
    Expected,
    FilePath,
    FilePathOrNull,
    Flag,
    NotNegative,
    NotNegativeList,
    OptimizerName,
    Positive,
    PositiveOrNull,
    Probability,
    Rate,
    Section,
    StepTargetOrNull,
    WholeNumber,
)
from swinmr_profiling.configs.sections.adversarial import AdversarialSection
from swinmr_profiling.configs.sections.denoiser import DiffusionSection
from swinmr_profiling.configs.sections.strategy import DdpSection, FsdpSection, LoraSection, OnHost, Strategy


class SpatialLossSection(Section):
    """The loss on the image."""

    type: Annotated[Literal["charbonnier", "l1", "mse"], Expected('"charbonnier", "l1" or "mse"')] = Field(
        "charbonnier", description="Mean over pixels of sqrt(d^2 + eps), |d| or d^2."
    )
    weight: NotNegative = Field(15.0, description="Weight in the total. 0 leaves the loss out.")
    eps: Positive = Field(
        1e-9, description="`eps` of Charbonnier, as in KAIR: added to the square, not squared itself."
    )


class FrequencyLossSection(Section):
    """The loss on k-space: mean of the losses on its real and its imaginary part.

    `swinmr` grows with the root of the numbers in a batch and mixes its samples, so that the same weight means another
    loss with another batch per device, patch or number of accumulated batches.
    """

    type: Annotated[Literal["charbonnier", "l1", "mse"], Expected('"charbonnier", "l1" or "mse"')] = Field(
        "charbonnier", description="As in `spatial`."
    )
    transform: Annotated[Literal["orthonormal", "swinmr"], Expected('"orthonormal" or "swinmr"')] = Field(
        "orthonormal",
        description="FFT of each image, orthonormal; or SwinMR's, of all axes of the batch (N, C, H, W), unnormalised.",
    )
    weight: NotNegative = Field(0.1, description="Weight in the total. 0 leaves the loss out.")
    eps: Positive = Field(1e-9, description="As in `spatial`.")


class PerceptualLossSection(Section):
    """L1 between VGG19 features. Left out, and said so, where no weights are at hand."""

    type: Annotated[Literal["vgg19"], Expected('"vgg19"')] = Field(
        "vgg19", description="The feature network."
    )
    weight: NotNegative = Field(0.0025, description="Weight in the total. 0 leaves the loss out.")
    layers: Annotated[
        list[Annotated[int, Field(ge=0, le=36)]], Expected("list of whole numbers, each 0 to 36")
    ] = Field([2, 7, 16, 25, 34], description="Layers of `vgg19.features` that are compared.")
    layer_weights: NotNegativeList = Field([0.1, 0.1, 1.0, 1.0, 1.0], description="Weight of each layer.")
    missing_weights: Annotated[Literal["skip", "predict"], Expected('"skip" or "predict"')] = Field(
        "skip",
        description="Where no weights are at hand: the part is left out, or left out of training and predicted all the "
        "same, as memory needs no weights.",
    )
    weights_file: FilePathOrNull = Field(
        None, description="`vgg19-dcbb9e9d.pth`. null: looked for in the torch hub cache, never fetched."
    )

    def problems(self) -> Problems:
        """Layers without a weight, or weights without a layer."""
        if len(self.layers) != len(self.layer_weights):
            text = f"{len(self.layer_weights)} entries, but layers has {len(self.layers)}: one per layer"
            yield "layer_weights", text


class SsimLossSection(Section):
    """1 - SSIM."""

    weight: NotNegative = Field(0.0, description="Weight in the total. 0 leaves the loss out.")


class LossComponentsSection(Section):
    """The parts of `multi_component`, added with their weights."""

    spatial: SpatialLossSection = Field(SpatialLossSection(), description="On the image.")
    frequency: FrequencyLossSection = Field(FrequencyLossSection(), description="On k-space.")
    perceptual: PerceptualLossSection = Field(PerceptualLossSection(), description="On VGG19 features.")
    ssim: SsimLossSection = Field(SsimLossSection(), description="Structural similarity.")

    def problems(self) -> Problems:
        """Nothing to minimise."""
        if not any(part.weight for part in (self.spatial, self.frequency, self.perceptual, self.ssim)):
            yield "spatial.weight", "all loss weights are 0: give one a weight above 0"


class LossSection(Section):
    """What is minimised."""

    type: Annotated[
        Literal["auto", "multi_component", "l1", "mse", "cross_entropy"],
        Expected('"auto", "multi_component", "l1", "mse" or "cross_entropy"'),
    ] = Field(
        "auto",
        description="`auto`: `multi_component` for `swinir`, `mse` for denoisers (of what `diffusion` predicts), `l1` "
        "for `spandrel` and `restoration`, `cross_entropy` for `timm`; for `transformers` and `custom` a labelled "
        "stand-in.",
    )
    components: LossComponentsSection = Field(
        LossComponentsSection(), description="The parts of `multi_component`."
    )


class OptimizerSection(Section):
    """The optimizer."""

    type: OptimizerName = Field(
        "adam",
        description="The optimizer. `muon`: torch's for 2-D weights, scaled to AdamW's step (`match_rms_adamw`), and "
        "AdamW for all others. `adafactor`: torch's. `adam_8bit`, `adamw_8bit`: bitsandbytes' on a CUDA device, to be "
        "installed for training, not for the prediction (as of 0.44: blocks of 256; parameters below 4096 numbers in "
        "fp32).",
    )
    lr: Positive = Field(2e-4, description="Learning rate.")
    betas: Betas = Field(
        [0.9, 0.999], description="Decay rates of Adam's moments. Unused by `sgd` and `adafactor`."
    )
    eps: Positive = Field(1e-8, description="Adam's epsilon. Unused by `sgd` and `adafactor`.")
    weight_decay: NotNegative = Field(
        0.0, description="Weight decay: L2 in `adam`, `adam_8bit` and `sgd`, decoupled in the others."
    )
    momentum: Rate = Field(0.9, description="Momentum of `sgd` and `muon`. Unused by the others.")


class SchedulerSection(Section):
    """The learning rate over the steps. Every count is in optimizer steps, never in epochs."""

    type: Annotated[Literal["multistep", "cosine", "none"], Expected('"multistep", "cosine" or "none"')] = (
        Field("multistep", description="The schedule. `cosine` ends with the run.")
    )
    milestones: Counts = Field(
        [50_000, 70_000, 90_000, 100_000, 110_000],
        description="Steps at which `multistep` multiplies by `gamma`.",
    )
    gamma: Annotated[Annotated[float, Field(gt=0, le=1)], Expected("number above 0, at most 1")] = Field(
        0.5, description="Factor at each milestone."
    )
    warmup_steps: WholeNumber = Field(0, description="Steps of linear rise from 0 before the schedule.")
    min_lr: NotNegative = Field(0.0, description="Learning rate at the end of `cosine`.")

    def problems(self) -> Problems:
        """Milestones that do not rise."""
        if any(later <= earlier for earlier, later in pairwise(self.milestones)):
            yield "milestones", f"milestones {self.milestones} do not rise: sort them, each once"


class GradientSection(Section):
    """Treatment of gradients before a step."""

    clip_norm: PositiveOrNull = Field(
        None, description="Largest L2 norm of all gradients together. null: no limit."
    )


class EarlyStoppingSection(Section):
    """When to stop before the end."""

    enabled: Flag = Field(False, description="Whether to stop early at all.")
    patience: Count = Field(10, description="Validations without improvement before the stop.")
    metric: Annotated[
        Literal["auto", "val_psnr", "val_ssim", "val_nmse", "val_loss"],
        Expected('"auto", "val_psnr", "val_ssim", "val_nmse" or "val_loss"'),
    ] = Field(
        "auto",
        description="What must improve, and picks the best checkpoint: PSNR and SSIM rise, the others fall. "
        "`auto`: PSNR, or the loss of a denoiser whose validation samples no images.",
    )
    min_delta: NotNegative = Field(0.0, description="Least change that counts, in the metric's unit.")


ModulePatterns = Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]], Field(min_length=1)]


class CheckpointBudget(Section):
    """What the allocator may reserve for a training step; which modules are recomputed for that is planned."""

    budget: Annotated[str, Field(pattern=r"^\s*\d{1,9}(\.\d{1,9})?\s*([KMGT]i?B|[kmgt]i?b)\s*$")]


# What is not for a step of the user's own, and its value where it is left out.
BY_THIS_STEP = {
    "accumulate": 1,
    "gradient_checkpointing": "none",
    "lora": None,
    "strategy": "ddp",
    "plan": None,
    "on_host": [],
}


class TrainingSection(Section):
    """Losses, optimizer, schedule and the loop."""

    epochs: CountOrNull = Field(
        None, description="Passes over the training data. null: only `total_steps` ends the run."
    )
    total_steps: CountOrNull = Field(
        None, description="Optimizer steps. With `epochs`, whichever ends first. Both null: 120,000 steps."
    )
    step: StepTargetOrNull = Field(
        None,
        description="A training step of your own, a class or a function, in place of this project's; imported only "
        "with `--trust-config` ([how it is written](../docs/own_step.md)). null: this project's.",
    )
    step_folder: FilePathOrNull = Field(
        None,
        description="Where its file or module is looked for, before the working directory. null: the config's folder.",
    )
    assume: AssumedValues = Field(
        {},
        description="What a line of code that asks for a tensor's value gets where memory is predicted without data: "
        '`{"step.py:12": 0.5}`. Where a mask selects: the share of its entries that are true.',
    )
    loss: LossSection = Field(LossSection(), description="What is minimised.")
    adversarial: AdversarialSection = Field(
        AdversarialSection(), description="A discriminator beside the network."
    )
    diffusion: DiffusionSection = Field(DiffusionSection(), description="What a denoiser learns.")
    optimizer: OptimizerSection = Field(OptimizerSection(), description="The optimizer.")
    scheduler: SchedulerSection = Field(SchedulerSection(), description="The learning rate over the steps.")
    gradient: GradientSection = Field(GradientSection(), description="Treatment of gradients.")
    early_stopping: EarlyStoppingSection = Field(EarlyStoppingSection(), description="When to stop early.")
    gradient_checkpointing: Annotated[
        Literal["none", "light", "full"] | ModulePatterns | CheckpointBudget,
        Expected('"none", "light", "full", list of names or patterns of modules, or {"budget": "10GiB"}'),
    ] = Field(
        "none",
        description="Recompute activations to save memory: nothing, the cheap ones, whole block groups; or the "
        "modules of these names or patterns (`layers.*`), in any network; or those that bring the memory of a step "
        "within a budget ([docs/plan.md](../docs/plan.md)). For denoisers `light` is `full`.",
    )
    ema_decay: Probability = Field(0.999, description="Moving average of the weights, per step. 0: none.")
    on_host: Annotated[
        list[OnHost],
        Expected('list of "ema", "activations" and "optimizer_states"'),
    ] = Field(
        [],
        description="What waits in the host's memory in place of the device's: the moving average, what is saved for "
        "the backward pass, the optimizer's states ([what each moves over the bus]"
        "(../docs/plan.md#what-waits-on-the-host)).",
    )
    accumulate: Count = Field(1, description="Batches per optimizer step.")
    zero_grad: Annotated[
        Literal["after_step", "before_forward", "before_backward"],
        Expected('"after_step", "before_forward" or "before_backward"'),
    ] = Field(
        "after_step",
        description="When the gradients of a step are let go: at its end, or in the next one, through whose forward "
        "pass `before_backward` keeps them.",
    )
    set_to_none: Flag = Field(
        True, description="Let gradients go. false: they stay, as zeros, and their memory with them."
    )
    trainable: Annotated[
        list[Annotated[str, Field(min_length=1)]] | None, Expected("list of patterns, or null")
    ] = Field(
        None,
        description="Parameters that are trained, by patterns of their names (`layers.*`, `*.bias`); the others are "
        "frozen. null: all.",
    )
    lora: Annotated[LoraSection | None, Expected("object, or null")] = Field(
        None,
        description="Low-rank adapters (peft) in place of the network's own weights: `rank` (8), `alpha` (their scale; "
        "null: the rank), `targets` (ends of names of layers, as `qkv`). null: none.",
    )
    strategy: Annotated[Strategy, Expected('"ddp", "zero1" or "fsdp"')] = Field(
        "ddp",
        description="What several processes (torchrun) hold: all of the network and of the optimizer (`ddp`), a part "
        "of the optimizer's states (`zero1`), a part of parameters, gradients and states (`fsdp`).",
    )
    ddp: DdpSection = Field(DdpSection(), description="DistributedDataParallel, under `ddp` and `zero1`.")
    fsdp: FsdpSection = Field(FsdpSection(), description="FSDP2, under `fsdp`.")
    profile: FilePath = Field(
        "../results/profile_results.json", description='Profile that `"batch_size": "auto"` reads.'
    )
    plan: FilePathOrNull = Field(
        None,
        description="Plan of `scripts/plan_training.py`, whose micro-batch, accumulation, precision, layout, "
        "recomputed modules and what waits on the host the run takes. A plan of another network, loss or optimizer "
        "stops it. null: none.",
    )
    checkpoint_every_steps: Count = Field(5000, description="Optimizer steps between checkpoints.")
    keep_checkpoints: Count = Field(2, description="Latest checkpoints kept beside the best one.")
    validate_every_epochs: Count = Field(1, description="Epochs between validations.")
    validate_every_steps: CountOrNull = Field(
        None, description="Optimizer steps between validations, instead of epochs. null: by epochs."
    )
    initial_weights: FilePathOrNull = Field(
        None, description="Checkpoint whose weights a new run starts from."
    )

    def problems(self) -> Problems:
        """What a user's own step does itself; what of `on_host` has nothing to put there, or another to do so."""
        if self.step is not None:
            for name, value in BY_THIS_STEP.items():
                if getattr(self, name) != value:
                    yield (
                        name,
                        "is for this project's step: training.step does such things by itself; leave it out",
                    )
        if self.adversarial.weight and (self.step is not None or self.accumulate != 1):
            other = "training.step" if self.step is not None else "training.accumulate above 1"
            yield "adversarial.weight", f"a discriminator beside {other}: give one of the two"
        names, optimizer = self.on_host, self.optimizer.type
        if len(set(names)) < len(names):
            yield "on_host", "names one twice"
        if names and self.adversarial.weight:
            yield "on_host", "is for this project's step, not for training.adversarial: leave it out"
        if names and self.strategy != "ddp":
            yield (
                "on_host",
                f'beside training.strategy "{self.strategy}", which spreads such things: leave one out',
            )
        if "ema" in names and not self.ema_decay:
            yield "on_host", "there is no moving average (training.ema_decay 0): leave ema out"
        if "optimizer_states" in names and optimizer.endswith("_8bit"):
            yield "on_host", f"{optimizer} keeps its states itself: leave optimizer_states out"
        if "optimizer_states" in names and not self.optimizer_has_states:
            yield "on_host", "sgd without momentum has no states: leave optimizer_states out"

    @property
    def optimizer_has_states(self) -> bool:
        """Whether the optimizer keeps anything from step to step."""
        return self.optimizer.type != "sgd" or self.optimizer.momentum != 0

    @property
    def other_step(self) -> str | None:
        """What is profiled in place of this project's own step, in words; None where nothing is."""
        if self.step is not None:
            return f"training.step {self.step}"
        adversarial = self.adversarial
        return f"training.adversarial (in {adversarial.framework}'s order)" if adversarial.weight else None

    @property
    def network_checkpointing(self) -> Literal["none", "light", "full"]:
        """What a network's own code recomputes: "none" where modules are named, which is done to it from outside."""
        return self.gradient_checkpointing if isinstance(self.gradient_checkpointing, str) else "none"

    @property
    def checkpointing_kind(self) -> Literal["none", "light", "full", "modules"]:
        """As a profile names it."""
        return self.gradient_checkpointing if isinstance(self.gradient_checkpointing, str) else "modules"

    @property
    def checkpointed_modules(self) -> list[str]:
        """Names and patterns of the modules that are recomputed, [] where none is named."""
        return self.gradient_checkpointing if isinstance(self.gradient_checkpointing, list) else []

    @property
    def checkpoint_budget(self) -> str | None:
        """The budget that modules are still to be chosen for."""
        value = self.gradient_checkpointing
        return value.budget if isinstance(value, CheckpointBudget) else None

    @property
    def step_limit(self) -> int | None:
        """Optimizer steps after which the run ends, None where only `epochs` ends it."""
        unlimited = self.total_steps is None and self.epochs is None
        return DEFAULT_TOTAL_STEPS if unlimited else self.total_steps


# Where a config sets no end: ten thousand steps past the last milestone of the published schedule.
DEFAULT_TOTAL_STEPS = 120_000
