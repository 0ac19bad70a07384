"""Any class of diffusers by name and config, and every way in which that can go wrong."""

import sys

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import InputSpec
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.scripts.tiny_pipelines.pipeline_recipes import TINY
from swinmr_profiling.training.denoising.denoising_step import refuse_further_inputs
from swinmr_profiling.training.errors import LossError

UNET = {
    "sample_size": 16,
    "in_channels": 1,
    "out_channels": 1,
    "block_out_channels": [8, 16],
    "layers_per_block": 1,
    "down_block_types": ["DownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "UpBlock2D"],
    "attention_head_dim": 8,
    "norm_num_groups": 4,
}
CROSS_ATTENTION = {
    "sample_size": 16,
    "in_channels": 4,
    "block_out_channels": [8, 16],
    "layers_per_block": 1,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "cross_attention_dim": 12,
    "attention_head_dim": 8,
    "norm_num_groups": 4,
}


def build(class_name="UNet2DModel", config=None, training=None, data=None, **model):
    raw = {
        "net_type": "diffusers",
        "class": class_name,
        "config": UNET if config is None else config,
        **model,
    }
    return build_model(config_from_dict({"model": raw, "training": training or {}, "data": data or {}}))


def refusal(*arguments, **options):
    with pytest.raises(ModelError) as caught:
        build(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_unet_by_name_and_config():
    built = build(config={**UNET, "in_channels": 2}, conditional=True, data={"patch_size": 8})
    assert built.inputs["inference"] == (InputSpec((2, 16, 16)), InputSpec((), "int64"))
    assert built.inputs["training"][0].shape == (2, 8, 8)
    with torch.no_grad():
        assert built.module(*built.example_inputs(3)).shape == (3, 1, 16, 16)


def test_further_inputs_are_described_by_name():
    built = build("UNet2DConditionModel", CROSS_ATTENTION, inputs={"encoder_hidden_states": [7, 12]})
    assert built.inputs["inference"][2] == InputSpec((7, 12))
    with torch.no_grad():
        assert built.module(*built.example_inputs(2)).shape == (2, 4, 16, 16)


def test_whole_numbers_among_the_inputs():
    built = build(
        config={**UNET, "num_class_embeds": 5}, inputs={"class_labels": []}, int64_inputs=["class_labels"]
    )
    assert built.inputs["inference"][2] == InputSpec((), "int64")
    with torch.no_grad():
        assert built.module(*built.example_inputs(2)).shape == (2, 1, 16, 16)


def test_a_size_of_its_own_and_the_small_one_for_other_counters():
    built = build(img_size=[128, 96])
    assert built.inputs["inference"][0].shape == (1, 128, 96)
    assert built.inputs["cross_check"][0].shape == (1, 64, 64)


def test_checkpointing_is_handed_on():
    built = build(training={"gradient_checkpointing": "full"})
    assert built.module.model.is_gradient_checkpointing
    built.module.to("meta").train()(*built.example_inputs(2, "meta")).square().mean().backward()


def test_an_unknown_class_is_refused_with_the_nearest():
    message = refusal("UNet2DModul")
    assert message.startswith("model.class: diffusers ")
    assert "has no class 'UNet2DModul'" in message
    assert "UNet2DModel" in message


@pytest.mark.parametrize("name", ["DDIMScheduler", "DDPMPipeline", "logging"])
def test_what_is_no_network_is_refused(name):
    assert refusal(name) == (
        f"model.class: {name} of diffusers is not a network: name a model class, such as UNet2DModel"
    )


def test_inputs_that_the_config_does_not_describe_are_derived():
    """The width from the class's config; 77 tokens of CLIP, or as many as the config says."""
    built = build("UNet2DConditionModel", CROSS_ATTENTION)
    assert built.inputs["inference"] == (InputSpec((4, 16, 16)), InputSpec((), "int64"), InputSpec((77, 12)))
    assert built.notes == (
        "inputs beside the latent, by the class's config and its pipelines' length of a prompt: encoder_hidden_states "
        "[77, 12] (others: model.inputs, model.text_tokens, model.frames)",
    )
    assert build("UNet2DConditionModel", CROSS_ATTENTION, text_tokens=9).inputs["inference"][2].shape == (
        9,
        12,
    )
    assert build("UNet2DModel").notes == ()


def test_inputs_that_the_config_makes_necessary_are_derived():
    """By its signature the class can do without; with this config it cannot."""
    built = build(config={**UNET, "num_class_embeds": 5})
    assert built.inputs["inference"][2] == InputSpec((), "int64")
    with torch.no_grad():
        assert built.module(*built.example_inputs(2)).shape == (2, 1, 16, 16)


def test_a_network_with_derived_inputs_is_not_trained():
    """The data has images; whoever has prompts' embeddings, too, trains with a step of their own."""
    config = config_from_dict(
        {"model": {"net_type": "diffusers", "class": "UNet2DConditionModel", "config": CROSS_ATTENTION}}
    )
    with pytest.raises(LossError) as caught:
        refuse_further_inputs(build_model(config, data="never"), config)
    assert "\n" not in str(caught.value)
    assert "encoder_hidden_states [77, 12]" in str(caught.value)
    assert str(caught.value).endswith("can only be profiled")


def test_an_input_that_nobody_knows_is_refused_by_name():
    assert refusal("OmniGenTransformer2DModel", TINY["OmniGenTransformer2DModel"], img_size=8) == (
        "model.inputs: OmniGenTransformer2DModel.forward needs input_img_latents, and nothing here knows what goes "
        'into it: describe the shape without the batch, {"input_img_latents": [...]}, or a value, '
        '{"input_img_latents": {"constant": ...}}'
    )


def test_inputs_that_do_not_exist():
    message = refusal(inputs={"words": [7]})
    assert (
        message == "model.inputs: UNet2DModel.forward takes no further input 'words'; it takes class_labels"
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**UNET, "channels": 3}, "channels"),
        ({**UNET, "down_block_types": ["DownBlock2D"]}, "down_block_types"),
        ({**UNET, "norm_num_groups": 3}, "divisible"),
    ],
)
def test_a_config_that_the_class_refuses(config, said):
    message = refusal(config=config)
    assert message.startswith("model.config: UNet2DModel refuses it: ")
    assert said in message


