"""What every report of a profile shows: read once from the record, with what is missing said in words."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from swinmr_profiling.profiler.allocator.allocation_order import AllocationOrderError
from swinmr_profiling.profiler.record.blocks.architecture import Architecture, ModuleCosts
from swinmr_profiling.profiler.record.blocks.batch import Batch, MeasuredBatch, PerceptualMetric, ran
from swinmr_profiling.profiler.record.blocks.energy import DataLoading, Energy
from swinmr_profiling.profiler.record.blocks.run_description import Environment, RunConfig
from swinmr_profiling.profiler.record.files.reading import LoadedProfile, ProfileFileError, printable
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.units import MIB, figure, gib
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.views.memory_view import (
    MemoryBySize,
    inference_memory,
    training_memory,
)
from swinmr_profiling.profiler.reports.views.module_view import ModuleNode, read_tree
from swinmr_profiling.profiler.reports.views.strategies_view import kept_rows, strategy_rows, untested_words
from swinmr_profiling.profiler.reports.views.words import shape

OURS, FVCORE = "exact multiply-adds", "fvcore"

# More rows are of no use beside the tree of modules; the JSON has all.
TOP_OPERATORS = 10


@dataclass(frozen=True)
class ProfileView:
    """A profile as reports show it: the record with every text printable, and beside it what several of them say.

    sizes: from small to large. operators: those with the most MACs, most first. module_costs: what the latencies by
    module are of.
    """

    file: str
    version: int
    profile: Profile
    title: str
    config_file: str
    model: str
    device: str
    hardware: str
    options: tuple[tuple[str, str], ...]
    image_size: str
    sizes: tuple[Batch, ...]
    macs_convention: str
    operators: tuple[tuple[str, int], ...]
    tree: ModuleNode | None
    module_costs: str | None
    inference_memory: MemoryBySize | None
    training_memory: MemoryBySize | None
    perceptual: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    energy: tuple[tuple[str, str], ...]
    strategies: tuple[tuple[str, ...], ...]
    strategies_kept: tuple[tuple[str, ...], ...]
    strategies_untested: str

    @property
    def imported(self) -> bool:
        return self.version == 0

    def size(self, batch_size: int) -> Batch | None:
        return next((size for size in self.sizes if size.batch_size == batch_size), None)

    @property
    def ran(self) -> tuple[MeasuredBatch, ...]:
        return tuple(size for size in self.sizes if ran(size))


def view_of(loaded: LoadedProfile) -> ProfileView:
    """The view of a profile, its texts fit to be shown. Raises ProfileFileError for allocations that are damaged."""
    try:
        return _view(replace(loaded, file=printable(loaded.file), profile=_shown(loaded.profile)))
    except AllocationOrderError as error:
        raise ProfileFileError(f"{loaded.file}: is damaged ({error})") from None


def _shown(value: Any) -> Any:
    """The same with every text printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: _shown(one) for name, one in value})
    if isinstance(value, ProfileWarning):
        return replace(value, code=printable(value.code), message=printable(value.message))
    if isinstance(value, dict):
        return {_shown(key): _shown(one) for key, one in value.items()}
    return [_shown(one) for one in value] if isinstance(value, list) else value


def _view(loaded: LoadedProfile) -> ProfileView:
    profile, config, machine = loaded.profile, loaded.profile.config, loaded.profile.machine
    architecture, sizes = profile.architecture, profile.sizes
    # Of the original script's config anything may be missing.
    config_file = config.config_file or "not recorded"
    return ProfileView(
        file=loaded.file,
        version=loaded.version,
        profile=profile,
        title=config.experiment_name or PurePath(config_file).stem or config_file,
        config_file=config_file,
        model=config.model or "not recorded",
        device=config.device or "not recorded",
        hardware=hardware_of(machine, config.device),
        options=_options(config),
        image_size=_image_size(config),
        sizes=sizes,
        macs_convention=FVCORE if loaded.imported else OURS,
        operators=() if architecture is None else _operators(architecture),
        tree=None if architecture is None else read_tree(architecture.by_module, architecture.module_costs),
        module_costs=None if architecture is None else _module_costs(architecture.module_costs),
        inference_memory=inference_memory(sizes, None if machine is None else machine.gpu),
        training_memory=training_memory(profile, sizes),
        perceptual=_perceptual(profile.perceptual_metric),
        environment=environment_rows(machine),
        energy=energy_rows(profile.energy, profile.data_loading),
        strategies=strategy_rows(profile.strategies),
        strategies_kept=kept_rows(profile.strategies),
        strategies_untested=untested_words(profile.strategies),
    )


