"""A plan is never dearer than light or full checkpointing at their own peaks, also where light is no set of modules."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from swinmr_profiling.profiler.batch_size.budget import budget_on
from swinmr_profiling.profiler.plan.candidates import bases
from swinmr_profiling.profiler.plan.training_plan import TrainingPlanner
from swinmr_profiling.profiler.prediction.trace import trace_cache
from swinmr_profiling.profiler.prediction.trace.traced_step import TRACED_STEPS
from swinmr_profiling.scripts.benchmark_recomputation import NETWORKS
from tests.models.test_recomputed_modules import config_of


@pytest.fixture(autouse=True)
def own_traces(tmp_path):
    trace_cache.keep_in(tmp_path)
    yield
    trace_cache.keep_in(None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SwinMR", "U-Net", "DiT"])
def test_no_dearer_than_light_and_full(name):
    model, batch = NETWORKS[name]
    card = budget_on("a card", 2**40, None, torch_version=torch.__version__, headroom_share=Fraction(0))
    planner = TrainingPlanner(config_of(model), card, batch)
    base = next(iter(bases(planner.config, card, allow_patch=False)))
    own = planner._step_planner(base)
    assert own.named_ways() == ["none", "light", "full"]
    for way in ("light", "full"):
        predicted = planner._predict(base, own, way, batch)
        planner.budget = replace(card, total_bytes=predicted.replayed.peak_reserved_bytes + planner._outside)
        found = planner._cheapest(base, own, batch)
        assert found is not None
        assert found.fits
        assert found.needed_bytes <= planner.budget.usable_bytes == planner.budget.total_bytes
        assert (found.recomputed_macs, found.recomputed_bytes) <= own.cost(way, batch)
        assert found.live_bytes <= predicted.replayed.training.live_bytes
        if way == "light" and own.cost("light", batch)[0] == 0:
            # Full is not asked: it computes products again.
            assert ("full", batch, TRACED_STEPS) not in own._steps
        assert own.cost("full", batch)[0] > 0
