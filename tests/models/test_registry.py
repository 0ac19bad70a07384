"""From a config to a network and its inputs: SwinMR, timm by name, and the user's own class."""

import sys
from pathlib import Path

import pytest
import timm
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.configs.loading import load_config
from swinmr_profiling.configs.sections.model import MODEL_SECTIONS, SwinIRModelConfig, TimmModelConfig
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.inputs import InputSpec
from swinmr_profiling.models.registry import BUILDERS, build_model
from swinmr_profiling.models.swin.swinir import SwinIR

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def build(model, trust_config=False, **sections):
    return build_model(config_from_dict({"model": model, **sections}), trust_config=trust_config)


def refusal(model, trust_config=False, **sections):
    with pytest.raises(ModelError) as caught:
        build(model, trust_config, **sections)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("name", "parameters", "patch"),
    [
        ("train_config.json", 1_337_761, 160),
        ("train_config_small.json", 903_121, 96),
        ("train_config_large.json", 11_497_681, 96),
    ],
)
def test_the_experiment_files_build_their_networks(name, parameters, patch):
    built = build_model(load_config(CONFIGS / name).config)
    assert sum(p.numel() for p in built.module.parameters()) == parameters
    assert built.net_type == "swinir"
    assert isinstance(built.module, SwinIR)
    assert built.inputs["inference"] == (InputSpec((1, 256, 256)),)
    assert built.inputs["training"] == (InputSpec((1, patch, patch)),)
    assert built.inputs["cross_check"] == (InputSpec((1, 64, 64)),)
    assert built.input_shape(4) == [4, 1, 256, 256]
    assert built.input_shape(2, "training") == [2, 1, patch, patch]


SMALL = {"net_type": "swinir", "embed_dim": 12, "depths": [2], "num_heads": [2], "img_size": 32}


@pytest.mark.parametrize(
    ("changes", "sections", "training", "cross_check"),
    [
        # No patch: training takes the whole image.
        ({}, {"data": {"use_patches": False}}, (1, 32, 32), (1, 32, 32)),
        ({"img_size": [96, 40]}, {"data": {"patch_size": 24}}, (1, 24, 24), (1, 64, 40)),
        # A multiple of the window: 63 of at most 64.
        ({"img_size": 105, "window_size": 7}, {"data": {"patch_size": 35}}, (1, 35, 35), (1, 63, 63)),
        ({"img_size": 80, "ape": True}, {"data": {"use_patches": False}}, (1, 80, 80), (1, 80, 80)),
        ({"in_chans": 2}, {"data": {"patch_size": [16, 24]}}, (2, 16, 24), (2, 32, 32)),
    ],
)
def test_shapes_for_each_purpose_and_the_network_takes_them(changes, sections, training, cross_check):
    built = build({**SMALL, **changes}, **sections)
    assert built.inputs["training"][0].shape == training
    assert built.inputs["cross_check"][0].shape == cross_check
    for purpose in ("training", "cross_check"):
        inputs = built.example_inputs(1, which=purpose)
        with torch.no_grad():
            assert built.module(*inputs).shape == inputs[0].shape


def test_every_option_reaches_the_network():
    built = build(
        {
            **SMALL,
            "in_chans": 3,
            "upscale": 2,
            "upsampler": "pixelshuffledirect",
            "resi_connection": "3conv",
            "mlp_ratio": 4,
            "qkv_bias": False,
            "patch_norm": False,
            "window_size": 4,
        },
        data={"patch_size": 16},
    )
    reference = SwinIR(
        img_size=32,
        in_chans=3,
        upscale=2,
        window_size=4,
        depths=[2],
        embed_dim=12,
        num_heads=[2],
        mlp_ratio=4,
        qkv_bias=False,
        patch_norm=False,
        upsampler="pixelshuffledirect",
        resi_connection="3conv",
    )
    shapes = {key: tensor.shape for key, tensor in built.module.state_dict().items()}
    assert shapes == {key: tensor.shape for key, tensor in reference.state_dict().items()}


def test_the_seed_decides_the_weights():
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(
            torch.cat([p.flatten() for p in build(SMALL, data={"patch_size": 16}).module.parameters()])
        )
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("checkpointing", ["none", "light", "full"])
def test_checkpointing_of_the_config_reaches_the_network(checkpointing):
    sections = {"training": {"gradient_checkpointing": checkpointing}, "data": {"patch_size": 16}}
    assert build(SMALL, **sections).module.gradient_checkpointing == checkpointing


