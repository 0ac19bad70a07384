"""What a plan tries beside micro-batches and recomputation: precision, patch, layout, and what waits on the host.

The last is ordered by the bytes that it moves over the bus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.errors import ConfigError
from swinmr_profiling.configs.sections.strategy import OnHost
from swinmr_profiling.profiler.allocator.caching_allocator import MIN_BLOCK_BYTES
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.prediction.replay import live_peak
from swinmr_profiling.profiler.prediction.settings import TrainingSetting, config_with
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, Trace
from swinmr_profiling.profiler.record.blocks.figures import MemoryCategory, Precision
from swinmr_profiling.profiler.record.memory_fingerprint import PRECISIONS

# A smaller patch trains another model: only where it is allowed.
PATCH_SHARES = ((3, 4), (1, 2))
PATCH_MULTIPLE = 8
# What is alive all the time where it does not wait on the host, its category in a trace, and how often it crosses the
# bus in an optimizer step.
ALWAYS_ALIVE: dict[OnHost, tuple[MemoryCategory, int]] = {
    "ema": ("ema", 1),
    "optimizer_states": ("optimizer_state", 2),
}


@dataclass(frozen=True)
class Base:
    """What all candidates of one precision, patch, layout and placement share. config: with all of that."""

    config: ExperimentConfig
    precision: Precision
    patch: tuple[int, int] | None

    @property
    def channels_last(self) -> bool:
        """The layout."""
        return self.config.system.channels_last

    @property
    def on_host(self) -> list[OnHost]:
        """What waits on the host."""
        return self.config.training.on_host

    def in_other_layout(self) -> Base:
        """The same in channels-last, or out of it."""
        return replace(self, config=self.config.changed("system", channels_last=not self.channels_last))

    def with_on_host(self, names: tuple[OnHost, ...]) -> Base:
        """The same with these on the host, in place of what is there."""
        return replace(self, config=self.config.changed("training", on_host=list(names)))


def bases(config: ExperimentConfig, budget: Budget, *, allow_patch: bool) -> Iterator[Base]:
    """Each precision and patch, in the config's own layout."""
    own = PRECISIONS[config.system.mixed_precision]
    beside: list[Precision] = ["bf16"] if own == "fp32" and budget.bf16_hardware is not False else []
    for patch in (config.training_patch_hw, *_smaller_patches(config, allow_patch)):
        for precision in (own, *beside):
            try:
                yield Base(config_with(config, TrainingSetting(precision, "none", patch)), precision, patch)
            except ConfigError:
                continue


def _smaller_patches(config: ExperimentConfig, allowed: bool) -> list[tuple[int, int]]:
    own = config.training_patch_hw
    if not allowed or own is None:
        return []
    shares = [
        tuple(side * up // down // PATCH_MULTIPLE * PATCH_MULTIPLE for side in own)
        for up, down in PATCH_SHARES
    ]
    return [(height, width) for height, width in shares if min(height, width) >= PATCH_MULTIPLE]


def placements(config: ExperimentConfig) -> list[tuple[OnHost, ...]]:
    """What could wait on the host beside what does so already, each time with that; the fewest first."""
    training, own = config.training, tuple(config.training.on_host)
    possible: list[OnHost] = []
    if training.strategy == "ddp" and not training.adversarial.weight and training.step is None:
        if training.ema_decay:
            possible.append("ema")
        if training.optimizer_has_states and not training.optimizer.type.endswith("_8bit"):
            possible.append("optimizer_states")
        if not config.system.compile:
            possible.append("activations")
    further = [name for name in possible if name not in own]
    return [
        (*own, *names)
        for count in range(1, len(further) + 1)
        for names in combinations(further, count)
    ]  # fmt: skip


def has_convolutions(module: nn.Module) -> bool:
    """Whether the layout of images is anything to the network."""
    return any(isinstance(child, _ConvNd) for child in module.modules())


def has_batch_norm(module: nn.Module) -> bool:
    """Whether the network's result depends on which samples are in one micro-batch."""
    return any(isinstance(child, _BatchNorm) for child in module.modules())


def changes_of_result(
    config: ExperimentConfig, base: Base, micro_batch: int, accumulate: int, *, batch_norm: bool
) -> Iterator[str]:
    """What of the result of a config a setting changes, beside the order of sums. batch_norm: `has_batch_norm`."""
    own = PRECISIONS[config.system.mixed_precision]
    if base.precision != own:
        yield f"{base.precision} in place of {own}: other rounding"
    if base.channels_last != config.system.channels_last:
        yield f"{'channels-last' if base.channels_last else 'contiguous'} layout: other rounding"
    if accumulate > 1 and batch_norm:
        yield f"BatchNorm normalises {micro_batch} samples at a time, not {micro_batch * accumulate}"
    frequency = config.training.loss.components.frequency
    if accumulate > 1 and frequency.transform == "swinmr" and frequency.weight:
        yield "the frequency loss over the batch has another weight with another micro-batch"
    if base.patch != config.training_patch_hw:
        yield f"patch {base.patch}: trains another model"


def by_moved_bytes(
    possible: Sequence[tuple[OnHost, ...]],
    own: Sequence[OnHost],
    traces: tuple[Trace, Trace],
    accumulate: int,
    room_bytes: int,
) -> list[tuple[int, tuple[OnHost, ...]]]:
    """(bytes that move in an optimizer step, names) of those that may bring its live peak within the room, the ones
    that move the least first.

    own: what is there already. traces: of a micro-batch with that, and with the activations there as well.
    """
    trace, saved = traces
    plain, hosted = (live_peak(each, each.step_starts[0])[0] for each in traces)
    found: list[tuple[int, tuple[OnHost, ...]]] = []
    for names in possible:
        peak, moved = plain, 0
        if "activations" in names and "activations" not in own:
            peak, moved = hosted, sum(saved.moved_bytes) * accumulate
        for name, (category, times) in ALWAYS_ALIVE.items():
            if name in names and name not in own:
                # It takes its own bytes from a peak, and no more.
                peak -= bytes_of(trace, category)
                moved += bytes_of(trace, category) * times
        if peak <= room_bytes:
            found.append((moved, names))
    return sorted(found)


def bytes_of(trace: Trace, category: MemoryCategory) -> int:
    """Of all allocations of a category, each rounded up as the allocator rounds."""
    sizes = trace.sizes[trace.categories == CATEGORIES.index(category)]
    return int((-(-sizes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES).sum())


def moved_bytes(one: Sequence[int], traced: Sequence[int], accumulate: int) -> tuple[int, int]:
    """(to the host, from there) in an optimizer step of any number of micro-batches.

    one: of a step with one of them. traced: of the step with as many as are traced, two at most.
    """
    if accumulate <= 2:
        return traced[0], traced[1]
    there, back = (
        two + (two - single) * (accumulate - 2) for single, two in zip(one, traced, strict=True)
    )  # fmt: skip
    return there, back
