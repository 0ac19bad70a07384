"""The network of a checkpoint, found from its weights alone: ours, spandrel's, and what is none."""

import json
import os
import pickle
from argparse import Namespace
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from swinmr_profiling.configs import ConfigError, config_from_dict
from swinmr_profiling.models.checkpoints.checkpoint_files import imports_of, sha256_of
from swinmr_profiling.models.checkpoints.checkpoint_network import found_network, swinir_section
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.libraries.spandrel_network import made
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.models.swin.swinir import SwinIR
from swinmr_profiling.profiler.run.options.network_options import load_network

SMALL = {
    "img_size": 16,
    "window_size": 4,
    "depths": [1, 2],
    "num_heads": [2, 3],
    "embed_dim": 12,
    "mlp_ratio": 3.0,
}
# Compact: 3 x 9 x 8 + 8, a PReLU of 8, (8 x 9 x 8 + 8 + 8) x 2, 8 x 9 x 12 + 12.
COMPACT = {"num_feat": 8, "num_conv": 2, "upscale": 2}
COMPACT_PARAMETERS = 3 * 9 * 8 + 8 + 8 + 2 * (8 * 9 * 8 + 8 + 8) + 8 * 9 * 12 + 12


def compact():
    from spandrel.architectures.Compact import Compact

    return Compact(**COMPACT)


def saved(tmp_path, content, name="model.pth"):
    file = tmp_path / name
    torch.save(content, file)
    return file


def refusal(file):
    with pytest.raises(ModelError) as caught:
        found_network(file)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{file}: ")
    return message.removeprefix(f"{file}: ")


@pytest.mark.parametrize(
    "options",
    [
        {"in_chans": 1},
        {"in_chans": 2, "resi_connection": "3conv", "qkv_bias": False, "patch_norm": False},
        {"in_chans": 3, "upscale": 4, "upsampler": "pixelshuffle"},
        {"in_chans": 3, "upscale": 3, "upsampler": "pixelshuffledirect"},
        {"in_chans": 3, "upscale": 4, "upsampler": "nearest+conv"},
        {"in_chans": 1, "out_chans": 3, "ape": True},
    ],
)
def test_swinir_is_described_by_its_own_weights(options):
    original = SwinIR(**SMALL, **options)
    section = swinir_section(original.state_dict())
    built = build_model(config_from_dict({"model": section, "data": {"use_patches": False}}))
    shapes = {name: tensor.shape for name, tensor in built.module.state_dict().items()}
    assert shapes == {name: tensor.shape for name, tensor in original.state_dict().items()}
    for key, value in {**SMALL, **options}.items():
        if key != "img_size" or options.get("ape"):
            assert section.get(key, value) == value


def test_an_image_size_is_that_of_the_stored_masks():
    # 16 windows of 4 x 4 pixels: a 16 x 16 image.
    state = {**SwinIR(**SMALL).state_dict()}
    state["layers.1.residual_group.blocks.1.attn_mask"] = torch.zeros(16, 16, 16)
    assert swinir_section(state)["img_size"] == 16
    assert swinir_section(SwinIR(**SMALL).state_dict())["img_size"] == 256


