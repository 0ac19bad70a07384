"""What every report of a profile shows: read once from the record, with what is missing said in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import PurePath
from typing import Any

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrderError
from swinmr_profiling.profiler.record.blocks import architecture as written
from swinmr_profiling.profiler.record.blocks.batch import PerceptualMetric
from swinmr_profiling.profiler.record.blocks.run_description import Environment, RunConfig
from swinmr_profiling.profiler.record.files.printable_text import printable
from swinmr_profiling.profiler.record.files.reading import LoadedProfile, ProfileFileError
from swinmr_profiling.profiler.record.units import figure
from swinmr_profiling.profiler.reports.views.doubts import Doubt
from swinmr_profiling.profiler.reports.views.energy_view import energy_rows
from swinmr_profiling.profiler.reports.views.environment_view import environment_rows, hardware_of
from swinmr_profiling.profiler.reports.views.memory_view import (
    InferenceMemory,
    TrainingMemory,
    inference_memory,
    training_memory,
)
from swinmr_profiling.profiler.reports.views.module_view import ModuleNode, read_tree
from swinmr_profiling.profiler.reports.views.size_view import SizeView, read_sizes
from swinmr_profiling.profiler.reports.views.strategies_view import kept_rows, strategy_rows, untested_words
from swinmr_profiling.profiler.reports.views.training_view import Recommendation, read_recommendations

OURS, FVCORE = "exact multiply-adds", "fvcore"

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
class TrainingMacs:
    """Multiply-adds of a training step: of one sample, and of an optimizer step of `samples`."""

    source: str
    macs: float | None
    forward_macs: float | None
    loss_macs: float | None
    backward_macs: float | None
    recomputed_macs: float | None
    samples: int | None
    step_macs: int | None


@dataclass(frozen=True)
class Architecture:
    """Counts of one forward pass of `input_shape`. operators: those with the most MACs, most first."""

    source: str
    input_shape: tuple[int, ...] | None
    parameters: int | None
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
    training: TrainingMacs | None = None
    module_costs: str | None = None


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
    doubts: tuple[Doubt, ...]
    architecture: Architecture | None
    sizes: tuple[SizeView, ...]
    advice: InferenceAdvice | None
    inference_memory: InferenceMemory | None
    training_memory: TrainingMemory | None
    recommendations: tuple[Recommendation, ...]
    perceptual: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    energy: tuple[tuple[str, str], ...] = ()
    strategies: tuple[tuple[str, ...], ...] = ()
    strategies_kept: tuple[tuple[str, ...], ...] = ()
    strategies_untested: str = ""

    @property
    def imported(self) -> bool:
        return self.version == 0

    def size(self, batch_size: int) -> SizeView | None:
        return next((size for size in self.sizes if size.batch_size == batch_size), None)

    @property
    def ran(self) -> tuple[SizeView, ...]:
        return tuple(size for size in self.sizes if size.ran)


def view_of(loaded: LoadedProfile) -> ProfileView:
    """The view of a profile, its texts fit to be shown. Raises ProfileFileError for allocations that are damaged."""
    try:
        return _shown(_view(loaded))
    except AllocationOrderError as error:
        raise ProfileFileError(f"{loaded.file}: is damaged ({error})") from None


def _shown(value: Any) -> Any:
    """The same with every text printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Doubt):
        return Doubt(*map(_shown, value))
    if isinstance(value, tuple):
        return tuple(map(_shown, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _shown(getattr(value, field.name)) for field in fields(value)})
    return value


def _view(loaded: LoadedProfile) -> ProfileView:
    profile, config = loaded.profile, loaded.profile.config
    environment = profile.environment if isinstance(profile.environment, Environment) else None
    sizes = read_sizes(profile)
    recommendations = read_recommendations(profile.recommendation)
    advice = None if profile.recommendation is None else profile.recommendation.inference
    # Of the original script's config anything may be missing.
    config_file = config.config_file or "not recorded"
    return ProfileView(
        file=loaded.file,
        version=loaded.version,
        title=config.experiment_name or PurePath(config_file).stem or config_file,
        config_file=config_file,
        model=config.model or "not recorded",
        device=config.device or "not recorded",
        hardware=hardware_of(environment, config.device),
        precision=config.precision,
        options=_options(config),
        image_size=_image_size(config),
        time_utc=None if environment is None else environment.time_utc,
        status=profile.status,
        status_reason=profile.status_reason,
        warnings=tuple(warning.message for warning in profile.warnings),
        warning_codes=tuple(dict.fromkeys(warning.code for warning in profile.warnings)),
        doubts=tuple(Doubt(one.code, one.message, one.batch_size) for one in profile.warnings),
        architecture=_architecture(profile.architecture, loaded.imported),
        sizes=sizes,
        advice=None if advice is None else InferenceAdvice(advice.batch_size, advice.source, advice.reason),
        inference_memory=inference_memory(sizes, None if environment is None else environment.gpu),
        training_memory=training_memory(
            profile.memory_model,
            recommendations,
            {size.batch_size: size.training for size in sizes if size.training is not None},
        ),
        recommendations=recommendations,
        perceptual=_perceptual(profile.perceptual_metric),
        environment=environment_rows(environment),
        energy=energy_rows(profile.energy, profile.data_loading),
        strategies=strategy_rows(profile.strategies),
        strategies_kept=kept_rows(profile.strategies),
        strategies_untested=untested_words(profile.strategies),
    )


