"""Weights that travel: an official file in, trained a little, exported, and loaded strictly by others."""

import json

import pytest
import torch
from safetensors.torch import load_file
from spandrel import ModelLoader
from spandrel.architectures.SwinIR.__arch.SwinIR import SwinIR as ReferenceSwinIR

from swinmr_profiling.configs import load_config
from swinmr_profiling.models.checkpoints.published_weights import load_weights
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.scripts.export_checkpoint import main
from tests.training.conftest import TINY_RUN, merged

OPTIONS = {
    "img_size": 32,
    "in_chans": 1,
    "upscale": 1,
    "window_size": 8,
    "depths": [2],
    "embed_dim": 8,
    "num_heads": [2],
    "mlp_ratio": 2,
    "upsampler": "",
}


@pytest.fixture
def trained(tiny_run, tmp_path):
    """Three steps from an official file (544-key form); returns the run and its checkpoint."""
    torch.manual_seed(5)
    reference = ReferenceSwinIR(**OPTIONS)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    torch.save(reference.state_dict(), tmp_path / "0_G.pth")
    start = str(tmp_path / "0_G.pth")
    run = tiny_run({"training.initial_weights": start, "training.total_steps": 3})
    assert torch.equal(run.state.module.conv_first.weight, reference.conv_first.weight)
    result = run.run()
    return run, result.checkpoint


def output_of(network, image):
    network.eval()
    with torch.no_grad():
        return network(image)


@pytest.mark.parametrize("arguments", [("out.pth",), ("out.pth", "--form", "plain"), ("out.safetensors",)])
def test_a_trained_network_is_recognised_and_equal(trained, arguments, tmp_path, monkeypatch, capsys):
    """spandrel finds the architecture and its options by the keys, and loads strictly."""
    run, checkpoint = trained
    monkeypatch.chdir(tmp_path)
    assert main([str(checkpoint), *arguments]) == 0
    assert f"{len(ReferenceSwinIR(**OPTIONS).state_dict())} tensors" in capsys.readouterr().out
    found = ModelLoader().load_from_file(tmp_path / arguments[0])
    assert found.architecture.id == "SwinIR"
    assert (found.scale, found.input_channels, found.purpose) == (1, 1, "Restoration")
    image = torch.rand(1, 1, 32, 40)
    expected = output_of(run.state.ema.module, image)
    assert (output_of(found.model, image) - expected).abs().max() < 1e-5
    # The moving average, which differs from the trained weights.
    assert (output_of(run.state.module, image) - expected).abs().max() > 1e-4


def test_the_saved_checkpoint_itself_is_recognised(trained):
    run, checkpoint = trained
    found = ModelLoader().load_from_file(checkpoint)
    image = torch.rand(1, 1, 32, 32)
    assert (output_of(found.model, image) - output_of(run.state.ema.module, image)).abs().max() < 1e-5
    content = torch.load(checkpoint, weights_only=True)
    ReferenceSwinIR(**OPTIONS).load_state_dict(content["params"], strict=True)


@pytest.mark.parametrize("weights", ["ema", "trained"])
def test_forms_and_weights(trained, weights, tmp_path):
    run, checkpoint = trained
    module = run.state.ema.module if weights == "ema" else run.state.module
    wanted = module.conv_last.weight
    asked = ["--weights", weights]

    main([str(checkpoint), str(tmp_path / "w.pth"), *asked])
    wrapped = torch.load(tmp_path / "w.pth", weights_only=True)
    assert list(wrapped) == ["params"]
    assert torch.equal(wrapped["params"]["conv_last.weight"], wanted)

    main([str(checkpoint), str(tmp_path / "s.safetensors"), *asked])
    assert torch.equal(load_file(tmp_path / "s.safetensors")["conv_last.weight"], wanted)

    main([str(checkpoint), str(tmp_path / "l.ckpt"), *asked, "--form", "lightning", "--prefix", "net."])
    lightning = torch.load(tmp_path / "l.ckpt", weights_only=True)
    assert lightning["global_step"] == 3
    assert {"pytorch-lightning_version", "epoch"} <= set(lightning)
    state = lightning["state_dict"]
    assert all(key.startswith("net.") for key in state)

    class Lightning(torch.nn.Module):  # a module that keeps the network under `net`
        def __init__(self):
            super().__init__()
            self.net = ReferenceSwinIR(**OPTIONS)

    user = Lightning()
    user.load_state_dict(state, strict=True)
    assert torch.equal(user.net.conv_last.weight, wanted)


