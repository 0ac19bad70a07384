"""FSDP2 by torch's own FSDPMemTracker, which watches real tensors through hooks, beside the trace without data."""

import gc

import pytest
import torch
import torch.distributed as dist
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.testing._internal.distributed.fake_pg import FakeStore

from swinmr_profiling.profiler.prediction.replay import live_by_category
from swinmr_profiling.profiler.ranks.traced_rank import RANK_STEPS
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import (
    MicroBatch,
    build_settings,
    build_state,
    training_step,
)
from swinmr_profiling.training.strategies.engine import build_engine
from tests.profiler.ranks.three_layers import config_of, three_layers, traced

WIDTH = 512
W, A = WIDTH * WIDTH * 4, 8 * WIDTH * 4
# Losses, norms and counts of steps; everything else is larger than half an activation.
SCALARS_BYTES = 512
# Their names for what is one category here. A weight's gradient on its way is a temporary there, too; inputs are
# activations there.
THEIRS = {
    "parameters": ("Sharded Param",),
    "optimizer_state": ("OptState",),
    "gradients": ("Sharded Grad",),
    "communication": ("Unsharded Param", "All Gather", "Reduce Scatter"),
    "temporaries": ("Temp", "Unsharded Grad", "Activation", "Inputs"),
}
OURS = {"temporaries": ("temporaries", "saved_activations", "inputs")}


def tracked(config, size):
    """The tracker's peak of the steps that `traced` traces, by its categories."""
    built, device = three_layers(WIDTH), torch.device("cpu")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    try:
        engine = build_engine(config, size, device)
        state = build_state(
            config,
            built.module.train(),
            build_loss(config),
            RANK_STEPS,
            shard=engine.shard,
            make_optimizer=engine.optimizer,
        )
        tracker = FSDPMemTracker(state.module, state.optimizer)
        with tracker:
            for _ in range(RANK_STEPS):
                tracker.reset_mod_stats()
                gc.collect()
                batches = iter([MicroBatch((torch.zeros(8, WIDTH),), torch.zeros(8, WIDTH), ["one"])])
                training_step(state, build_settings(config, "cpu"), batches)
        peak = tracker.get_tracker_snapshot("peak")[device]
    finally:
        dist.destroy_process_group()
    return {getattr(name, "value", name): size for name, size in peak.items()}


@pytest.mark.parametrize(
    ("training", "size"),
    [
        ({}, 2),
        ({"fsdp": {"reshard_after_forward": False}}, 4),
        ({"gradient": {"clip_norm": 1.0}}, 8),
        ({"fsdp": {"param_dtype": "bf16", "reduce_dtype": "fp32"}}, 2),
    ],
    ids=["resharded", "kept", "clipped", "bf16"],
)
def test_peak_by_category(training, size):
    theirs = tracked(config_of("fsdp", WIDTH, **training), size)
    trace = traced("fsdp", size, width=WIDTH, **training).trace
    live = trace.live_bytes()
    event = trace.step_starts[0] + int(live[trace.step_starts[0] :].argmax())
    parts = live_by_category(trace, event)
    assert live[event] == pytest.approx(theirs["Total"], abs=SCALARS_BYTES)
    for name, names in THEIRS.items():
        ours = sum(parts[part] for part in OURS.get(name, (name,)))
        # Each scalar is rounded up to 512 bytes here.
        assert ours == pytest.approx(sum(theirs[one] for one in names), abs=16 * SCALARS_BYTES), name
