"""The process that predicts ranks: the one of profiler/prediction/server.py, which can be one of many, too."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.configs.sections.strategy import Strategy
from swinmr_profiling.profiler.isolation import worker
from swinmr_profiling.profiler.prediction.server import PredictionWorker
from swinmr_profiling.profiler.ranks.predicted_rank import RankPrediction


class RankWorker(PredictionWorker):
    """Holds the config between requests."""

    def do_predict_rank(
        self, strategy: Strategy, devices: int, batch_sizes: list[int], **setting: Any
    ) -> RankPrediction:
        """One strategy between some devices, in one setting."""
        from swinmr_profiling.models.errors import ModelError
        from swinmr_profiling.profiler.ranks.predicted_rank import predict_rank, with_strategy
        from swinmr_profiling.training.errors import StrategyError

        typed, config, built = self._in_setting(**setting)
        try:
            return predict_rank(
                built,
                with_strategy(config, strategy),
                typed,
                devices,
                asked=batch_sizes,
                on_progress=lambda: self.send("progress"),
            )
        except StrategyError as error:
            raise ModelError(str(error)) from error


def main() -> None:
    """Entry of the process."""
    worker.main(RankWorker)