def test_both_sets_stand_under_their_names(trained, tmp_path):
    run, checkpoint = trained
    main([str(checkpoint), str(tmp_path / "both.pth")])
    content = torch.load(tmp_path / "both.pth", weights_only=True)
    assert torch.equal(content["params"]["conv_last.weight"], run.state.module.conv_last.weight)
    assert torch.equal(content["params_ema"]["conv_last.weight"], run.state.ema.module.conv_last.weight)
    for state in content.values():
        ReferenceSwinIR(**OPTIONS).load_state_dict(state, strict=True)


def test_what_is_exported_is_a_start_here_too(trained, tmp_path):
    run, checkpoint = trained
    main([str(checkpoint), str(tmp_path / "out.pth"), "--weights", "trained"])
    module = build_model(run.config).module
    load_weights(module, tmp_path / "out.pth")
    for key, tensor in run.state.module.state_dict().items():
        assert torch.equal(module.state_dict()[key], tensor), key


def test_a_published_file_needs_its_config(tmp_path, capsys):
    torch.save(ReferenceSwinIR(**OPTIONS).state_dict(), tmp_path / "1000_E.pth")
    arguments = [str(tmp_path / "1000_E.pth"), str(tmp_path / "out.safetensors")]
    assert main(arguments) == 2
    assert "does not say what network it is of: name its config (--config)" in capsys.readouterr().err
    (tmp_path / "c.json").write_text(json.dumps({"model": {"net_type": "swinir", **OPTIONS}}))
    assert main([*arguments, "--config", str(tmp_path / "c.json")]) == 0
    assert ModelLoader().load_from_file(tmp_path / "out.safetensors").architecture.id == "SwinIR"
    assert load_config(tmp_path / "c.json").config.model.window_size == 8


def test_mistakes_end_in_one_line(trained, tmp_path, capsys):
    _, checkpoint = trained
    other = merged({**TINY_RUN}, {"model.embed_dim": 16})
    (tmp_path / "other.json").write_text(json.dumps(other))
    (tmp_path / "text.pth").write_text("not a checkpoint")
    content = torch.load(checkpoint, weights_only=True)
    torch.save({**content, "params_ema": None}, tmp_path / "no_ema.pth")
    out = str(tmp_path / "out.pth")
    for arguments, said in (
        ([str(tmp_path / "none.pth"), out], "no such checkpoint"),
        ([str(tmp_path / "text.pth"), out], "cannot be read as a checkpoint of tensors"),
        ([str(checkpoint), out, "--config", str(tmp_path / "other.json")], "is of another architecture"),
        ([str(tmp_path / "no_ema.pth"), out, "--weights", "ema"], "holds trained weights alone"),
        ([str(checkpoint), str(tmp_path)], "is a folder"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert not (tmp_path / "out.pth").exists()


def test_what_spandrel_would_guess_otherwise_is_said(tmp_path, capsys):
    raw = {"net_type": "swinir", **OPTIONS, "img_range": 255.0, "img_size": [32, 41]}
    (tmp_path / "c.json").write_text(json.dumps({"model": raw}))
    module = build_model(load_config(tmp_path / "c.json").config).module
    torch.save(module.state_dict(), tmp_path / "in.pth")
    main([str(tmp_path / "in.pth"), str(tmp_path / "out.pth"), "--config", str(tmp_path / "c.json")])
    said = capsys.readouterr().out
    assert "built with img_size (32, 48)" in said
    assert "spandrel assumes a square img_size, img_range 1, and this network is otherwise" in said
