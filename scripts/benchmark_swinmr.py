#!/usr/bin/env python3
"""Compares this SwinMR with the implementation it descends from (as the package spandrel carries it), same weights.

    python scripts/benchmark_swinmr.py --quick
    python scripts/benchmark_swinmr.py --rows forward,saved --output results/benchmark_swinmr.json

Times are taken in turns within one run, with the machine's own matrix-product rate between them; a ratio is the
median over the turns. Bytes are counted, not timed: they do not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import torch
import torch.nn.functional as F
from spandrel.architectures.SwinIR.__arch.SwinIR import SwinIR as ReferenceSwinIR
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, write_text
from swinmr_profiling.models.swin.swinir import SwinIR
from swinmr_profiling.profiler.measure.machine.environment import cpu_name
from swinmr_profiling.profiler.options.option_types import OneLineParser, parse_options
from swinmr_profiling.training.setup.step_memory import LiveBytes

PUBLISHED, SMALL = 180, 60
KINDS = ("forward", "training", "light", "full", "saved", "peak", "moved")
BYTE_ROWS = (("saved", "none"), ("saved", "light"), ("peak", "full"), ("moved", "none"))
# What was set out to be reached: ratios to the reference, and for "light" and "full" to our own "none".
GOALS = {
    ("cpu", "forward", PUBLISHED, "fp32"): 1.5, ("cpu", "forward", SMALL, "fp32"): 2.0,
    ("cpu", "training", PUBLISHED, "fp32"): 1.2, ("cpu", "training", SMALL, "fp32"): 1.4,
    ("cuda", "forward", PUBLISHED, "bf16"): 2.5, ("cuda", "forward", SMALL, "bf16"): 2.5,
    "forward": 1.8, "training": 1.6, "light": 1.15, "full": 1.4,
    ("saved", "none", PUBLISHED): 0.90, ("saved", "none", SMALL): 0.70,
    ("saved", "light", PUBLISHED): 0.62, ("saved", "light", SMALL): 0.50,
    ("peak", "full", PUBLISHED): 0.25, ("peak", "full", SMALL): 0.25,
    ("moved", "none", PUBLISHED): 0.62, ("moved", "none", SMALL): 0.50,
}  # fmt: skip
aten = torch.ops.aten


def networks(embed_dim: int, side: int, groups: int = 6) -> tuple[nn.Module, SwinIR]:
    """The reference and ours with equal weights, without stochastic depth."""
    options: Any = dict(
        img_size=side, in_chans=1, upscale=1, window_size=8, depths=[6] * groups, num_heads=[6] * groups,
        embed_dim=embed_dim, mlp_ratio=2, upsampler="", resi_connection="1conv", drop_path_rate=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    # The reference rebuilds its masks on the CPU in a forward of another size, and cannot on meta: it gets its own.
    reference, ours = ReferenceSwinIR(**options), SwinIR(**options)
    ours.load_state_dict(reference.state_dict())
    return reference, ours


def infer(network: nn.Module, image: torch.Tensor) -> None:
    with torch.no_grad():
        network(image)


def train(network: nn.Module, image: torch.Tensor) -> None:
    network(image).float().square().mean().backward()
    network.zero_grad(set_to_none=True)


def seconds(call: Callable[[], object], device: str) -> float:
    wait = getattr(torch, device).synchronize  # which a CPU has nothing to do for
    wait()
    start = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - start


def product_rate(device: str) -> float:
    """1e9 FLOP/s of a 1024 x 1024 fp32 product, now: what the machine gives us at this moment."""
    a, repeats = torch.rand(1024, 1024, device=device), 6
    return repeats * 2 * 1024**3 / seconds(lambda: [a @ a for _ in range(repeats)], device) / 1e9


def in_turns(first: Callable[[], object], second: Callable[[], object], turns: int, device: str) -> dict:
    """first's time over second's: the median over turns, and the least of each against the other."""
    first()
    second()
    firsts, seconds_, rates, ratios_of_cpu_time = [], [], [], []
    for _ in range(turns):
        rates.append(product_rate(device))
        start = time.process_time()
        firsts.append(seconds(first, device))
        middle = time.process_time()
        seconds_.append(seconds(second, device))
        ratios_of_cpu_time.append((middle - start) / max(time.process_time() - middle, 1e-9))
    return {
        "ratio": statistics.median(a / b for a, b in zip(firsts, seconds_, strict=True)),
        "ratio_of_least": min(firsts) / min(seconds_),
        "ratio_of_cpu_time": statistics.median(ratios_of_cpu_time),
        "least_s": [min(firsts), min(seconds_)],
        "gflops": [min(rates), max(rates)],
        "turns": turns,
    }


def efficient_attention(query, key, value, mask, dropout, *, scale):
    """Attention through CUDA's memory-efficient kernel, by its operator, which the meta device knows too."""
    mask = mask.expand(*query.shape[:2], *mask.shape[-2:])
    keeps_statistics = torch.is_grad_enabled()
    arguments = (query, key, value, mask, keeps_statistics, dropout, False)
    return aten._scaled_dot_product_efficient_attention(*arguments, scale=scale)[0]


