"""A run with what waits on the host is the same run: its steps, its validations, its checkpoints, going on."""

import pytest
import torch

from swinmr_profiling.training.run.checkpoints import read_checkpoint
from tests.training.run.resumed_runs import edited_lines

ON_HOST = {"training.on_host": ["ema", "activations", "optimizer_states"]}
PARTS = ("params", "params_ema")


def same(ours, theirs):
    for part in PARTS:
        assert ours[part].keys() == theirs[part].keys()
        for name, value in ours[part].items():
            assert torch.equal(value, theirs[part][name]), (part, name)
    assert ours["optimizer"]["state"].keys() == theirs["optimizer"]["state"].keys()
    for number, moments in ours["optimizer"]["state"].items():
        for name, value in moments.items():
            assert torch.equal(value, theirs["optimizer"]["state"][number][name]), (number, name)


@pytest.fixture
def whole(tiny_run):
    """Six steps and two validations without the host."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    result = tiny_run({"model.drop_path_rate": 0.5}, folder="whole").run()
    yield read_checkpoint(result.checkpoint), result.last_validation
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("first", "then"), [(ON_HOST, ON_HOST), ({}, ON_HOST), (ON_HOST, {})])
@pytest.mark.sampled(1)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(whole, stopped, go_on, first, then):
    stopped(first)
    run = go_on(then)
    assert all(line.startswith("training.on_host: ") for line in edited_lines(run))
    result = run.run()
    same(read_checkpoint(result.checkpoint), whole[0])
    assert result.last_validation == whole[1]