WRAPPINGS = {
    "bare": lambda state: state,
    "params": lambda state: {"params": state},
    "EMA beside": lambda state: {"params": {k: v * 0 for k, v in state.items()}, "params_ema": state},
    "Lightning": lambda state: {
        "state_dict": {f"model.{k}": v for k, v in state.items()},
        "epoch": 3,
        "pytorch-lightning_version": "2.1.0",
        "hyper_parameters": {"lr": 1e-4},
    },
    "Lightning with a loss network": lambda state: {
        "state_dict": {**{f"model.{k}": v for k, v in state.items()}, "perceptual.conv.weight": torch.ones(3)}
    },
    "netG": lambda state: {f"netG.{k}": v for k, v in state.items()},
    "netG of DataParallel, with netD": lambda state: {
        **{f"module.netG.{k}": v for k, v in state.items()},
        "module.netD.conv.weight": torch.ones(3),
    },
    "a trainer's best score": lambda state: {"model": state, "best": __import__("numpy").float64(31.5)},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_network_of_spandrel_is_found_in_every_wrapping(tmp_path, wrapping):
    original = compact()
    file = saved(tmp_path, WRAPPINGS[wrapping](original.state_dict()))
    found = found_network(file)
    assert found.section == {
        "net_type": "spandrel",
        "checkpoint": str(file),
        "checkpoint_sha256": sha256_of(file),
        "img_size": 256,
    }
    assert "Compact (spandrel), 3 channels, x2" in found.words
    built = build_model(config_from_dict({"model": {**found.section, "img_size": 8}}))
    assert sum(p.numel() for p in built.module.parameters()) == COMPACT_PARAMETERS
    (x,) = built.example_inputs(2)
    torch.testing.assert_close(built.module(x), original(x))
    assert built.module(x).shape == (2, 3, 16, 16)


def test_a_network_whose_own_parts_are_called_model_is_not_taken_for_a_trainers(tmp_path):
    from spandrel.architectures.DnCNN import DnCNN

    original = DnCNN(in_nc=1, out_nc=1, nc=8, nb=10, act_mode="R")
    assert all(key.startswith("model.") for key in original.state_dict())
    for number, state in enumerate((original.state_dict(), WRAPPINGS["Lightning"](original.state_dict()))):
        found = found_network(saved(tmp_path, state, f"{number}.pth"))
        assert found.words.startswith("DnCNN (spandrel), 1 channels")


def test_a_network_of_spandrel_is_called_by_whoever_watches_calls(tmp_path):
    """Its noise map is ours to give, so that it is called directly: by what a call is then, not when it was built."""
    from spandrel.architectures.DnCNN import DnCNN

    file = saved(tmp_path, DnCNN(in_nc=1, out_nc=1, nc=8, nb=10, act_mode="R").state_dict())
    built = build_model(config_from_dict({"model": {**found_network(file).section, "img_size": 8}}))
    called, seen = nn.Module.__call__, []

    def call(part, *arguments):
        seen.append(type(part).__name__)
        return called(part, *arguments)

    with mock.patch.object(nn.Module, "__call__", call):
        built.module(*built.example_inputs(1))
    assert "DnCNN" in seen


def test_safetensors_are_read(tmp_path):
    save_file(compact().state_dict(), tmp_path / "model.safetensors")
    assert found_network(tmp_path / "model.safetensors").words.startswith("Compact")
    data = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(data[: len(data) // 2])
    assert "is not a safetensors file, or a truncated one" in refusal(tmp_path / "cut.safetensors")


class RunsCode:
    def __reduce__(self):
        return (os.system, ("touch was_run",))


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_would_run_code_is_refused_with_what_it_would_import(tmp_path, protocol, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "evil.pth"
    with open(file, "wb") as stream:
        pickle.dump({"state_dict": RunsCode()}, stream, protocol=protocol)
    assert refusal(file).startswith("refused: reading it would import and run posix.system; nothing was run")
    zipped = saved(tmp_path, {"weight": torch.ones(2), "note": RunsCode()})
    assert "would import and run posix.system" in refusal(zipped)
    assert imports_of(zipped)[-1] == "posix.system"
    assert not (tmp_path / "was_run").exists()


def test_a_whole_network_and_torchscript_are_told(tmp_path):
    assert "would import and run torch.nn.modules.linear.Linear" in refusal(saved(tmp_path, nn.Linear(2, 2)))
    script = tmp_path / "scripted.pt"
    torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)).save(script)
    assert refusal(script).startswith("is TorchScript, a program with weights in it")
    assert "types.SimpleNamespace" in refusal(saved(tmp_path, {"a": SimpleNamespace(b=1)}))


def test_truncated_missing_and_empty_files(tmp_path):
    file = saved(tmp_path, compact().state_dict())
    file.write_bytes(file.read_bytes()[:-200])
    assert "is it truncated?" in refusal(file)
    assert refusal(tmp_path / "none.pth") == "no such checkpoint"
    assert refusal(tmp_path) == "cannot be read as a checkpoint of tensors: it is a folder"


def test_weights_of_no_known_network_name_the_nearest_three(tmp_path):
    message = refusal(
        saved(tmp_path, {"conv_first.weight": torch.ones(4, 3, 3, 3), "tail.bias": torch.ones(3)})
    )
    assert message.startswith(
        "these weights (2 tensors: conv_first.weight, tail.bias, ...) are of no network"
    )
    nearest = message.partition("nearest: ")[2].partition(". A network")[0]
    assert nearest.count("(misses ") == 3
    assert "--module FILE.py:Class" in message


def test_other_sizes_are_told_in_words_five_at_most(tmp_path):
    # A DnCNN of 12 layers, of which six have other numbers of channels than the first says.
    from spandrel.architectures.DnCNN import DnCNN

    state = DnCNN(in_nc=1, out_nc=1, nc=8, nb=12, act_mode="R").state_dict()
    keys = [key for key in state if key.endswith("weight")][2:9]
    for key in keys:
        state[key] = torch.zeros(9, 8, 3, 3)
    message = refusal(saved(tmp_path, state))
    assert message.startswith("has the names of DnCNN, but other sizes: ")
    assert message.count("is 9 x 8 x 3 x 3, not 8 x 8 x 3 x 3") == 5
    assert message.endswith(", and 2 more")


def test_another_file_than_the_config_was_made_of_is_refused(tmp_path):
    file = saved(tmp_path, compact().state_dict())
    section = found_network(file).section
    saved(tmp_path, compact().state_dict() | {"body.0.bias": torch.ones(8)})
    with pytest.raises(ModelError, match="has changed: it has the checksum"):
        build_model(config_from_dict({"model": section}))


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ({"architecture": "ESRGANN"}, "has no 'ESRGANN': did you mean ESRGAN"),
        (
            {"architecture": "Compact", "kwargs": {"num_fat": 3}},
            "model.kwargs.num_fat: Compact takes no such argument: did ",
        ),
        ({"architecture": "Compact", "kwargs": {"upscale": "x"}}, "model.kwargs: Compact refuses"),
        (
            {"architecture": "DRUNet", "img_size": 60},
            "model.img_size: DRUNet does not take 60 x 60, but multiples of 8",
        ),
    ],
)
def test_what_spandrel_cannot_build_is_refused_in_one_line(model, problem):
    with pytest.raises(ModelError) as caught:
        build_model(config_from_dict({"model": {"net_type": "spandrel", **model}}))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_denoiser_takes_a_noise_map_for_each_image_of_a_batch():
    # spandrel's own call joins one map to the whole batch, which runs for a batch of 1 alone.
    model = {
        "net_type": "spandrel",
        "architecture": "DRUNet",
        "kwargs": {"in_nc": 4, "out_nc": 3, "nc": [4, 4, 4, 4], "nb": 2},
    }
    built = build_model(config_from_dict({"model": {**model, "img_size": 16}}))
    (x,) = built.example_inputs(3)
    assert x.shape == (3, 4, 16, 16)
    assert built.module(x).shape == (3, 3, 16, 16)


