"""What a profile does not hold, in words: a reader must not take a gap for a zero."""

from __future__ import annotations

from swinmr_profiling.profiler.reports.views.size_view import ran, why_not
from swinmr_profiling.profiler.reports.views.view import ProfileView


def what_is_missing(view: ProfileView) -> list[str]:
    """What a complete profile would hold and this one does not, a sentence each."""
    found = []
    profile, architecture = view.profile, view.profile.architecture
    if view.imported:
        found.append(
            "This file is of the original script: no precision, environment, raw samples or intervals are in it; "
            "its operation count is fvcore's, in multiply-adds with norms."
        )
    elif profile.status != "complete":
        found.append(f"The run is {profile.status}: {profile.status_reason or 'no reason is recorded'}.")
    if architecture is None:
        found.append("Parameters and MACs: the run ended before the network was analysed.")
    elif architecture.macs is None:
        reason = architecture.count_error or "they were not counted"
        found.append(f"MACs and FLOPs: {reason}.")
    elif names := ", ".join(
        name for name, calls in (architecture.uncounted_operators or {}).items() if calls
    ):
        found.append(f"MACs are a lower bound: no formula for {names}.")
    if not view.sizes:
        found.append("Latency, throughput and memory of inference: no batch size was measured.")
    elif not view.ran:
        found.append("Latency, throughput and memory of inference: no batch size ran.")
    failed = [(size.batch_size, *why_not(size)) for size in view.sizes if not ran(size)]
    found += [f"Batch {batch}: {kind} ({detail})." for batch, kind, detail in failed]
    if view.training_memory is None:
        found.append("Memory of training: neither measured nor predicted in this profile.")
    elif not any(size.training and size.training.source == "measured" for size in view.sizes):
        found.append("Memory of training is predicted: no training step has been measured.")
    if not profile.training_advice:
        found.append("A batch size to train with: none is recommended in this profile.")
    return found
