"""A training that goes on with an edited config: at what rate, under which loss, with what it had."""

import pytest
import torch

from swinmr_profiling.training.run.checkpoints import read_checkpoint, write_checkpoint
from tests.training.run.resumed_runs import edited_lines


def test_an_edited_rate_and_milestones_count_from_the_saved_step_on(stopped, go_on, logged):
    """Steps count from 0. Until the stop: warm-up over two steps, then 1e-3, halved from step 4 on. Edited at step 4:
    1e-4, a tenth of it from step 5 on, a tenth of that from step 6 on; step 2 is passed and counts too."""
    stopped()
    milestones = {"milestones": [2, 5, 6], "gamma": 0.1, "warmup_steps": 2}
    run = go_on({"training.optimizer.lr": 1e-4, "training.scheduler": milestones, "training.total_steps": 7})
    run.run()
    rates = {line["step"]: line["learning_rate"] for line in logged("train", 0)}
    assert [rates[step] for step in (1, 2, 3, 4)] == pytest.approx([5e-4, 1e-3, 1e-3, 1e-3])
    assert [rates[step] for step in (5, 6, 7)] == pytest.approx([1e-5, 1e-6, 1e-7])


def test_an_edited_rate_under_the_old_milestones(stopped, go_on, logged):
    """The issue's case: 2e-4 became 2e-5, and 2e-4 was trained on with."""
    stopped({"training.optimizer.lr": 2e-4})
    run = go_on({"training.optimizer.lr": 2e-5})
    assert edited_lines(run) == ["training.optimizer.lr: 0.0002 -> 2e-05"]
    run.run()
    assert [line["learning_rate"] for line in logged("train", 4)] == pytest.approx([1e-5, 1e-5])


def test_a_cosine_of_another_end_and_rate(stopped, go_on, logged):
    """4e-4 to 1e-4 over the steps 2 to 10: (1/4 + 3/4 (1 + cos(pi k / 8)) / 2) x 4e-4 at step 2 + k."""
    stopped()
    cosine = {"type": "cosine", "warmup_steps": 2, "min_lr": 1e-4}
    go_on({"training.optimizer.lr": 4e-4, "training.scheduler": cosine, "training.total_steps": 10}).run()
    found = {line["step"]: line["learning_rate"] for line in logged("train", 4)}
    # k = 2 (cos 45 degrees), 4 (90) and 6 (135); the log's steps count from 1.
    half = 2**0.5 / 2
    expected = [4e-4 * (0.25 + 0.375 * (1 + cosine)) for cosine in (half, 0.0, -half)]
    assert [found[step] for step in (5, 7, 9)] == pytest.approx(expected)


def test_a_schedule_that_is_no_more(stopped, go_on, logged):
    stopped()
    go_on({"training.scheduler": {"type": "none"}}).run()
    assert [line["learning_rate"] for line in logged("train", 4)] == [1e-3, 1e-3]


def test_moments_are_the_checkpoints_and_settings_the_configs(stopped, go_on):
    file = stopped()
    edited = {"lr": 1e-4, "betas": [0.5, 0.75], "eps": 1e-3, "weight_decay": 0.25}
    run = go_on({"training.optimizer": edited})
    [group] = run.state.optimizer.param_groups
    assert group["lr"] == 1e-4 * 0.5  # step 4 is past the milestone
    assert group["initial_lr"] == 1e-4
    assert (tuple(group["betas"]), group["eps"], group["weight_decay"]) == ((0.5, 0.75), 1e-3, 0.25)
    content = read_checkpoint(file)
    theirs, ours = content["optimizer"]["state"], run.state.optimizer.state_dict()["state"]
    assert ours.keys() == theirs.keys()
    assert all(float(state["step"]) == 4 for state in ours.values())
    for number, state in theirs.items():
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(ours[number][name], state[name])
    assert run.state.scheduler.last_epoch == run.state.step == 4
    assert run.state.scheduler.get_last_lr() == [group["lr"]]


def test_the_first_step_at_a_quarter_of_the_rate_moves_a_quarter_as_far(stopped, go_on):
    """Momentum included: w -= lr (mu v + g), with v of the checkpoint and g of the same batch."""
    sgd = {"type": "sgd", "lr": 4e-3, "momentum": 0.9}
    constant = {"training.scheduler": {"type": "none"}, "training.gradient": {}}
    file = stopped({**constant, "training.optimizer": sgd})
    before = {k: v for k, v in read_checkpoint(file)["params"].items() if v.is_floating_point()}
    moved = []
    for rate in (4e-3, 1e-3):
        run = go_on({**constant, "training.optimizer": {**sgd, "lr": rate}, "training.total_steps": 5})
        run.checkpoints.folder = run.checkpoints.folder.parent / str(rate)
        result = read_checkpoint(run.run().checkpoint)["params"]
        moved.append({key: result[key] - value for key, value in before.items()})
    largest = max(change.abs().max().item() for change in moved[0].values())
    assert largest > 1e-3
    for key, change in moved[0].items():
        assert torch.allclose(moved[1][key], change / 4, atol=1e-3 * largest), key


