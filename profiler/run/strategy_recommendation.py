"""What each of several GPUs trains with under DDP, ZeRO-1 and FSDP2: predicted from the config of a saved profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.configs.sections.strategy import Strategy
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.training_recommendation import recommend_training
from swinmr_profiling.profiler.isolation.worker_process import RequestRefusedError, WorkerError
from swinmr_profiling.profiler.prediction.prediction_session import PredictionSession
from swinmr_profiling.profiler.prediction.settings import PRECISION_VALUES, setting_of
from swinmr_profiling.profiler.ranks.predicted_rank import RankPrediction
from swinmr_profiling.profiler.record.blocks.memory_model import MemoryModel
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.files.reading import load_profile

SERVER = "swinmr_profiling.profiler.ranks.server"


def predict_strategies(
    profile: Path, strategies: Sequence[Strategy], devices: int, *, trust_config: bool
) -> list[RankPrediction]:
    """One prediction per strategy, of the profile's config in its own setting.

    Raises ProfileFileError, ConfigError for a config that this version does not take, and ModelError for what does not
    go together or cannot be traced.
    """
    loaded = load_profile(profile).profile
    raw = dict(loaded.config.resolved)
    model = loaded.memory_model
    precision = None if model is None else model.config_setting.precision
    if precision is not None:
        raw["system"] = {**raw["system"], "mixed_precision": PRECISION_VALUES[precision]}
    config = config_from_dict(raw)
    own = asdict(setting_of(config, precision or "fp32"))
    with PredictionSession(config, trust_config=trust_config, module=SERVER) as session:
        try:
            return [
                session.ask_one(
                    "predict_rank",
                    RankPrediction,
                    strategy=strategy,
                    devices=devices,
                    batch_sizes=[1],
                    **own,
                )
                for strategy in strategies
            ]
        except RequestRefusedError as error:
            raise ModelError(str(error)) from error
        except WorkerError as error:
            raise ModelError(f"the memory of a rank is not predicted: {error.failure.detail}") from error


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
