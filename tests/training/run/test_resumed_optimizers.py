"""A stopped training goes on bit for bit with every optimizer and with bf16 weights, and refuses other moments."""

import pytest
import torch

from swinmr_profiling.training.run.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from tests.training.run.resumed_runs import FOUR_STEPS

KINDS = {
    "muon": {"training.optimizer": {"type": "muon", "lr": 1e-3}},
    "adafactor": {"training.optimizer": {"type": "adafactor", "lr": 1e-3}},
    "pure_bf16": {"system.mixed_precision": "pure_bf16", "training.ema_decay": 0},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_as_if_it_had_not_stopped(tiny_run, stopped, go_on, kind):
    whole = tiny_run({**FOUR_STEPS, **KINDS[kind]}, folder="whole")
    whole.run()
    stopped(KINDS[kind])
    run = go_on(KINDS[kind])
    run.run()
    assert run.state.step == whole.state.step == 6
    ours, theirs = (list(r.state.module.parameters()) for r in (run, whole))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    expected = torch.bfloat16 if kind == "pure_bf16" else torch.float32
    assert {p.dtype for p in ours} == {expected}


def test_another_kind_is_refused(stopped, go_on):
    stopped(KINDS["adafactor"])
    with pytest.raises(CheckpointError, match=r"optimizer\.type: adafactor -> muon"):
        go_on(KINDS["muon"])


def test_moments_of_another_shape_are_refused(stopped, go_on):
    file = stopped(KINDS["adafactor"])
    content = read_checkpoint(file)
    number = next(n for n, moments in content["optimizer"]["state"].items() if "row_var" in moments)
    moments = content["optimizer"]["state"][number]
    moments["row_var"] = torch.cat([moments["row_var"]] * 2, dim=-1)
    write_checkpoint(content, file)
    with pytest.raises(CheckpointError, match=f"row_var of parameter {number}"):
        go_on(KINDS["adafactor"])