def test_what_the_network_itself_refuses_is_one_line(monkeypatch):
    def refuse(**options):
        raise ValueError("no such network")

    monkeypatch.setattr("swinmr_profiling.models.registry.SwinIR", refuse)
    assert refusal(SMALL, data={"patch_size": 16}) == "model: no such network"


def test_example_inputs_leave_the_global_generator_alone_and_repeat():
    built = build(SMALL, data={"patch_size": 16})
    state = torch.get_rng_state()
    first, again, other = (built.example_inputs(2, seed=seed)[0] for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (2, 1, 32, 32)
    assert 0 <= first.min() < 0.1 < 0.9 < first.max() < 1
    half = built.example_inputs(2, dtype=torch.bfloat16, seed=5)[0]
    assert torch.equal(half, first.bfloat16())


def test_example_inputs_of_every_kind_on_cpu_and_meta():
    generator = torch.Generator().manual_seed(0)
    for device in ("cpu", "meta"):
        index = InputSpec((), "int64").example(64, device, torch.bfloat16, generator)
        mask = InputSpec((4,), "bool").example(16, device, torch.bfloat16, generator)
        image = InputSpec((1, 2, 2)).example(3, device, torch.bfloat16, generator)
        assert (index.dtype, index.shape) == (torch.int64, (64,))
        assert (mask.dtype, mask.shape) == (torch.bool, (16, 4))
        assert (image.dtype, image.shape, image.device.type) == (torch.bfloat16, (3, 1, 2, 2), device)
        if device == "cpu":
            # Both values occur, and none that a small table would not have.
            assert set(index.tolist()) == {0, 1}
            assert set(mask.flatten().tolist()) == {False, True}


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        # Its own size, where none is given.
        ({"name": "resnet18"}, (3, 224, 224)),
        # Takes any size, and has no option for it.
        ({"name": "resnet18", "img_size": 64, "in_chans": 1, "num_classes": 5}, (1, 64, 64)),
        # Built for one size.
        ({"name": "vit_tiny_patch16_224", "img_size": 64, "in_chans": 2, "num_classes": 5}, (2, 64, 64)),
        ({"name": "vit_tiny_patch16_224", "img_size": [32, 64], "num_classes": 5}, (3, 32, 64)),
        (
            {"name": "swin_tiny_patch4_window7_224", "img_size": 112, "in_chans": 1, "num_classes": 5},
            (1, 112, 112),
        ),
        # An option of timm's own.
        (
            {"name": "vit_tiny_patch16_224", "img_size": 48, "num_classes": 5, "kwargs": {"depth": 2}},
            (3, 48, 48),
        ),
    ],
)
def test_timm_networks_by_name(model, shape):
    built = build({"net_type": "timm", **model})
    assert built.net_type == "timm"
    assert set(built.inputs.values()) == {(InputSpec(shape),)}
    with torch.inference_mode():
        output = built.module.eval()(*built.example_inputs(1))
    assert output.shape == (1, model.get("num_classes", 1000))
    if "kwargs" in model:
        assert len(built.module.blocks) == 2


def test_timm_is_asked_for_no_weights(monkeypatch):
    asked = []

    def create_model(name, **options):
        asked.append(options)
        return torch.nn.Identity()

    monkeypatch.setattr(timm, "create_model", create_model)
    build({"net_type": "timm", "name": "resnet18", "img_size": 32})
    # Once without data, to see how large it is, and once more.
    assert [options["pretrained"] for options in asked] == [False, False]


def test_an_unknown_timm_name_suggests_the_nearest():
    message = refusal({"net_type": "timm", "name": "resnet_18"})
    assert message.startswith(f"model.name: timm {timm.__version__} has no model 'resnet_18': did you mean ")
    assert "resnet18" in message
    assert refusal({"net_type": "timm", "name": "Ω"}).endswith("has no model 'Ω'")


def test_options_that_timm_refuses_are_one_line():
    message = refusal({"net_type": "timm", "name": "resnet18", "kwargs": {"no_such_option": 1}})
    assert message.startswith("model: timm cannot make 'resnet18' with ")
    assert "TypeError" in message
    assert "no_such_option" in message
    # torch's own text, which lists the signatures it knows on lines of their own.
    message = refusal({"net_type": "timm", "name": "regnetx_002", "kwargs": {"depth": "x"}})
    assert "TypeError" in message
    assert "\n" not in message


