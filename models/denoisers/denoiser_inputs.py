"""What a denoiser takes: the noisy image, with the condition behind it in the same tensor, and the time step."""

from __future__ import annotations

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.denoiser import DiTDenoiserModelConfig, UNetDenoiserModelConfig
from swinmr_profiling.models.inputs import InputSpec, Purpose

# The counters that need a real forward get sides of about this many pixels.
CROSS_CHECK_SIDE = 64


def denoiser_inputs(
    config: ExperimentConfig, model: UNetDenoiserModelConfig | DiTDenoiserModelConfig
) -> dict[Purpose, tuple[InputSpec, ...]]:
    """Image and time step of `unet_denoiser` and `dit_denoiser` for each purpose; model: the config's section."""
    image_hw, multiple = model.image_hw, model.side_multiple
    check_hw = tuple(max(multiple, min(side, CROSS_CHECK_SIDE) // multiple * multiple) for side in image_hw)
    sizes: dict[Purpose, tuple[int, ...]] = {
        "inference": image_hw,
        "training": config.training_patch_hw or image_hw,
        "cross_check": check_hw,
    }
    return {
        purpose: (InputSpec((model.network_input_channels, *hw)), InputSpec((), "int64"))
        for purpose, hw in sizes.items()
    }
