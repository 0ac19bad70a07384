"""Prints what a rank of torchtitan's published runs of Llama 3.1 8B is predicted to need, beside what it reported.

    python scripts/benchmark_torchtitan.py

The records: benchmarks/llama3_h100_202412_torchtitan.md of pytorch/torchtitan, runs of its commit 9dec370 with torch of
December 2024. What they ran is built here from that commit's settings: 32 layers in units of FSDP2, each checkpointed
(by the operator: every second product and the attention are kept; or as a whole), fp32 weights gathered in bf16,
gradients summed in fp32, cross entropy of 128,256 logits in fp32 outside any checkpoint, clipping, AdamW over lists of
tensors, expandable segments, sequences of 8192. The published figure is the peak of reserved bytes; the context and
NCCL are not in it. Nothing is asserted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import (  # noqa: E402
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import swinmr_profiling.command  # noqa: E402 - takes this folder off sys.path
from swinmr_profiling.configs import ExperimentConfig, config_from_dict  # noqa: E402
from swinmr_profiling.models.inputs import BuiltModel, InputSpec  # noqa: E402
from swinmr_profiling.profiler.allocator.workspaces import workspaces_for  # noqa: E402
from swinmr_profiling.profiler.options.option_types import OneLineParser  # noqa: E402
from swinmr_profiling.profiler.prediction.replay import replay  # noqa: E402
from swinmr_profiling.profiler.ranks.traced_rank import trace_rank  # noqa: E402
from swinmr_profiling.profiler.record.blocks.figures import MemoryCategory  # noqa: E402

GIB = 2**30
aten = torch.ops.aten
KEPT = (
    aten.mm.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
)


@dataclass(frozen=True)
class Llama:
    """Sizes of Llama 3.1 8B."""

    width: int = 4096
    layers: int = 32
    heads: int = 32
    key_heads: int = 8
    hidden: int = 14336
    vocabulary: int = 128256

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class Norm(nn.Module):
    """Root mean square in fp32, scaled in the dtype of the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        return scaled.type_as(x) * self.weight


