"""What a rank really takes: the allocator's events of a real step between processes of this machine's CPU."""

from __future__ import annotations

import gc
import os
import queue
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.autograd.profiler import record_function
from torch.distributed.fsdp._fully_shard import _fsdp_collectives

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.stand_in import all_entered
from swinmr_profiling.profiler.measure.example_data import ExampleData
from swinmr_profiling.profiler.ranks.traced_rank import RANK_STEPS
from swinmr_profiling.training.step.attention_kernels import attention_kernels
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import build_settings, build_state, training_step
from swinmr_profiling.training.strategies.engine import build_engine

BuildRank = Callable[[ExperimentConfig], BuiltModel]
MARK = "measured steps"
DROPPED_AFTER_S = 0.02
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


@dataclass(frozen=True)
class Cell:
    """One training to measure. build: makes the network, a function that a new process can import."""

    build: BuildRank
    config: ExperimentConfig
    batch_size: int


def measure_ranks(cells: Sequence[Cell], size: int) -> Iterator[list[int]]:
    """Of each cell, one after the other, the peak live bytes of each rank while it makes steps, by torch's profiler.

    Raises torch.multiprocessing's exception for a rank that fails.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answers = processes.get_context("spawn").Queue()
    running = processes.spawn(_work, (list(cells), size, port, answers), nprocs=size, join=False)
    assert running is not None
    for _ in cells:
        found: dict[int, int] = {}
        while len(found) < size:
            try:
                rank, peak = answers.get(timeout=1)
            except queue.Empty:
                running.join(timeout=0)  # raises what a process has failed with
                continue
            found[rank] = peak
        yield [found[rank] for rank in range(size)]
    while not running.join():
        pass


def _work(rank: int, cells: list[Cell], size: int, port: int, answers: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo")
    try:
        for cell in cells:
            answers.put((rank, peak_of_steps(cell, size)))
            if size > 1:
                dist.barrier()
    finally:
        if size > 1:
            dist.destroy_process_group()


def peak_of_steps(cell: Cell, size: int) -> int:
    """Peak live bytes of steps in this process, which is one of `size`; the network and all else included."""
    device, config = torch.device("cpu"), cell.config
    gc.collect()
    with (
        attention_kernels(config.system.attention),
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profiler,
    ):
        torch.manual_seed(config.system.seed)
        built = cell.build(config)
        engine = build_engine(config, size, device)
        loss = build_loss(config, for_prediction=True)
        batches = ExampleData(built, config, loss, device).micro_batches(cell.batch_size)
        settings = build_settings(config, "cpu")
        state = build_state(
            config,
            built.module.train(),
            loss,
            RANK_STEPS,
            wrap=engine.wrap,
            shard=engine.shard,
            make_optimizer=engine.optimizer,
        )
        del built
        with record_function(MARK), _given_back_by_this_thread():
            for _ in range(RANK_STEPS):
                training_step(state, settings, batches)
                gc.collect()
    return peak_after_mark(profiler)


def _given_back_by_this_thread() -> AbstractContextManager[None]:
    """After each collective, gloo's thread gets time to drop its hold on the tensors: the profiler would not see it
    give them back, if it were the last."""
    kinds = (_fsdp_collectives.DefaultAllGather, _fsdp_collectives.DefaultReduceScatter)
    return all_entered(mock.patch.object(kind, "__call__", _and_wait(kind.__call__)) for kind in kinds)


def _and_wait(call: Callable[..., Any]) -> Callable[..., Any]:
    def waiting(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        time.sleep(DROPPED_AFTER_S)
        return result

    return waiting


def peak_after_mark(profiler: torch.profiler.profile) -> int:
    """The most bytes alive at once after the mark: of all allocations that the profiler saw since it began.

    Without what a collective of CPUs takes for itself (gloo copies what it reduces; NCCL takes none of it from torch's
    allocator, and gloo's threads, which give it back, are not seen), and without what a convolution or a product of
    CPUs takes and gives back before it is done (oneDNN's copies and scratchpads, on a GPU cuDNN's and cuBLAS's
    workspaces).
    """
    results: Any = None if profiler.profiler is None else profiler.profiler.kineto_results
    events = sorted(_events(results.experimental_event_tree()), key=lambda event: event.time_ns)
    [start_ns] = [event.time_ns for event in events if event.is_mark]
    live = peak = 0
    for time_ns, change in sorted(_changes(events)):
        live += change
        if time_ns >= start_ns:
            peak = max(peak, live)
    return peak


def _changes(events: Sequence[_Event]) -> Iterator[tuple[int, int]]:
    """(time, bytes more or less) of the allocations that count."""
    made: dict[int, _Event] = {}
    for event in events:
        if event.bytes > 0:
            made[event.pointer] = event
            continue
        maker = made.pop(event.pointer, None)
        if maker is None or maker.in_collective or event.time_ns <= maker.library_ends_ns:
            continue
        yield maker.time_ns, maker.bytes
        yield event.time_ns, -maker.bytes
    for maker in made.values():
        if not maker.in_collective:
            yield maker.time_ns, maker.bytes


@dataclass(frozen=True)
class _Event:
    """bytes: negative where they are given back; 0 for the mark.

    library_ends_ns: when the convolution or product around it ends, or 0.
    """

    time_ns: int
    bytes: int
    pointer: int = 0
    in_collective: bool = False
    library_ends_ns: int = 0
    is_mark: bool = False


def _events(tree: Iterable[Any]) -> Iterator[_Event]:
    """What the CPU's allocator did, and where the mark is."""
    waiting = [(event, False, 0) for event in tree]
    while waiting:
        event, in_collective, ends_ns = waiting.pop()
        in_collective = in_collective or event.name.startswith(("c10d::", "gloo:"))
        is_convolution = event.name.startswith("aten::") and "conv" in event.name
        if not ends_ns and (is_convolution or event.name in PRODUCTS):
            ends_ns = event.end_time_ns
        waiting += [(child, in_collective, ends_ns) for child in event.children]
        if event.name == MARK:
            yield _Event(event.start_time_ns, 0, is_mark=True)
        elif str(event.tag).endswith("Allocation") and event.extra_fields.device.type == "cpu":
            fields = event.extra_fields
            yield _Event(event.start_time_ns, fields.alloc_size, fields.ptr, in_collective, ends_ns)
