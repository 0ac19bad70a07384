"""What is measured, most important first. Each combination is a config, a batch and how the allocator is set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from swinmr_profiling.configs import ExperimentConfig, config_from_dict, load_config
from swinmr_profiling.profiler.prediction.settings import TrainingSetting, config_with
from swinmr_profiling.profiler.record.blocks.figures import Checkpointing, Precision
from swinmr_profiling.profiler.record.memory_fingerprint import PRECISIONS

REPOSITORY = Path(__file__).resolve().parent.parent.parent
EXPANDABLE = "expandable_segments:True"
# The name of the setting since torch 2.9, and the one before.
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# A batch that no machine has memory for: its input alone is 2^50 bytes.
ABSURD_BATCH = 2**40


@dataclass(frozen=True)
class Combination:
    """One measurement.

    mode: "training", "inference", "out_of_memory" (training that must fail) or "search".
    batch_size: as wished for; what is predicted not to fit is made smaller, and None is "chosen by the prediction".
    packages: what has to be importable. takes_s: seconds without which it is not begun.
    """

    name: str
    config: ExperimentConfig
    mode: str = "training"
    batch_size: int | None = None
    expandable: bool = False
    packages: tuple[str, ...] = ()
    takes_s: float = 20.0
    timeout_s: float = 90.0
    trust_config: bool = False

    @property
    def precision(self) -> str:
        return PRECISIONS[self.config.system.mixed_precision]

    @property
    def allocator(self) -> str:
        return "expandable" if self.expandable else "default"

    @property
    def variables(self) -> dict[str, str | None]:
        """What its process finds in its environment before torch is imported; None: taken away."""
        return dict.fromkeys(ALLOCATOR_VARIABLES, EXPANDABLE if self.expandable else None)


def _in_setting(
    config: ExperimentConfig, precision: Precision, checkpointing: Checkpointing = "none"
) -> ExperimentConfig:
    return config_with(config, TrainingSetting(precision, checkpointing, None))


def _swinmr(file: str, precision: Precision, checkpointing: Checkpointing = "none") -> ExperimentConfig:
    config = load_config(REPOSITORY / "configs" / file).config
    return _in_setting(config, precision, checkpointing)


def _unet(precision: Precision) -> ExperimentConfig:
    """The denoiser of Ho et al. 2020 for 256 x 256 images, as diffusers builds it: 113.7 million parameters."""
    plain, with_attention = "DownBlock2D", "AttnDownBlock2D"
    kwargs = {
        "sample_size": 256,
        "block_out_channels": [128, 128, 256, 256, 512, 512],
        "down_block_types": [plain] * 4 + [with_attention, plain],
        "up_block_types": ["UpBlock2D", "AttnUpBlock2D", *["UpBlock2D"] * 4],
        "layers_per_block": 2,
        "attention_head_dim": None,
        "downsample_padding": 0,
        "flip_sin_to_cos": False,
        "freq_shift": 1,
        "norm_eps": 1e-6,
    }
    return _in_setting(_denoiser(256, **kwargs), precision)


def _denoiser(side: int, **kwargs: Any) -> ExperimentConfig:
    model = {
        "net_type": "custom",
        "target": "diffusers:UNet2DModel",
        "kwargs": kwargs,
        "input_shapes": [[3, side, side], []],
        "input_dtypes": ["float", "int64"],
    }
    return config_from_dict({"model": model})


def _vit(precision: Precision, name: str = "vit_base_patch16_224") -> ExperimentConfig:
    return _in_setting(config_from_dict({"model": {"net_type": "timm", "name": name}}), precision)


def gpu_combinations() -> list[Combination]:
    """For a GPU, of any memory."""
    large, default = "train_config_large.json", "train_config.json"
    of_diffusers = partial(Combination, packages=("diffusers",), trust_config=True)
    return [
        Combination("large fp32, training", _swinmr(large, "fp32"), batch_size=2),
        Combination("large bf16, training", _swinmr(large, "bf16"), batch_size=8),
        of_diffusers("UNet fp32, training", _unet("fp32"), batch_size=4),
        Combination("large fp32 full, training", _swinmr(large, "fp32", "full"), batch_size=8),
        Combination("large fp32 light, training", _swinmr(large, "fp32", "light"), batch_size=4),
        Combination("large fp32, expandable", _swinmr(large, "fp32"), batch_size=8, expandable=True),
        Combination("large fp32, large batch", _swinmr(large, "fp32"), batch_size=16),
        Combination("large fp32, search", _swinmr(large, "fp32"), "search", takes_s=100, timeout_s=180),
        Combination("large fp32, must fail", _swinmr(large, "fp32"), "out_of_memory"),
        Combination("ViT bf16, training", _vit("bf16"), batch_size=64, packages=("timm",)),
        Combination("large fp32, inference", _swinmr(large, "fp32"), "inference", 8),
        Combination("default fp32, training", _swinmr(default, "fp32"), batch_size=4),
        Combination("large bf16 full, training", _swinmr(large, "bf16", "full"), batch_size=32),
        of_diffusers("UNet bf16, expandable", _unet("bf16"), batch_size=8, expandable=True),
        Combination("ViT fp32, batch 1", _vit("fp32"), batch_size=1, packages=("timm",)),
        Combination("large bf16, inference", _swinmr(large, "bf16"), "inference", 32),
        Combination("default bf16 light, training", _swinmr(default, "bf16", "light"), batch_size=16),
    ]


def dry_combinations() -> list[Combination]:
    """Small networks that a CPU runs in a moment, through the same code."""
    sections = {
        "model": {
            "net_type": "swinir",
            "img_size": 32,
            "window_size": 8,
            "depths": [2],
            "num_heads": [2],
            "embed_dim": 12,
        },
        "data": {"patch_size": 16},
    }
    swinmr = config_from_dict(sections)
    unet = {
        "sample_size": 16,
        "block_out_channels": [8, 16],
        "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "attention_head_dim": 8,
    }
    tiny = _in_setting(swinmr, "fp32")
    return [
        Combination("tiny fp32, training", tiny, batch_size=2),
        Combination("tiny bf16, expandable", _in_setting(swinmr, "bf16"), batch_size=4, expandable=True),
        Combination("tiny fp32, must fail", tiny, "out_of_memory", ABSURD_BATCH),
        Combination("tiny fp32, inference", tiny, "inference", 2),
        Combination(
            "tiny UNet fp32, training",
            _in_setting(_denoiser(16, **unet), "fp32"),
            batch_size=2,
            packages=("diffusers",),
            trust_config=True,
        ),
        Combination(
            "tiny ViT fp32, training",
            _vit("fp32", "test_vit"),
            batch_size=1,
            packages=("timm",),
        ),
        Combination("tiny fp32, search", tiny, "search", 2),
    ]
