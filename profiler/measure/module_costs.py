"""Latency and memory of each module, by hooks, in runs that are not the timed ones.

Hooks cost time, most in networks of many small modules: how much is told beside the figures, from runs with and
without them in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.profiler.measure.forward_pass import evaluating, finish_work, inputs_on, tensors_in
from swinmr_profiling.profiler.record.blocks.architecture import ModuleCost, ModuleCosts
from swinmr_profiling.training.own_gradients import without_gradients

WARMUP_RUNS, RUNS = 2, 9
# Networks that take longer are run fewer times, three at least.
TIME_BUDGET_S, FEWEST_RUNS = 20.0, 3


@dataclass
class _Open:
    """A module whose forward is running: where it is, its clock's start, what modules in it took, memory at entry."""

    module: nn.Module
    path: str
    start: Any
    start_bytes: int = 0
    peak_bytes: int = 0
    inside: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass
class ModuleRun:
    """What one module did in one run: calls, time with and without the modules in it, bytes."""

    calls: int = 0
    total_ms: float = 0.0
    own_ms: float = 0.0
    output_bytes: int = 0
    peak_bytes: int | None = None


class _Clock:
    """The CPU's time, or events of a GPU's stream, which do not make it wait."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.device = device

    def now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ms(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) if self.cuda else (end - start) * 1000


class ModuleWatch:
    """Times the modules of a network while it is entered. Use one for each run."""

    def __init__(self, root: nn.Module, device: torch.device) -> None:
        self.clock = _Clock(device)
        self._paths: dict[nn.Module, list[str]] = {}
        for path, module in root.named_modules(remove_duplicate=False):
            self._paths.setdefault(module, []).append(path)
        self._open: list[_Open] = []
        self._closed: list[tuple[_Open, Any, int, int | None]] = []

    def _path_of(self, module: nn.Module) -> str:
        """Of several places, the one below the caller."""
        paths = self._paths[module]
        for opened in reversed(self._open):
            for path in paths:
                if path.startswith(f"{opened.path}." if opened.path else ""):
                    return path
        return paths[0]

    def _enter(self, module: nn.Module, args: Any) -> None:
        if module not in self._paths:
            return
        opened = _Open(module, self._path_of(module), None)
        if self.clock.cuda:
            peak = torch.cuda.max_memory_allocated(self.clock.device)
            for outer in self._open:
                outer.peak_bytes = max(outer.peak_bytes, peak)
            torch.cuda.reset_peak_memory_stats(self.clock.device)
            opened.start_bytes = torch.cuda.memory_allocated(self.clock.device)
        self._open.append(opened)
        opened.start = self.clock.now()

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        end = self.clock.now()
        if not self._open or self._open[-1].module is not module:
            return
        closed = self._open.pop()
        peak = None
        if self.clock.cuda:
            highest = max(closed.peak_bytes, torch.cuda.max_memory_allocated(self.clock.device))
            for outer in self._open:
                outer.peak_bytes = max(outer.peak_bytes, highest)
            torch.cuda.reset_peak_memory_stats(self.clock.device)
            peak = highest - closed.start_bytes
        if self._open:
            self._open[-1].inside.append((closed.start, end))
        size = sum(t.numel() * t.element_size() for t in tensors_in(output) if not t.is_sparse)
        self._closed.append((closed, end, size, peak))

    @contextmanager
    def watching(self) -> Iterator[None]:
        with register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave):
            yield

    def runs(self) -> dict[str, ModuleRun]:
        """What was seen, by path. Waits for the device."""
        finish_work(self.clock.device)
        runs: dict[str, ModuleRun] = {}
        for opened, end, size, peak in self._closed:
            run = runs.setdefault(opened.path, ModuleRun())
            total = self.clock.between_ms(opened.start, end)
            run.calls += 1
            run.total_ms += total
            run.own_ms += total - sum(self.clock.between_ms(*inner) for inner in opened.inside)
            run.output_bytes = max(run.output_bytes, size)
            if peak is not None:
                run.peak_bytes = max(run.peak_bytes or 0, peak)
        return runs


def measure_modules(
    built: BuiltModel,
    torch_device: torch.device,
    dtype: torch.dtype,
    batch_size: int = 1,
    *,
    channels_last: bool = False,
    macs_by_path: dict[str, int] | None = None,
) -> ModuleCosts:
    """Medians over several runs of the network itself (not compiled), of one batch.

    macs_by_path: of one sample, with the modules inside, for the multiply-adds of a second.
    Raises whatever the network raises.
    """
    inputs = inputs_on(built, batch_size, torch_device, channels_last=channels_last)
    return without_gradients(
        built.module, lambda: _measured(built, inputs, torch_device, dtype, batch_size, macs_by_path or {})
    )


def _measured(
    built: BuiltModel,
    inputs: tuple[Tensor, ...],
    torch_device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    macs_by_path: dict[str, int],
) -> ModuleCosts:
    def run_ms(around: AbstractContextManager[object]) -> float:
        finish_work(torch_device)
        start = time.perf_counter()
        with around:
            built.module(*inputs)
        finish_work(torch_device)
        return (time.perf_counter() - start) * 1000

    plain_ms: list[float] = []
    hooked_ms: list[float] = []
    seen: list[dict[str, ModuleRun]] = []
    with evaluating(built.module, torch_device, dtype):
        warm = [run_ms(nullcontext()) for _ in range(WARMUP_RUNS)]
        affordable = int(TIME_BUDGET_S * 1000 / (2 * max(warm[-1], 1e-3)))
        for _ in range(max(FEWEST_RUNS, min(RUNS, affordable))):
            plain_ms.append(run_ms(nullcontext()))
            watch = ModuleWatch(built.module, torch_device)
            hooked_ms.append(run_ms(watch.watching()))
            seen.append(watch.runs())
    return module_costs_block(built, batch_size, plain_ms, hooked_ms, seen, macs_by_path)


def module_costs_block(
    built: BuiltModel,
    batch_size: int,
    plain_ms: list[float],
    hooked_ms: list[float],
    seen: list[dict[str, ModuleRun]],
    macs_by_path: dict[str, int],
) -> ModuleCosts:
    """Medians of what was seen; `share` is of the whole network's hooked time."""
    classes = {
        path: type(module).__name__ for path, module in built.module.named_modules(remove_duplicate=False)
    }
    plain, hooked = statistics.median(plain_ms), statistics.median(hooked_ms)
    whole = statistics.median(run[""].total_ms for run in seen)
    modules = []
    for path in filter(
        seen[0].__contains__, classes
    ):  # in the order of the tree, whatever order they ended in
        runs = [run[path] for run in seen if path in run]
        latency_ms = statistics.median(run.total_ms for run in runs)
        macs = macs_by_path.get(path)
        per_second = None if not macs or not latency_ms else batch_size * macs / (latency_ms / 1000)
        modules.append(
            ModuleCost(
                path=path,
                class_name=classes[path],
                calls=runs[0].calls,
                latency_ms=latency_ms,
                own_ms=max(0.0, statistics.median(run.own_ms for run in runs)),
                share=latency_ms / whole if whole else None,
                output_bytes=runs[0].output_bytes,
                peak_bytes=runs[0].peak_bytes,
                macs_per_second=per_second,
            )
        )
    return ModuleCosts(
        source="measured",
        input_shape=built.input_shape(batch_size),
        num_runs=len(seen),
        plain_ms=plain,
        hooked_ms=hooked,
        hook_share=max(0.0, 1 - plain / hooked) if hooked else None,
        modules=modules,
    )
