"""What each of several GPUs trains with under DDP, ZeRO-1 and FSDP2: predicted from the config of a saved profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.configs.sections.strategy import Strategy
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.training_recommendation import recommend_training
from swinmr_profiling.profiler.isolation.worker_process import RequestRefusedError, WorkerError
from swinmr_profiling.profiler.prediction.prediction_session import PredictionSession
from swinmr_profiling.profiler.prediction.settings import PRECISION_VALUES, setting_of
from swinmr_profiling.profiler.ranks.predicted_rank import RankPrediction
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.blocks.strategies import StrategyBlock, StrategyOnCard
from swinmr_profiling.profiler.record.files.reading import load_profile
from swinmr_profiling.profiler.record.prediction_intervals import interval_of

WORKER = "swinmr_profiling.profiler.ranks.predicted_rank.RankWorker"


def config_and_precision(profile: Path) -> tuple[ExperimentConfig, Precision]:
    """Of a saved profile, as it is trained. Raises ProfileFileError, and ConfigError for what this version refuses."""
    loaded = load_profile(profile).profile
    raw = dict(loaded.config.resolved)
    model = loaded.memory_model
    precision = None if model is None else model.config_setting.precision
    if precision is not None:
        raw["system"] = {**raw.get("system", {}), "mixed_precision": PRECISION_VALUES[precision]}
    return config_from_dict(raw), precision or "fp32"


def predict_strategies(
    config: ExperimentConfig,
    precision: Precision,
    strategies: Sequence[Strategy],
    devices: int,
    *,
    trust_config: bool,
    on_refused: Callable[[Strategy, str], object] = lambda strategy, reason: None,
) -> list[RankPrediction]:
    """One prediction per strategy, of a config in its own setting.

    on_refused: told of a strategy that is not predicted, while others are. Raises ModelError where none is: for what
    does not go together or cannot be traced.
    """
    own = asdict(setting_of(config, precision))
    found: list[RankPrediction] = []
    refused: dict[Strategy, ModelError] = {}
    with PredictionSession(config, trust_config=trust_config, worker=WORKER) as session:
        for strategy in strategies:
            try:
                found.append(
                    session.ask_one(
                        "predict_rank",
                        RankPrediction,
                        strategy=strategy,
                        devices=devices,
                        batch_sizes=[1],
                        **own,
                    )
                )
            except RequestRefusedError as error:
                refused[strategy] = ModelError(str(error))
            except WorkerError as error:
                refused[strategy] = ModelError(
                    f"the memory of a rank is not predicted: {error.failure.detail}"
                )
    if not found:
        raise next(iter(refused.values()))
    for strategy, reason in refused.items():
        on_refused(strategy, str(reason))
    return found


def recommend_strategies(
    model: MemoryModel,
    predictions: Sequence[RankPrediction],
    budgets: Sequence[Budget],
    *,
    target_batch: int | None,
) -> list[list[TrainingRecommendation]]:
    """For each prediction the recommendation for each budget."""
    return [
        recommend_training(
            model.model_copy(update={"settings": [prediction.setting]}),
            budgets,
            target_batch=target_batch,
            devices=prediction.devices,
        )
        for prediction in predictions
    ]


def strategy_block(prediction: RankPrediction, entries: Sequence[TrainingRecommendation]) -> StrategyBlock:
    """The record of a prediction and what it recommends for each budget."""
    validation = prediction.setting.validation
    return StrategyBlock(
        source="predicted",
        strategy=prediction.strategy,
        devices=prediction.devices,
        cards=[_on_card(prediction, entry) for entry in entries],
        kept_bytes=prediction.kept_bytes,
        validation_bytes=None if validation is None else validation.allocated_bytes,
        export_bytes=prediction.export_bytes,
        sent={str(kind): size for kind, size in prediction.sent.items()},
        ring_bytes=prediction.ring_bytes,
        untested=prediction.untested,
    )


def _on_card(prediction: RankPrediction, entry: TrainingRecommendation) -> StrategyOnCard:
    fits = entry.batch_size is not None and entry.needed_bytes is not None
    interval = None
    if fits and entry.needed_bytes is not None:
        alone = interval_of(prediction.setting, "process", entry.needed_bytes)
        interval = list(prediction.interval_bytes(alone, process=True))
    return StrategyOnCard(
        card=entry.budget.name,
        batch_size=entry.batch_size if fits else None,
        global_batch=entry.global_batch if fits else None,
        needed_bytes=entry.needed_bytes if fits else None,
        process_interval_bytes=interval,
    )
