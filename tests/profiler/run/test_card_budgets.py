"""Budgets of a run on a machine with a GPU: which card is its own, and what others hold of it when the run begins."""

from fractions import Fraction
from types import SimpleNamespace

import pytest

from swinmr_profiling.profiler.allocator.workspaces import KERNELS_BYTES, workspaces_for
from swinmr_profiling.profiler.batch_size.gpus import same_card
from swinmr_profiling.profiler.options.budget_options import Card
from swinmr_profiling.profiler.record.blocks.run_description import Gpu
from swinmr_profiling.profiler.run import context as run_context
from swinmr_profiling.profiler.run.context import (
    TrainingOptions,
    held_by_others_at_start,
    is_own_card,
    own_budget,
)
from swinmr_profiling.profiler.run.steps import prediction_steps

MIB, GIB = 2**20, 2**30
LIBRARIES = workspaces_for("2.14.1", "8.6")
OWN = Card("NVIDIA GeForce RTX 3090", 24124 * MIB, "8.6")


def context(free=24124 * MIB, gpu=True, **training):
    """A run whose measuring process, number 77, opened the GPU and found so much of it free."""
    found = Gpu(
        name=OWN.name,
        uuid="abc",
        total_bytes=OWN.total_bytes,
        compute_capability=OWN.compute_capability,
        free_bytes_at_start=free,
    )
    found = found if gpu else None
    return SimpleNamespace(
        gpu=found,
        environment=SimpleNamespace(gpu=found, torch_version="2.14.1"),
        options=SimpleNamespace(training=TrainingOptions(**training)),
        session=SimpleNamespace(process=SimpleNamespace(process=SimpleNamespace(pid=77))),
    )


@pytest.fixture
def nvml(monkeypatch):
    """Sets what NVML says of process 77."""

    def says(size):
        asked = {("abc", 77): size}
        monkeypatch.setattr(run_context, "nvml_process_bytes", lambda uuid, pid: asked[uuid, pid])

    return says


def test_the_runs_own_process_is_not_counted_among_others(nvml):
    nvml(500 * MIB)
    # 24,124 - 15,432 free - 500 of this process.
    assert held_by_others_at_start(context(free=15_432 * MIB)) == 8192 * MIB
    assert held_by_others_at_start(context(free=23_700 * MIB)) == 0  # its context was smaller then


def test_where_nvml_does_not_know_the_process_the_tables_bare_context_stands_in(nvml):
    nvml(None)
    bare = LIBRARIES.context_bytes - KERNELS_BYTES
    assert held_by_others_at_start(context(free=OWN.total_bytes - bare)) == 0
    assert held_by_others_at_start(context(free=OWN.total_bytes - bare - GIB)) == GIB


def test_the_budget_of_the_machines_own_gpu():
    budget = own_budget(context(headroom=Fraction(1, 5), reserved_bytes=GIB), 3 * GIB)
    assert (budget.name, budget.total_bytes, budget.is_this_machine) == (OWN.name, OWN.total_bytes, True)
    assert budget.reserved_elsewhere_bytes == 3 * GIB
    assert (budget.headroom_share, budget.context_bytes) == (Fraction(1, 5), LIBRARIES.context_bytes)
    assert budget.bf16_hardware is True
    # What the command line reserves is not held a second time.
    assert own_budget(context(reserved_bytes=4 * GIB), 3 * GIB).reserved_elsewhere_bytes == 4 * GIB


def test_a_prediction_for_the_own_gpu_leaves_others_what_they_hold(nvml):
    nvml(500 * MIB)
    cards = [Card("GeForce RTX 4090", 24080 * MIB, "8.9"), Card("24124MiB GPU", 24124 * MIB)]
    for named in ((), cards):
        run = context(free=15_432 * MIB, cards=named)
        budgets = prediction_steps._budgets(run, "2.14.1")
        held = {budget.name: (budget.reserved_elsewhere_bytes, budget.is_this_machine) for budget in budgets}
        assert held[OWN.name] == (8 * GIB, True)
        assert held.get("GeForce RTX 4090", (0, False)) == (0, False)
        assert len(held) == max(len(named), 1)


def test_a_card_of_amd_is_answered_for():
    (budget,) = prediction_steps._budgets(
        context(gpu=False, cards=[Card("MI300X", 192 * GIB, "gfx942")]), "2.14.1"
    )
    # Of a context under ROCm nothing is known: CUDA's largest, with the kernels that a run loads.
    assert (budget.workspace_bytes, budget.context_bytes) == (0, (426 + 128) * MIB)
    assert budget.bf16_hardware is True


def test_without_a_gpu_the_usual_cards_are_answered_for():
    budgets = prediction_steps._budgets(context(gpu=False), "2.14.1")
    assert [budget.name for budget in budgets] == [
        "GeForce RTX 3060 12GB",
        "GeForce RTX 4090",
        "A100 80GB SXM",
    ]
    assert not any(budget.is_this_machine for budget in budgets)


@pytest.mark.parametrize(
    ("card", "own"),
    [
        (Card("GeForce RTX 3090", 24000 * MIB, "8.6"), True),  # CUDA may report a little more
        (Card("GeForce RTX 3090 Ti", 24124 * MIB, "8.6"), False),  # another card of the very memory
        (Card("24124MiB GPU", 24124 * MIB), True),
        (Card("24124MiB GPU", 24124 * MIB - 1), False),
        (Card("24GiB GPU", 24 * GIB), False),
    ],
)
def test_which_card_is_the_machines_own(card, own):
    assert is_own_card(card, context().gpu) is own


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("RTX 3090", "NVIDIA GeForce RTX 3090", True),
        ("A100 80GB SXM", "NVIDIA A100-SXM4-80GB", True),
        ("A100 80GB SXM", "NVIDIA A100-SXM4-40GB", False),
        ("NVIDIA RTX 9999 Ultra", "RTX 9999 ultra", True),  # in nobody's list
        ("RTX 9999", "RTX 9998", False),
    ],
)
def test_two_names_of_one_card(first, second, same):
    assert same_card(first, second) is same
    assert same_card(second, first) is same
