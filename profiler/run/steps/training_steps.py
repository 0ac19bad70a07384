"""Training measured at each batch size of the sweep, the search for the largest that fits, and the choice.

On the machine that will train what is recommended has run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast, get_args

from tqdm import tqdm

from swinmr_profiling.configs.sections.training import TrainingSection
from swinmr_profiling.profiler.batch_size.fit import estimated_bytes
from swinmr_profiling.profiler.batch_size.search import search_batch
from swinmr_profiling.profiler.batch_size.training_recommendation import recommend_training
from swinmr_profiling.profiler.isolation.training_probes import (
    PROBE_TIMEOUT_S,
    ProbeOptions,
    TrainingProbes,
)
from swinmr_profiling.profiler.isolation.worker_process import WorkerError
from swinmr_profiling.profiler.measure.measurement import TrainingMeasurement
from swinmr_profiling.profiler.measure.measurement_blocks import (
    cold_spike,
    failed_training_block,
    training_block,
)
from swinmr_profiling.profiler.record.blocks.batch import FailedBatch
from swinmr_profiling.profiler.record.blocks.figures import ErrorKind
from swinmr_profiling.profiler.record.blocks.recommended import Trial
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.failures import Failure, confirm_memory, is_answer, says_memory
from swinmr_profiling.profiler.record.search_record import (
    MemoryNow,
    ProbeResult,
    SearchResult,
    falling_memory,
)
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.steps import print_training
from swinmr_profiling.profiler.reports.console.training import print_training_recommendation
from swinmr_profiling.profiler.run.context import (
    RunContext,
    budget_of,
    is_own_card,
    own_budget,
    own_workspaces,
)
from swinmr_profiling.profiler.run.steps.prediction_steps import config_of_training

OpenProbes = Callable[[RunContext], TrainingProbes]


def wants_training(context: RunContext) -> bool:
    """Whether training is to be measured here: on a GPU, unless told not to; on a CPU, only when told to."""
    training = context.options.training
    if not training.enabled:
        return False
    wish = training.measure
    return context.device_kind == "cuda" if wish is None else wish


def measure_training(context: RunContext, sizes: list[int]) -> None:
    """Fills `training` of each batch size, saved after each.

    After out of memory the larger sizes are skipped; any other failure is its own size's.
    """
    profile, console = context.profile, context.console
    # The network that inference was measured with, and its process, would take part of the memory.
    context.session.close()
    console.line()
    other_step = TrainingSection.model_validate(profile.config.resolved.get("training", {})).other_step
    console.line(
        "  Training step (forward, backward, optimizer), then one validation batch"
        if other_step is None
        else f"  Training step: {other_step}"
    )
    sweep = _TrainingSweep(context)
    with _open_probes(context) as probes:
        bar = tqdm(sizes, unit="size", disable=None, file=sys.stderr, leave=False)
        for size in bar:
            bar.set_description(f"training, batch {size}")
            training = profile.batch_profiling[str(size)].training
            if training is None or not is_final(training):
                training = sweep.measure(probes, size)
                profile.set_training(size, training)
            sweep.note(size, training)
            print_training(console, size, training)
            context.save()


def search_training_batch(
    context: RunContext,
    predict: Callable[[int], int] | None,
    open_probes: OpenProbes | None = None,
    *,
    besides_bytes: int = 0,
) -> SearchResult:
    """The largest batch that trains on this device; predict as `BatchSearch` takes it. Says each trial.

    What the command line reserves for others is none of the search's, held or not. besides_bytes: what training will
    hold beside what a trial does.
    """
    training, gpu = context.options.training, context.gpu
    assert gpu is not None
    context.session.close()
    with (open_probes or _open_probes)(context) as probes:

        def read_memory() -> MemoryNow:
            now = probes.memory()
            yet_to_come = max(0, training.reserved_bytes - now.held_by_others(gpu.total_bytes))
            return replace(now, free_bytes=max(0, now.free_bytes - yet_to_come))

        def probe(batch_size: int) -> ProbeResult:
            ran = probes.probe(batch_size)
            return ran if ran.peak_bytes is None else replace(ran, peak_bytes=ran.peak_bytes + besides_bytes)

        return search_batch(
            probe,
            predict,
            read_memory,
            headroom_share=training.headroom,
            on_event=lambda line: context.console.line(f"    {line}"),
        )


def failed_training(training: Mapping[int, TrainingRun | TrainingFailure]) -> list[int]:
    """Batch sizes whose training step failed for another reason than memory."""
    return [
        size
        for size, block in training.items()
        if isinstance(block, TrainingFailure) and not is_answer(block.error, block.detail)
    ]


class _TrainingSweep:
    """What the sizes so far say about the next."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.ran: dict[int, int] = {}  # batch -> bytes of its tensors
        self.out_of_memory_at: int | None = None

    def measure(self, probes: TrainingProbes, size: int) -> TrainingRun | TrainingFailure:
        """The block of one size."""
        shape = [size, *self.context.training_input_shape[1:]]
        if self.out_of_memory_at is not None and size > self.out_of_memory_at:
            detail = f"training at batch {self.out_of_memory_at} was out of memory"
            return failed_training_block(Failure("skipped", detail), shape)
        inference = self.context.profile.batch_profiling[str(size)]
        if isinstance(inference, FailedBatch) and says_memory(inference.error, inference.detail):
            detail = "inference at this batch was out of memory"
            return failed_training_block(Failure("skipped", detail), shape)
        try:
            measured = probes.measure(size)
        except WorkerError as failed:
            smaller = max((ran for ran in self.ran if ran < size), default=None)
            failure = confirm_memory(failed.failure, smaller)
            if failed.traceback is not None and failure.error == "exception":
                print(failed.traceback, file=sys.stderr, end="")
            return failed_training_block(failure, shape)
        fall = falling_memory({**self.ran, size: measured.allocated_bytes})
        if fall is not None:
            failure = Failure("exception", f"failed measurement: {fall}")
            return failed_training_block(failure, shape)
        self._warn(size, measured)
        return training_block(measured)

    def note(self, size: int, block: TrainingRun | TrainingFailure) -> None:
        """Takes a block, of this run or of a resumed one, as known."""
        if isinstance(block, TrainingRun):
            validation = 0 if block.validation is None else block.validation.allocated_bytes or 0
            self.ran[size] = max(block.peak_bytes, validation)
        elif says_memory(block.error, block.detail):
            self.out_of_memory_at = min(size, self.out_of_memory_at or size)

    def _warn(self, size: int, measured: TrainingMeasurement) -> None:
        if self.context.device_kind == "cuda":
            cold, warm = measured.cold.allocated_bytes, measured.warm.allocated_bytes
            spike = cold_spike("the first training step", cold, warm)
            if spike is not None:
                self.context.warn(ProfileWarning("training_cold_spike", f"batch {size}: {spike}", size))
        if measured.retries:
            text = (
                f"batch {size}: training ran only because cached memory was given back {measured.retries} "
                "times: it is slow there, and a little more would not fit"
            )
            self.context.warn(ProfileWarning("training_retries", text, size))


