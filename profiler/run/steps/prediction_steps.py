"""Between steps 3 and 4: the memory of training, predicted without running it, and what batch size that allows."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.gpus import find_gpu
from swinmr_profiling.profiler.batch_size.training_recommendation import recommend_training
from swinmr_profiling.profiler.isolation.worker_process import RequestRefusedError, WorkerError
from swinmr_profiling.profiler.options.budget_options import Card
from swinmr_profiling.profiler.prediction.prediction_session import MAX_PROCESSES, PredictionSession
from swinmr_profiling.profiler.prediction.settings import (
    PRECISION_VALUES,
    UNTESTED_RULES,
    TrainingSetting,
    levers,
    setting_of,
)
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.training import TrainingRun, TrainingValidation
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.profiler.record.prediction_intervals import interval_of, shares_of
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.strategies import print_strategies
from swinmr_profiling.profiler.reports.console.training import print_beside_answer
from swinmr_profiling.profiler.run.context import (
    RunContext,
    RunOptions,
    budget_of,
    held_by_others_at_start,
    is_own_card,
    own_budget,
)

if TYPE_CHECKING:  # needs torch
    from swinmr_profiling.profiler.ranks.predicted_rank import RankPrediction

# What a network trained in the config's setting is told about where nobody names a card.
DEFAULT_GPUS = ("RTX 3060 12GB", "RTX 4090", "A100 80GB SXM")
# Of a measurement: a prediction has none of them.
OF_THE_STEP = "the step's own"
MEASURED = ("requested_peak_bytes", "device_used_bytes", "images_per_second", "retries", "cold_peak_bytes")


def config_of_training(profile: Profile, options: RunOptions) -> ExperimentConfig:
    """The config as it will be trained: with the command line's precision and layout."""
    raw = {**profile.config.resolved}
    changed = {
        "mixed_precision": PRECISION_VALUES[options.measure.precision],
        "channels_last": options.measure.channels_last,
    }
    raw["system"] = {**raw["system"], **changed}
    return config_from_dict(raw)


def trace_ahead(context: RunContext, session: PredictionSession) -> None:
    """Has the training step traced while the network is counted, where no earlier run predicted it."""
    if context.profile.memory_model is None:
        settings = _settings(context, config_of_training(context.profile, context.options))
        session.trace_ahead(settings, MAX_PROCESSES)


def predict_training(context: RunContext, session: PredictionSession, sizes: list[int]) -> None:
    """Fills `memory_model` and `recommendation.training`; a network that cannot be traced earns a warning."""
    profile, console, options = context.profile, context.console, context.options
    console.heading("  Predicting the memory of training (nothing is run)...")
    config = config_of_training(profile, options)
    settings = _settings(context, config)
    many = f" in {len(settings)} settings" if len(settings) > 1 else ""
    context.status.say(f"predicting the memory of training{many} (nothing is run)")
    if profile.memory_model is None or not _holds(profile.memory_model, config, settings, sizes):
        try:
            profile.memory_model = _memory_model(context, session, config, settings, sizes)
        except (WorkerError, RequestRefusedError) as error:
            text = f"the memory of training is not predicted: {error}"
            context.warn(ProfileWarning("memory_not_predicted", text))
            context.save()
            return
    budgets = _budgets(context, profile.memory_model.torch_version)
    model = profile.memory_model
    if options.training.devices > 1 and (first := _predict_strategies(context, config, budgets)) is not None:
        model = model.model_copy(update={"settings": [first.setting, *model.settings[1:]]})
    entries = recommend_training(
        model,
        budgets,
        target_batch=options.training.target_batch,
        devices=options.training.devices,
    )
    profile.recommend(training=entries)
    print_beside_answer(console, model, entries)
    if profile.strategies is not None:
        print_strategies(console, profile.strategies)
    context.save()


def _predict_strategies(
    context: RunContext, config: ExperimentConfig, budgets: list[Budget]
) -> RankPrediction | None:
    """Fills `strategies`; the first one's prediction, None where there is none, which earns a warning."""
    from swinmr_profiling.profiler.run.strategy_recommendation import (
        predict_strategies,
        recommend_strategies,
        strategy_block,
    )

    profile, options = context.profile, context.options
    training = options.training
    assert profile.memory_model is not None
    context.status.say(f"predicting a rank of {training.devices} devices")
    try:
        predictions = predict_strategies(
            config,
            options.measure.precision,
            training.strategies or ("ddp",),
            training.devices,
            trust_config=options.measure.trust_config,
            on_refused=lambda strategy, reason: context.warn(
                ProfileWarning("memory_not_predicted", f"{strategy} is not predicted: {reason}")
            ),
        )
    except ModelError as error:
        context.warn(ProfileWarning("memory_not_predicted", f"strategies are not predicted: {error}"))
        return None
    found = recommend_strategies(
        profile.memory_model, predictions, budgets, target_batch=training.target_batch
    )
    profile.strategies = [strategy_block(*one) for one in zip(predictions, found, strict=True)]
    # The answer is for the first one that was asked for, or for one GPU.
    first = (training.strategies or ("ddp",))[0]
    return predictions[0] if predictions[0].strategy == first else None


def _budgets(context: RunContext, torch_version: str) -> list[Budget]:
    """Of the cards asked for; else of the machine's own, else of a few usual ones."""
    training, gpu = context.options.training, context.gpu
    if not training.cards and gpu is not None:
        return [own_budget(context, held_by_others_at_start(context))]
    usual = (find_gpu(name) for name in DEFAULT_GPUS)
    cards = training.cards or [Card.of(card) for card in usual]
    return [
        own_budget(context, held_by_others_at_start(context))
        if gpu is not None and is_own_card(card, gpu)
        else budget_of(card, training, torch_version)
        for card in cards
    ]


