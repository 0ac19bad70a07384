#!/usr/bin/env python3
"""Holds plans against PyTorch's own `activation_memory_budget`, both on the same joint graph.

    python scripts/benchmark_partitioner.py
    python scripts/benchmark_partitioner.py --networks vit resnet --page /tmp/table.md
    python scripts/benchmark_partitioner.py --ltx-video   # a public record of checkpointed blocks

For each network AOTAutograd traces forward and backward as one graph. PyTorch's partitioner cuts it for a budget (a
share of what would be saved); of the plan each chosen module keeps its inputs and is computed again in the backward
part. Both are then walked node by node without data: most bytes alive, multiply-adds, bytes made. What the planner
chooses for 64 budgets of its own is held against each of PyTorch's: the fewest multiply-adds with a peak that is no
higher. Nothing is asserted; wins and losses are printed as they are.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

import torch  # noqa: E402

import swinmr_profiling.command  # noqa: E402 - takes this folder off sys.path
from swinmr_profiling.configs import ExperimentConfig  # noqa: E402
from swinmr_profiling.profiler.options.option_types import parse_options  # noqa: E402
from swinmr_profiling.profiler.plan.greedy_selection import greedy_order, outermost  # noqa: E402
from swinmr_profiling.profiler.plan.step_planner import StepPlanner  # noqa: E402
from swinmr_profiling.profiler.record.units import figure  # noqa: E402
from swinmr_profiling.scripts.benchmarks.small_networks import built_plain, plain_config  # noqa: E402
from swinmr_profiling.scripts.partitioned_graphs.joint_graphs import (  # noqa: E402
    Cut,
    joint_graph,
    module_cut,
    torch_cut,
)

MIB = 2**20
BUDGETS = (0.2, 0.4, 0.6, 0.8)
# Budgets of the planner, evenly between the least peak that it knows and that of nothing recomputed.
PLANS = 64
NETWORKS: dict[str, tuple[dict[str, Any], int]] = {
    "SwinMR small": ({"net_type": "swinmr", "img_size": 48, "depths": [2, 2], "num_heads": [2, 2], "embed_dim": 24}, 4),
    "DiT": ({"net_type": "dit_denoiser", "img_size": 64, "patch_size": 4, "embed_dim": 64, "depth": 6,
             "num_heads": 4}, 4),
    "ViT": ({"net_type": "timm", "name": "vit_tiny_patch16_224", "img_size": 128, "num_classes": 4,
             "kwargs": {"depth": 6, "embed_dim": 96, "num_heads": 3}}, 8),
    "U-Net": ({"net_type": "unet_denoiser", "img_size": 48, "base_channels": 16, "channel_multipliers": [1, 2],
               "num_res_blocks": 1, "attention_resolutions": [24], "num_groups": 4, "head_channels": 16}, 4),
    "ResNet": ({"net_type": "timm", "name": "resnet10t", "img_size": 64, "num_classes": 4}, 32),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One budget of one network: PyTorch's cut, and the plan's with the fewest multiply-adds at no higher a peak, or,
    where there is none, with the lowest.
    """

    network: str
    budget: float
    plain: Cut
    torch: Cut
    plan: Cut

    @property
    def verdict(self) -> str:
        """Whose multiply-adds are fewer, at the same peak or a lower one; of equal ones whose bytes are."""
        if self.plan.peak_bytes > self.torch.peak_bytes:
            return "loss: no plan has so low a peak"
        ours, theirs = (
            (cut.macs - self.plain.macs, cut.made_bytes - self.plain.made_bytes)
            for cut in (self.plan, self.torch)
        )
        if ours == theirs:
            return "tie"
        return "win" if ours < theirs else "loss"


def planned(config: ExperimentConfig, batch_size: int) -> list[tuple[str, ...]]:
    """The sets of modules that the planner chooses for its budgets, each once; its peaks are not asked for."""
    planner = StepPlanner(config, as_on_cuda=False, build=built_plain)
    low, high = planner.least(batch_size).peak_bytes, planner.quick_peak("none", batch_size)
    found: dict[tuple[str, ...], None] = {(): None}
    for number in range(PLANS):
        chosen = planner.choose(
            batch_size, low + (high - low) * number // (PLANS - 1), excess=lambda modules: 0
        )
        if chosen is not None:
            found[chosen.modules] = None
    if not planner.is_chain:
        order = greedy_order(planner.step("none", batch_size))
        found |= {tuple(outermost(order[:length])): None for length in range(len(order) + 1)}
    return list(found)


def rows_of(name: str) -> list[Row]:
    """The four budgets of a network."""
    model, batch_size = NETWORKS[name]
    config = plain_config(model, optimizer={"type": "sgd", "momentum": 0.0}, ema_decay=0.0)
    sets = planned(config, batch_size)
    graph = joint_graph(built_plain(config), batch_size)
    plain = module_cut(graph, ())
    ours = [module_cut(graph, names) for names in sets]
    rows = []
    for budget in BUDGETS:
        theirs = torch_cut(graph, budget)
        fits = [cut for cut in ours if cut.peak_bytes <= theirs.peak_bytes]
        lowest = min(ours, key=lambda cut: cut.peak_bytes)
        best = min(fits, key=lambda cut: (cut.macs, cut.made_bytes), default=lowest)
        rows.append(Row(name, budget, plain, theirs, best))
    return rows


def table(rows: list[Row]) -> str:
    """Markdown."""
    lines = [
        "| network | budget | nothing again, peak MiB | PyTorch: peak MiB | GMACs again | MiB again | "
        "plan: peak MiB | GMACs again | MiB again | the plan's |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        cells = [row.network, f"{row.budget:g}", f"{row.plain.peak_bytes / MIB:.2f}"]
        for cut in (row.torch, row.plan):
            cells += [
                f"{cut.peak_bytes / MIB:.2f}",
                figure((cut.macs - row.plain.macs) / 1e9),
                f"{(cut.made_bytes - row.plain.made_bytes) / MIB:.1f}",
            ]
        lines.append("| " + " | ".join([*cells, row.verdict]) + " |")
    verdicts = [row.verdict.partition(":")[0] for row in rows]
    counted = ", ".join(
        f"{verdicts.count(word)} {plural}"
        for word, plural in (("win", "wins"), ("tie", "ties"), ("loss", "losses"))
    )
    return "\n".join([*lines, "", f"{counted} of {len(rows)} (PyTorch {torch.__version__})."])


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    names = {name.lower().replace(" ", "-"): name for name in NETWORKS}
    options = parse_options(
        argparse.ArgumentParser(description=__doc__.splitlines()[0]),
        arguments,
        {
            "--networks": dict(nargs="+", choices=names, default=list(names)),
            "--page": dict(type=Path, metavar="FILE", help="write the table as Markdown, too"),
            "--ltx-video": dict(action="store_true", help="a public record, in place of the comparison"),
        },
    )
    torch.set_num_threads(1)
    if options.ltx_video:
        from swinmr_profiling.scripts.public_records.record_ltx_video import ltx_table, ltx_video

        print(ltx_table(ltx_video()))
        return 0
    rows: list[Row] = []
    for name in options.networks:
        rows += rows_of(names[name])
        print(table(rows[-len(BUDGETS) :]), flush=True)
    text = table(rows)
    print("\n" + text)
    if options.page is not None:
        options.page.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
