"""Rows of predicted beside measured bytes of a rank, as a file of JSON lines that a run which was cut goes on from.

The networks are small, with activations and buffers at least half of the peak, and gradients above 25 MiB, so that DDP
makes two buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.prediction.replay import live_by_category
from swinmr_profiling.profiler.ranks.measured_rank import Cell, measure_ranks
from swinmr_profiling.profiler.ranks.predicted_rank import largest_rank
from swinmr_profiling.profiler.ranks.traced_rank import trace_rank
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint

# Name -> model section, samples of a rank.
NETWORKS: dict[str, tuple[dict[str, Any], int]] = {
    "SwinMR": (
        {"net_type": "swinmr", "img_size": 32, "depths": [2, 2, 2], "num_heads": [6, 6, 6], "embed_dim": 300},
        2,
    ),
    "U-Net": ({"net_type": "unet_denoiser", "img_size": 32, "base_channels": 32}, 8),
    "DiT": (
        {
            "net_type": "dit_denoiser",
            "img_size": 32,
            "embed_dim": 384,
            "depth": 3,
            "num_heads": 6,
            "patch_size": 2,
        },
        6,
    ),
    "timm ViT": (
        {
            "net_type": "timm",
            "name": "vit_small_patch16_224",
            "img_size": 224,
            "num_classes": 10,
            "kwargs": {"depth": 4},
        },
        6,
    ),
}
# Name -> keys of `training`.
STRATEGIES: dict[str, dict[str, Any]] = {
    "DDP": {"strategy": "ddp"},
    "ZeRO-1": {"strategy": "zero1"},
    "FSDP2": {"strategy": "fsdp"},
    "FSDP2, kept": {"strategy": "fsdp", "fsdp": {"reshard_after_forward": False}},
}


def compared_config(network: str, strategy: str) -> ExperimentConfig:
    """In fp32 with AdamW; attention as operators of their own: the CPU's fused kernel is not on the meta device."""
    section, _ = NETWORKS[network]
    loss = {"type": "auto" if section["net_type"] == "timm" else "mse"}
    training = {"ema_decay": 0.0, "optimizer": {"type": "adamw"}, "loss": loss, **STRATEGIES[strategy]}
    return config_from_dict(
        {
            "model": section,
            "data": {"use_patches": False},
            "training": training,
            "system": {"attention": "math"},
        }
    )


def build_compared(config: ExperimentConfig) -> BuiltModel:
    """The network, on the way that a trace without data takes."""
    built = build_model(config)
    if built.net_type == "swinir":
        built.module.attention = "matmul"  # type: ignore[assignment]
    return built


class RankKey(BaseModel):
    """What a row is of. samples: of a rank. memory: fingerprint of the config."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    network: str
    ranks: int
    strategy: str
    samples: int
    memory: str
    torch: str


class RankRow(BaseModel):
    """One row. share: of activations and communication buffers in the predicted peak."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: RankKey
    rank: int
    predicted_bytes: int
    measured_bytes: int
    share: float
    gradient_bytes: int

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_bytes / self.measured_bytes

    def line(self) -> str:
        """As a terminal shows it."""
        return (
            f"{self.of.network:9} {self.of.ranks} ranks {self.of.strategy:12} predicted {self.predicted_bytes:>12,} "
            f"measured {self.measured_bytes:>12,} {self.ratio:.5f}  share {self.share:.2f}"
        )


def key_of(network: str, strategy: str, ranks: int) -> RankKey:
    """What the row of a comparison will be of, with this version of torch."""
    return RankKey(
        network=network,
        ranks=ranks,
        strategy=strategy,
        samples=NETWORKS[network][1],
        memory=memory_fingerprint(compared_config(network, strategy)),
        torch=torch.__version__.split("+")[0],
    )


def earlier_rows(file: Path) -> dict[RankKey, RankRow]:
    """The rows of a file, without what was cut off or is none; none of a file that is not there."""
    rows = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            row = RankRow.model_validate_json(line)
        except ValidationError:
            continue
        rows[row.of] = row
    return rows


def compared_rows(keys: Sequence[RankKey]) -> Iterator[RankRow]:
    """Predicts and measures each, those of one number of ranks in the same processes."""
    for ranks in sorted({key.ranks for key in keys}):
        chosen = [key for key in keys if key.ranks == ranks]
        cells = [
            Cell(build_compared, compared_config(key.network, key.strategy), key.samples) for key in chosen
        ]
        for key, cell, measured in zip(chosen, cells, measure_ranks(cells, ranks), strict=True):
            yield _row(key, cell, measured)


def _row(key: RankKey, cell: Cell, measured: Sequence[int]) -> RankRow:
    built = build_compared(cell.config)
    rank = largest_rank(built, cell.config, key.ranks)
    step = trace_rank(
        built, cell.config, cell.batch_size, key.ranks, rank=rank, as_on_cuda=False, validation=False
    )
    live = step.trace.live_bytes()
    start = step.trace.step_starts[0]
    event = start + int(live[start:].argmax())
    parts = live_by_category(step.trace, event)
    return RankRow(
        of=key,
        rank=rank,
        predicted_bytes=int(live[event]),
        measured_bytes=measured[rank],
        share=round((parts["saved_activations"] + parts["communication"]) / sum(parts.values()), 4),
        gradient_bytes=sum(p.nbytes for p in built.module.parameters() if p.requires_grad),
    )
