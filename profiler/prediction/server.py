"""The process that traces and predicts, one request at a time (the protocol of profiler/isolation/worker.py).

A process of its own, because emulating CUDA changes how torch dispatches in the whole process, and because a network
that cannot be traced may do anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swinmr_profiling.profiler.isolation import worker

# Networks that are code of this project alone, which the names of traces on disk hold a hash of.
OWN_NETWORKS = ("swinir", "swinmr", "unet_denoiser")


class PredictionWorker:
    """Holds the config between requests."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self.send = send
        self._last: tuple[Any, Any, Any] | None = None

    def do_open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Takes the config; answers the loss it makes here and the version of torch."""
        import torch

        from swinmr_profiling.configs import config_from_dict
        from swinmr_profiling.training.step.losses import build_loss

        torch.set_num_threads(1)  # nothing is computed
        self.config = config_from_dict(request["config"])
        self.trust_config = request["trust_config"]
        loss = build_loss(self.config, for_prediction=True)
        # Which parts of the loss there are depends on files at hand, too.
        self.loss_parts = loss.label
        if self.config.model.net_type not in OWN_NETWORKS:
            self.loss_parts = f"{loss.label}; run {request['run']}"
        return {"loss": loss.label, "torch_version": torch.__version__}

    def do_trace(self, request: dict[str, Any]) -> dict[str, Any]:
        """Traces one batch size of a setting and keeps it on disk."""
        from swinmr_profiling.profiler.prediction.predict import training_trace

        _, config, built = self._in_setting(request["setting"])
        training_trace(built, config, self.loss_parts, request["batch_size"])
        return {}

    def do_predict(self, request: dict[str, Any]) -> dict[str, Any]:
        """One entry of `memory_model.settings`."""
        from swinmr_profiling.profiler.prediction.predict import predict_setting

        setting, config, built = self._in_setting(request["setting"])
        return predict_setting(
            built,
            config,
            setting,
            self.loss_parts,
            asked=request["batch_sizes"],
            on_progress=lambda: self.send({"event": "progress"}),
        )

    def do_predict_inference(self, request: dict[str, Any]) -> dict[str, Any]:
        """`memory_model.inference`."""
        from swinmr_profiling.profiler.prediction.predict import inference_family, predict_sizes
        from swinmr_profiling.profiler.prediction.settings import Setting, config_with

        config = config_with(self.config, Setting(request["precision"], "none", None))
        family = inference_family(self._build(config), config, self.loss_parts)
        return {"sizes": predict_sizes(family, request["batch_sizes"], expandable=False)}

    def _in_setting(self, fields: dict[str, Any]) -> tuple[Any, Any, Any]:
        """The setting, its config and the network in it; the last one is kept."""
        from swinmr_profiling.profiler.prediction.settings import Setting, config_with

        patch = fields["patch_size"]
        setting = Setting(**{**fields, "patch_size": None if patch is None else tuple(patch)})
        if self._last is None or self._last[0] != setting:
            config = config_with(self.config, setting)
            self._last = setting, config, self._build(config)
        return self._last

    def _build(self, config: Any) -> Any:
        import torch

        from swinmr_profiling.models.registry import build_model

        torch.manual_seed(config.system.seed)
        return build_model(config, trust_config=self.trust_config)


def main() -> None:
    """Entry of the process."""
    worker.main(PredictionWorker)
