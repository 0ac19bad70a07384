"""One's own config as YAML or TOML is the one that its JSON is."""

import json

import pytest

from swinmr_profiling.configs import ConfigError, load_config

CONTENT = {
    "experiment_name": "tiny",
    "model": {"net_type": "swinir", "img_size": 16, "window_size": 8, "depths": [1, 1], "num_heads": [2, 2]},
    "training": {"optimizer": {"lr": 1e-4}, "ema_decay": 0.5},
}
YAML = """
experiment_name: tiny  # a comment
model: {net_type: swinir, img_size: 16, window_size: 8, depths: [1, 1], num_heads: [2, 2]}
training:
  optimizer:
    lr: 1e-4
  ema_decay: 5E-1
"""
TOML = """
experiment_name = "tiny"
model = {net_type = "swinir", img_size = 16, window_size = 8, depths = [1, 1], num_heads = [2, 2]}
[training]
ema_decay = 0.5
[training.optimizer]
lr = 1e-4
"""


@pytest.mark.parametrize(("ending", "text"), [("yaml", YAML), ("yml", YAML), ("toml", TOML)])
def test_it_is_the_same(tmp_path, ending, text):
    pytest.importorskip("yaml")
    (tmp_path / "a.json").write_text(json.dumps(CONTENT))
    (tmp_path / f"a.{ending}").write_text(text)
    found = load_config(tmp_path / f"a.{ending}").config
    assert found == load_config(tmp_path / "a.json").config
    assert found.training.optimizer.lr == 1e-4


def test_a_mistake_is_told_as_in_json(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "a.yaml").write_text(YAML.replace("img_size", "imgsize"))
    with pytest.raises(ConfigError, match=r"model.imgsize"):
        load_config(tmp_path / "a.yaml")
