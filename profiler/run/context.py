"""What the steps of a run share: the process that measures, the profile so far, and where it is told and saved.

And its budgets: of cards that may be elsewhere, and of the machine's own GPU without what others hold of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from tqdm import tqdm

from swinmr_profiling.configs.sections.strategy import Strategy
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.allocator.workspaces import KERNELS_BYTES, Workspaces, workspaces_for
from swinmr_profiling.profiler.batch_size.budget import DEFAULT_HEADROOM, Budget, budget_on
from swinmr_profiling.profiler.batch_size.gpus import is_this_gpu
from swinmr_profiling.profiler.isolation.measuring_session import MeasureOptions, MeasuringSession
from swinmr_profiling.profiler.measure.machine.machine_state import nvml_process_bytes
from swinmr_profiling.profiler.options.budget_options import Card
from swinmr_profiling.profiler.record.blocks.run_description import Environment, Gpu
from swinmr_profiling.profiler.record.device_memory import reserved_by_others
from swinmr_profiling.profiler.record.files.private_record import private_content
from swinmr_profiling.profiler.record.files.result_file import ResultFile
from swinmr_profiling.profiler.record.limits import MIN_TRAINING_STEPS
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.terminal import Console

REFRESH_S = 0.5


class StatusLine:
    """One line on standard error that says what is being done, and for how long already; silent without a terminal.

    `say` names what is done from now on.
    """

    def __init__(self) -> None:
        self._bar: tqdm | None = None

    def say(self, what: str) -> None:
        if self._bar is not None:
            self._bar.set_description_str(what)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows the line while the block runs, and takes it away."""
        self._bar = tqdm(total=0, bar_format="{desc} ({elapsed})", disable=None, file=sys.stderr, leave=False)
        ended = threading.Event()
        thread = threading.Thread(target=self._refresh, args=(self._bar, ended), daemon=True)
        if not self._bar.disable:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.ident is not None:
                thread.join()
            self._bar.close()
            self._bar = None

    @staticmethod
    def _refresh(bar: tqdm, ended: threading.Event) -> None:
        while not ended.wait(REFRESH_S):
            bar.refresh()


@dataclass(frozen=True)
class TrainingOptions:
    """What the command line says about training memory.

    enabled: False with --no-training. predict_only: stop before latency is measured. cards: to answer for, () for
    the machine's own or the usual ones. levers: predict the other settings too. headroom: share of a card's memory
    that is left free. reserved_bytes: what a desktop or other programs hold. measure: None, on a GPU alone. steps: of
    each measured training. cache: keep traces for later runs. strategies: of several devices, () for DDP.
    """

    enabled: bool = True
    predict_only: bool = False
    cards: Sequence[Card] = ()
    levers: bool = False
    headroom: Fraction = DEFAULT_HEADROOM
    reserved_bytes: int = 0
    target_batch: int | None = None
    devices: int = 1
    strategies: Sequence[Strategy] = ()
    measure: bool | None = None
    steps: int = MIN_TRAINING_STEPS
    cache: bool = True


@dataclass(frozen=True)
class RunOptions:
    """What the command line says. batch_sizes None: the default sweep.

    cross_check: "off", "small" or "full", the input size at which other counters are asked.
    flops_counter: "fvcore" or "thop", whose own figure is to be quoted, or None.
    private: leave out what names the user and the machine. memory_snapshot, trace: files for PyTorch's memory viewer
    and for Perfetto, None where not asked for. energy, loader: measure energy, and the config's own data loader.
    depth: levels of the module tree to print, 0 for none. by_module: measure latency and memory of each module, too.
    """

    measure: MeasureOptions
    batch_sizes: Sequence[int] | None = None
    cross_check: str = "small"
    flops_counter: str | None = None
    depth: int = 0
    by_module: bool = False
    strict_flops: bool = False
    resume: bool = False
    with_lpips: bool = False
    training: TrainingOptions = field(default_factory=TrainingOptions)
    command_line: Sequence[str] = ()
    private: bool = False
    memory_snapshot: str | None = None
    trace: str | None = None
    energy: bool = False
    loader: bool = False


@dataclass
class RunContext:
    """Handed from step to step."""

    options: RunOptions
    session: MeasuringSession
    profile: Profile
    console: Console
    result: ResultFile
    input_shape: list[int] = field(default_factory=list)
    training_input_shape: list[int] = field(default_factory=list)
    status: StatusLine = field(default_factory=StatusLine)
    # Files that were asked for and could not be made.
    unwritten: list[str] = field(default_factory=list)
    _disk_failed: bool = False

    @property
    def device_kind(self) -> str:
        """ "cpu" or "cuda", once the session is open."""
        return self.profile.config.device.partition(":")[0]

    @property
    def environment(self) -> Environment:
        """The machine, once the session is open."""
        assert self.profile.machine is not None, "the session is not open"
        return self.profile.machine

    @property
    def gpu(self) -> Gpu | None:
        """The machine's own GPU; None where it is measured on a CPU, or not at all yet."""
        return None if self.profile.machine is None else self.profile.machine.gpu

    def warn(self, warning: ProfileWarning | None) -> None:
        """Records and prints a warning, once."""
        if warning is not None and self.profile.warn(warning):
            self.console.warning(warning)

    def content(self) -> dict[str, Any]:
        """What is written."""
        content = self.profile.to_json()
        return private_content(content) if self.options.private else content

    def save(self) -> None:
        """Writes what is known; a disk that refuses is mentioned once and tried again at the next step."""
        if self.result.save(self.content()) or self._disk_failed:
            return
        self._disk_failed = True
        error = self.result.last_error
        reason = error and (error.strerror or error)
        complain(f"warning: {self.result.name} cannot be written now: {reason}")


def is_own_card(card: Card, gpu: Gpu) -> bool:
    """Whether a card asked for is the machine's own: by its name, or by its very memory where that is all there is."""
    return is_this_gpu(card.name, card.total_bytes, card.compute_capability, gpu)


def own_budget(context: RunContext, held_by_others_bytes: int) -> Budget:
    """What the machine's own GPU leaves for training; at least what the command line reserves is the others'."""
    gpu, training = context.gpu, context.options.training
    assert gpu is not None
    card = Card.of(gpu)
    return replace(
        budget_of(card, training, context.environment.torch_version),
        reserved_elsewhere_bytes=max(training.reserved_bytes, held_by_others_bytes),
        is_this_machine=True,
    )


def own_workspaces(environment: Environment) -> Workspaces:
    """The libraries' of the machine's own GPU, by the table."""
    assert environment.gpu is not None
    return workspaces_for(environment.torch_version, environment.gpu.compute_capability)


def held_by_others_at_start(context: RunContext) -> int:
    """By what the measuring process found when it opened the GPU, with nothing of it there but its context."""
    gpu, process = context.gpu, context.session.process
    assert gpu is not None
    assert gpu.free_bytes_at_start is not None
    context_bytes = None if process is None else nvml_process_bytes(gpu.uuid, process.process.pid)
    if context_bytes is None:
        context_bytes = own_workspaces(context.environment).context_bytes - KERNELS_BYTES
    return reserved_by_others(gpu.total_bytes, gpu.free_bytes_at_start, context_bytes)


def budget_of(card: Card, training: TrainingOptions, torch_version: str) -> Budget:
    """What a card leaves for training: its memory, less what others hold, headroom, workspaces and context."""
    return budget_on(
        *card,
        torch_version=torch_version,
        reserved_elsewhere_bytes=training.reserved_bytes,
        headroom_share=training.headroom,
    )
