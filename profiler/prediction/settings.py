"""The levers of training memory: precision, gradient checkpointing, patch; the config that each makes; and what the
predicting process tells beside the memory in each. Imports no torch.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.profiler.record.blocks.figures import Checkpointing, Precision

PRECISION_VALUES: dict[Precision, str | bool] = {
    "fp32": False,
    "bf16": "bf16",
    "fp16": "fp16",
    "pure_bf16": "pure_bf16",
}
LEVER_PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
LEVER_CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "light", "full")


# Two sizes give the affine model, a third checks it. Batch 1 often takes another way (a broadcast that is none), and
# the affine model promises it a little too much at most: in the config's own setting it is traced by itself, among the
# levers it is synthesised.
ALIGNED_BATCHES = (2, 3)
CHECK_BATCH = 5


def traced_batches(is_config: bool) -> list[int]:
    """The batch sizes that are traced for a setting."""
    return [*ALIGNED_BATCHES, *((1, CHECK_BATCH) if is_config else ())]


@dataclass(frozen=True)
class TrainingSetting:
    """One way to train a network. patch_size (height, width) in pixels; None: what the network takes.

    modules: names or patterns of those that are recomputed, where checkpointing is "modules".
    """

    precision: Precision
    checkpointing: Checkpointing
    patch_size: tuple[int, int] | None
    is_config: bool = False
    modules: tuple[str, ...] = ()

    @property
    def patch(self) -> list[int] | None:
        """The patch as a profile has it."""
        return None if self.patch_size is None else list(self.patch_size)


@dataclass(frozen=True)
class Traced:
    """loss: the label of the loss that the config makes here. torch_version: of the process."""

    loss: str
    torch_version: str


@dataclass(frozen=True)
class WrittenSnapshot:
    """What a file for PyTorch's memory viewer shows: bytes at its highest point, and reserved at its end.

    with_lines: whether it says which lines of code allocated.
    """

    peak_bytes: int
    reserved_bytes: int
    with_lines: bool


def setting_of(config: ExperimentConfig, precision: Precision) -> TrainingSetting:
    """The config's own setting; precision: what the run takes (the command line may have changed it)."""
    training = config.training
    return TrainingSetting(
        precision,
        training.checkpointing_kind,
        config.training_patch_hw,
        is_config=True,
        modules=tuple(training.checkpointed_modules),
    )


def config_with(config: ExperimentConfig, setting: TrainingSetting) -> ExperimentConfig:
    """The config trained in another setting. Raises ConfigError where it does not suit the network."""
    raw = config.model_dump(mode="json")
    raw["system"]["mixed_precision"] = PRECISION_VALUES[setting.precision]
    raw["training"]["gradient_checkpointing"] = list(setting.modules) or setting.checkpointing
    if setting.patch_size is not None and setting.patch_size != config.training_patch_hw:
        raw["data"]["patch_size"] = list(setting.patch_size)
        raw["data"]["use_patches"] = True
    return config_from_dict(raw)


def levers(config: ExperimentConfig, own: TrainingSetting) -> list[TrainingSetting]:
    """The config's own setting first, then every other combination that suits the network.

    The patches are the config's own and the whole image. Checkpointing is a lever of the networks that know it.
    """
    image = getattr(config.model, "img_size", None)
    image_hw = None if image is None else ((image, image) if isinstance(image, int) else tuple(image))
    patches = (
        list(dict.fromkeys((own.patch_size, image_hw))) if own.patch_size and image_hw else [own.patch_size]
    )
    ways = checkpointing_ways(config, own)
    found = [own]
    for patch in patches:
        for precision in dict.fromkeys((own.precision, *LEVER_PRECISIONS)):
            for checkpointing, modules in ways:
                setting = TrainingSetting(precision, checkpointing, patch, False, modules)
                if setting != replace(own, is_config=False):
                    with suppress(ConfigError):  # it does not suit the network
                        config_with(config, setting)
                        found.append(setting)
    return found


def checkpointing_ways(
    config: ExperimentConfig, own: TrainingSetting
) -> list[tuple[Checkpointing, tuple[str, ...]]]:
    """What a network may recompute: (kind, modules), the config's own way among them."""
    own_way: tuple[Checkpointing, tuple[str, ...]] = (own.checkpointing, own.modules)
    known = config.model.net_type in KNOWS_CHECKPOINTING
    plain: tuple[Checkpointing, ...] = LEVER_CHECKPOINTING if known else ("none",)
    ways: list[tuple[Checkpointing, tuple[str, ...]]] = [(kind, ()) for kind in plain]
    return ways if own_way in ways or not (known or own.modules) else [*ways, own_way]


# Networks whose builder honours training.gradient_checkpointing.
KNOWS_CHECKPOINTING = ("swinir", "swinmr", "unet_denoiser", "dit_denoiser", "diffusers")


# What a prediction takes from sources and no GPU has confirmed yet; in the profile, and printed with --verbose. Those
# that a network's own peak rests on are in its `rests_on.untested` (peak_basis.py) and always printed.
UNTESTED_RULES = (
    "size of the CUDA context, and of the kernels a run loads into it",
    "cuBLAS workspaces of torch 2.5 and newer, and which release first shares them with cublasLt",
    "cuDNN workspaces of 16-bit convolutions: from one card with cudnn.benchmark on, forward passes only",
    "cuDNN workspaces of fp32 convolutions, and the spike of cudnn.benchmark: not in the prediction",
    "cuFFT workspaces of losses on k-space and of data consistency: not in the prediction",
    "the attention kernel that is really picked, and what its backward pass uses beside its results",
    "temporaries of CUDA's backward kernels of LayerNorm, GroupNorm and sums",
    "sort buffers of the relative position bias's backward pass (index_put with accumulation)",
    "expandable segments' reserved bytes, and what is unmapped near the limit",
    "bf16 and fp16: casts kept by autocast, and GradScaler's scalars",
    "DistributedDataParallel's buckets",
)
