"""From the model section of a config to a network and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.model import SwinIRModelConfig
from swinmr_profiling.models.custom.network import build_custom
from swinmr_profiling.models.denoisers.dit_denoiser import build_dit_denoiser
from swinmr_profiling.models.denoisers.unet_denoiser import build_unet_denoiser
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.initialisation import initialise
from swinmr_profiling.models.inputs import BuiltModel, InputSpec, cross_check_hw
from swinmr_profiling.models.libraries.diffusers_network import Data, build_diffusers
from swinmr_profiling.models.libraries.spandrel_network import build_spandrel
from swinmr_profiling.models.libraries.timm_network import build_timm
from swinmr_profiling.models.libraries.transformers_network import build_transformers
from swinmr_profiling.models.lora import add_adapters
from swinmr_profiling.models.recomputation.recomputed_modules import recompute_modules
from swinmr_profiling.models.restoration.build import build_restoration
from swinmr_profiling.models.size_guard import SizeGuard, told_as_model_error, without_data
from swinmr_profiling.models.swin.swinir import SwinIR
from swinmr_profiling.models.trained_parameters import freeze, to_bf16_weights


def build_swinir(config: ExperimentConfig) -> BuiltModel:
    """SwinIR or SwinMR by the options of the model section."""
    model, training = config.model_section(SwinIRModelConfig), config.training
    in_chans = model.in_chans
    try:
        module = SwinIR(
            img_size=model.image_hw,
            in_chans=in_chans,
            out_chans=model.out_chans,
            upscale=model.upscale,
            img_range=model.img_range,
            window_size=model.window_size,
            depths=model.depths,
            embed_dim=model.embed_dim,
            num_heads=model.num_heads,
            mlp_ratio=model.mlp_ratio,
            qkv_bias=model.qkv_bias,
            drop_rate=model.drop_rate,
            attn_drop_rate=model.attn_drop_rate,
            drop_path_rate=model.drop_path_rate,
            ape=model.ape,
            patch_norm=model.patch_norm,
            upsampler=model.upsampler or "",
            resi_connection=model.resi_connection,
            gradient_checkpointing=training.network_checkpointing,
        )
    except ValueError as error:
        raise ModelError(f"model: {error}") from error
    initialise(module, model.init_type, model.init_gain)
    height, width = model.image_hw
    patch_hw = config.training_patch_hw or (height, width)
    check_hw = model.image_hw if model.ape else cross_check_hw(model.image_hw, model.window_size)
    return BuiltModel(
        net_type="swinir",
        module=module,
        inputs={
            "inference": (InputSpec((in_chans, height, width)),),
            "training": (InputSpec((in_chans, *patch_hw)),),
            "cross_check": (InputSpec((in_chans, *check_hw)),),
        },
    )


BUILDERS: dict[str, Callable[[ExperimentConfig], BuiltModel]] = {
    "swinir": build_swinir,
    "unet_denoiser": build_unet_denoiser,
    "dit_denoiser": build_dit_denoiser,
    "diffusers": build_diffusers,
    "spandrel": build_spandrel,
    "restoration": build_restoration,
    "transformers": build_transformers,
    "timm": build_timm,
}


def build_model(config: ExperimentConfig, *, trust_config: bool = False, data: Data = "always") -> BuiltModel:
    """Builds the network that a config names, on the CPU, with torch's current RNG state.

    trust_config allows a `custom` network, whose target is imported and run. data: whether a network of diffusers gets
    weights; for those that only count or trace it, which may be larger than this machine.
    Raises ModelError (one line: what is wrong, what to do) for what cannot be built.
    """
    with told_as_model_error(f"model: the {config.model.net_type} network"):
        built = _built(config, trust_config, data)
    if config.training.lora is None:
        freeze(built.module, config.training.trainable)
    else:
        add_adapters(built.module, config.training.lora, config.training.trainable)
    if config.training.checkpointed_modules:
        recompute_modules(built.module, config.training.checkpointed_modules)
    if config.system.mixed_precision == "pure_bf16":
        to_bf16_weights(built.module)
    return built


def _built(config: ExperimentConfig, trust_config: bool, data: Data) -> BuiltModel:
    kind = config.model.net_type
    if kind == "custom":  # whose class may do anything when it is made, and is made once
        with SizeGuard():
            return build_custom(config, trust_config=trust_config)
    if kind == "diffusers":  # makes its network without data anyway
        return build_diffusers(config, data=data)
    build = BUILDERS[kind]
    trial = without_data(lambda: build(config).module)
    with SizeGuard() if trial is None else nullcontext():
        return build(config)
