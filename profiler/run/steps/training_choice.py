"""On the machine that will train: the batch size is searched for with trials, and what is recommended has run."""

from __future__ import annotations

from typing import cast, get_args

from swinmr_profiling.profiler.batch_size.fit import estimated_bytes
from swinmr_profiling.profiler.batch_size.training_recommendation import recommend_training
from swinmr_profiling.profiler.measure.measurement_blocks import training_block
from swinmr_profiling.profiler.record.blocks.batch import Batch
from swinmr_profiling.profiler.record.blocks.figures import ErrorKind
from swinmr_profiling.profiler.record.blocks.recommended import Trial
from swinmr_profiling.profiler.record.blocks.training import TrainingFailure, TrainingRun
from swinmr_profiling.profiler.record.search_record import SearchResult
from swinmr_profiling.profiler.reports.console.training import print_training_recommendation
from swinmr_profiling.profiler.run.context import RunContext
from swinmr_profiling.profiler.run.steps.card_budgets import budget_of, is_own_card, own_budget
from swinmr_profiling.profiler.run.steps.training_steps import OpenProbes, search_training_batch

FAILURES = get_args(ErrorKind)


def choose_training_batch(context: RunContext, open_probes: OpenProbes | None = None) -> None:
    """Searches for the largest batch, then fills `recommendation.training` (this GPU first) and `.search`.

    What others hold while it is searched is none of this GPU's budget. open_probes: what runs the trials.
    """
    profile, options = context.profile, context.options.training
    context.console.line()
    context.console.line("  Searching for the training batch size")
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
        measured=measured_blocks(profile.batch_profiling, found),
    )
    found.held_by_others_bytes = held
    profile.recommend(training=entries, search=found)
    print_training_recommendation(context.console, model, entries)
    context.save()


def measured_blocks(
    batch_profiling: dict[str, Batch], found: SearchResult
) -> dict[int, TrainingRun | TrainingFailure]:
    """Every training step that ran, of the sweep and of the search, by batch size; and what did not run, and why.

    What ran once is not a failure, whatever was in the way the other time.
    """
    failed = {trial.batch_size: _failed(trial) for trial in found.trials if trial.verdict in FAILURES}
    ran = {size: training_block(raw) for size, raw in found.measurements.items()}
    blocks = {int(size): block.training for size, block in batch_profiling.items()}
    swept = {size: block for size, block in blocks.items() if block is not None}
    swept_and_ran = {size: block for size, block in swept.items() if isinstance(block, TrainingRun)}
    return {**failed, **swept, **ran, **swept_and_ran}


def _failed(trial: Trial) -> TrainingFailure:
    verdict = cast(ErrorKind, trial.verdict)  # one of FAILURES
    return TrainingFailure(source="measured", error=verdict, detail=trial.detail or verdict)
