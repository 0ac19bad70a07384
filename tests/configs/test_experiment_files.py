"""The three experiment files, path resolution, and the exact round trip through a dict."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from swinmr_profiling.configs import (
    ConfigError,
    ExperimentConfig,
    config_from_dict,
    load_config,
    resolve_paths,
)

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    # file: embed_dim, block groups, image, patch, batch
    "train_config.json": (60, 6, 256, 160, 4),
    "train_config_small.json": (60, 4, 256, 96, 8),
    "train_config_large.json": (180, 6, 256, 96, 8),
}


@pytest.mark.parametrize("name", FILES)
def test_the_file_holds_the_network_and_shapes_it_is_described_with(name):
    embed_dim, groups, image, patch, batch = FILES[name]
    config = load_config(ROOT / "configs" / name).config
    assert config.model.net_type == "swinir"
    assert config.model.embed_dim == embed_dim
    assert config.model.depths == [6] * groups
    assert config.model.num_heads == [6] * groups
    assert config.model.image_hw == (image, image)
    assert config.model.window_size == 8
    assert config.model.mlp_ratio == 2.0
    assert config.model.drop_path_rate == 0.1
    assert config.model.upsampler is None
    assert config.training_patch_hw == (patch, patch)
    assert config.data.batch_size == batch
    assert config.data.resolved_source == "phantom"


def test_each_file_has_its_own_run_folder_below_results():
    configs = [load_config(ROOT / "configs" / name).config for name in FILES]
    assert len({config.experiment_name for config in configs}) == 3
    assert {config.paths.root for config in configs} == {str(ROOT / "results")}
    assert {config.training.profile for config in configs} == {str(ROOT / "results" / "profile_results.json")}


def test_the_large_file_is_the_published_recipe():
    training = load_config(ROOT / "configs" / "train_config_large.json").config.training
    parts = training.loss.components
    assert (parts.spatial.type, parts.spatial.weight, parts.spatial.eps) == ("charbonnier", 15, 1e-9)
    assert (parts.frequency.type, parts.frequency.weight) == ("charbonnier", 0.1)
    assert (parts.perceptual.weight, parts.ssim.weight) == (0.0025, 0)
    assert parts.perceptual.layers == [2, 7, 16, 25, 34]
    assert parts.perceptual.layer_weights == [0.1, 0.1, 1, 1, 1]
    assert (training.optimizer.type, training.optimizer.lr, training.optimizer.weight_decay) == (
        "adam",
        2e-4,
        0,
    )
    assert training.scheduler.milestones == [50000, 70000, 90000, 100000, 110000]
    assert training.scheduler.gamma == 0.5
    assert training.ema_decay == 0.999


@pytest.mark.parametrize("name", FILES)
def test_a_dumped_config_is_rebuilt_exactly(name):
    config = load_config(ROOT / "configs" / name).config
    through_json = json.loads(json.dumps(config.model_dump(mode="json")))
    rebuilt = config_from_dict(through_json)
    assert rebuilt == config
    assert rebuilt.model_dump(mode="json") == through_json


@pytest.mark.parametrize(
    "raw",
    [
        {
            "model": {"net_type": "swinmr", "img_size": [240, 256], "upsampler": ""},
            "data": {"patch_size": [96, 128]},
        },
        {"model": {"net_type": "timm", "name": "resnet18", "kwargs": {"drop_rate": 0.1}}},
        {
            "model": {
                "net_type": "custom",
                "target": "my.net:Net",
                "input_shapes": [[1, 8, 8], []],
                "input_dtypes": ["float", "int64"],
            },
            "system": {"mixed_precision": "bf16"},
            "data": {"batch_size": "auto", "degradation": {"acceleration": 4}},
        },
    ],
)
def test_other_networks_survive_the_round_trip_too(raw):
    config = config_from_dict(raw)
    assert config_from_dict(json.loads(json.dumps(config.model_dump(mode="json")))) == config


def test_the_least_file_takes_its_name_and_every_default(tmp_path):
    file = tmp_path / "my first try.json"
    file.write_text('{"model": {"net_type": "swinmr"}}')
    loaded = load_config(file)
    assert loaded.config.experiment_name == "my_first_try"
    assert loaded.config.model.net_type == "swinir"
    assert loaded.config.model.embed_dim == 180
    assert loaded.config.training_patch_hw == (256, 256)
    assert loaded.messages == ()


def test_relative_paths_are_taken_from_the_files_folder(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c.json").write_text(
        json.dumps(
            {
                "model": {"net_type": "swinir"},
                "paths": {"logs": "logs"},
                "data": {"train_dir": "../mri", "val_dir": "/data/val", "test_dir": "~/test"},
                "training": {"loss": {"components": {"perceptual": {"weights_file": "vgg.pth"}}}},
            }
        )
    )
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.chdir(tmp_path)
    config = load_config("deep/c.json").config
    assert config.data.train_dir == str(tmp_path / "mri")
    assert config.data.val_dir == "/data/val"
    assert config.data.test_dir == "/home/someone/test"
    assert config.paths.root == str(tmp_path / "results")
    assert config.paths.logs == str(tmp_path / "deep" / "logs")
    assert config.paths.samples is None
    assert config.training.profile == str(tmp_path / "results" / "profile_results.json")
    assert config.training.loss.components.perceptual.weights_file == str(tmp_path / "deep" / "vgg.pth")


def test_paths_of_a_dict_stay_unless_a_folder_is_given():
    raw = {"model": {"net_type": "swinir"}}
    config = config_from_dict(raw)
    assert config.paths.root == "../results"
    assert config_from_dict(raw, folder="/a/b") == resolve_paths(config, "/a/b")
    assert resolve_paths(config, "/a/b").paths.root == "/a/results"


def test_the_loaded_record_says_where_it_came_from(tmp_path, monkeypatch):
    content = b'\xef\xbb\xbf{"model": {"net_type": "swinir"}} // end\n'
    (tmp_path / "c.json").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    loaded = load_config("c.json")
    assert loaded.file == tmp_path / "c.json"
    assert loaded.sha256 == hashlib.sha256(content).hexdigest()
    assert isinstance(loaded.config, ExperimentConfig)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.sha256 = ""
    with pytest.raises(ValueError, match="frozen"):
        loaded.config.experiment_name = "other"


def test_the_given_dict_is_not_changed():
    raw = {"model": {"net_type": "swinir", "embed_dims": 60}, "data": {}}
    before = json.dumps(raw)
    with pytest.raises(ConfigError):
        config_from_dict(raw)
    assert json.dumps(raw) == before


@pytest.mark.parametrize("split", ["train_dir", "val_dir", "test_dir"])
def test_auto_is_the_phantom_only_where_no_folder_is_set(split):
    """A run of test.py names a test folder alone: it must not be given phantoms instead."""
    raw = {"model": {"net_type": "swinir"}}
    assert config_from_dict(raw).data.resolved_source == "phantom"
    assert config_from_dict({**raw, "data": {split: "scans"}}).data.resolved_source == "auto"
