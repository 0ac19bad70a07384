#!/usr/bin/env python3
"""Prints what training low-rank adapters (LoRA) of SD 1.5, SDXL and FLUX.1-dev takes on cards of 12 and 24 GB.

    python scripts/table_of_adapters.py                                # minutes; the table of docs/fine_tuning.md
    python scripts/table_of_adapters.py --only sd15 --rank 16 --optimizer adamw_8bit

Nothing is downloaded: the networks are the released architectures (configs/pipelines/) without weights. Everything is
predicted, and no GPU has confirmed it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command
from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.profiler.batch_size.budget import budget_on
from swinmr_profiling.profiler.batch_size.fit import largest_batch, needed_bytes
from swinmr_profiling.profiler.batch_size.gpus import find_gpu
from swinmr_profiling.profiler.options.option_types import parse_options, positive_int
from swinmr_profiling.profiler.pipelines.defined.definition import load_pipeline
from swinmr_profiling.profiler.prediction.prediction_session import PredictionSession
from swinmr_profiling.profiler.prediction.settings import setting_of
from swinmr_profiling.profiler.record.prediction_intervals import interval_of

GIB = 2**30
CARDS = ("RTX 3060 12GB", "RTX 4090")
PIXELS_PER_LATENT = 8
# As diffusers' scripts train them by default: the projections of attention.
TARGETS = ("to_q", "to_k", "to_v", "to_out.0")
OPTIMIZERS = ("adamw", "adamw_8bit")
CHECKPOINTING = ("none", "full")
ASSUMES = (
    "Assumes: weights frozen and, like the adapters and AdamW's states, in bf16; latents and embeddings of prompts "
    "cached, so that no text encoder and no VAE is on the card; mean squared error, no average of weights; validation "
    "of one latent at a time; PyTorch's default allocator, 10 % of the card left free. FLUX.1-dev: 512 tokens of the "
    "prompt."
)


@dataclass(frozen=True)
class Network:
    """name: of the definition in configs/pipelines; pixels: sides of an image."""

    name: str
    pixels: tuple[int, int]


NETWORKS = (
    Network("sd15", (512, 512)),
    Network("sdxl-base", (1024, 1024)),
    Network("flux1-dev", (512, 768)),
    Network("flux1-dev", (1024, 1024)),
)


def config_of(network: Network, rank: int, optimizer: str, checkpointing: str) -> ExperimentConfig:
    """The training of adapters of a released denoiser, as a config that train.py's schema takes."""
    denoiser = load_pipeline(network.name).denoiser
    model: dict[str, Any] = {
        "net_type": "diffusers",
        "class": denoiser.class_name,
        "config": denoiser.config,
        "img_size": [side // PIXELS_PER_LATENT for side in network.pixels],
    }
    training = {
        "lora": {"rank": rank, "targets": list(TARGETS)},
        "loss": {"type": "mse"},
        "optimizer": {"type": optimizer},
        "gradient_checkpointing": checkpointing,
        "ema_decay": 0.0,
    }
    data = {"use_patches": False, "val_batch_size": 1}
    return config_from_dict(
        {"model": model, "data": data, "system": {"mixed_precision": "pure_bf16"}, "training": training}
    )


def cells(network: Network, rank: int, optimizer: str, checkpointing: str) -> Iterator[str]:
    """The cells of a row: the training, then for each card the largest batch and what it needs (none: what 1 needs).

    Raises WorkerError, RequestRefusedError where it cannot be predicted.
    """
    config = config_of(network, rank, optimizer, checkpointing)
    with PredictionSession(config, trust_config=False) as session:
        [setting] = session.predict([setting_of(config, "pure_bf16")], [1])
        assert session.opened is not None
        torch_version = session.opened.torch_version
    height, width = network.pixels
    yield from (network.name, f"{height} x {width}", optimizer, checkpointing)
    yield f"{setting.ddp_bucket_bytes // 2:,}"  # bf16: two bytes each
    for name in CARDS:
        gpu = find_gpu(name)
        budget = budget_on(gpu.name, gpu.total_bytes, gpu.compute_capability, torch_version=torch_version)
        largest = largest_batch(setting, budget)
        needed = needed_bytes(setting, largest or 1, budget)
        low, high = interval_of(setting, "process", needed)
        yield from (str(largest or "none"), f"{needed / GIB:.2f} ({low / GIB:.2f} to {high / GIB:.2f})")


def header() -> list[str]:
    """Two lines of Markdown."""
    of_cards = [cell for name in CARDS for cell in (f"{name}: batch", "needs GiB")]
    names = ["network", "pixels", "optimizer", "recomputed", "trained", *of_cards]
    return [f"| {' | '.join(names)} |", f"| {' | '.join(['---'] * 4 + ['---:'] * (len(names) - 4))} |"]


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Prints the table, row by row."""
    options = parse_options(
        argparse.ArgumentParser(description=__doc__.splitlines()[0]),
        arguments,
        {
            "--only": dict(metavar="NAME", choices=sorted({one.name for one in NETWORKS})),
            "--rank": dict(type=positive_int, default=4, metavar="N", help="of the adapters (default 4)"),
            "--optimizer": dict(choices=OPTIMIZERS, help="this one alone"),
            "--checkpointing": dict(choices=CHECKPOINTING, help="this alone"),
        },
    )
    print("\n".join(header()), flush=True)
    for network, checkpointing, optimizer in itertools.product(NETWORKS, CHECKPOINTING, OPTIMIZERS):
        chosen, row = (
            (options.only, options.checkpointing, options.optimizer),
            (network.name, checkpointing, optimizer),
        )
        if all(given in (None, own) for given, own in zip(chosen, row, strict=True)):
            print(f"| {' | '.join(cells(network, options.rank, optimizer, checkpointing))} |", flush=True)
    print(f"\nRank {options.rank} on {', '.join(TARGETS)}. {ASSUMES}")
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