def rotated(x: Tensor, turns: Tensor) -> Tensor:
    """x (B, L, heads, head_width): each pair of numbers turned as a complex one, in fp32."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns[None, :, None]).flatten(3).type_as(x)


class Layer(nn.Module):
    """Attention and a gated perceptron, each behind a norm. kept: by its checkpoint, some "operators" or "nothing"."""

    def __init__(self, sizes: Llama, kept: str) -> None:
        super().__init__()
        self.sizes, self.kept = sizes, kept
        linear = partial(nn.Linear, bias=False)
        self.before_attention, self.before_perceptron = Norm(sizes.width), Norm(sizes.width)
        self.query = linear(sizes.width, sizes.width)
        self.key, self.value = (linear(sizes.width, sizes.key_heads * sizes.head_width) for _ in range(2))
        self.out = linear(sizes.width, sizes.width)
        self.gate, self.up = (linear(sizes.width, sizes.hidden) for _ in range(2))
        self.down = linear(sizes.hidden, sizes.width)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        contexts = {"context_fn": every_second_product} if self.kept == "operators" else {}
        options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False, **contexts}
        return checkpoint(self.computed, x, turns, **options)

    def computed(self, x: Tensor, turns: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x), turns)
        y = self.before_perceptron(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def attention(self, x: Tensor, turns: Tensor) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (-1, self.sizes.head_width)) for part in (self.query, self.key, self.value)
        )
        query, key = rotated(query, turns), rotated(key, turns)
        key, value = self._repeated(key), self._repeated(value)
        found = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        return self.out(found.transpose(1, 2).contiguous().flatten(2))

    def _repeated(self, x: Tensor) -> Tensor:
        """Each head of keys once for every query head that shares it."""
        times = self.sizes.heads // self.sizes.key_heads
        return x[:, :, :, None].expand(-1, -1, -1, times, -1).reshape(*x.shape[:2], -1, x.shape[-1])


def every_second_product() -> Any:
    """Keeps the results of attention, and of the first, third, ... product of a layer."""
    made = {False: 0, True: 0}

    def policy(context: Any, function: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        made[context.is_recompute] += function is aten.mm.default
        second = function is aten.mm.default and made[context.is_recompute] % 2 == 0
        keeps = function in KEPT and not second
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class LlamaWithLoss(nn.Module):
    """Tokens and labels (B, L) to the loss; the logits are let go before the backward pass."""

    def __init__(self, sizes: Llama, length: int, kept: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        turns = torch.empty(length, sizes.head_width // 2, dtype=torch.complex64)
        self.register_buffer("turns", turns)
        self.layers = nn.ModuleList(Layer(sizes, kept) for _ in range(sizes.layers))
        self.norm = Norm(sizes.width)
        self.logits = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.turns)
        return F.cross_entropy(self.logits(self.norm(x)).flatten(0, 1).float(), labels.flatten())


@dataclass(frozen=True)
class Record:
    """A published row. samples: of a rank, each of `length` tokens. unlike: what it ran that is not built here."""

    table: int
    gpus: int
    samples: int
    length: int
    kept: str
    published_gib: float
    unlike: str = ""


COMPILED = "torch.compile of each layer"
FLOAT8 = f"{COMPILED}, float8 products and gathers"
RECORDS = (
    Record(1, 8, 2, 8192, "operators", 82.4),
    Record(1, 8, 2, 8192, "operators", 77.0, COMPILED),
    Record(1, 8, 2, 8192, "operators", 76.8, FLOAT8),
    Record(2, 8, 1, 32768, "nothing", 83.9, FLOAT8),
    Record(3, 128, 2, 8192, "operators", 67.0),
    Record(3, 128, 2, 8192, "operators", 62.0, COMPILED),
    Record(3, 128, 2, 8192, "operators", 61.8, FLOAT8),
)


def config_of_torchtitan(length: int) -> ExperimentConfig:
    """The step's settings."""
    return config_from_dict(
        {
            "model": {"net_type": "custom", "target": "here:LlamaWithLoss", "input_shapes": [[length]]},
            "data": {"use_patches": False},
            "training": {
                "strategy": "fsdp",
                "fsdp": {"param_dtype": "bf16", "reduce_dtype": "fp32"},
                "ema_decay": 0.0,
                "optimizer": {"type": "adamw"},
                "gradient": {"clip_norm": 1.0},
                "zero_grad": "before_forward",
            },
        }
    )


def predicted(record: Record, sizes: Llama = Llama()) -> tuple[float, float, Mapping[MemoryCategory, int]]:
    """GiB allocated and reserved at the peak, and what is alive then, by category."""
    with torch.device("meta"):
        network = LlamaWithLoss(sizes, record.length, record.kept)
    inputs = tuple(InputSpec((record.length,), kind="int64") for _ in range(2))
    built = BuiltModel("custom", network, dict.fromkeys(("inference", "training", "cross_check"), inputs))
    config = config_of_torchtitan(record.length)
    step = trace_rank(built, config, record.samples, record.gpus, validation=False)
    result = replay(step.trace, workspaces=workspaces_for("2.6.0", "9.0"), expandable=True)
    peak = result.training
    return peak.allocated_bytes / GIB, result.peak_reserved_bytes / GIB, peak.by_category


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    OneLineParser(description=__doc__.split("\n")[0]).parse_args(arguments)
    found: dict[tuple[int, int, int, str], tuple[float, float, Mapping[MemoryCategory, int]]] = {}
    for record in RECORDS:
        setting = (record.gpus, record.samples, record.length, record.kept)
        if setting not in found:
            start = time.perf_counter()
            found[setting] = predicted(record)
            print(f"traced {setting} in {time.perf_counter() - start:.0f} s", file=sys.stderr)
        allocated, reserved, parts = found[setting]
        published = record.published_gib
        print(
            f"table {record.table}, {record.gpus:3} GPUs, {record.samples} x {record.length}: published "
            f"{published:.1f} GiB, predicted {reserved:.1f} reserved ({reserved / published - 1:+.1%}), "
            f"{allocated:.1f} allocated" + (f"; not built: {record.unlike}" if record.unlike else "")
        )
        print("  " + ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items() if size > GIB / 20))
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
