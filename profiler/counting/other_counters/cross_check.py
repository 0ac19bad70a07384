"""Second and third opinions: fvcore and thop on the same network, and why they differ from ours, to the unit.

They need a real forward (fvcore traces, thop hooks), patch or mark what they run on, and can exhaust memory. So each
runs in a process of its own, on a small size of the network, and whatever becomes of that process is a record here.
"""

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from swinmr_profiling.process import ask_once
from swinmr_profiling.profiler.counting.other_counters.explain import told_by
from swinmr_profiling.profiler.record.blocks.architecture import CrossCheck

PROCESS = "swinmr_profiling.profiler.counting.other_counters.cross_check_process"
COUNTERS = ("fvcore", "thop")
SIZES = ("small", "full")
DEFAULT_TIMEOUT_S = 300.0


def cross_check(
    config: Mapping[str, Any],
    *,
    counters: Sequence[str] = COUNTERS,
    size: str = "small",
    trust_config: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> list[CrossCheck]:
    """Asks each counter about the network of a config, in a process of its own.

    Args:
        config: the experiment config as a dict (``model_dump(mode="json")``).
        counters: "fvcore" and "thop", in the order wanted.
        size: "small", or "full" for the inference shape of the config: a real forward of that size, on the CPU.
        trust_config: allow the config's own code to be imported.
        timeout_s: per counter.

    Returns:
        one record per counter, in order. Nothing that goes wrong in the other process raises here.

    Raises:
        ValueError: an unknown counter or size.
    """
    for counter in counters:
        if counter not in COUNTERS:
            raise ValueError(f"counter {counter!r}: expected one of {', '.join(COUNTERS)}")
    if size not in SIZES:
        raise ValueError(f"cross-check size {size!r}: expected one of {', '.join(SIZES)}")
    # A full-size forward takes GBs, so that these are one after the other.
    at_once = len(counters) if size == "small" else 1
    with ThreadPoolExecutor(max(at_once, 1)) as threads:
        return list(
            threads.map(
                lambda counter: _in_its_own_process(config, counter, size, trust_config, timeout_s), counters
            )
        )


def second_opinion(checks: Sequence[CrossCheck]) -> CrossCheck | None:
    """The record to show first: fvcore's if it has a figure, else thop's, else None."""
    with_figure = [check for check in checks if check.status == "ok"]
    return min(with_figure, key=lambda check: COUNTERS.index(check.counter), default=None)


def _in_its_own_process(
    config: Mapping[str, Any], counter: str, size: str, trust_config: bool, timeout_s: float
) -> CrossCheck:
    told = told_by(counter, size)
    request = json.dumps(
        {"config": dict(config), "counter": counter, "size": size, "trust_config": trust_config}
    )
    started = time.perf_counter()
    try:
        ended = ask_once(PROCESS, request, timeout_s, in_our_group=True)
    except TimeoutError as error:
        return told(status="timeout", reason=str(error), seconds=timeout_s)
    except OSError as error:
        return told(status="crashed", reason=f"the process did not start: {error}")
    told = partial(told, seconds=time.perf_counter() - started)
    if ended.answer is not None:
        return told(**{**ended.answer, **told.keywords})
    # 9 is the kernel's own kill, out of memory more often than not.
    status = "killed" if ended.returncode < 0 else "crashed"
    return told(status=status, reason=f"the process ended by {ended.how}")
