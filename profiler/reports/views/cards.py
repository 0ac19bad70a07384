"""The headline figures of a profile, each with what it is and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.doubts import LATENCY, MACS, TRAINING_MEMORY, doubts_about
from swinmr_profiling.profiler.reports.views.view import OURS, ProfileView

COUNTED = "counted"


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
    return replace(card, doubts=doubts_about(view.doubts, what, batch_size))


def _architecture_cards(view: ProfileView) -> list[Card]:
    one = view.architecture
    if one is None:
        return []
    size = words.mebibytes(one.parameter_bytes)
    found = [Card("Parameters", _millions(one.parameters), words.count(one.parameters), one.source, size)]
    if one.macs is None:
        return found
    what = f"one forward pass of {words.shape(one.input_shape)}"
    if one.macs_convention == OURS:
        card = Card("MACs", words.giga(one.macs), words.count(one.macs), one.source, f"multiply-adds, {what}")
        found.append(_doubted(card, view, MACS))
    else:
        detail = f"by {one.macs_convention}'s convention, with norms; {what}"
        found.append(Card("MACs", words.giga(one.macs), words.count(one.macs), "imported", detail))
    if one.flops is not None:
        found.append(Card("FLOPs", words.giga(one.flops), words.count(one.flops), one.source, "2 x MACs"))
    if one.training is not None:
        step = one.training
        again = f", {words.giga(step.recomputed_macs)} more recomputed" if step.recomputed_macs else ""
        loss = f"loss network {words.giga(step.loss_macs)}, " if step.loss_macs else ""
        detail = (
            f"forward {words.giga(step.forward_macs)}, {loss}backward {words.giga(step.backward_macs)}{again}; "
            f"{words.giga(step.step_macs)} in an optimizer step of {words.count(step.samples)}"
        )
        found.append(Card("Training MACs per sample", words.giga(step.macs), "", step.source, detail))
    if one.reconstruction is not None:
        sample = one.reconstruction
        detail = (
            f"{sample.sampler}: {words.count(sample.calls)} calls, {words.milliseconds(sample.latency_ms)}"
        )
        macs = f"{words.giga(sample.macs)} MACs"
        found.append(Card("One sampled image", macs, words.count(sample.macs), sample.source, detail))
    return found


def _millions(value: int | None) -> str:
    return words.count(value) if value is None or value < 100_000 else f"{figure(value / 1e6)} M"


def _latency_cards(view: ProfileView) -> list[Card]:
    found = []
    single = view.size(1)
    if single is not None and single.ran:
        interval = single.ci95_median_ms
        detail = (
            "no interval: too few runs"
            if interval is None
            else f"95 % interval {figure(interval[0])} to {figure(interval[1])} ms"
        )
        latency = words.milliseconds(single.median_ms)
        card = Card("Latency, batch 1", latency, "", single.source, f"median; {detail}")
        found.append(_doubted(card, view, LATENCY, 1))
    timed = [size for size in view.ran if size.images_per_second is not None]
    if timed:
        best = max(timed, key=lambda size: size.images_per_second or 0.0)
        rate = words.per_second(best.images_per_second)
        card = Card("Best throughput", rate, "", best.source, f"at batch {best.batch_size}")
        found.append(_doubted(card, view, LATENCY, best.batch_size))
    if view.advice is not None:
        advice = view.advice
        card = Card("Batch for inference", str(advice.batch_size), "", advice.source, advice.reason)
        found.append(_doubted(card, view, LATENCY))
    return found


def _training_cards(view: ProfileView) -> list[Card]:
    found = []
    for one in view.recommendations:
        value = "none fits" if one.batch_size is None else str(one.batch_size)
        source = one.source if one.batch_size is None or one.verified else f"{one.source}, not verified"
        needed, usable = words.gibibytes(one.needed_bytes), words.gibibytes(one.usable_bytes)
        detail = f"{one.setting}; needs {needed} of {usable} usable"
        card = Card(f"Batch for training, {one.name}", value, "", source, detail)
        found.append(_doubted(card, view, TRAINING_MEMORY))
    return found
