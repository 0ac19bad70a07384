"""A denoiser of a config is called with what its own pipeline calls it with, name by name and shape by shape."""

import inspect
import json
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.scripts.tiny_pipelines.pipeline_recipes import TINY

diffusers = pytest.importorskip("diffusers")
SIDE = 8
# Class, a pipeline that calls it, frames of latents there.
CALLS = [
    ("UNet2DConditionModel", "StableDiffusionXLPipeline", 1),
    ("FluxTransformer2DModel", "FluxPipeline", 1),
    ("SD3Transformer2DModel", "StableDiffusion3Pipeline", 1),
    ("PixArtTransformer2DModel", "PixArtAlphaPipeline", 1),
    ("WanTransformer3DModel", "WanPipeline", 3),
    ("UNet3DConditionModel", "TextToVideoSDPipeline", 9),
    ("UNetSpatioTemporalConditionModel", "StableVideoDiffusionPipeline", 2),
    ("Kandinsky3UNet", "Kandinsky3Pipeline", 1),
    ("PriorTransformer", "KandinskyPriorPipeline", 1),
    ("ChromaTransformer2DModel", "ChromaPipeline", 1),
    ("BriaTransformer2DModel", "BriaPipeline", 1),
    ("OvisImageTransformer2DModel", "OvisImagePipeline", 1),
    ("QwenImageTransformer2DModel", "QwenImagePipeline", 1),
    ("AuraFlowTransformer2DModel", "AuraFlowPipeline", 1),
    ("DiTTransformer2DModel", "DiTPipeline", 1),
    ("CogView3PlusTransformer2DModel", "CogView3PlusPipeline", 1),
    ("CogVideoXTransformer3DModel", "CogVideoXPipeline", 3),
    ("WanVACETransformer3DModel", "WanVACEPipeline", 3),
    ("CosmosTransformer3DModel", "Cosmos2TextToImagePipeline", 1),
    ("HunyuanVideoTransformer3DModel", "HunyuanVideoPipeline", 3),
    ("HunyuanDiT2DModel", "HunyuanDiTPipeline", 1),
    ("Lumina2Transformer2DModel", "Lumina2Pipeline", 1),
    ("MochiTransformer3DModel", "MochiPipeline", 2),
    ("AllegroTransformer3DModel", "AllegroPipeline", 3),
    ("LatteTransformer3DModel", "LattePipeline", 2),
]
# Numbers of the call, options of attention, and what a pipeline gives though the network finds it itself.
NOT_COMPARED = (
    "return_dict", "attention_kwargs", "joint_attention_kwargs", "cross_attention_kwargs", "timestep", "img_shapes",
    "control_hidden_states_scale", "enable_temporal_attentions",
)  # fmt: skip


class _CalledError(BaseException):
    """Ends a pipeline as soon as its denoiser is called."""


def calls_of(pipeline, name):
    """(config, arguments) of the first call of a network of that class."""
    from swinmr_profiling.scripts.tiny_pipelines.pipeline_calls import BEFORE, call_of, components_of

    torch.manual_seed(0)
    kind = getattr(diffusers, pipeline, None)
    if kind is None:
        pytest.skip(f"diffusers {diffusers.__version__} has no {pipeline}")
    pipe = kind(**components_of(kind))
    pipe.set_progress_bar_config(disable=True)
    arguments = call_of(pipe) | (BEFORE[pipeline](pipe) if pipeline in BEFORE else {})
    found = {}

    def called(module, args, kwargs):
        bound = inspect.signature(type(module).forward).bind_partial(module, *args, **kwargs).arguments
        found.update({key: value for key, value in bound.items() if key != "self"})
        raise _CalledError

    network = next(one for one in pipe.components.values() if type(one).__name__ == name)
    network.register_forward_pre_hook(called, with_kwargs=True)
    with pytest.raises(_CalledError):
        pipe(**arguments)
    return dict(network.config), found


def nested(value):
    """Groups as lists, whatever they were; shapes stay tuples."""
    if isinstance(value, dict):
        return {key: nested(item) for key, item in value.items()}
    is_shape = isinstance(value, tuple) and all(isinstance(item, int) for item in value)
    return value if is_shape or not isinstance(value, (list, tuple)) else [nested(item) for item in value]


def shapes(arguments):
    """Shapes of the tensors; what is no tensor, nothing and empty groups left out."""
    shape = partial(tree_map, lambda leaf: tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else None)
    found = {key: shape(value) for key, value in arguments.items() if key not in NOT_COMPARED}
    return {
        key: nested(value)
        for key, value in found.items()
        if value is not None and any(leaf is not None for leaf in torch.utils._pytree.tree_leaves(value))
    }


def plain(config):
    return json.loads(json.dumps({key: value for key, value in config.items() if not key.startswith("_")}))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "pipeline", "frames"), CALLS, ids=[name for name, _, _ in CALLS])