@pytest.mark.slow
def test_the_command_profiles_a_checkpoint_and_its_config(tmp_path, profile_model, read_profile):
    file = saved(tmp_path, {"params": compact().state_dict()})
    run = profile_model(
        "--checkpoint", file, "--save-config", "ours.json", "--image-size", "16", "--batch-sizes", "1",
        "--num-runs", "1", "--device", "cpu", "--output", "a.json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "weights of Compact (spandrel), 3 channels, x2, takes any size" in run.stderr
    assert "non-meta" not in run.stderr
    profile = read_profile(tmp_path / "a.json")
    assert profile["architecture"]["total_parameters"] == COMPACT_PARAMETERS
    assert profile["config"]["config_sha256"] == sha256_of(file)
    assert profile["config"]["resolved"]["model"]["checkpoint_sha256"] == sha256_of(file)
    # 16 x 16 pixels x (3 x 8 + 2 x 8 x 8 + 8 x 12) products of 3 x 3.
    assert profile["architecture"]["macs"] == 16 * 16 * 9 * (3 * 8 + 2 * 8 * 8 + 8 * 12)
    saved_config = json.loads((tmp_path / "ours.json").read_text())
    assert saved_config["model"]["checkpoint"] == str(file)
    run = profile_model(
        "--config",
        "ours.json",
        "--batch-sizes",
        "1",
        "--num-runs",
        "1",
        "--device",
        "cpu",
        "--output",
        "b.json",
    )
    assert run.returncode == 0, run.stderr
    again = read_profile(tmp_path / "b.json")
    assert again["architecture"]["macs"] == profile["architecture"]["macs"]


@pytest.mark.slow
def test_the_command_tells_bad_checkpoints_in_one_line(tmp_path, profile_model):
    file = saved(tmp_path, {"conv.weight": torch.ones(3)})
    run = profile_model("--checkpoint", file)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"error: {file}: these weights (1 tensors: conv.weight, ...)")
    assert run.stderr.count("\n") == 1
    run = profile_model("--config", file)
    assert run.stderr.startswith(f"error: {file}: is a checkpoint of weights: ")


