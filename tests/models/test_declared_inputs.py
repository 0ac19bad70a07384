"""Inputs of any kind, declared in the config: types, ranges, the batch's axis, keywords, lists and objects."""

import sys
import types

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import ConfigError, config_from_dict
from swinmr_profiling.configs.declared_inputs import DTYPES, read_inputs
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import InputSpec
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.record.memory_fingerprint import memory_settings


class Unrolled(nn.Module):
    """Complex images with their k-space, masks, coils in a list and settings in a dict."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(2, 2, 3, padding=1, dtype=torch.complex64)

    def forward(self, image, kspace, *, mask, coils, conditions):
        assert image.dtype == kspace.dtype == coils[0].dtype == torch.complex64
        assert mask.dtype == torch.bool
        assert conditions["step"].dtype == torch.int64
        assert len(coils) == 2
        scale = conditions["more"]["scale"]
        return self.layer(image) + torch.fft.ifft2(kspace * mask) * scale + coils[0] * coils[1]


INPUTS = [
    {"shape": ["B", 2, 8, 8], "dtype": "complex64", "range": [-1, 1]},
    {"shape": ["B", 2, 8, 8], "dtype": "complex"},
    {"name": "mask", "shape": [8, 8], "dtype": "bool"},
]
KEYWORDS = {
    "image": INPUTS[0],
    "kspace": INPUTS[1],
    "mask": {"shape": [8, 8], "dtype": "bool"},
    "coils": [INPUTS[1], {"shape": [1, 2, 8, 8], "dtype": "complex"}],
    "conditions": {
        "step": {"shape": ["B"], "dtype": "int64", "range": [100, 999]},
        "more": {"scale": {"shape": []}},
    },
}


@pytest.fixture
def build(monkeypatch):
    module = types.ModuleType("declared_networks")
    module.Unrolled = Unrolled
    module.Pair = type("Pair", (nn.Module,), {"forward": lambda self, a, b: a @ b})
    monkeypatch.setitem(sys.modules, "declared_networks", module)

    def build(target="Unrolled", **model):
        section = {"net_type": "custom", "target": f"declared_networks:{target}", **model}
        return build_model(config_from_dict({"experiment_name": "x", "model": section}), trust_config=True)

    return build


def test_a_network_with_complex_keyword_and_nested_inputs(build):
    built = build(inputs=KEYWORDS)
    tensors = built.example_inputs(3)
    assert [list(t.shape) for t in tensors] == [
        [3, 2, 8, 8], [3, 2, 8, 8], [8, 8], [3, 2, 8, 8], [1, 2, 8, 8], [3], []
    ]  # fmt: skip
    assert built.module(*tensors).shape == (3, 2, 8, 8)
    assert built.input_shape(3) == [3, 2, 8, 8]
    # 64 places x 2 x 2 x 9 complex multiply-adds.
    assert count_forward(built.module, built.example_inputs(1)).macs == 4 * 64 * 2 * 2 * 9
    meta = built.example_inputs(2, "meta")
    assert [t.dtype for t in meta] == [t.dtype for t in tensors]


def test_values_are_drawn_from_the_range(build):
    image, _, _, _, _, step, _ = build(inputs=KEYWORDS).example_inputs(64)
    assert image.real.min() < -0.9
    assert image.imag.max() > 0.9
    assert image.abs().max() <= 2**0.5
    assert step.min() >= 100
    assert step.max() <= 999
    assert len(step.unique()) > 30


def test_complex_numbers_follow_the_width_of_the_run(build):
    built = build(inputs=KEYWORDS)
    assert built.example_inputs(1, dtype=torch.float64)[1].dtype == torch.complex128
    assert built.example_inputs(1, dtype=torch.float64)[0].dtype == torch.complex64


def test_the_short_form_and_a_list_of_shapes_are_the_same(build):
    short = build("Pair", input_shapes=[[3, 4], [4, 5]])
    long = build("Pair", inputs=[[3, 4], {"shape": ["B", 4, 5]}])
    assert short.inputs == long.inputs
    assert type(short.module) is type(long.module)
    assert long.module(*long.example_inputs(2)).shape == (2, 3, 5)


def test_the_batch_may_stand_behind_other_axes(build):
    built = build("Pair", inputs=[{"shape": [3, "B", 4]}, {"shape": [4, 5]}])
    a, b = built.example_inputs(7)
    assert (a.shape, b.shape) == ((3, 7, 4), (4, 5))
    assert built.input_shape(7) == [3, 7, 4]
    assert built.inputs["inference"][0] == InputSpec((3, 4), "float", 1)


def test_inputs_of_a_patch_and_of_the_comparison(build):
    built = build(
        "Pair", inputs=[[9, 4], [4, 5]], training_inputs=[[3, 4], [4, 5]], cross_check_inputs=[[2, 4], [4, 5]]
    )
    assert [built.input_shape(1, which) for which in ("inference", "training", "cross_check")] == [
        [1, 9, 4], [1, 3, 4], [1, 2, 4]
    ]  # fmt: skip
    with pytest.raises(ModelError, match=r"^model.training_inputs: other names or places than inputs has"):
        build("Pair", inputs=[[9, 4], [4, 5]], training_inputs={"a": [3, 4], "b": [4, 5]})


def test_timm_with_declared_inputs():
    pytest.importorskip("timm")
    section = {"net_type": "timm", "name": "resnet18", "in_chans": 2, "inputs": {"x": [2, 64, 96]}}
    built = build_model(config_from_dict({"experiment_name": "x", "model": section}))
    assert built.module(*built.example_inputs(2)).shape == (2, 1000)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_makes_an_example(dtype):
    spec = InputSpec((2,), dtype)
    generator = torch.Generator().manual_seed(0)
    for device in ("cpu", "meta"):
        example = spec.example(3, device, torch.float32, generator)
        assert example.shape == (3, 2)
        assert dtype in ("float", "complex") or example.dtype is getattr(torch, dtype)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "model.inputs: expected at least one input"),
        (
            {"x": 3},
            "model.inputs.x: expected a shape, an object with a shape, or a list or object of them, got 3",
        ),
        ({"x": {"shape": ["B", 0]}}, "model.inputs.x: shape: expected whole numbers from 1 on"),
        ({"x": {"shape": ["B", "B"]}}, 'model.inputs.x: shape: at most 8 axes, and "B" once'),
        ({"x": {"shape": "B"}}, "model.inputs.x: shape: expected a list such as"),
        ({"x": {"shape": [1], "dtype": "float8"}}, "model.inputs.x: dtype: expected one of float, float16"),
        ({"x": {"shape": [1], "range": [1]}}, "model.inputs.x: range: expected [lowest, highest], got [1]"),
        ({"x": {"shape": [1], "range": [2, 1]}}, "model.inputs.x: range: expected [lowest, highest]"),
        (
            {"x": {"shape": [1], "dtype": "uint8", "range": [0, 256]}},
            "model.inputs.x: range: uint8 holds 0 to 255",
        ),
        (
            {"x": {"shape": [1], "dtype": "int8", "range": [0, 0.5]}},
            "model.inputs.x: range: int8 takes whole numbers",
        ),
        ({"x": {"shape": [1], "dtype": "bool", "range": [0, 1]}}, "model.inputs.x: range: bool takes none"),
        ({"x": {"shape": [1], "dytpe": "bool"}}, "model.inputs.x: unknown key 'dytpe'"),
        ({"x": {"y": [{"shape": [True]}]}}, "model.inputs.x.y.0: shape: expected whole numbers"),
        (
            [{"name": "a", "shape": [1]}, [1]],
            "model.inputs.1: an input without a name stands behind one with a name",
        ),
        ([{"name": "a", "shape": [1]}, {"name": "a", "shape": [1]}], "model.inputs.1: a second input 'a'"),
        (None, "model.input_shapes: input_shapes or inputs is needed"),
    ],
)
def test_what_is_no_declaration_is_refused_in_one_line(inputs, message):
    section = {"net_type": "custom", "target": "a:B", "inputs": inputs}
    with pytest.raises(ConfigError) as caught:
        config_from_dict({"experiment_name": "x", "model": section})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"input_shapes": [[1]], "inputs": [[1]]}, "input_shapes beside inputs: give one"),
        (
            {"inputs": [[1]], "input_dtypes": ["bool"]},
            "input_dtypes: belongs to input_shapes, which is not there",
        ),
        (
            {"input_shapes": [[1]], "training_inputs": [[1]]},
            "training_inputs: belongs to inputs, which is not there",
        ),
    ],
)
def test_the_two_forms_do_not_mix(keys, message):
    with pytest.raises(ConfigError) as caught:
        config_from_dict({"experiment_name": "x", "model": {"net_type": "custom", "target": "a:B", **keys}})
    assert message in str(caught.value)


def test_an_object_is_keywords_and_a_list_is_places():
    declared = read_inputs([[1], {"name": "mask", "shape": [2]}])
    assert (len(declared.args), list(declared.kwargs)) == (1, ["mask"])


UVIT = {
    "hidden_size": 32, "cond_embed_dim": 16, "micro_cond_encode_dim": 4, "micro_cond_embed_dim": 20,
    "encoder_hidden_size": 12, "vocab_size": 40, "codebook_size": 32, "block_out_channels": 32, "in_channels": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48, "block_num_heads": 2,
    "num_res_blocks": 1, "sample_size": 8,
}  # fmt: skip


def diffusers(name, config, **keys):
    section = {"net_type": "diffusers", "class": name, "config": config, **keys}
    data = {"batch_size": 1, "use_patches": False}
    return build_model(config_from_dict({"experiment_name": "x", "model": section, "data": data}))


def test_a_transformer_of_image_tokens():
    """UVit2DModel: its first input is tokens, it has no time step, no return_dict, and returns a tensor."""
    pytest.importorskip("diffusers")
    inputs = {
        "input_ids": {"shape": ["B", 8, 8], "dtype": "int64", "range": [0, 39]},
        "encoder_hidden_states": [7, 12],
        "pooled_text_emb": [16],
        "micro_conds": [5],
    }
    built = diffusers("UVit2DModel", UVIT, inputs=inputs)
    tensors = built.example_inputs(2)
    assert tensors[0].dtype == torch.int64
    assert built.module(*tensors).shape == (2, 32, 8, 8)
    assert built.inputs["training"] == built.inputs["inference"]


def test_a_dict_of_further_conditions():
    """SDXL's way: `added_cond_kwargs` is a dict of tensors."""
    pytest.importorskip("diffusers")
    config = {
        "sample_size": 8, "in_channels": 4, "out_channels": 4, "layers_per_block": 1, "block_out_channels": [8],
        "down_block_types": ["CrossAttnDownBlock2D"], "up_block_types": ["CrossAttnUpBlock2D"], "norm_num_groups": 4,
        "cross_attention_dim": 12, "attention_head_dim": 2, "addition_embed_type": "text_time",
        "addition_time_embed_dim": 4, "projection_class_embeddings_input_dim": 6 * 4 + 10,
    }  # fmt: skip
    inputs = {"encoder_hidden_states": [7, 12], "added_cond_kwargs": {"text_embeds": [10], "time_ids": [6]}}
    built = diffusers("UNet2DConditionModel", config, inputs=inputs)
    assert built.module(*built.example_inputs(2)).shape == (2, 4, 8, 8)


def test_a_time_step_may_be_a_fraction():
    pytest.importorskip("diffusers")
    config = {
        "sample_size": 8, "in_channels": 1, "out_channels": 1, "layers_per_block": 1, "block_out_channels": [8],
        "down_block_types": ["DownBlock2D"], "up_block_types": ["UpBlock2D"], "norm_num_groups": 4,
        "add_attention": False,
    }  # fmt: skip
    built = diffusers("UNet2DModel", config, inputs={"timestep": {"shape": ["B"], "range": [0, 1]}})
    assert built.inputs["inference"][1].kind == "float"
    assert built.module(*built.example_inputs(2)).shape == (2, 1, 8, 8)


def test_what_is_not_declared_is_in_no_fingerprint():
    """Profiles from before keep answering for their configs."""

    def settings(**model):
        section = {"net_type": "custom", "target": "a:B", **model}
        return memory_settings(config_from_dict({"experiment_name": "x", "model": section}))["model"]

    assert not {"inputs", "training_inputs", "cross_check_inputs"} & settings(input_shapes=[[1, 8, 8]]).keys()
    assert settings(inputs=[[1, 8, 8]])["inputs"] == [[1, 8, 8]]
