"""Checkpoints of our format with parts missing or absurd: one line each, in train.py and in test.py."""

import copy

import pytest
import torch

from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.training.evaluation.evaluated_checkpoint import load_evaluated
from swinmr_profiling.training.run.checkpoints import CheckpointError, read_checkpoint, write_checkpoint


def without(*path):
    def change(content):
        *outer, last = path
        for key in outer:
            content = content[key]
        del content[last]

    return change


def with_value(value, *path):
    def change(content):
        *outer, last = path
        for key in outer:
            content = content[key]
        content[last] = value

    return change


def first_weight(content):
    return next(iter(content["params"]))


ABSURD = {
    # Of six steps; `step: 10**6` of 64 was taken, and the run was over.
    "a step beyond the end": with_value(10**6, "step"),
    "a step that is not a number": with_value("four", "step"),
    "a negative step": with_value(-1, "step"),
    "a step that is true": with_value(True, "step"),
    "another step than the schedule's": with_value(3, "step"),
    "a best of a later step": with_value(5, "progress", "best_step"),
    "a best that is NaN": with_value(float("nan"), "progress", "best"),
    "no progress": without("progress"),
    "unknown progress": with_value(1, "progress", "luck"),
    "no optimizer": without("optimizer"),
    "no groups": with_value([], "optimizer", "param_groups"),
    "no moments": with_value({}, "optimizer", "state"),
    "moments of another shape": lambda content: content["optimizer"]["state"][0].update(
        exp_avg=torch.zeros(7)
    ),
    "moments of no parameter": with_value({}, "optimizer", "state", 10_000),
    "no schedule": without("scheduler"),
    "a schedule that is a list": with_value([], "scheduler"),
    "no scale": without("scaler"),
    "no weights": without("params"),
    "weights that are none": lambda content: content["params"].update({first_weight(content): 3}),
    "an average of another shape": lambda content: content["params_ema"].update(
        {first_weight(content): torch.zeros(3)}
    ),
    "an average without a weight": lambda content: content["params_ema"].pop(first_weight(content)),
    "no random states": without("random_states"),
    "random states of nobody": with_value([], "random_states"),
    "a random state that is none": with_value(torch.zeros(3, dtype=torch.uint8), "random_states", 0, "torch"),
    "a random state of Python that is none": with_value([3, [1, 2], None], "random_states", 0, "python"),
    "no batch sizes": without("batch_sizes"),
    "batches of none": with_value(0, "batch_sizes", "devices"),
    "batches that contradict": with_value(3, "batch_sizes", "accumulate"),
    "skipped samples that are none": with_value([1, 2], "skipped"),
    "another version": with_value("1.0", "version"),
    "no version": without("version"),
}


@pytest.fixture
def written(stopped, tmp_path):
    """Writes the checkpoint of step 4 again, changed; returns its file."""
    file = stopped()
    original = read_checkpoint(file)

    def write(change):
        content = copy.deepcopy(original)
        change(content)
        if {"format", "version"} <= content.keys() and content["version"] == original["version"]:
            write_checkpoint({k: v for k, v in content.items() if k not in ("format", "version")}, file)
        else:
            file.unlink()
            torch.save(content, file)
        return file

    return write


@pytest.mark.parametrize("kind", ABSURD)
def test_absurd_checkpoints_are_refused_in_one_line(written, tiny_run, kind):
    file = written(ABSURD[kind])
    with pytest.raises(CheckpointError) as refused:
        tiny_run({"model.drop_path_rate": 0.5}).resume()
    assert str(file.parent) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_run_that_has_fewer_steps_now_says_what_to_change(written, tiny_run):
    written(lambda content: None)
    with pytest.raises(
        CheckpointError, match=r"is of step 4, beyond the 3 steps .* raise training.total_steps"
    ):
        tiny_run({"training.total_steps": 3}).resume()


@pytest.mark.parametrize(
    "change",
    [
        without("step"),
        with_value("four", "step"),
        with_value(-3, "step"),
        with_value(None, "params_ema", "conv_first.weight"),
    ],
)
def test_evaluation_refuses_them_in_one_line(written, tiny_run, change):
    run = tiny_run()
    with pytest.raises(ModelError) as refused:
        load_evaluated(run.state.module, written(change), run.config)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        with_value(7, "config"),
        with_value({}, "config"),
        with_value([], "config", "data"),
        with_value("poisson", "config", "data", "degradation"),
    ],
)
def test_evaluation_says_what_it_cannot_know_of_the_data(written, tiny_run, change):
    run = tiny_run()
    found = load_evaluated(run.state.module, written(change), run.config)
    assert found["differences"] == ["the checkpoint does not say how its data was prepared"]
