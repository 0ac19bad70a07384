"""Adapters in a run: stopped and gone on, beside parameters that are trained too, exported merged."""

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.scripts.export_checkpoint import main
from swinmr_profiling.training.run.checkpoints import CheckpointError, read_checkpoint
from tests.training.conftest import TINY_RUN

pytest.importorskip("peft")
LORA = {"training.lora": {"rank": 2, "targets": ["qkv", "proj"]}, "training.trainable": ["*.norm1.bias"]}


def test_a_run_that_was_stopped_goes_on_bit_for_bit(tiny_run, stopped, go_on):
    """The adapters, the biases beside them and the average; what is frozen is the network as it was made."""
    whole = read_checkpoint(tiny_run({**LORA, "model.drop_path_rate": 0.5}, folder="whole").run().checkpoint)
    half = read_checkpoint(stopped(LORA))
    resumed = read_checkpoint(go_on(LORA).run().checkpoint)
    for weights in ("params", "params_ema"):
        assert resumed[weights].keys() == whole[weights].keys()
        assert all(torch.equal(resumed[weights][key], value) for key, value in whole[weights].items())
    moved = {key for key, value in resumed["params"].items() if not torch.equal(half["params"][key], value)}
    assert moved
    assert all(".lora_" in key or key.endswith("norm1.bias") for key in moved)
    assert any(key.endswith("norm1.bias") for key in moved)


@pytest.mark.parametrize(
    "changed",
    [
        {"rank": 4, "targets": ["qkv", "proj"]},
        {"rank": 2, "targets": ["qkv"]},
        {"rank": 2, "targets": ["qkv", "proj"], "alpha": 7.0},
        None,
    ],
)
def test_other_adapters_do_not_go_on(stopped, tiny_run, changed):
    stopped(LORA)
    run = tiny_run({"model.drop_path_rate": 0.5, **LORA, "training.lora": changed})
    with pytest.raises(CheckpointError) as caught:
        run.resume()
    assert "\n" not in str(caught.value)
    assert "is of other adapters (training.lora" in str(caught.value)


def test_what_is_exported_computes_the_same_without_adapters(tiny_run, tmp_path, monkeypatch):
    run = tiny_run({**LORA, "training.total_steps": 3, "training.ema_decay": 0.0})
    checkpoint = run.run().checkpoint
    monkeypatch.chdir(tmp_path)
    assert main([str(checkpoint), "merged.pth"]) == 0
    plain = build_model(config_from_dict(TINY_RUN)).module
    state = torch.load(tmp_path / "merged.pth", weights_only=True)["params"]
    assert not any("lora" in key or "base_layer" in key for key in state)
    plain.load_state_dict(state, strict=False)
    image = torch.randn(1, 1, 32, 32)
    with torch.no_grad():
        assert torch.allclose(plain.eval()(image), run.state.module.eval()(image), atol=1e-5)
    adapters = [p for name, p in run.state.module.named_parameters() if "lora_B" in name]
    assert any(p.abs().max() > 0 for p in adapters)
