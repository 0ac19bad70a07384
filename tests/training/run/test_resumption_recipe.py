"""`--resume-recipe checkpoint`: on as the checkpoint was trained, whatever the config says by now."""

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.run.checkpoints import CheckpointError, CheckpointFolder, read_checkpoint
from swinmr_profiling.training.run.resumption import with_recipe_of_checkpoint
from tests.training.conftest import TINY_RUN, merged
from tests.training.run.resumed_runs import FOUR_STEPS, StopBefore, edited_lines, without_config
from tests.training.run.test_loop import assert_same_bits

EDITS = {
    "training.optimizer": {"type": "sgd", "lr": 0.5},
    "training.scheduler": {"type": "none"},
    "training.loss.components.spatial": {"weight": 1.0},
    "training.gradient": {},
    "training.ema_decay": 0.0,
    "training.total_steps": 50,
    "training.accumulate": 1,
    "data.degradation": {"mask": "radial"},
    "data.augmentation": {"random_flip": False},
    "data.patch_size": 24,
    "model.drop_path_rate": 0.0,
    "system.seed": 7,
}


def test_the_checkpoints_recipe_is_gone_on_with_bit_for_bit(tiny_run, tmp_path):
    """However much the config was edited; what is not a recipe stays the config's."""
    straight = tiny_run(FOUR_STEPS, folder="straight").run()
    tiny_run(FOUR_STEPS, stop=StopBefore(5)).run()
    raw = merged(TINY_RUN, {**EDITS, "training.keep_checkpoints": 9, "logging.log_interval": 3})
    raw["paths"] = {"root": str(tmp_path / "results")}
    config, lines = with_recipe_of_checkpoint(
        config_from_dict(raw), CheckpointFolder(tmp_path / "results/tiny/checkpoints", 2)
    )
    assert (config.training.keep_checkpoints, config.logging.log_interval) == (9, 3)
    assert lines[0] == "kept as the checkpoint was trained:"
    assert '  training.optimizer.type: "adam" (the config has "sgd")' in lines
    assert "  system.seed: 42 (the config has 7)" in lines
    run = tiny_run(flat(config))
    assert run.resume()
    assert edited_lines(run) == ["training.keep_checkpoints: 2 -> 9", "logging.log_interval: 1 -> 3"]
    assert_same_bits(read_checkpoint(straight.checkpoint), read_checkpoint(run.run().checkpoint))


def flat(config):
    """The sections of a config as changes of the tiny run's."""
    return {key: value for key, value in config.model_dump(mode="json").items() if key != "paths"}


def test_the_recipe_of_nothing_is_the_configs(tmp_path):
    config = config_from_dict(TINY_RUN)
    assert with_recipe_of_checkpoint(config, CheckpointFolder(tmp_path, 2)) == (config, [])


def test_a_recipe_that_is_not_known_is_not_guessed(stopped):
    file = stopped()
    without_config(file)
    with pytest.raises(CheckpointError, match="--resume-recipe config goes on from it"):
        with_recipe_of_checkpoint(config_from_dict(TINY_RUN), CheckpointFolder(file.parent, 2))


def test_a_recipe_for_another_network_or_image_is_refused(stopped):
    file = stopped()
    folder = CheckpointFolder(file.parent, 2)
    with pytest.raises(CheckpointError, match=r"another network \(model.img_range: 1.0 -> 2.0\)"):
        with_recipe_of_checkpoint(config_from_dict(merged(TINY_RUN, {"model.img_range": 2.0})), folder)
    small = {"model.img_size": 8, "data.patch_size": None}
    with pytest.raises(
        CheckpointError, match=r"its recipe does not suit the config: .*patch_size 16 x 16"
    ) as caught:
        with_recipe_of_checkpoint(config_from_dict(merged(TINY_RUN, small)), folder)
    assert "\n" not in str(caught.value)
