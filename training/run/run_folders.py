"""Where a run writes, and where its checkpoints are found again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.training.run.checkpoints import CheckpointFolder


@dataclass(frozen=True)
class RunFolders:
    """Where a run writes."""

    checkpoints: Path
    logs: Path


def run_folders(config: ExperimentConfig) -> RunFolders:
    """The run's folders: what `paths` names, else below `root`/`experiment_name`."""
    own = Path(config.paths.root) / config.experiment_name
    return RunFolders(
        checkpoints=Path(config.paths.checkpoints or own / "checkpoints"),
        logs=Path(config.paths.logs or own / "logs"),
    )


def checkpoint_folder(config: ExperimentConfig) -> CheckpointFolder:
    """Where a run's checkpoints are."""
    return CheckpointFolder(run_folders(config).checkpoints, config.training.keep_checkpoints)