def test_a_network_is_called_as_its_pipeline_calls_it(name, pipeline, frames):
    config, theirs = calls_of(pipeline, name)
    context = theirs.get("encoder_hidden_states")
    accepted = inspect.signature(getattr(diffusers, name).__init__).parameters
    config = {key: value for key, value in config.items() if key in accepted}
    section = {
        "net_type": "diffusers",
        "class": name,
        "config": plain(config),
        "img_size": SIDE,
        "frames": frames,
    }
    if context is not None:
        section["text_tokens"] = context.shape[-2]
    built = build_model(config_from_dict({"model": section, "data": {"use_patches": False}}), data="never")
    first = next(iter(theirs.values()))
    ours = {}

    def called(module, args, kwargs):
        bound = inspect.signature(type(module).forward).bind_partial(module, *args, **kwargs).arguments
        ours.update({key: value for key, value in bound.items() if key != "self"})
        raise _CalledError

    built.module.model.register_forward_pre_hook(called, with_kwargs=True)
    with pytest.raises(_CalledError):
        built.module(*built.example_inputs(len(first), "meta"))
    assert shapes(ours) == shapes(theirs)


# Classes whose forward asks tensors for values, or for kernels that are not of meta: counted for real, and not traced.
READS_VALUES = (
    "HiDreamImageTransformer2DModel", "Lumina2Transformer2DModel", "MochiTransformer3DModel",
    "HunyuanImageTransformer2DModel", "HunyuanVideo15Transformer3DModel", "GlmImageTransformer2DModel",
    "OmniGenTransformer2DModel", "AnyFlowFARTransformer3DModel", "HunyuanVideoFramepackTransformer3DModel",
)  # fmt: skip
# Inputs that nobody derives, as a config states them: 16 tokens of the latent, 20 of a prompt and one of the time step.
STATED: dict[str, dict] = {
    "AnyFlowFARTransformer3DModel": {"chunk_partition": {"constant": [1]}},
    "HunyuanVideoFramepackTransformer3DModel": {
        "image_embeds": [16, 32],
        "indices_latents": {"shape": [1], "dtype": "int64"},
        "latents_clean": [16, 2, 8, 8],
        "indices_latents_clean": {"shape": [2], "dtype": "int64"},
        "latents_history_2x": [16, 2, 8, 8],
        "indices_latents_history_2x": {"shape": [2], "dtype": "int64"},
        "latents_history_4x": [16, 16, 8, 8],
        "indices_latents_history_4x": {"shape": [16], "dtype": "int64"},
    },
    "OmniGenTransformer2DModel": {
        "input_ids": {"shape": ["B", 20], "dtype": "int64"},
        "input_img_latents": {"constant": []},
        "input_image_sizes": {"constant": {}},
        "attention_mask": [37, 37],
        "position_ids": {"shape": ["B", 37], "dtype": "int64"},
    },
    "GlmImageTransformer2DModel": {
        "prior_token_id": {"shape": ["B", 16], "dtype": "int64"},
        "prior_token_drop": {"shape": ["B", 16], "dtype": "bool"},
    },
}
# Their recipes are of pipelines that do not run here either.
NOT_RUNNING = ("I2VGenXLUNet", "WanAnimateTransformer3DModel")
SIDES = {"UNet2DModel": 16, "UNet1DModel": [1, 256], "StableAudioDiTModel": [1, 16]}
DENOISERS = [
    name
    for name in TINY
    if ("Transformer" in name or "UNet" in name or "DiT" in name or name in ("UVit2DModel",))
    and "Control" not in name
    and name not in NOT_RUNNING
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DENOISERS)
def test_every_denoiser_is_counted_and_its_adapters_step_is_traced_by_a_config(name):
    kind = getattr(diffusers, name, None)
    if kind is None:
        pytest.skip(f"diffusers {diffusers.__version__} has no {name}")
    accepted = inspect.signature(kind.__init__).parameters
    config = plain({key: value for key, value in TINY[name].items() if key in accepted})
    with torch.device("meta"):
        layers = [one for one, layer in kind(**config).named_modules() if isinstance(layer, nn.Linear)]
    attention = next((one for one in layers if one.endswith(".to_q")), layers[-1])
    section = {"net_type": "diffusers", "class": name, "config": config, "img_size": SIDES.get(name, SIDE)}
    training = {"ema_decay": 0.0, "loss": {"type": "mse"}, "lora": {"rank": 2, "targets": [attention]}}
    raw = {
        "model": {**section, "inputs": STATED.get(name, {})},
        "data": {"use_patches": False},
        "training": training,
    }
    built = build_model(config_from_dict(raw))
    assert count_forward(built.module, built.example_inputs(1)).macs > 0
    if name not in READS_VALUES:
        trace = trace_training(built, config_from_dict(raw), 2)
        assert not any("training.lora" in note for note in trace.assumptions)
