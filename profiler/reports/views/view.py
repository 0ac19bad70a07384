"""What every report of a profile shows: read once from its JSON, typed, with what is missing said in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePath

from swinmr_profiling.profiler.record.fields import Fields, ProfileShapeError, printable
from swinmr_profiling.profiler.record.reading import LoadedProfile, ProfileFileError
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.views.environment_view import environment_rows, hardware_of
from swinmr_profiling.profiler.reports.views.memory_view import (
    InferenceMemory,
    TrainingMemory,
    inference_memory,
    training_memory,
)
from swinmr_profiling.profiler.reports.views.module_view import ModuleNode, read_tree
from swinmr_profiling.profiler.reports.views.size_view import SizeView, read_sizes
from swinmr_profiling.profiler.reports.views.training_view import Recommendation, read_recommendations

OURS = "exact multiply-adds"


# More rows are of no use beside the tree of modules; the JSON has all.
TOP_OPERATORS = 10


@dataclass(frozen=True)
class CounterView:
    """What another counter says; figures are multiply-adds by that counter's convention."""

    name: str
    status: str
    inexact: bool
    input_shape: tuple[int, ...] | None
    figure: float | None
    ours: int | None
    agrees: bool | None
    convention: str
    reason: str | None


@dataclass(frozen=True)
class Reconstruction:
    """One sample of one image by a denoiser: its calls times what one call costs."""

    source: str
    calls: int | None
    macs: int | None
    latency_ms: float | None
    sampler: str


@dataclass(frozen=True)
class Architecture:
    """Counts of one forward pass of `input_shape`. operators: those with the most MACs, most first."""

    source: str
    input_shape: tuple[int, ...] | None
    parameters: int | None
    trainable_parameters: int | None
    parameter_bytes: int | None
    macs: int | None
    flops: int | None
    macs_convention: str
    by_kind: tuple[tuple[str, int], ...]
    operators: tuple[tuple[str, int], ...]
    uncounted: tuple[tuple[str, int], ...]
    count_error: str | None
    tree: ModuleNode | None
    counters: tuple[CounterView, ...]
    reconstruction: Reconstruction | None


@dataclass(frozen=True)
class InferenceAdvice:
    """The batch size recommended for inference, the knee of the throughput."""

    batch_size: int
    source: str
    reason: str


@dataclass(frozen=True)
class ProfileView:
    """A profile as reports show it."""

    file: str
    version: int
    title: str
    config_file: str
    model: str
    device: str
    hardware: str
    precision: str | None
    options: tuple[tuple[str, str], ...]
    image_size: str
    time_utc: str | None
    status: str
    status_reason: str | None
    warnings: tuple[str, ...]
    warning_codes: tuple[str, ...]
    architecture: Architecture | None
    sizes: tuple[SizeView, ...]
    advice: InferenceAdvice | None
    inference_memory: InferenceMemory | None
    training_memory: TrainingMemory | None
    recommendations: tuple[Recommendation, ...]
    perceptual: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]

    @property
    def imported(self) -> bool:
        return self.version == 0

    def size(self, batch_size: int) -> SizeView | None:
        return next((size for size in self.sizes if size.batch_size == batch_size), None)

    @property
    def ran(self) -> tuple[SizeView, ...]:
        return tuple(size for size in self.sizes if size.ran)


def view_of(loaded: LoadedProfile) -> ProfileView:
    """The view of a profile. Raises ProfileFileError, naming the path, for a value of the wrong kind."""
    try:
        return _view(Fields(loaded.content), loaded)
    except ProfileShapeError as error:
        raise ProfileFileError(f"{loaded.file}: {error}") from None
    except RecursionError:
        raise ProfileFileError(f"{loaded.file}: nested too deeply: no profile is") from None