def _architecture(block: written.Architecture | None, imported: bool) -> Architecture | None:
    if block is None:
        return None
    operators = sorted(_counts(block.by_operator), key=lambda one: -one[1])[:TOP_OPERATORS]
    return Architecture(
        source=block.source,
        input_shape=None if block.input_shape is None else tuple(block.input_shape),
        parameters=block.total_parameters,
        parameter_bytes=block.parameter_bytes,
        macs=block.macs,
        flops=block.flops,
        macs_convention=FVCORE if imported else OURS,
        by_kind=_counts(block.by_kind),
        operators=tuple(operators),
        uncounted=_counts(block.uncounted_operators),
        count_error=block.count_error,
        tree=read_tree(block.by_module, block.module_costs),
        module_costs=_module_costs(block.module_costs),
        counters=tuple(map(_counter, block.counters)),
        reconstruction=_reconstruction(block.reconstruction),
        training=_training_macs(block.training_macs),
    )


def _module_costs(block: written.ModuleCosts | None) -> str | None:
    """What the latencies by module are of, in words."""
    if block is None:
        return None
    share = "" if block.hook_share is None else f", {block.hook_share * 100:.0f} % of it the hooks'"
    took = "" if block.hooked_ms is None else f"; {figure(block.hooked_ms)} ms in all{share}"
    return f"{block.num_runs} runs of {' x '.join(map(str, block.input_shape))} with hooks{took}"


def _training_macs(block: written.TrainingMacs | None) -> TrainingMacs | None:
    if block is None or block.per_sample is None or block.per_step is None:
        return None
    return TrainingMacs(
        source=block.source,
        macs=block.per_sample.macs,
        forward_macs=block.per_sample.forward_macs,
        loss_macs=block.per_sample.loss_macs,
        backward_macs=block.per_sample.backward_macs,
        recomputed_macs=block.per_sample.recomputed_macs,
        samples=block.per_step.samples,
        step_macs=block.per_step.macs,
    )


def _counts(counts: Mapping[str, int] | None) -> tuple[tuple[str, int], ...]:
    return tuple((name, value) for name, value in (counts or {}).items() if value)


def _reconstruction(block: written.Reconstruction | None) -> Reconstruction | None:
    if block is None:
        return None
    sampler = f"{block.sampler}, {block.sampling_steps} steps"
    return Reconstruction(block.source, block.denoiser_calls, block.macs, block.latency_ms, sampler)


def _counter(block: written.CrossCheck) -> CounterView:
    return CounterView(
        name=block.counter,
        status=block.status,
        inexact=block.inexact,
        input_shape=tuple(block.input_shapes[0]) if block.input_shapes else None,
        figure=block.figure,
        ours=block.ours,
        agrees=block.agrees,
        convention=block.convention,
        reason=block.reason,
    )


def _options(config: RunConfig) -> tuple[tuple[str, str], ...]:
    """What changes a latency besides device, precision and image."""
    return (
        ("threads", "torch's choice" if config.threads is None else str(config.threads)),
        ("channels_last", "yes" if config.channels_last else "no"),
        ("compile", "yes" if config.compile else "no"),
    )


def _image_size(config: RunConfig) -> str:
    return "the network's own" if config.image_size is None else json.dumps(config.image_size)[:60]


def _perceptual(block: PerceptualMetric | None) -> tuple[tuple[str, str], ...]:
    if block is None:
        return ()
    return (
        ("metric", f"{block.metric} ({block.source})"),
        ("parameters", f"{block.total_parameters:,}"),
        ("MACs of one comparison", f"{block.macs:,}"),
        ("median time", f"{figure(block.timing.median_ms)} ms"),
    )
