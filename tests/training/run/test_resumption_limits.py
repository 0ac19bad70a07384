"""What cannot be edited between a checkpoint and its continuation, and what cannot be known."""

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.run.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from swinmr_profiling.training.run.resumption import config_of, differences
from tests.training.conftest import TINY_RUN, merged
from tests.training.denoising.test_denoising_step import TINY_UNET
from tests.training.run.resumed_runs import edited_lines, without_config


@pytest.mark.parametrize(
    ("was", "is_now"),
    [
        ("adam", "sgd"),
        ("sgd", "adam"),
        ("sgd", "adamw"),
        ("adam", "adamw"),
        ("adamw", "adam"),
        ("adamw", "sgd"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_another_kind_of_optimizer_is_refused(stopped, go_on, was, is_now, known):
    """Also where the checkpoint does not say its config: its moments tell."""
    file = stopped({"training.optimizer": {"type": was}}, steps=1)
    if not known:
        without_config(file)
    with pytest.raises(CheckpointError, match=rf"training.optimizer.type: {was} -> {is_now}") as caught:
        go_on({"training.optimizer": {"type": is_now}})
    assert "\n" not in str(caught.value)
    assert "--resume-recipe checkpoint" in str(caught.value)


def test_moments_of_an_older_torch_do_not_tell_adam_from_adamw(stopped, go_on):
    file = stopped(steps=1)
    without_config(file)
    content = read_checkpoint(file)
    for group in content["optimizer"]["param_groups"]:
        del group["decoupled_weight_decay"]
    write_checkpoint({key: content[key] for key in content if key not in ("format", "version")}, file)
    go_on({"training.optimizer": {"type": "adamw"}})
    with pytest.raises(CheckpointError, match="adam or adamw -> sgd"):
        go_on({"training.optimizer": {"type": "sgd"}})


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [
        ({}, {"model.img_range": 255.0}, "model.img_range: 1.0 -> 255.0"),
        ({}, {"model.embed_dim": 12}, "another architecture: conv_first.weight"),
        (TINY_UNET, {"model.num_groups": 2}, "model.num_groups: 4 -> 2"),
        (TINY_UNET, {"model.head_channels": 4}, "model.head_channels: 8 -> 4"),
    ],
)
def test_another_network_is_refused(stopped, go_on, base, change, words):
    """Also one whose weights have the same shapes."""
    stopped(base, steps=1)
    with pytest.raises(CheckpointError, match=words) as caught:
        go_on({**base, **change})
    assert "\n" not in str(caught.value)


def test_what_shapes_the_training_alone_is_no_other_network(stopped, go_on):
    stopped()
    run = go_on({"model.drop_path_rate": 0.0, "model.drop_rate": 0.25, "model.init_type": "normal"})
    assert edited_lines(run) == [
        "model.drop_rate: 0.0 -> 0.25",
        "model.drop_path_rate: 0.5 -> 0.0",
        'model.init_type: "default" -> "normal"',
    ]


def test_a_checkpoint_that_does_not_say_its_config_goes_on_with_the_present_one(stopped, go_on, logged):
    file = stopped()
    without_config(file)
    run = go_on({"training.optimizer.lr": 1e-4})
    assert f"{file} does not say what it was trained with: what was edited since is not known" in run.messages
    run.run()
    assert [line["learning_rate"] for line in logged("train", 4)] == pytest.approx([5e-5, 5e-5])


def test_a_config_of_another_version_is_read_as_far_as_it_goes():
    config = config_from_dict(TINY_RUN)
    raw = config.model_dump(mode="json")
    raw["training"]["no_more"] = 3
    del raw["training"]["optimizer"]["eps"]  # younger than the checkpoint: it had its default's meaning
    assert config_of({"config": raw}) == config
    for unreadable in (None, [], "text", {}, {**raw, "model": {"net_type": "no more"}}):
        assert config_of({"config": unreadable}) is None
    assert config_of({}) is None


def test_differences_name_keys_of_two_networks():
    was = config_from_dict({"model": {"net_type": "timm", "name": "a", "kwargs": {"depth": 2, "old": 1}}})
    now = config_from_dict({"model": {"net_type": "timm", "name": "a", "kwargs": {"depth": 3, "new": 1}}})
    assert [str(difference) for difference in differences(was, now)] == [
        "model.kwargs.depth: 2 -> 3",
        "model.kwargs.old: 1 -> null",
        "model.kwargs.new: null -> 1",
    ]


def test_an_automatic_batch_is_no_edit():
    was = config_from_dict(TINY_RUN)
    now = config_from_dict(merged(TINY_RUN, {"data.batch_size": "auto"}))
    assert differences(was, now) == []
    assert [str(d) for d in differences(was, config_from_dict(merged(TINY_RUN, {"data.batch_size": 3})))] == [
        "data.batch_size: 2 -> 3"
    ]
