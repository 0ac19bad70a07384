"""Which batch size to use, from what was measured. Pure functions on the blocks of a profile."""

from __future__ import annotations

from typing import Any

# Beyond the knee a larger batch costs memory and latency and brings nothing: 3 % is about what two runs of
# the same size differ by on a machine that is not perfectly quiet.
KNEE_SHARE = 0.03


def measured_sizes(batch_profiling: dict[str, Any]) -> list[int]:
    """Batch sizes that ran, ascending."""
    return sorted(int(size) for size, block in batch_profiling.items() if "timing" in block)


def recommend_inference(batch_profiling: dict[str, Any]) -> dict[str, Any] | None:
    """The smallest measured batch within 3 % of the best measured throughput, or None when nothing ran.

    Only sizes that ran are candidates: nothing is extrapolated. It speaks of inference alone; training needs
    many times the memory.
    """
    sizes = measured_sizes(batch_profiling)
    if not sizes:
        return None
    throughput = {size: batch_profiling[str(size)]["timing"]["images_per_second"] for size in sizes}
    best = max(throughput.values())
    knee = next(size for size in sizes if throughput[size] >= best * (1 - KNEE_SHARE))
    fastest = max(sizes, key=lambda size: throughput[size])
    if knee == fastest:
        reason = f"the highest throughput of the sizes that ran ({', '.join(map(str, sizes))})"
    else:
        share = 1 - throughput[knee] / best
        reason = f"the smallest size within 3 % of the best throughput ({share:.1%} below batch {fastest})"
    return {
        "batch_size": knee,
        "images_per_second": throughput[knee],
        "latency_ms": batch_profiling[str(knee)]["timing"]["median_ms"],
        "peak_bytes": batch_profiling[str(knee)]["memory"]["peak_bytes"],
        "source": "measured",
        "verified": True,
        "reason": reason,
        "purpose": "inference only: training needs many times this memory",
    }
