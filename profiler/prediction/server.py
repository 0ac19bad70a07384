"""The process that traces and predicts, one request at a time (the protocol of profiler/isolation/worker.py).

A process of its own, because emulating CUDA changes how torch dispatches in the whole process, and because a network
that cannot be traced may do anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue, TypeAdapter

from swinmr_profiling.configs import ExperimentConfig, config_from_dict
from swinmr_profiling.configs.writing.kept_files import HASHED_NETWORKS
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.libraries.diffusers_network import Data
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.measure.training.own_step import OtherStep, other_step
from swinmr_profiling.profiler.prediction.predict import predict_setting, predict_sizes, write_step_snapshot
from swinmr_profiling.profiler.prediction.settings import (
    Traced,
    TrainingSetting,
    WrittenSnapshot,
    config_with,
)
from swinmr_profiling.profiler.prediction.trace import trace_cache
from swinmr_profiling.profiler.prediction.trace_family import inference_family, training_trace
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting, PredictedInference
from swinmr_profiling.training.step.configured_step import loss_label


class PredictionWorker:
    """Holds the config between requests."""

    def __init__(self, send: Callable[..., None]) -> None:
        self.send = send
        self._imported: OtherStep | None = None
        self._last: tuple[TrainingSetting, ExperimentConfig, BuiltModel] | None = None

    def do_open(
        self, config: dict[str, JsonValue], trust_config: bool, run: str, traces: str | None
    ) -> Traced:
        """Takes the config, and the folder for traces; answers the loss it makes here and the version of torch."""
        torch.set_num_threads(1)  # nothing is computed
        trace_cache.keep_in(None if traces is None else Path(traces))
        self.config = config_from_dict(config)
        self.trust_config = trust_config
        label = loss_label(self.config, for_prediction=True)
        # Which parts of the loss there are depends on files at hand, too.
        own = self.config.model.net_type in HASHED_NETWORKS and self.config.training.other_step is None
        self.loss_parts = label if own else f"{label}; run {run}"
        return Traced(label, torch.__version__)

    def do_trace(self, batch_size: int, **setting: Any) -> int:
        """Traces one batch size of a setting and keeps it on disk; answers the size."""
        _, config, built = self._in_setting(**setting)
        training_trace(built, config, self.loss_parts, batch_size, self._step(built))
        return batch_size

    def do_predict(self, batch_sizes: list[int], **setting: Any) -> MemorySetting:
        """One entry of `memory_model.settings`."""
        typed, config, built = self._in_setting(**setting)
        return predict_setting(
            built,
            config,
            typed,
            self.loss_parts,
            asked=batch_sizes,
            step=self._step(built),
            on_progress=lambda: self.send("progress"),
        )

    def do_snapshot(
        self, batch_size: int, file: str, workspace_bytes: int, title: str, private: bool, **setting: Any
    ) -> WrittenSnapshot:
        """Writes the step of a batch size for PyTorch's memory viewer."""
        _, config, built = self._in_setting(**setting)
        return write_step_snapshot(
            built,
            config,
            self.loss_parts,
            batch_size,
            Path(file),
            workspace_bytes=workspace_bytes,
            title=title,
            private=private,
            step=self._step(built),
        )

    def do_predict_inference(self, precision: Precision, batch_sizes: list[int]) -> PredictedInference:
        """`memory_model.inference`."""
        config = config_with(self.config, TrainingSetting(precision, "none", None))
        family = inference_family(self._build(config), config, self.loss_parts)
        return PredictedInference(sizes=predict_sizes(family, batch_sizes, expandable=False))

    def _step(self, built: BuiltModel) -> OtherStep | None:
        """The step that stands in the place of ours, imported once."""
        if self._imported is None:
            self._imported = other_step(
                self.config, built, trust_config=self.trust_config, for_prediction=True
            )
        return self._imported

    def _in_setting(self, **fields: Any) -> tuple[TrainingSetting, ExperimentConfig, BuiltModel]:
        """The setting, its config and the network in it; the last one is kept."""
        setting = TypeAdapter(TrainingSetting).validate_python(fields)
        if self._last is None or self._last[0] != setting:
            config = config_with(self.config, setting)
            self._last = (setting, config, self._build(config))
        return self._last

    def _build(self, config: ExperimentConfig) -> BuiltModel:
        torch.manual_seed(config.system.seed)
        # A step of the user's own is run on the network itself.
        data: Data = "never" if config.training.other_step is None else "always"
        return build_model(config, trust_config=self.trust_config, data=data)
