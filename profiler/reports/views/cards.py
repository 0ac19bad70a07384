"""The headline figures of a profile, each with its source and what touches it; and what the profile does not hold.

A busy machine's latency must not stand there as if sound, and a reader must not take a gap for a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from swinmr_profiling.profiler.record.blocks.batch import ran, why_not
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.view import OURS, ProfileView

# What a warning's code is about; what is not here is about the run as a whole.
LATENCY, MACS, INFERENCE_MEMORY, TRAINING_MEMORY = "latency", "macs", "memory_inference", "memory_training"
TOUCHES = {
    "machine_busy": LATENCY,
    "power_saving": LATENCY,
    "time_stolen": LATENCY,
    "gpu_throttled": LATENCY,
    "gpu_shared": LATENCY,
    "nonfinite_output": LATENCY,
    "uncounted_operators": MACS,
    "counters_disagree": MACS,
    "memory_cold_spike": INFERENCE_MEMORY,
    "training_cold_spike": TRAINING_MEMORY,
    "training_retries": TRAINING_MEMORY,
    "memory_not_predicted": TRAINING_MEMORY,
}


def doubts_about(
    warnings: Sequence[ProfileWarning], what: str, batch_size: int | None = None
) -> tuple[str, ...]:
    """The warnings that touch a figure. batch_size: of the figure; None for one of all sizes."""
    return tuple(
        one.message
        for one in warnings
        if TOUCHES.get(one.code) == what and (batch_size is None or one.batch_size in (None, batch_size))
    )


@dataclass(frozen=True)
class Card:
    """label: what; value: for people; exact: to the unit, or ""; source: measured, predicted, ...; detail: of what.

    doubts: warnings of the run that touch it.
    """

    label: str
    value: str
    exact: str
    source: str
    detail: str
    doubts: tuple[str, ...] = ()


def cards_of(view: ProfileView) -> list[Card]:
    """What is known, in the order it is asked for: how big, how costly, how fast, which batch."""
    return [*_architecture_cards(view), *_latency_cards(view), *_training_cards(view)]


def _doubted(card: Card, view: ProfileView, what: str, batch_size: int | None = None) -> Card:
    return replace(card, doubts=doubts_about(view.profile.warnings, what, batch_size))


def _architecture_cards(view: ProfileView) -> list[Card]:
    one = view.profile.architecture
    if one is None:
        return []
    parameters, size = one.total_parameters, words.mebibytes(one.parameter_bytes)
    found = [Card("Parameters", _millions(parameters), words.count(parameters), one.source, size)]
    if one.macs is None:
        return found
    what = f"one forward pass of {words.shape(one.input_shape)}"
    if view.macs_convention == OURS:
        card = Card("MACs", words.giga(one.macs), words.count(one.macs), one.source, f"multiply-adds, {what}")
        found.append(_doubted(card, view, MACS))
    else:
        detail = f"by {view.macs_convention}'s convention, with norms; {what}"
        found.append(Card("MACs", words.giga(one.macs), words.count(one.macs), "imported", detail))
    if one.flops is not None:
        found.append(Card("FLOPs", words.giga(one.flops), words.count(one.flops), one.source, "2 x MACs"))
    step = one.training_macs
    if step is not None and step.per_sample is not None and step.per_step is not None:
        sample = step.per_sample
        again = f", {words.giga(sample.recomputed_macs)} more recomputed" if sample.recomputed_macs else ""
        loss = f"loss network {words.giga(sample.loss_macs)}, " if sample.loss_macs else ""
        detail = (
            f"forward {words.giga(sample.forward_macs)}, {loss}backward {words.giga(sample.backward_macs)}{again}; "
            f"{words.giga(step.per_step.macs)} in an optimizer step of {words.count(step.per_step.samples)}"
        )
        found.append(Card("Training MACs per sample", words.giga(sample.macs), "", step.source, detail))
    if one.reconstruction is not None:
        image = one.reconstruction
        calls = f"{words.count(image.denoiser_calls)} calls, {words.milliseconds(image.latency_ms)}"
        detail = f"{image.sampler}, {image.sampling_steps} steps: {calls}"
        macs = f"{words.giga(image.macs)} MACs"
        found.append(Card("One sampled image", macs, words.count(image.macs), image.source, detail))
    return found


def _millions(value: int | None) -> str:
    return words.count(value) if value is None or value < 100_000 else f"{figure(value / 1e6)} M"


def _latency_cards(view: ProfileView) -> list[Card]:
    found = []
    single = view.size(1)
    if single is not None and ran(single):
        interval = single.timing.ci95_median_ms
        detail = (
            "no interval: too few runs"
            if interval is None
            else f"95 % interval {figure(interval[0])} to {figure(interval[1])} ms"
        )
        latency = words.milliseconds(single.timing.median_ms)
        card = Card("Latency, batch 1", latency, "", single.source, f"median; {detail}")
        found.append(_doubted(card, view, LATENCY, 1))
    timed = [size for size in view.ran if size.timing.images_per_second is not None]
    if timed:
        best = max(timed, key=lambda size: size.timing.images_per_second)
        rate = words.per_second(best.timing.images_per_second)
        card = Card("Best throughput", rate, "", best.source, f"at batch {best.batch_size}")
        found.append(_doubted(card, view, LATENCY, best.batch_size))
    advice = view.profile.inference_advice
    if advice is not None:
        card = Card("Batch for inference", str(advice.batch_size), "", advice.source, advice.reason)
        found.append(_doubted(card, view, LATENCY))
    return found


def _training_cards(view: ProfileView) -> list[Card]:
    found = []
    for one in view.profile.training_advice:
        value = "none fits" if one.batch_size is None else str(one.batch_size)
        source = one.source if one.batch_size is None or one.verified else f"{one.source}, not verified"
        needed, usable = words.gibibytes(one.needed_bytes), words.gibibytes(one.budget.usable_bytes)
        detail = f"{words.setting_text(one)}; needs {needed} of {usable} usable"
        card = Card(f"Batch for training, {one.budget.name}", value, "", source, detail)
        found.append(_doubted(card, view, TRAINING_MEMORY))
    return found


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