def saved_bytes(network: nn.Module, image: torch.Tensor) -> int:
    """Bytes that one forward keeps for the backward pass, each storage once, parameters left out."""
    parameters = {p.untyped_storage()._cdata for p in network.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = network(image)
    total = sum(storage.nbytes() for storage in kept.values())
    del output
    return total


class MovedBytes(TorchDispatchMode):
    """Bytes that operators read and write; views are free, an expanded tensor counts as it is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        read = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        written = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        allocates = func._schema.name.startswith(("aten::empty", "aten::new_empty"))
        if not (func.is_view or allocates or func._schema.name in ("aten::detach", "aten::_unsafe_view")):
            for tensor in (*read, *written):
                self.total += min(tensor.numel() * tensor.itemsize, tensor.untyped_storage().nbytes())
        return result


@contextmanager
def as_set(network: SwinIR, *, attention: str = "auto", checkpointing: str = "none") -> Iterator[SwinIR]:
    network.attention, network.gradient_checkpointing = attention, checkpointing
    on_meta = attention == "padded"
    with patch.object(F, "scaled_dot_product_attention", efficient_attention) if on_meta else nullcontext():
        yield network
    network.attention, network.gradient_checkpointing = "auto", "none"


def timing_rows(kind: str, embed_dim: int, side: int, context: argparse.Namespace) -> Iterator[dict]:
    """How many times faster ours is ("forward", "training"), or what checkpointing costs ("light", "full")."""
    device = context.device
    reference, ours = networks(embed_dim, side, context.groups)
    reference.to(device), ours.to(device)
    image = torch.rand(1, 1, side, side, device=device)
    call = infer if kind == "forward" else train
    for network in (reference, ours):
        network.train(kind != "forward")

    def checkpointed() -> None:
        with as_set(ours, checkpointing=kind):
            call(ours, image)

    for precision in ("fp32", "bf16") if device == "cuda" else ("fp32",):
        goal = GOALS.get((device, kind, embed_dim, precision)) or GOALS[kind]
        compared = kind in ("forward", "training")
        first = (lambda: call(reference, image)) if compared else checkpointed
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            attention = ours.attention_policy(device, trains=kind != "forward")
            answer = in_turns(first, lambda: call(ours, image), context.turns, device)
        yield {
            "row": kind, "embed_dim": embed_dim, "side": side, "groups": context.groups, "attention": attention,
            "device": device, "precision": precision, "goal": goal,
            "direction": "at least" if compared else "at most",
            "unit": "times faster" if compared else "x the time of none", **answer,
        }  # fmt: skip


def byte_rows(kinds: list[str], embed_dim: int) -> Iterator[dict]:
    """Bytes of ours over the reference's, fp32, on the meta device as CUDA would run, or for real on a CPU."""
    for device, attention, side in (("meta", "padded", 256), ("cpu", "auto", 48)):
        reference, ours = networks(embed_dim, side)
        reference.train().to(device), ours.train().to(device)
        image = torch.rand(1, 1, side, side).to(device)
        train(ours, image)  # what is cached per resolution is not a cost of a step
        for kind, checkpointing in BYTE_ROWS:
            # What moves within a processor's cache is no traffic, so that on a CPU there is nothing to count.
            if kind not in kinds or (kind == "moved" and device == "cpu"):
                continue
            counts = []
            for network in (reference, ours):
                with as_set(ours, attention=attention, checkpointing=checkpointing):
                    if kind == "saved":
                        counts.append(saved_bytes(network, image))
                        continue
                    with LiveBytes() if kind == "peak" else MovedBytes() as mode:
                        train(network, image)
                    counts.append(mode.peak_bytes if isinstance(mode, LiveBytes) else mode.total)
            way = ours.attention_policy(device, trains=True) if attention == "auto" else attention
            yield {
                "row": f"{kind} {checkpointing}", "embed_dim": embed_dim, "side": side, "groups": 6,
                "attention": way, "device": device, "precision": "fp32",
                "goal": GOALS[kind, checkpointing, embed_dim], "direction": "at most",
                "unit": "of the reference's bytes", "ratio": counts[1] / counts[0], "bytes": counts[::-1],
            }  # fmt: skip


def rows(context: argparse.Namespace) -> Iterator[dict]:
    for embed_dim in (PUBLISHED, SMALL):
        if "forward" in context.rows:
            for side in (128,) if context.quick or embed_dim == SMALL else (128, 256):
                yield from timing_rows("forward", embed_dim, side, context)
        for kind in ("training", "light", "full"):
            if kind in context.rows:
                yield from timing_rows(kind, embed_dim, context.training_side, context)
        if {"saved", "peak", "moved"} & set(context.rows):
            yield from byte_rows(context.rows, embed_dim)


def hardware(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{cpu_name()}, {torch.get_num_threads()} threads of {os.cpu_count()}"


def described(row: dict) -> str:
    met = row["ratio"] >= row["goal"] if row["direction"] == "at least" else row["ratio"] <= row["goal"]
    case = f"{row['row']:12} embed {row['embed_dim']:3} {row['side']:3}^2 {row['precision']} {row['device']}"
    text = f"{case:42} {row['attention']:8} {row['ratio']:6.3f} {row['unit']:24} goal {row['direction']} {row['goal']}"
    text += " " if met else " NOT REACHED"
    if "gflops" in row:
        low, high = row["gflops"]
        text += f" (of least times {row['ratio_of_least']:.2f}, of CPU time {row['ratio_of_cpu_time']:.2f},"
        text += f" {row['turns']} turns, product rate {low:.0f} to {high:.0f} GFLOP/s)"
    return text


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    parser = OneLineParser(description=__doc__.splitlines()[0])
    context = parse_options(
        parser,
        arguments,
        {
            "--rows": dict(default=",".join(KINDS), help=f"which of {', '.join(KINDS)} (default: all)"),
            "--device": dict(default="cpu", choices=("cpu", "cuda")),
            "--quick": dict(action="store_true", help="2 of the 6 groups, fewer turns, no 256 x 256"),
            "--turns": dict(type=int, help="turns per timing (default 7, quick 3)"),
            "--threads": dict(type=int, help="threads of an operator on the CPU"),
            "--training-side": dict(type=int, default=96, help="patch of the training rows"),
            "--output": dict(type=Path, help="also write the rows as JSON"),
        },
    )
    context.rows = context.rows.split(",")
    if unknown := set(context.rows) - set(KINDS):
        parser.error(f"--rows: {', '.join(sorted(unknown))} is not one of {', '.join(KINDS)}")
    if context.output:
        try:
            check_writable(context.output, "--output")
        except OutputError as error:
            parser.error(str(error))
    context.groups = 2 if context.quick else 6
    context.turns = context.turns or (3 if context.quick else 7)
    if context.threads:
        torch.set_num_threads(context.threads)
    machine = {"hardware": hardware(context.device), "torch": torch.__version__, "load": os.getloadavg()[0]}
    print(f"{machine['hardware']}, torch {machine['torch']}, load {machine['load']:.1f} at the start")
    measured = []
    for row in rows(context):
        measured.append(row)
        print(described(row), flush=True)
        if context.output:
            write_text(context.output, json.dumps({**machine, "rows": measured}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
