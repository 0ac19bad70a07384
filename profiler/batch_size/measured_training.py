"""Training steps that ran on a GPU, read from a profile's batch_profiling, and whether they can be believed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from swinmr_profiling.profiler.batch_size.inference_recommendation import KNEE_SHARE
from swinmr_profiling.profiler.record.device_memory import process_needs
from swinmr_profiling.profiler.record.failures import FailureKind

SETTING_KEYS = ("precision", "checkpointing", "patch_size")


@dataclass(frozen=True)
class MeasuredSize:
    """One batch size whose training steps and validation ran.

    Attributes:
        peak_bytes: the allocator's peak, which must grow with the batch.
        reserved_bytes: by the allocator at most, validation included.
        process_bytes: what the driver says the process held; None where it does not.
        context_bytes: outside the allocator; None where nobody could tell.
        ddp_bucket_bytes: what each of several devices would hold besides.
        retries: how often the allocator had to give cached memory back; above 0 it fitted by luck.
        images_per_second: of one device; None where steps were not timed.
        step_ms: median of the timed steps.
    """

    batch_size: int
    peak_bytes: int
    reserved_bytes: int
    process_bytes: int | None
    context_bytes: int | None
    ddp_bucket_bytes: int
    retries: int
    images_per_second: float | None
    step_ms: float | None

    def needed_bytes(self, assumed_context_bytes: int, devices: int = 1) -> int:
        """Bytes of each GPU; the context as assumed where it is not known."""
        buckets = self.ddp_bucket_bytes if devices > 1 else 0
        return buckets + process_needs(
            self.reserved_bytes, self.process_bytes, self.context_bytes, assumed_context_bytes
        )


@dataclass(frozen=True)
class MeasuredSeries:
    """All sizes of one setting.

    Attributes:
        setting: its precision, checkpointing and patch_size.
        sizes: what ran, ascending.
        failures: batch size -> (kind, detail) of what did not.
        fault: why the series is no measurement, or None.
    """

    setting: dict[str, Any]
    sizes: tuple[MeasuredSize, ...]
    failures: dict[int, tuple[str, str]]
    fault: str | None

    @property
    def smallest_out_of_memory(self) -> int | None:
        return min(
            (size for size, (kind, _) in self.failures.items() if kind == FailureKind.OOM), default=None
        )

    @property
    def smallest_unsupported(self) -> int | None:
        unsupported = FailureKind.UNSUPPORTED
        return min((size for size, (kind, _) in self.failures.items() if kind == unsupported), default=None)


def measured_series(
    batch_profiling: Mapping[str, dict[str, Any]], setting: Mapping[str, Any] | None = None
) -> MeasuredSeries | None:
    """The measured training blocks of a setting (None: of the first that ran), or None where nothing was tried.

    A block whose process ran no training step is a failure, whatever it says it needed.
    """
    blocks = {
        int(size): block["training"]
        for size, block in batch_profiling.items()
        if block.get("training") is not None and block["training"]["source"] == "measured"
    }
    if not blocks:
        return None
    if setting is None:
        setting = next((block for block in blocks.values() if "error" not in block), {})
    sizes, failures = [], {}
    for size, block in sorted(blocks.items()):
        if "error" in block:
            failures[size] = (block["error"], block["detail"])
        elif any(block[key] != setting[key] for key in SETTING_KEYS):
            continue
        elif not block["steps_run"]:
            failures[size] = (FailureKind.EXCEPTION.value, "no training step ran")
        else:
            sizes.append(_measured_size(size, block, setting))
    found = {key: setting.get(key) for key in SETTING_KEYS}
    return MeasuredSeries(found, tuple(sizes), failures, memory_fault(sizes))


def _measured_size(size: int, block: dict[str, Any], setting: Mapping[str, Any]) -> MeasuredSize:
    validation = block["validation"] or {}
    reserved = max(block["peak_reserved_bytes"] or block["peak_bytes"], validation.get("reserved_bytes") or 0)
    step_ms = statistics.median(block["step_ms"]) if block["step_ms"] else None
    rate = block["images_per_second"]
    return MeasuredSize(
        batch_size=size,
        peak_bytes=block["peak_bytes"],
        reserved_bytes=reserved,
        process_bytes=block["process_bytes"],
        context_bytes=block["context_bytes"],
        # One device measures none of what several hold: the prediction knows it.
        ddp_bucket_bytes=block["ddp_bucket_bytes"] or setting.get("ddp_bucket_bytes") or 0,
        retries=block["retries"] or 0,
        images_per_second=rate if rate is not None or step_ms is None else size * 1000 / step_ms,
        step_ms=step_ms,
    )


def memory_fault(sizes: list[MeasuredSize]) -> str | None:
    """Names the first size that took less memory than a smaller one: something else was measured than the batch."""
    for smaller, larger in pairwise(sizes):
        if larger.peak_bytes < smaller.peak_bytes:
            return (
                f"batch {larger.batch_size} took {larger.peak_bytes:,} bytes, less than the {smaller.peak_bytes:,} of "
                f"batch {smaller.batch_size}"
            )
    return None


def knee_batch(sizes: Iterable[MeasuredSize]) -> int | None:
    """The smallest batch within 3 % of the best throughput; None where fewer than two sizes were timed."""
    rates = {size.batch_size: size.images_per_second for size in sizes if size.images_per_second is not None}
    if len(rates) < 2:
        return None
    best = max(rates.values())
    return min(size for size, rate in rates.items() if rate >= best * (1 - KNEE_SHARE))
