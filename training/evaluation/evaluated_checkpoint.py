"""Which weights are evaluated: the run's best, or a file of anybody's, and its identity."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.checkpoints.published_weights import WRAPPERS, load_weights
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.training.run.checkpoints import (
    BEST,
    FORMAT,
    LAST,
    CheckpointError,
    is_training_checkpoint,
)
from swinmr_profiling.training.run.run_folders import run_folders

READ_BYTES = 1 << 20


def default_checkpoint(config: ExperimentConfig) -> Path:
    """`best.pth` of the config's run, else `last.pth`. Raises CheckpointError where there is neither."""
    folder = run_folders(config).checkpoints
    for name in (BEST, LAST):
        if (folder / name).is_file():
            return folder / name
    raise CheckpointError(f"{folder}: holds no {BEST} and no {LAST}; train first, or name a --checkpoint")


def file_sha256(file: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def load_evaluated(module: nn.Module, file: Path, config: ExperimentConfig) -> dict[str, Any]:
    """Loads a checkpoint (averaged weights first) and returns the `checkpoint` block of a summary.

    Raises ModelError for a file that cannot be read or is of another architecture.
    """
    load_weights(module, file)
    content = torch.load(file, map_location="cpu", weights_only=True)
    ours = is_training_checkpoint(content)
    weights = next((key for key in WRAPPERS if isinstance(content.get(key), dict)), "the whole file")
    return {
        "file": str(file),
        "sha256": file_sha256(file),
        "format": FORMAT if ours else "published weights",
        "weights": weights,
        "step": _step(content, file) if ours else None,
        "differences": _differences(content.get("config"), config) if ours else [],
    }


def _step(content: dict[str, Any], file: Path) -> int:
    step = content.get("step")
    if not isinstance(step, int) or step < 0:
        raise ModelError(f"{file}: is damaged: its step is {repr(step).splitlines()[0]:.60}")
    return step


def _differences(trained: Any, config: ExperimentConfig) -> list[str]:
    """Where the data of training is prepared in another way than the test's: worth a line, never an error."""
    now = config.model_dump(mode="json")["data"]
    then = trained.get("data") if isinstance(trained, dict) else None
    if not isinstance(then, dict) or not isinstance(then.get("degradation"), dict):
        return ["the checkpoint does not say how its data was prepared"]
    lines = []
    for key in ("normalisation", "source"):
        if then.get(key) != now[key]:
            lines.append(f"data.{key}: trained with {then.get(key)}, tested with {now[key]}")
    for key, value in now["degradation"].items():
        # A key that is younger than the checkpoint had its default's meaning.
        was = then["degradation"].get(key, value)
        if key != "seed" and was != value:
            lines.append(f"data.degradation.{key}: trained with {was}, tested with {value}")
    return lines