MODULE = """
import torch
from torch import nn

open({trace!r}, "a").write("imported ")

class Net(nn.Module):
    def __init__(self, channels=1):
        super().__init__()
        self.conv = nn.Conv2d(1, channels, 3, padding=1)
    def forward(self, x, t=None):
        return self.conv(x)

class Outer:
    class Inner(Net):
        pass

class Fails(nn.Module):
    def __init__(self):
        raise KeyError("weights")

class NoModule:
    pass
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module own_net in the working directory, forgotten again afterwards."""
    (tmp_path / "own_net.py").write_text(MODULE.format(trace=str(tmp_path / "trace")))
    (tmp_path / "broken_net.py").write_text("class Net(:\n")
    (tmp_path / "raising_net.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("own_net", "broken_net", "raising_net"):
        sys.modules.pop(name, None)


def custom(target, **changes):
    return {"net_type": "custom", "target": target, "input_shapes": [[1, 16, 16]], **changes}


def test_a_custom_network_is_refused_without_trust_and_nothing_is_imported(own_module):
    message = refusal(custom("own_net:Net", kwargs={"channels": 4, "name": "a b"}))
    assert message == (
        'model.target: this config would import and run own_net:Net(channels=4, name="a b"); '
        "pass --trust-config to allow it"
    )
    assert not (own_module / "trace").exists()
    assert "own_net" not in sys.modules


def test_a_custom_network_is_built_with_trust(own_module):
    built = build(custom("own_net:Net", kwargs={"channels": 4}), trust_config=True)
    assert (own_module / "trace").read_text() == "imported "
    assert built.net_type == "custom"
    assert built.module(*built.example_inputs(2)).shape == (2, 4, 16, 16)
    assert built.inputs["training"] == built.inputs["cross_check"] == (InputSpec((1, 16, 16)),)


def test_a_class_inside_a_class_is_found(own_module):
    built = build(custom("own_net:Outer.Inner"), trust_config=True)
    assert type(built.module).__qualname__ == "Outer.Inner"


def test_shapes_and_types_of_each_purpose(own_module):
    model = custom(
        "own_net:Net",
        input_shapes=[[1, 16, 16], []],
        training_input_shapes=[[1, 8, 8], []],
        cross_check_input_shapes=[[1, 4, 4], []],
        input_dtypes=["float", "int64"],
    )
    built = build(model, trust_config=True)
    assert built.inputs["inference"] == (InputSpec((1, 16, 16)), InputSpec((), "int64"))
    assert built.input_shape(3, "training") == [3, 1, 8, 8]
    assert built.input_shape(3, "cross_check") == [3, 1, 4, 4]
    image, step = built.example_inputs(3, which="training")
    assert (image.dtype, step.dtype, step.shape) == (torch.float32, torch.int64, (3,))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "no_such_net:Net",
            "cannot import no_such_net:Net: ModuleNotFoundError: No module named 'no_such_net'",
        ),
        ("own_net:Missing", "cannot import own_net:Missing: AttributeError: "),
        ("own_net:Outer.Missing", "cannot import own_net:Outer.Missing: AttributeError: "),
        ("broken_net:Net", "cannot import broken_net:Net: SyntaxError: "),
        ("raising_net:Net", "cannot import raising_net:Net: RuntimeError: no licence"),
        ("own_net:Fails", "own_net:Fails raised KeyError: 'weights'"),
        ("own_net:NoModule", "own_net:NoModule made a NoModule, no torch.nn.Module"),
    ],
)
def test_what_the_users_code_does_wrong_is_said_as_itself(own_module, target, words):
    assert refusal(custom(target), trust_config=True).startswith(f"model.target: {words}")


def test_arguments_the_class_does_not_take_are_said(own_module):
    message = refusal(custom("own_net:Net", kwargs={"depth": 3}), trust_config=True)
    assert message.startswith("model.target: own_net:Net raised TypeError: ")
    assert "depth" in message


def test_every_net_type_of_the_schema_has_a_builder():
    # swinmr is swinir by another name; custom has its own question of trust.
    assert set(BUILDERS) == set(MODEL_SECTIONS) - {"swinmr", "custom"}
    assert build({**SMALL, "net_type": "swinmr"}, data={"patch_size": 16}).net_type == "swinir"


def test_a_builder_reads_the_section_of_its_own_network_alone():
    config = config_from_dict({"model": {"net_type": "swinir"}})
    assert config.model_section(SwinIRModelConfig) is config.model
    with pytest.raises(TypeError, match="of swinir, not a TimmModelConfig"):
        config.model_section(TimmModelConfig)
    with pytest.raises(TypeError, match="swinir is not a denoiser"):
        _ = config.denoiser
    unet = config_from_dict({"model": {"net_type": "unet_denoiser"}})
    assert unet.denoiser is unet.model
