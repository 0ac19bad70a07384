"""Which batch size to use, from what was measured. Pure functions on the blocks of a profile."""

from __future__ import annotations

from collections.abc import Mapping

from swinmr_profiling.profiler.record.blocks.batch import Batch, MeasuredBatch
from swinmr_profiling.profiler.record.blocks.recommended import InferenceRecommendation

# Beyond the knee a larger batch costs memory and latency and brings nothing: 3 % is about what two runs of
# the same size differ by on a machine that is not perfectly quiet.
KNEE_SHARE = 0.03
# Two processes that run one network on a CPU differ by 5 to 15 % (memory layout, thread placement, other work), which
# the runs of one process do not show.
CPU_PROCESS_SHARE = 0.15


def recommend_inference(
    batch_profiling: Mapping[str, Batch], *, busy: bool = False
) -> InferenceRecommendation | None:
    """The smallest measured batch that is as fast as the fastest, or None when nothing ran.

    As fast: within 3 % of its throughput, or not to be told from it: their 95 % intervals overlap, or on a CPU one
    process each measured them and they differ by less than two processes do. busy: the machine had other work, which
    is said. Only sizes that ran are candidates: nothing is extrapolated. It speaks of inference alone; training
    needs many times the memory.
    """
    ran = {int(size): block for size, block in batch_profiling.items() if isinstance(block, MeasuredBatch)}
    if not ran:
        return None
    throughput = {size: ran[size].timing.images_per_second for size in sorted(ran)}
    fastest = max(throughput, key=lambda size: throughput[size])
    best = throughput[fastest]
    alike = [size for size in throughput if size != fastest and not _differ(ran[size], ran[fastest])]
    knee = next(size for size, rate in throughput.items() if rate >= best * (1 - KNEE_SHARE) or size in alike)
    share = 1 - throughput[knee] / best
    if knee in alike:
        names = ", ".join(map(str, sorted([*alike, fastest])))
        reason = f"the smallest of the sizes whose throughput cannot be told apart here ({names})"
    elif knee == fastest:
        reason = f"the highest throughput of the sizes that ran ({', '.join(map(str, throughput))})"
    else:
        reason = f"the smallest size within 3 % of the best throughput ({share:.1%} below batch {fastest})"
    if busy:
        reason += "; the machine was busy, so measure again when it is quiet"
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


def _differ(slower: MeasuredBatch, faster: MeasuredBatch) -> bool:
    """Whether one throughput is known to be above the other."""
    rates = slower.timing.images_per_second, faster.timing.images_per_second
    one_process_each = slower.timing.num_processes == faster.timing.num_processes == 1
    if (
        one_process_each
        and "CUDA" not in slower.memory.kind
        and rates[0] * (1 + CPU_PROCESS_SHARE) > rates[1]
    ):
        return False
    intervals = _rates(slower), _rates(faster)
    if intervals[0] is None or intervals[1] is None:
        return True
    return intervals[0][1] < intervals[1][0]


def _rates(block: MeasuredBatch) -> tuple[float, float] | None:
    """95 % interval of the throughput, images a second; None where there were too few runs."""
    interval = block.timing.ci95_median_ms
    if interval is None or not interval[0] or not interval[1]:
        return None
    images = block.input_shape[0]
    return 1000 * images / interval[1], 1000 * images / interval[0]