def is_final(block: TrainingRun | TrainingFailure | None) -> bool:
    """Whether a resumed profile's block stays: measured, or out of memory."""
    if block is None or block.source != "measured":
        return False
    return isinstance(block, TrainingRun) or block.error == "OOM"


def _open_probes(context: RunContext) -> TrainingProbes:
    measure, profile = context.options.measure, context.profile
    gpu = context.gpu
    timeout_s = PROBE_TIMEOUT_S if measure.timeout_s is None else measure.timeout_s
    options = ProbeOptions(
        config=config_of_training(profile, context.options),
        device=profile.config.device,
        steps=context.options.training.steps,
        timeout_s=timeout_s,
        trust_config=measure.trust_config,
        gpu_uuid=None if gpu is None else gpu.uuid,
        assumed_context_bytes=0 if gpu is None else own_workspaces(context.environment).context_bytes,
    )
    return TrainingProbes(options)


FAILURES = get_args(ErrorKind)


def choose_training_batch(context: RunContext, open_probes: OpenProbes | None = None) -> None:
    """Searches for the largest batch, then fills `recommendation.training` (this GPU first) and `.search`.

    What others hold while it is searched is none of this GPU's budget. open_probes: what runs the trials.
    """
    profile, options = context.profile, context.options.training
    context.console.heading("  Searching for the training batch size")
    gpu, version = context.gpu, context.environment.torch_version
    assert gpu is not None
    model = profile.memory_model
    setting = None if model is None else model.config_setting
    # The trials run on one device, and each of several holds gradient buckets besides.
    besides = 0 if setting is None or options.devices == 1 else setting.ddp_bucket_bytes
    anywhere = own_budget(context, 0)

    def predict(batch_size: int) -> int:
        assert setting is not None
        return estimated_bytes(setting, batch_size, anywhere) + besides

    found = search_training_batch(
        context, None if setting is None else predict, open_probes, besides_bytes=besides
    )
    held = options.reserved_bytes if found.memory is None else found.memory.held_by_others(gpu.total_bytes)
    others = [card for card in options.cards if not is_own_card(card, gpu)]
    budgets = [own_budget(context, held), *(budget_of(card, options, version) for card in others)]
    entries = recommend_training(
        model,
        budgets,
        target_batch=options.target_batch,
        devices=options.devices,
        measured=measured_blocks(profile.training, found),
    )
    found.held_by_others_bytes = held
    profile.recommend(training=entries, search=found)
    print_training_recommendation(context.console, model, entries)
    context.save()


def measured_blocks(
    swept: dict[int, TrainingRun | TrainingFailure], found: SearchResult
) -> dict[int, TrainingRun | TrainingFailure]:
    """Every training step that ran, of the sweep and of the search, by batch size; and what did not run, and why.

    What ran once is not a failure, whatever was in the way the other time.
    """
    failed = {trial.batch_size: _failed(trial) for trial in found.trials if trial.verdict in FAILURES}
    ran = {size: training_block(raw) for size, raw in found.measurements.items()}
    swept_and_ran = {size: block for size, block in swept.items() if isinstance(block, TrainingRun)}
    return {**failed, **swept, **ran, **swept_and_ran}


def _failed(trial: Trial) -> TrainingFailure:
    verdict = cast(ErrorKind, trial.verdict)  # one of FAILURES
    return TrainingFailure(source="measured", error=verdict, detail=trial.detail or verdict)
