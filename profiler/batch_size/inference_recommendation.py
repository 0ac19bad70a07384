"""Which batch size to use, from what was measured. Pure functions on the blocks of a profile."""

from __future__ import annotations

from collections.abc import Mapping

from swinmr_profiling.profiler.record.blocks.batch import Batch, MeasuredBatch
from swinmr_profiling.profiler.record.blocks.recommended import InferenceRecommendation

# Beyond the knee a larger batch costs memory and latency and brings nothing: 3 % is about what two runs of
# the same size differ by on a machine that is not perfectly quiet.
KNEE_SHARE = 0.03


def recommend_inference(batch_profiling: Mapping[str, Batch]) -> InferenceRecommendation | None:
    """The smallest measured batch within 3 % of the best measured throughput, or None when nothing ran.

    Only sizes that ran are candidates: nothing is extrapolated. It speaks of inference alone; training needs
    many times the memory.
    """
    ran = {int(size): block for size, block in batch_profiling.items() if isinstance(block, MeasuredBatch)}
    if not ran:
        return None
    throughput = {size: ran[size].timing.images_per_second for size in sorted(ran)}
    best = max(throughput.values())
    knee = next(size for size, rate in throughput.items() if rate >= best * (1 - KNEE_SHARE))
    fastest = max(throughput, key=lambda size: throughput[size])
    if knee == fastest:
        reason = f"the highest throughput of the sizes that ran ({', '.join(map(str, throughput))})"
    else:
        share = 1 - throughput[knee] / best
        reason = f"the smallest size within 3 % of the best throughput ({share:.1%} below batch {fastest})"
    return InferenceRecommendation(
        batch_size=knee,
        images_per_second=throughput[knee],
        latency_ms=ran[knee].timing.median_ms,
        peak_bytes=ran[knee].memory.peak_bytes,
        source="measured",
        verified=True,
        reason=reason,
        purpose="inference only: training needs many times this memory",
    )