def _operators(block: Architecture) -> tuple[tuple[str, int], ...]:
    most_first = sorted((block.by_operator or {}).items(), key=lambda one: -one[1])[:TOP_OPERATORS]
    return tuple((name, macs) for name, macs in most_first if macs)


def _module_costs(block: ModuleCosts | None) -> str | None:
    """What the latencies by module are of, in words."""
    if block is None:
        return None
    share = "" if block.hook_share is None else f", {block.hook_share * 100:.0f} % of it the hooks'"
    return f"{block.num_runs} runs of {shape(block.input_shape)} with hooks; {figure(block.hooked_ms)} ms in all{share}"


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


def hardware_of(environment: Environment | None, device: str | None) -> str:
    if device is not None and device.startswith("cuda"):
        gpu = None if environment is None else environment.gpu
        return "a GPU of unknown name" if gpu is None else gpu.name
    return "a processor of unknown name" if environment is None else environment.cpu.name


def environment_rows(environment: Environment | None) -> tuple[tuple[str, str], ...]:
    if environment is None:
        return ()
    cpu, gpu, git = environment.cpu, environment.gpu, environment.git
    rows: list[tuple[str, str | None]] = [
        ("processor", cpu.name),
        ("cores in use, threads", f"{cpu.usable_cores}, {cpu.threads}"),
        ("host memory", gib(environment.memory_total_bytes)),
    ]
    if gpu is None:
        rows.append(("GPU", "none"))
    else:
        cudnn = None if gpu.cudnn is None else str(gpu.cudnn)
        rows += [
            ("GPU", f"{gpu.name}, {gpu.total_bytes / MIB:,.0f} MiB"),
            ("driver", gpu.driver),
            ("cuda", gpu.cuda),
            ("cudnn", cudnn),
        ]
    rows += [
        ("python", environment.python),
        ("platform", environment.platform),
        ("float32_matmul_precision", environment.float32_matmul_precision),
        *environment.packages.items(),
    ]
    if git is not None:
        rows.append(("commit", f"{git.commit}{' with local changes' if git.dirty else ''}"))
    rows += [("command", environment.command_line), ("measured at (UTC)", environment.time_utc)]
    return tuple((name, value) for name, value in rows if value is not None)


READERS = {"nvml": "NVML's energy counter", "rapl": "RAPL"}


def energy_rows(energy: Energy | None, loading: DataLoading | None) -> tuple[tuple[str, str], ...]:
    """Names and values, one a line; () where neither was asked for."""
    found: list[tuple[str, str]] = []
    for one in () if energy is None else energy.figures:
        runs = f"{one.num_runs} runs in {figure(one.duration_s)} s, {figure(one.mean_watts)} W"
        image = f"{figure(one.joules_per_image)} J per image"
        if one.joules_per_step is None:
            found.append((f"inference, batch {one.batch_size}", f"{image} ({runs})"))
        else:
            step = f"{figure(one.joules_per_step)} J per step of {one.images_per_step}"
            found.append((f"training, batch {one.batch_size}", f"{step}, {image} ({runs})"))
    if energy is not None:
        untried = "; untried: no such machine has run this code" if energy.untried else ""
        found.append(("energy counter", f"{READERS[energy.reader]}: {energy.covers}{untried}"))
    if loading is not None:
        rate = f"{figure(loading.images_per_second)} images/s, {loading.num_workers} workers, {loading.data_source}"
        found.append((f"data loader, batch {loading.batch_size}", rate))
        if loading.step_ms is not None:
            waits = "training waits for its data" if loading.waits else "the loader keeps up"
            median = (
                f"a batch every {figure(loading.median_ms)} ms, a step takes {figure(loading.step_ms)} ms"
            )
            found.append(("loader beside the step", f"{median}: {waits}"))
    return tuple(found)