def _settings(context: RunContext, config: ExperimentConfig) -> list[TrainingSetting]:
    """The config's own setting, and the levers where they were asked for."""
    own = setting_of(config, context.options.measure.precision)
    # A step of the user's own decides for itself.
    return (
        levers(config, own)
        if context.options.training.levers and config.training.other_step is None
        else [own]
    )


def _holds(
    model: MemoryModel, config: ExperimentConfig, settings: list[TrainingSetting], sizes: list[int]
) -> bool:
    """Whether an earlier run's prediction speaks of all these settings and keeps what a search replays.

    Of the config's own setting it must hold these sizes too.
    """
    if any(row.allocations is None and row.affine_from_batch is not None for row in model.settings):
        return False
    if any(str(size) not in model.settings[0].sizes for size in sizes):
        return False
    if (
        config.training.other_step is not None
    ):  # whose precision is its own, and whose file may have been edited
        return model.memory_fingerprint == memory_fingerprint(config)
    held = [(row.precision, row.checkpointing, row.patch_size) for row in model.settings]
    return all((setting.precision, setting.checkpointing, setting.patch) in held for setting in settings)


def _memory_model(
    context: RunContext,
    session: PredictionSession,
    config: ExperimentConfig,
    settings: list[TrainingSetting],
    sizes: list[int],
) -> MemoryModel:
    precision = context.options.measure.precision
    asked = list(sizes)
    if isinstance(config.data.batch_size, int):
        asked = sorted({*sizes, config.data.batch_size})
    entries, inference = session.predict_with_inference(settings, precision, asked, processes=MAX_PROCESSES)
    optimizer, opened = config.training.optimizer, session.opened
    assert opened is not None
    return MemoryModel(
        source="predicted",
        memory_fingerprint=memory_fingerprint(config),
        torch_version=opened.torch_version,
        loss=opened.loss,
        optimizer=optimizer.type if config.training.step is None else OF_THE_STEP,
        ema=config.training.ema_decay > 0 and config.training.step is None,
        accumulate=config.training.accumulate,
        settings=entries,
        inference=inference,
        interval_shares=shares_of(entries[0]),
        assumptions=[*assumptions(config), *entries[0].assumptions],
        untested_rules=list(UNTESTED_RULES),
    )


def assumptions(config: ExperimentConfig) -> list[str]:
    """What the prediction takes for granted."""
    own_step = config.training.step is not None
    found = [
        "one process on one GPU, PyTorch's default allocator, no other program on the card",
        *([] if own_step else ["every loss is finite"]),
        "data is moved to the card batch by batch, and the batch before is gone by then",
        "attention takes flash or memory-efficient kernels, as PyTorch does from compute capability 8.0 on",
        # train_config_small.json in twelve settings: 3.11 and 3.12 agree to the byte, 3.10 needs more in four.
        f"Python {'.'.join(platform.python_version_tuple()[:2])} trains as it predicted: 3.10 keeps the arguments of a "
        "call longer than later versions do (predicted for the small SwinMR: up to 0.8 % more live bytes)",
    ]
    if config.training.adversarial.weight:
        framework = config.training.adversarial.framework
        found.append(
            f"the generator's and the discriminator's update are in {framework}'s order, one each a step"
        )
    if own_step:
        found.append(
            "the step has its own precision, losses, optimizers, averages and accumulation: what the config says of "
            "them is not in it"
        )
    elif config.data.resolved_source != "phantom":
        found.append("validation is of images of the config's size, whatever the files hold")
        sampling = config.evaluation.sampling
        if config.is_denoiser and sampling.validation_steps and sampling.data_consistency:
            found.append("k-space kept while validation samples is one coil's, of the image's size")
    if config.system.deterministic:
        found.append("deterministic algorithms need what the others need")
    if config.system.compile:
        found.append("torch.compile is not in it: compiled networks usually need less")
    return found


def predicted_block(context: RunContext, batch_size: int) -> TrainingRun | None:
    """`batch_profiling[N].training` from the prediction, or None without one."""
    model, advice = context.profile.memory_model, context.profile.training_advice
    if model is None or not advice:
        return None
    own = model.settings[0]
    row = own.sizes.get(str(batch_size))
    if row is None:
        return None
    budget = advice[0].budget
    reserved = row.reserved_bytes + budget.workspace_bytes
    peak = own.peak if own.peak.batch_size == batch_size else None
    shape = context.input_shape
    validation = own.validation
    return TrainingRun(
        source="predicted",
        input_shape=[batch_size, *shape[1:-2], *(own.patch_size or shape[-2:])],
        num_runs=0,
        precision=own.precision,
        checkpointing=own.checkpointing,
        patch_size=own.patch_size,
        peak_bytes=row.allocated_bytes + budget.workspace_bytes,
        peak_reserved_bytes=reserved,
        live_bytes=row.live_bytes,
        process_bytes=reserved + budget.context_bytes,
        live_interval_bytes=interval_of(own, "live", row.live_bytes),
        reserved_interval_bytes=interval_of(own, "reserved", reserved),
        by_category=None if peak is None else peak.by_category,
        peak_phase=None if peak is None else peak.phase,
        peak_operator=None if peak is None else peak.operator,
        workspace_bytes=budget.workspace_bytes,
        context_bytes=budget.context_bytes,
        validation=None if validation is None else TrainingValidation(**dict(validation)),
        ddp_bucket_bytes=own.ddp_bucket_bytes,
        steps_run=0,
        step_ms=[],
        assumptions=model.assumptions,
        **dict.fromkeys(MEASURED),
    )
