"""Plans and PyTorch's partitioner on one joint graph: work by hand, verdicts, the public record."""

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.scripts.benchmark_partitioner import Row, table
from swinmr_profiling.scripts.partitioned_graphs.joint_graphs import (
    Cut,
    joint_graph,
    module_cut,
    saved_values,
    torch_cut,
)
from swinmr_profiling.scripts.public_records.record_ltx_video import Checkpointed, ltx_table

# torch's encoder layer: attention of width 16 over 4 tokens, then 16 -> 32 -> 16.
LAYER = {
    "model": {
        "net_type": "custom",
        "target": "torch.nn:TransformerEncoderLayer",
        "input_shapes": [[4, 16]],
        "kwargs": {"d_model": 16, "nhead": 2, "dim_feedforward": 32, "batch_first": True, "dropout": 0.0},
    }
}
BATCH = 3


@pytest.fixture(scope="module")
def graph():
    return joint_graph(build_model(config_from_dict(LAYER), trust_config=True), BATCH)


def test_a_module_that_is_computed_again_costs_its_own_products(graph):
    plain = module_cut(graph, ())
    # The 3 x 4 tokens through 16 -> 32, and through 32 -> 16. Of a linear layer the backward pass needs the input
    # alone, so that its own product is not among what is computed again.
    for name in ("linear1", "linear2"):
        again = module_cut(graph, (name,))
        assert (again.macs, again.made_bytes) == (plain.macs, plain.made_bytes), name
    attention = module_cut(graph, ("self_attn",))
    # Queries, keys and values; then two heads of width 8, whose scores and sums of values are inside as well.
    assert attention.macs - plain.macs == BATCH * 4 * 16 * 48 + 2 * (BATCH * 2 * 4 * 4 * 8)
    assert attention.made_bytes > plain.made_bytes
    assert attention.peak_bytes <= plain.peak_bytes


def test_of_a_chosen_module_nothing_inside_is_saved(graph):
    def inside(node):
        return "self_attn" in (node.meta.get("custom") or {}).get("modules", ())

    assert any(inside(node) for node in saved_values(graph, set()))
    kept = [node for node in saved_values(graph, {"self_attn"}) if inside(node)]
    # What leaves it is the input of what follows.
    assert all(any(not inside(user) for user in node.users) for node in kept)
    assert len(kept) <= 1


def test_pytorch_s_own_cut_computes_more_again_for_less(graph):
    whole, half = torch_cut(graph, 1.0), torch_cut(graph, 0.2)
    assert whole.macs == module_cut(graph, ()).macs
    assert half.macs >= whole.macs
    assert half.peak_bytes <= whole.peak_bytes


def test_verdicts_and_their_table():
    plain = Cut(100 * 2**20, 10**9, 200 * 2**20)
    theirs = Cut(50 * 2**20, 3 * 10**9, 300 * 2**20)

    def row(plan):
        return Row("net", 0.4, plain, theirs, plan)

    rows = [
        row(Cut(50 * 2**20, 2 * 10**9, 400 * 2**20)),
        row(Cut(40 * 2**20, 3 * 10**9, 301 * 2**20)),
        row(theirs),
        row(Cut(51 * 2**20, 10**9, 200 * 2**20)),
    ]
    assert [one.verdict.partition(":")[0] for one in rows] == ["win", "loss", "tie", "loss"]
    text = table(rows)
    assert "| net | 0.4 | 100.00 | 50.00 | 2.00 | 100.0 | 50.00 | 1.00 | 200.0 | win |" in text
    assert f"1 wins, 1 ties, 2 losses of 4 (PyTorch {torch.__version__})." in text


def test_the_table_of_the_record():
    gib = 2**30
    lines = ltx_table(
        [Checkpointed(0, 20.0, 30 * gib, 25 * gib), Checkpointed(2, 16.0, 25 * gib, 22 * gib)]
    ).splitlines()
    assert lines[-1] == "| every second | 16.000 | 25.000 | 4.000 | 5.000 | +25.0% | 3.000 |"


@pytest.mark.slow
def test_ltx_video_is_met_in_its_differences():
    pytest.importorskip("diffusers")
    from swinmr_profiling.scripts.public_records.record_ltx_video import PUBLISHED, reserved_bytes

    plain = reserved_bytes(0, keeps=True)
    for every in (4, 1):
        saved = (plain - reserved_bytes(every, keeps=True)) / 2**30
        assert saved == pytest.approx(PUBLISHED[0] - PUBLISHED[every], rel=0.03)