@pytest.mark.parametrize(
    "model",
    [
        {"net_type": "unet_denoiser", "img_size": 32, "base_channels": 8, "channel_multipliers": [1, 2],
         "attention_resolutions": [16], "head_channels": 8, "num_groups": 4, "num_res_blocks": 1},
        {"net_type": "dit_denoiser", "img_size": 32, "embed_dim": 16, "depth": 1, "num_heads": 2},
        {"net_type": "swinir", "img_size": 32, "depths": [1], "num_heads": [1], "embed_dim": 8, "drop_path_rate": 0.3},
    ],
)  # fmt: skip
def test_a_checkpoint_of_our_own_training_is_its_config(tmp_path, model):
    """A denoiser's weights say nothing of its diffusion: the config does, and the whole step is the run's own."""
    given = {"model": model, "training": {"optimizer": {"type": "sgd"}}, "data": {"batch_size": 3}}
    config = config_from_dict(given)
    built = build_model(config)
    content = {
        "format": "swinmr-profiling training checkpoint",
        "version": 1,
        "step": 7,
        "params": built.module.state_dict(),
        "params_ema": None,
        "config": config.model_dump(mode="json"),
    }
    file = saved(tmp_path, content)
    found = found_network(file)
    assert found.words == f"{model['net_type']}, by the config that it was trained with, step 7"
    loaded = load_network(Namespace(checkpoint=str(file)), str(file))
    for section in ("model", "data", "system"):
        assert getattr(loaded.config, section) == getattr(config, section)
    assert loaded.config.training.optimizer == config.training.optimizer
    again = build_model(loaded.config).module
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in built.module.parameters())


@pytest.mark.parametrize("config", [None, 3, {}, {"model": 3}, {"model": {}}, {"model": {"net_type": 3}}])
def test_a_checkpoint_that_holds_no_config_is_read_by_its_weights(tmp_path, config):
    weights = compact().state_dict()
    content = {"format": "swinmr-profiling training checkpoint", "params": weights, "config": config}
    assert found_network(saved(tmp_path, content)).words.startswith("Compact (spandrel)")


def test_a_config_in_a_checkpoint_is_checked_as_one_in_a_file(tmp_path):
    content = {
        "format": "swinmr-profiling training checkpoint",
        "config": {"model": {"net_type": "swinir", "dpeths": 1}},
    }
    file = saved(tmp_path, content)
    with pytest.raises(ConfigError, match=r"model\.dpeths: unknown key; did you mean depths"):
        load_network(Namespace(checkpoint=str(file)), str(file))


def test_what_stands_in_a_checkpoints_place_is_told_by_how_it_begins(tmp_path):
    file = tmp_path / "model.pth"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    assert refusal(file) == "is a pointer of Git LFS, not the weights: git lfs pull fetches them"
    file.write_text("<!DOCTYPE html><html>Sign in</html>")
    begins = "it begins with b'<!DOCTYPE html><', as none does"
    assert refusal(file) == f"cannot be read as a checkpoint of tensors: {begins}"


def test_lama_and_aurasr_are_made_by_name_as_they_are_published():
    """LaMa sees an image of three channels beside its mask; AuraSR's styles have a network of their own."""
    lama = made("LaMa", {})
    assert (lama.in_chans, lama.masked) == (3, True)
    assert made("AuraSR", {"dim": 16}).in_chans == 3


def test_ipt_takes_a_batch_and_trains_on_its_patches():
    found = made("IPT", {"n_feats": 8, "num_layers": 1, "patch_size": 12, "patch_dim": 3, "num_heads": 2})
    model = found.module.eval()
    image = torch.rand(2, 3, 24, 24)
    with torch.no_grad():
        assert found.call(model, image).shape == (2, 3, 24 * found.scale, 24 * found.scale)
        whole = [found.call(model, one) for one in image.split(1)]
        assert torch.equal(found.call(model, image), torch.cat(whole))
    model.train()
    assert found.call(model, image[..., :12, :12]).shape[-1] == 12 * found.scale
    with pytest.raises(ModelError, match="IPT is trained on patches of 12 x 12, not 24 x 24"):
        found.call(model, image)
