"""The exact count of a recorded run: each distinct call counted once on a copy without data, times its calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from swinmr_profiling.profiler.counting import KINDS, CountReport, count_forward
from swinmr_profiling.profiler.counting.count import report_fields
from swinmr_profiling.profiler.counting.engine import CountingMode
from swinmr_profiling.profiler.counting.meta_copy import copy_to, random_state_kept
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.profiler.pipelines.live.recorder import RecordedCalls, RecordedRun


@dataclass
class NetworkCount:
    """One network in a run. `reason` says why its figures are incomplete, None where they are exact."""

    name: str
    calls: int = 0
    macs: int = 0
    softmax_macs: int = 0
    by_kind: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    seconds: float = 0.0
    seconds_per_call: list[float] = field(default_factory=list)
    reason: str | None = None


def count_run(run: RecordedRun, names: list[str]) -> dict[str, NetworkCount]:
    """MACs and time of every network of `names` in the run; `calls` are the outermost ones of its busiest module.

    MACs are to the unit: of every part that ran, at the shapes that it ran with.
    """
    counts = {}
    for name in names:
        network = NetworkCount(name)
        by_path: dict[str, int] = {}
        for recorded in run.of_network(name):
            by_path[recorded.path] = by_path.get(recorded.path, 0) + recorded.count
            network.seconds += sum(recorded.seconds)
            network.seconds_per_call += recorded.seconds
            try:
                _add(network, count_recorded(recorded), recorded.count)
            except Exception as error:
                reason = (str(error).splitlines() or [""])[0]
                network.reason = f"{recorded.path} cannot be counted: {type(error).__name__}: {reason}"
        for path, reason in run.failures.items():
            if path == name or path.startswith(f"{name}."):
                network.reason = f"{path} could not be recorded: {reason}"
        network.calls = max(by_path.values(), default=0)
        counts[name] = network
    return counts


def _add(network: NetworkCount, report: CountReport, calls: int) -> None:
    network.macs += report.macs * calls
    network.softmax_macs += report.softmax_macs * calls
    for kind, macs in report.by_kind.items():
        network.by_kind[kind] += macs * calls
    if report.uncounted_operators:
        network.reason = f"no formula for {', '.join(report.uncounted_operators)}"


def count_recorded(recorded: RecordedCalls) -> CountReport:
    """One of the recorded calls, on a copy of its module on the meta device; integers keep their values.

    Raises whatever the module raises where it runs neither so nor with all arguments on meta.
    """
    try:
        with random_state_kept():
            copied, (args, kwargs) = copy_to(
                recorded.module, (_floats(recorded.args), _floats(recorded.kwargs))
            )
            args, kwargs = _with_integers(args, recorded.args), _with_integers(kwargs, recorded.kwargs)
            mode = CountingMode(ModuleTracker(copied))
            with torch.no_grad(), mode.tracker, mode:
                copied(*args, **kwargs)
            mode.raise_from_threads()
        return CountReport(**report_fields(mode, args, kwargs, "meta", None))
    except Exception:
        return count_forward(recorded.module, recorded.args, recorded.kwargs)


def _is_integer(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and not leaf.is_meta


def _floats(arguments: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda leaf: None if _is_integer(leaf) else leaf, arguments)


def _with_integers(copied: Any, originals: Any) -> Any:
    """The copied arguments with the integer tensors put back, as they are: CPU tensors with their values."""
    tree = torch.utils._pytree
    kept, structure = tree.tree_flatten(originals)
    leaves, _ = tree.tree_flatten(copied)
    pairs = zip(leaves, kept, strict=True)
    return tree.tree_unflatten([own if _is_integer(own) else leaf for leaf, own in pairs], structure)
