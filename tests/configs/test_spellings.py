"""Configs of similar training projects: the same sections, a few keys elsewhere."""

import json

import pytest

from swinmr_profiling.configs import ConfigError, load_config


def test_keys_of_similar_projects_are_moved_and_said(tmp_path):
    file = tmp_path / "similar.json"
    file.write_text(
        json.dumps(
            {
                "model": {
                    "net_type": "swinir",
                    "upsampler": "",
                    "init_type": "xavier_uniform",
                    "out_chans": 1,
                },
                "data": {"train_dir": "../S1", "degradation_config": "d.json"},
                "training": {
                    "print_freq": 50,
                    "save_freq": 1000,
                    "val_freq": 2,
                    "loss": {"type": "multi_component", "components": {"frequency": {"type": "fft_mse"}}},
                    "optimizer": {
                        "lr": 1e-4,
                        "scheduler": {"type": "multistep", "milestones": [5], "gamma": 0.1},
                    },
                    "gradient": {"clip_enabled": True, "clip_value": 1.0},
                    "early_stopping": {"mode": "max", "metric": "val_ssim"},
                },
                "system": {"gpu_ids": [0]},
            }
        )
    )
    loaded = load_config(file)
    training = loaded.config.training
    assert loaded.config.logging.log_interval == 50
    assert training.checkpoint_every_steps == 1000
    assert training.validate_every_epochs == 2
    assert (training.scheduler.milestones, training.scheduler.gamma) == ([5], 0.1)
    assert training.gradient.clip_norm == 1.0
    frequency = training.loss.components.frequency
    assert (frequency.type, frequency.transform, frequency.eps) == ("charbonnier", "swinmr", 1e-3)
    assert training.loss.components.spatial.eps == 1e-3
    assert [line.split(" is ")[0] for line in loaded.messages] == [
        "training.optimizer.scheduler",
        "training.print_freq",
        "training.save_freq",
        "training.val_freq",
        "training.gradient.clip_value",
        "training.loss.components.frequency.type fft_mse",
        "data.degradation_config",
        "system.gpu_ids",
        "training.early_stopping.mode",
        'loss on k-space with transform "swinmr": all axes of the batch, unnormalised, so samples mix and it',
    ]


def test_clipping_that_was_switched_off_stays_off(tmp_path):
    file = tmp_path / "c.json"
    gradient = {"clip_enabled": False, "clip_value": 1.0}
    file.write_text(json.dumps({"model": {"net_type": "swinir"}, "training": {"gradient": gradient}}))
    assert load_config(file).config.training.gradient.clip_norm is None


def test_a_key_set_in_both_places_is_not_overwritten(tmp_path):
    file = tmp_path / "c.json"
    text = {"model": {"net_type": "swinir"}, "training": {"save_freq": 5, "checkpoint_every_steps": 7}}
    file.write_text(json.dumps(text))
    with pytest.raises(ConfigError, match=r"training\.save_freq: unknown key"):
        load_config(file)


def test_print_freq_beside_log_interval_loads_as_swinmr_mriwizard_has_it(tmp_path):
    file = tmp_path / "c.json"
    text = {"model": {"net_type": "swinir"}, "training": {"print_freq": 5}, "logging": {"log_interval": 7}}
    file.write_text(json.dumps(text))
    loaded = load_config(file)
    assert loaded.config.logging.log_interval == 7
    assert loaded.messages == ("training.print_freq 5 is not used: logging.log_interval is there as well",)


def test_a_moved_key_does_not_hide_a_section_of_the_wrong_type(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(
        json.dumps({"model": {"net_type": "swinir"}, "training": {"print_freq": 5}, "logging": 3})
    )
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert any(line.startswith("logging: expected an object") for line in caught.value.problems)