def _view(profile: Fields, loaded: LoadedProfile) -> ProfileView:
    config = profile.block("config")
    environment = profile.block("environment") or Fields({}, "environment")
    architecture = _architecture(profile.block("architecture"))
    sizes = read_sizes(profile)
    recommendation = profile.block("recommendation") or Fields({}, "recommendation")
    recommendations = read_recommendations(recommendation)
    advice = _advice(recommendation.block("inference"))
    gpu = environment.block("gpu")
    config_file = config.text("config_file") or "not recorded"
    return ProfileView(
        file=loaded.file,
        version=loaded.version,
        title=config.text("experiment_name") or PurePath(config_file).stem or config_file,
        config_file=config_file,
        model=config.text("model") or "not recorded",
        device=config.text("device") or "not recorded",
        hardware=hardware_of(environment, config.text("device")),
        precision=config.text("precision"),
        options=_options(config),
        image_size=_image_size(config),
        time_utc=environment.text("time_utc"),
        status=profile.text("status") or "not recorded",
        status_reason=profile.text("status_reason"),
        warnings=tuple(
            text for warning in profile.blocks("warnings") if (text := warning.text("message")) is not None
        ),
        warning_codes=tuple(
            dict.fromkeys(code for w in profile.blocks("warnings") if (code := w.text("code")) is not None)
        ),
        architecture=architecture,
        sizes=sizes,
        advice=advice,
        inference_memory=inference_memory(sizes, gpu),
        training_memory=training_memory(
            profile.block("memory_model"),
            recommendations,
            {size.batch_size: size.training for size in sizes if size.training is not None},
        ),
        recommendations=recommendations,
        perceptual=_perceptual(profile.block("perceptual_metric")),
        environment=environment_rows(environment),
    )


def _most(counts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts, key=lambda one: -one[1])[:TOP_OPERATORS])


def _architecture(block: Fields | None) -> Architecture | None:
    if block is None:
        return None
    convention = block.text("macs_convention")
    return Architecture(
        source=block.text("source") or "counted",
        input_shape=block.shape("input_shape"),
        parameters=block.integer("total_parameters"),
        trainable_parameters=block.integer("trainable_parameters"),
        parameter_bytes=block.integer("parameter_bytes"),
        macs=block.integer("macs"),
        flops=block.integer("flops"),
        macs_convention=OURS if convention is None else convention,
        by_kind=_counts(block.block("by_kind")),
        operators=_most(_counts(block.block("by_operator"))),
        uncounted=_counts(block.block("uncounted_operators")),
        count_error=block.text("count_error"),
        tree=read_tree(block.block("by_module")),
        counters=tuple(_counter(counter) for counter in block.blocks("counters")),
        reconstruction=_reconstruction(block.block("reconstruction")),
    )


def _counts(block: Fields | None) -> tuple[tuple[str, int], ...]:
    if block is None:
        return ()
    found = [(printable(name), block.integer(name)) for name in block.keys()]  # noqa: SIM118
    return tuple((name, value) for name, value in found if value)


def _reconstruction(block: Fields | None) -> Reconstruction | None:
    if block is None:
        return None
    return Reconstruction(
        source=block.text("source") or "extrapolated",
        calls=block.integer("denoiser_calls"),
        macs=block.integer("macs"),
        latency_ms=block.amount("latency_ms"),
        sampler=f"{block.text('sampler')}, {block.integer('sampling_steps')} steps",
    )


def _counter(block: Fields) -> CounterView:
    shapes = [Fields({"shape": shape}, f"{block.path}.input_shapes") for shape in block.items("input_shapes")]
    return CounterView(
        name=block.text("counter") or "not named",
        status=block.text("status") or "not recorded",
        inexact=bool(block.flag("inexact")),
        input_shape=shapes[0].shape("shape") if shapes else None,
        figure=block.number("figure"),
        ours=block.integer("ours"),
        agrees=block.flag("agrees"),
        convention=block.text("convention") or "",
        reason=block.text("reason"),
    )


def _advice(block: Fields | None) -> InferenceAdvice | None:
    if block is None or block.integer("batch_size") is None:
        return None
    return InferenceAdvice(
        block.integer("batch_size"),
        block.text("source") or "measured",
        block.text("reason") or "no reason recorded",
    )


def _options(config: Fields) -> tuple[tuple[str, str], ...]:
    """What changes a latency besides device, precision and image."""
    threads = config.integer("threads")
    return (
        ("threads", "torch's choice" if threads is None else str(threads)),
        ("channels_last", "yes" if config.flag("channels_last") else "no"),
        ("compile", "yes" if config.flag("compile") else "no"),
    )


def _image_size(config: Fields) -> str:
    if "image_size" not in config:
        return "the network's own"
    return printable(json.dumps(config.raw("image_size")))[:60]


def _perceptual(block: Fields | None) -> tuple[tuple[str, str], ...]:
    if block is None:
        return ()
    timing = block.block("timing")
    parameters, macs = block.integer("total_parameters"), block.integer("macs")
    median = None if timing is None else timing.amount("median_ms")
    return (
        ("metric", f"{block.text('metric')} ({block.text('source')})"),
        ("parameters", "not known" if parameters is None else f"{parameters:,}"),
        ("MACs of one comparison", "not known" if macs is None else f"{macs:,}"),
        ("median time", "not known" if median is None else f"{figure(median)} ms"),
    )
