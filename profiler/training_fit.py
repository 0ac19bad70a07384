"""What a batch size needs, and the largest one that fits, from a predicted `memory_model`.

Pure functions on the blocks of a profile. All sizes are Python integers: a batch of three billion is computed right,
and refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from profiler.batch_limits import MAX_BATCH_SIZE
from profiler.training_budget import Budget


class BatchStatus(str, Enum):
    """Whether a batch can run. UNSUPPORTED is not a matter of memory: no kernel is launched with so large a grid."""

    FITS = "fits"
    TOO_LARGE = "too_large"
    UNSUPPORTED = "unsupported"


def table_sizes(setting: dict[str, Any]) -> list[int]:
    """Batch sizes that were predicted, ascending."""
    return sorted(int(size) for size in setting["sizes"])


def source_of(setting: dict[str, Any], batch_size: int) -> str:
    """ "predicted" up to the largest size of the table, "extrapolated" beyond."""
    return "predicted" if batch_size <= table_sizes(setting)[-1] else "extrapolated"


def training_reserved_bytes(setting: dict[str, Any], batch_size: int) -> int:
    """Bytes the allocator reserves for the training step, without workspaces and context.

    At a size of the table its figure, which is a replay's. Between two: live bytes are a maximum of functions affine in
    the batch, so convex, and the straight line between two sizes lies above them; to that the larger of the
    neighbours' (reserved - live) is added, which is no strict bound: the whole lay -0.4 to +1.4 % from the replay for
    SwinMR with a table of powers of two. Beyond the table the last slope goes on, with the larger of the last two
    reserved / live: there it is no bound at all. Below the table its smallest size stands in. Raises ValueError below
    batch 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch {batch_size}: at least 1")
    table = setting["sizes"]
    exact = table.get(str(batch_size))
    if exact is not None:
        return exact["reserved_bytes"]
    sizes = table_sizes(setting)
    below = [size for size in sizes if size < batch_size]
    above = [size for size in sizes if size > batch_size]
    if not below:
        return table[str(above[0])]["reserved_bytes"]
    if not above:
        return _beyond(table, sizes, batch_size)
    low, high = table[str(below[-1])], table[str(above[0])]
    rise = (high["live_bytes"] - low["live_bytes"]) * (batch_size - below[-1])
    live = low["live_bytes"] + _ceiling(rise, above[0] - below[-1])
    overhead = max(entry["reserved_bytes"] - entry["live_bytes"] for entry in (low, high))
    return live + overhead


def _beyond(table: dict[str, Any], sizes: list[int], batch_size: int) -> int:
    last = table[str(sizes[-1])]
    if len(sizes) == 1:
        return _ceiling(last["reserved_bytes"] * batch_size, sizes[-1])
    before = table[str(sizes[-2])]
    rise = (last["live_bytes"] - before["live_bytes"]) * (batch_size - sizes[-1])
    live = last["live_bytes"] + _ceiling(rise, sizes[-1] - sizes[-2])
    return max(_ceiling(live * entry["reserved_bytes"], entry["live_bytes"]) for entry in (before, last))


def _ceiling(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def validation_needed_bytes(setting: dict[str, Any], budget: Budget, *, devices: int = 1) -> int:
    """Bytes of the GPU that validation at full image size takes, whatever the training batch; 0 without validation."""
    validation = setting["validation"]
    return 0 if validation is None else _outside(setting, budget, devices) + validation["reserved_bytes"]


def needed_bytes(
    setting: dict[str, Any], batch_size: int, budget: Budget, *, devices: int = 1, extra_bytes: int = 0
) -> int:
    """Bytes of the GPU that a run takes: context + workspaces + the larger of training's and validation's reserved.

    Args:
        devices: above 1 each holds DistributedDataParallel's gradient buckets too.
        extra_bytes: what training takes beyond the prediction (gradients kept between accumulated batches).
    """
    training = training_reserved_bytes(setting, batch_size) + extra_bytes
    training += _outside(setting, budget, devices)
    return max(training, validation_needed_bytes(setting, budget, devices=devices))


def _outside(setting: dict[str, Any], budget: Budget, devices: int) -> int:
    buckets = setting["ddp_bucket_bytes"] if devices > 1 else 0
    return budget.context_bytes + budget.workspace_bytes + buckets


def batch_status(setting: dict[str, Any], batch_size: int, budget: Budget, **needs: int) -> BatchStatus:
    """Whether a batch runs within a budget; `needs` are needed_bytes' `devices` and `extra_bytes`."""
    if batch_size > MAX_BATCH_SIZE:
        return BatchStatus.UNSUPPORTED
    fits = needed_bytes(setting, batch_size, budget, **needs) <= budget.usable_bytes
    return BatchStatus.FITS if fits else BatchStatus.TOO_LARGE


def largest_batch(setting: dict[str, Any], budget: Budget, **needs: int) -> int | None:
    """The largest batch that fits the budget, at most MAX_BATCH_SIZE; None where not even 1 does.

    Between two sizes of the table more may be added for the allocator than it takes at the upper one, so that a size
    of the table may fit where one just below it seems not to: each stretch is searched by itself, from the largest
    down.
    """

    def fits(batch_size: int) -> bool:
        return batch_status(setting, batch_size, budget, **needs) is BatchStatus.FITS

    edges = [1, *(size for size in table_sizes(setting) if 1 < size <= MAX_BATCH_SIZE), MAX_BATCH_SIZE + 1]
    for low, high in zip(reversed(edges[:-1]), reversed(edges[1:]), strict=True):
        # Inside (low, high) the need grows with the batch; at `low` itself it may be less than the line says.
        if low + 1 < high and fits(low + 1):
            fitting, too_large = low + 1, high
            while too_large - fitting > 1:
                middle = (fitting + too_large) // 2
                fitting, too_large = (middle, too_large) if fits(middle) else (fitting, middle)
            return fitting
        if fits(low):
            return low
    return None


def lever(setting: dict[str, Any], budget: Budget, **needs: int) -> dict[str, Any]:
    """One setting on one GPU: its largest batch, and what that needs (batch 1's need where nothing fits)."""
    largest = largest_batch(setting, budget, **needs)
    return {
        "precision": setting["precision"],
        "checkpointing": setting["checkpointing"],
        "patch_size": setting["patch_size"],
        "is_config": setting["is_config"],
        "largest_batch": largest,
        "needed_bytes": needed_bytes(setting, largest or 1, budget, **needs),
        "source": source_of(setting, largest or 1),
    }


def lever_table(
    memory_model: dict[str, Any], budgets: Sequence[Budget], *, devices: int = 1
) -> list[list[dict[str, Any]]]:
    """For each budget, one `lever` per setting, in the model's order."""
    return [
        [lever(setting, budget, devices=devices) for setting in memory_model["settings"]]
        for budget in budgets
    ]


def config_setting(memory_model: dict[str, Any]) -> dict[str, Any]:
    """The setting that is the config's own."""
    return next(setting for setting in memory_model["settings"] if setting["is_config"])


def accumulation_bytes(memory_model: dict[str, Any], setting: dict[str, Any], accumulate: int) -> int:
    """Gradients that stay through the next forward pass when a step accumulates and the predicted one does not.

    At most as large as the parameters, which is what is added. 0 where the prediction accumulates already.
    """
    if accumulate == 1 or memory_model["accumulate"] > 1:
        return 0
    terms = setting["terms"].get("parameters")
    return 0 if terms is None else terms["fixed_bytes"]
