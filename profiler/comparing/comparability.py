"""What makes two figures figures of the same thing; where it is missing no ratio is given."""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.record.blocks.batch import Batch
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.blocks.training import TrainingRun
from swinmr_profiling.profiler.reports.views import words
from swinmr_profiling.profiler.reports.views.view import ProfileView

Reasons = tuple[str, ...]


def _differs(what: str, first: object, other: object) -> Reasons:
    if first == other:
        return ()
    shown = (UNRECORDED if value is None else str(value) for value in (other, first))
    return (f"other {what}: {' against '.join(shown)}",)


UNRECORDED = "not recorded"


def _schema(view: ProfileView) -> str:
    return "the original script's" if view.imported else "ours"


def _image(shape: Sequence[int] | None) -> str | None:
    return None if shape is None else words.shape(shape[1:])


def against_counts(first: ProfileView, other: ProfileView) -> Reasons:
    """Why MACs or FLOPs are not comparable."""
    one, two = first.profile.architecture, other.profile.architecture
    if one is None or two is None:
        return ()
    return (
        *_differs("counting convention", first.macs_convention, other.macs_convention),
        *_differs("image size", _image(one.input_shape), _image(two.input_shape)),
    )


def against_measurements(first: ProfileView, other: ProfileView, one: Batch, two: Batch) -> Reasons:
    """Why latency, throughput or memory of inference are not comparable."""
    return (
        *_differs("schema version", _schema(first), _schema(other)),
        *_differs("device", device_of(first), device_of(other)),
        *_differs("precision", first.profile.config.precision, other.profile.config.precision),
        *_differs("image size", _image(one.input_shape), _image(two.input_shape)),
    )


def against_training(first: ProfileView, other: ProfileView, one: TrainingRun, two: TrainingRun) -> Reasons:
    """Why the memory of training is not comparable. Checkpointing is what one compares, so it may differ."""
    reasons = (
        *_differs("kind of figure", one.source, two.source),
        *_differs("precision", one.precision, two.precision),
        *_differs("image size", _image(one.input_shape), _image(two.input_shape)),
    )
    if one.source == two.source == "measured":
        return (*_differs("device", device_of(first), device_of(other)), *reasons)
    return reasons


def against_recommendations(one: TrainingRecommendation, two: TrainingRecommendation) -> Reasons:
    """Why the largest batch of one GPU is not comparable."""
    return (
        *_differs("memory of the GPU", one.budget.usable_bytes, two.budget.usable_bytes),
        *_differs("precision", one.precision, two.precision),
        *_differs("image size", words.patch_text(one), words.patch_text(two)),
        *_differs("kind of figure", one.source, two.source),
    )


def device_of(view: ProfileView) -> str:
    """The kind of device and its name: `cuda:0` and `cuda:1` of one name are alike."""
    return f"{view.device.partition(':')[0]} ({view.hardware})"


def on_cpu(view: ProfileView) -> bool:
    return not view.device.startswith("cuda")


# What makes a machine slower than it is, and any latency too high.
DISTURBING = ("machine_busy", "time_stolen", "power_saving", "gpu_throttled", "gpu_shared")


def disturbed(view: ProfileView) -> bool:
    return bool(warned(view))


def notable_differences(first: ProfileView, other: ProfileView) -> Reasons:
    """What else moves a figure and is still compared: it may be what the user wants to know."""
    found = [
        f"other {name}: {dict(other.options)[name]} against {value}"
        for name, value in first.options
        if dict(other.options)[name] != value and not (first.imported or other.imported)
    ]
    mine, others = dict(first.environment), dict(other.environment)
    found += [
        f"other {name}: {others[name]} against {mine[name]}"
        for name in ("torch", "cores in use, threads", "driver", "cuda")
        if name in mine and name in others and mine[name] != others[name]
    ]
    return tuple(found)


def warned(view: ProfileView) -> Reasons:
    """Of what disturbed machine a profile warns."""
    codes = {warning.code for warning in view.profile.warnings}
    return tuple(f"warns of {code}" for code in DISTURBING if code in codes)