def test_edited_losses_and_masks_count(stopped, go_on, logged):
    """Every weight twice: the very first loss is twice what it would have been. Half of k-space instead of 30 %."""
    stopped()
    run = go_on({"training.total_steps": 5})
    run.checkpoints.folder = run.checkpoints.folder.parent / "plain"
    run.run()
    [plain] = logged("train", 4)
    twice = {"perceptual": {"weight": 0}, "spatial": {"weight": 30.0}, "frequency": {"weight": 0.2}}
    run = go_on({"training.loss.components": twice})
    assert edited_lines(run) == [
        "training.loss.components.spatial.weight: 15.0 -> 30.0",
        "training.loss.components.frequency.weight: 0.1 -> 0.2",
    ]
    run.run()
    assert logged("train", 4)[1]["loss"] == pytest.approx(2 * plain["loss"], rel=1e-6)
    stopped_again = go_on(
        {
            "training.loss.components": twice,
            "data.degradation": {"sampled_fraction": 0.5},
            "training.total_steps": 9,
        }
    )
    stopped_again.run()
    assert logged("validation", 6)[-1]["sampled_fraction"] == pytest.approx(0.5, abs=0.03)


def test_every_difference_is_listed_in_the_order_of_the_config(stopped, go_on, tmp_path):
    stopped()
    run = go_on(
        {
            "training.total_steps": 9,
            "training.scheduler.milestones": [5],
            "training.gradient.clip_norm": None,
            "data.augmentation": {"random_flip": False},
            "data.num_workers": 1,
            "logging.log_interval": 2,
            "system.seed": 7,
            "paths": {"root": str(tmp_path / "results"), "samples": str(tmp_path / "samples")},
        }
    )
    assert edited_lines(run) == [
        "data.num_workers: 0 -> 1",
        "data.augmentation.random_flip: true -> false",
        "training.total_steps: 6 -> 9",
        "training.scheduler.milestones: [4] -> [5]",
        "training.gradient.clip_norm: 1.0 -> null",
        "logging.log_interval: 1 -> 2",
        "system.seed: 42 -> 7",
    ]
    # They are said after where it goes on from.
    texts = [line for line in run.messages if line.startswith(("resumed", "edited"))]
    assert texts[0].endswith("step_000000004.pth, step 4")
    assert texts[1].startswith("edited since the checkpoint")


def test_without_an_edit_nothing_is_said(stopped, go_on):
    stopped()
    run = go_on()
    assert [line for line in run.messages if "edited" in line or "anew" in line or "average" in line] == []
    assert run.progress.best is not None


def test_an_edit_is_said_once(stopped, go_on):
    """The checkpoint after it is of the edited config."""
    stopped()
    go_on({"training.optimizer.lr": 1e-4}).run()
    assert edited_lines(go_on({"training.optimizer.lr": 1e-4})) == []


def test_an_average_that_begins_now(stopped, go_on):
    """It begins with the weights of the checkpoint, and every update is half and half."""
    file = stopped({"training.ema_decay": 0.0})
    run = go_on({"training.ema_decay": 0.5})
    assert "the moving average begins with the weights of step 4" in run.messages
    params = read_checkpoint(file)["params"]
    for key, value in run.state.ema.module.state_dict().items():
        assert torch.equal(value, params[key])
    assert int(run.state.ema.n_averaged) == 1
    assert read_checkpoint(run.run().checkpoint)["ema_updates"] == 3


def test_an_average_that_ends_now(stopped, go_on):
    stopped()
    run = go_on({"training.ema_decay": 0.0})
    assert "the moving average is not gone on with" in run.messages
    assert read_checkpoint(run.run().checkpoint)["params_ema"] is None


def test_an_average_of_another_pace(stopped, go_on):
    """The average is gone on with: 0.5 -> 0 would forget it, 1 keeps it as it was."""
    file = stopped()
    run = go_on({"training.ema_decay": 1.0})
    average = read_checkpoint(file)["params_ema"]
    after = read_checkpoint(run.run().checkpoint)
    for key, value in average.items():
        assert torch.allclose(after["params_ema"][key], value, atol=1e-7)
    assert not torch.equal(after["params"]["conv_first.weight"], average["conv_first.weight"])


def test_fp16_that_begins_or_ends_now(stopped, go_on):
    """A scaler without a state of its own starts as a new one does, at 2^16."""
    stopped()
    run = go_on({"system.mixed_precision": "fp16"})
    assert "the scale of fp16's loss begins anew" in run.messages
    assert edited_lines(run) == ['system.mixed_precision: false -> "fp16"']
    assert run.state.scaler.get_scale() == 65536.0
    run.state.scaler.load_state_dict({**run.state.scaler.state_dict(), "scale": 1024.0})
    content = {
        **read_checkpoint(run.checkpoints.folder / "last.pth"),
        "scaler": run.state.scaler.state_dict(),
    }
    content["config"]["system"]["mixed_precision"] = "fp16"
    write_checkpoint(
        {key: value for key, value in content.items() if key not in ("format", "version")},
        run.checkpoints.folder / "step_000000004.pth",
    )
    again = go_on({"system.mixed_precision": "fp16"})
    assert again.state.scaler.get_scale() == 1024.0
    assert not any("begins anew" in line for line in again.messages)
    plain = go_on()
    assert not plain.state.scaler.is_enabled()
    assert edited_lines(plain) == ['system.mixed_precision: "fp16" -> false']