def test_sides_that_the_levels_do_not_divide():
    message = refusal(img_size=15)
    assert message.startswith("model: UNet2DModel does not take an image [1, 15, 15], a time step []: ")


def test_without_a_size_anywhere():
    config = {key: value for key, value in UNET.items() if key != "sample_size"}
    assert refusal(config=config) == "model.img_size: UNet2DModel has none of its own: give it"


@pytest.mark.parametrize("size", ["x", [1], [16, 0], [16, "x"], True, {"a": 1}])
def test_a_size_that_is_none(size):
    message = refusal(config={**UNET, "sample_size": size})
    assert message.startswith("model.config.sample_size: ")
    assert message.endswith("pixels are expected, or [height, width]")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    assert refusal() == (
        'model.net_type: "diffusers" needs the package diffusers: pip install ".[diffusion]"'
    )


@pytest.mark.slow
def test_an_image_that_is_too_small_for_one_of_a_batch_is_one_line():
    """Groups of one channel: a group norm has a single value of one image of a pixel, and refuses it."""
    config = {**CROSS_ATTENTION, "norm_num_groups": 8}
    told = refusal("UNet2DConditionModel", config, img_size=1, inputs={"encoder_hidden_states": [3, 12]})
    assert told.startswith("model: UNet2DConditionModel does not take an image [4, 1, 1], a time step []")
    assert "ValueError: Expected more than 1 value per channel" in told
    told = refusal(
        "UNet2DConditionModel", config, data={"patch_size": 1}, inputs={"encoder_hidden_states": [3, 12]}
    )
    assert "does not take an image [4, 1, 1]" in told
