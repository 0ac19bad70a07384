"""The training loop: steps, validation, logs, checkpoints; stopped anywhere, it goes on as if it had not been."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.atomic_files import check_writable
from swinmr_profiling.models.checkpoints import load_weights
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.data.dataset import build_dataset, identity
from swinmr_profiling.training.data.loader import build_loader
from swinmr_profiling.training.data.sources import has_split
from swinmr_profiling.training.denoising.denoising_step import build_preparation
from swinmr_profiling.training.denoising.denoising_validation import build_batch_result
from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.run.batch_stream import BatchStream
from swinmr_profiling.training.run.checkpoints import (
    CheckpointError,
    check_architecture,
    random_states,
    restore_random_states,
    restore_state,
    state_content,
)
from swinmr_profiling.training.run.resumption import changed_splits, compare_with_checkpoint
from swinmr_profiling.training.run.run_folders import checkpoint_folder, run_folders
from swinmr_profiling.training.run.run_log import LOG_NAME, RunLog
from swinmr_profiling.training.run.stopping import Progress, StopRequest
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import build_settings, build_state, training_step
from swinmr_profiling.training.validation.validation import ValidationResult, validate


@dataclass
class TrainingResult:
    """How a run ended. `stopped_by` is None for one that reached its last step."""

    step: int
    total_steps: int
    stopped_by: str | None
    progress: Progress
    last_validation: dict[str, Any] | None
    images_per_second: float | None
    data_wait_share: float | None
    checkpoint: Path | None
    messages: list[str] = field(default_factory=list)


class TrainingRun:
    """One run in one process of the world. Build it, then `run`."""

    def __init__(
        self, config: ExperimentConfig, world: World, stop: StopRequest, *, trust_config: bool = False
    ) -> None:
        """Builds data, network, loss and step. Raises DataError, LossError, ModelError for what cannot be."""
        self.config, self.world, self.stop = config, world, stop
        self.messages: list[str] = []
        if config.system.threads is not None:
            torch.set_num_threads(config.system.threads)
        torch.use_deterministic_algorithms(config.system.deterministic)
        # Every process builds the same network; what is drawn in the steps differs from rank to rank.
        torch.manual_seed(config.system.seed)
        built = build_model(config, trust_config=trust_config)
        if config.training.initial_weights is not None:
            load_weights(built.module, Path(config.training.initial_weights))
        dataset = build_dataset(config, "train")
        self.data = {"train": identity(dataset)}
        place = {"rank": world.rank, "world_size": world.size}
        self.train_loader = build_loader(config, "train", dataset=dataset, **place)
        self.prepare = build_preparation(config, **place)
        self.val_loader: DataLoader | None = None
        if has_split(config, "val"):
            self.val_loader = build_loader(config, "val", **place)
            self.data["val"] = identity(self.val_loader.dataset)
        else:
            self._say("no validation: data.val_dir is not set, so no checkpoint is chosen as the best")
        loss = build_loss(config).to(world.device)
        self._say(f"loss: {loss.label}")
        for line in loss.skipped:
            self._say(line)
        self.accumulate = config.training.accumulate
        self.batches_per_epoch = self.train_loader.batch_sampler.batches_per_epoch
        self.total_steps = self._total_steps()
        self.settings = build_settings(config, world.device.type)
        slices = None if self.val_loader is None else self.val_loader.dataset
        self.result_of = build_batch_result(config, loss, slices, self.settings, world.device)
        self.early_stopping = config.training.early_stopping.model_copy(
            update={"metric": config.early_stopping_metric}
        )
        module = built.module.to(world.device)
        if config.system.channels_last:
            module.to(memory_format=torch.channels_last)
        self.state = build_state(config, module, loss, self.total_steps, wrap=self._wrap)
        self.folders = run_folders(config)
        self.checkpoints = checkpoint_folder(config)
        self.progress = Progress()
        self._owns_folder = False
        torch.manual_seed(config.system.seed + world.rank)

    def _wrap(self, module: torch.nn.Module) -> torch.nn.Module:
        network = self.world.wrap(module)
        return torch.compile(network) if self.config.system.compile else network

    def _say(self, line: str) -> None:
        self.messages.append(line)

    def _total_steps(self) -> int:
        limits = []
        training = self.config.training
        if training.epochs is not None:
            limits.append(max(training.epochs * self.batches_per_epoch // self.accumulate, 1))
        if training.step_limit is not None:
            limits.append(training.step_limit)
        return min(limits)

    @property
    def batch_sizes(self) -> dict[str, int]:
        """Samples per device and micro-batch, micro-batches per step, devices, and their product."""
        per_device = self.config.data.batch_size
        return {
            "batch_size_per_device": per_device,
            "accumulate": self.accumulate,
            "devices": self.world.size,
            "global_batch_size": per_device * self.accumulate * self.world.size,
        }

    def resume(self) -> bool:
        """Goes on from the newest readable checkpoint of this run's folder; False where there is none.

        Weights, moments, averages, random states and the step are the checkpoint's, all else is the config's; every
        difference between the two configs is in `messages`. Raises CheckpointError for a checkpoint of another
        architecture, kind of optimizer or global batch.
        """
        found = self.checkpoints.latest()
        if found is None:
            return False
        content, file, complaints = found
        self.messages += complaints
        was, is_now = content["batch_sizes"], self.batch_sizes
        if was["global_batch_size"] != is_now["global_batch_size"]:
            raise CheckpointError(
                f"{file} was trained with a global batch of {was['global_batch_size']} "
                f"({was['batch_size_per_device']} x {was['accumulate']} accumulated x {was['devices']} devices), this "
                f"run has {is_now['global_batch_size']}: change data.batch_size or training.accumulate"
            )
        check_architecture(self.state.module, content, file)
        edits = compare_with_checkpoint(self.config, content, file)
        notes = restore_state(self.state, content, file)
        self._say(f"resumed from {file}, step {self.state.step}")
        self.messages += [*edits.lines(file), *notes]
        self.progress = Progress(**content["progress"])
        changed = changed_splits(content.get("data") or {}, self.data)
        self.messages += changed.values()
        if self.progress.best is not None and not (edits.best_is_comparable and "val" not in changed):
            self._say("the best validation so far was measured otherwise: the best is chosen anew")
            self.progress = Progress()
        self._owns_folder = True
        states = content["random_states"]
        if was == is_now:
            restore_random_states(states[self.world.rank])
        else:
            self._say("resumed on other devices: the same global batch, but not bit for bit the same run")
        return True

    def start_anew(self) -> None:
        """In place of `resume`: checkpoints that are there are moved aside by the first new one, and not before."""
        if not self.checkpoints.is_empty:
            self._say(f"started anew: the first checkpoint moves what {self.folders.checkpoints} holds aside")

    def run(self) -> TrainingResult:
        """Trains to the last step, or until a stop; the state is saved then.

        Raises NonFiniteLossError with the last good checkpoint in place, CheckpointError for a disk that refuses,
        and OutputError before the first step for folders that cannot be written.
        """
        config, state, first = self.config, self.state, self.world.is_first
        log = None
        self.checkpoints.check_writable()
        check_writable(self.folders.logs / LOG_NAME, "the log")
        if first:
            options = config.logging
            log = RunLog(
                self.folders.logs,
                tensorboard=options.tensorboard,
                images=options.log_images,
                first_step=state.step,
            )
        stopped_by: str | None = None
        validation: ValidationResult | None = None
        saved_at: int | None = None
        file: Path | None = None
        seen, waited_s, started = 0, 0.0, time.perf_counter()
        with closing(self._stream()) as batches, _progress_bar(self) as bar:
            while state.step < self.total_steps:
                if self.world.any(bool(self.stop)):
                    stopped_by = self.stop.signal_name or "a signal to another process"
                    break
                outcome = training_step(state, self.settings, batches)
                seen += self.batch_sizes["global_batch_size"]
                waited_s = batches.waited_s
                bar.update()
                bar.set_postfix(loss=f"{float(outcome.loss):.4g}", refresh=False)
                means: dict[str, float] = {}
                if self._is_due(config.logging.log_interval):
                    values = {"loss": outcome.loss, **outcome.parts}
                    means = self.world.means({name: float(value) for name, value in values.items()})
                if log is not None and means:
                    norm = {} if outcome.grad_norm is None else {"grad_norm": float(outcome.grad_norm)}
                    speed = seen / (time.perf_counter() - started)
                    log.record(
                        "train",
                        state.step,
                        **means,
                        **norm,
                        learning_rate=outcome.learning_rate,
                        images_per_second=speed,
                        data_wait_share=waited_s / (time.perf_counter() - started),
                    )
                if self._validation_is_due():
                    is_first = self.progress.best is None
                    validation, better = self._validate(log)
                    bar.set_description(_in_short(validation))
                    if better:
                        self._save_best(is_first)
                    if self.progress.is_exhausted(self.early_stopping):
                        stopped_by = "early stopping"
                        break
                if self._is_due(config.training.checkpoint_every_steps):
                    file, saved_at = self._save(), state.step
        elapsed_s = time.perf_counter() - started
        if saved_at != state.step and seen:
            file = self._save()
        if log is not None:
            log.close()
        return TrainingResult(
            step=state.step,
            total_steps=self.total_steps,
            stopped_by=stopped_by,
            progress=self.progress,
            last_validation=None if validation is None else validation.values(),
            images_per_second=seen / elapsed_s if seen else None,
            data_wait_share=waited_s / elapsed_s if seen else None,
            checkpoint=file,
            messages=self.messages,
        )

    def _stream(self) -> BatchStream:
        return BatchStream(
            self.train_loader, self.world.device, self.state.step, self.accumulate, self.prepare
        )

    def _is_due(self, every: int) -> bool:
        return self.state.step % every == 0

    def _validation_is_due(self) -> bool:
        if self.val_loader is None:
            return False
        training = self.config.training
        if self.state.step == self.total_steps:
            return True
        if training.validate_every_steps is not None:
            return self._is_due(training.validate_every_steps)
        # The step that completes an epoch (accumulation may straddle its end).
        every = training.validate_every_epochs * self.batches_per_epoch
        consumed = self.state.step * self.accumulate
        return consumed // every > (consumed - self.accumulate) // every

    def _validate(self, log: RunLog | None) -> tuple[ValidationResult, bool]:
        network = self.state.module if self.state.ema is None else self.state.ema.module
        result = validate(
            network,
            self.result_of,
            self.val_loader,
            self.world,
            self.config.evaluation.convention,
        )
        section = self.early_stopping
        values = result.values()
        better = self.progress.update(values[section.metric], self.state.step, section)
        if log is not None:
            log.record("validation", self.state.step, **values)
            if result.example is not None:
                # Zero-filled, reconstruction, target, side by side.
                log.image("validation", self.state.step, torch.cat(list(result.example), -1)[None])
        return result, better

    def _content(self) -> dict[str, Any]:
        return {
            **state_content(self.state),
            "progress": self.progress.to_json(),
            "batch_sizes": self.batch_sizes,
            "random_states": self.world.gather(random_states()),
            "config": self.config.model_dump(mode="json"),
            "data": self.data,
        }

    def _save(self) -> Path | None:
        content = self._content()
        if not self.world.is_first:
            return None
        self._make_room()
        return self.checkpoints.save(content)

    def _save_best(self, is_first: bool) -> None:
        content = self._content()
        if self.world.is_first:
            self._make_room()
            self.checkpoints.save_best(content, is_first=is_first)

    def _make_room(self) -> None:
        """Before the first checkpoint of a run that did not go on from those that are there."""
        if not self._owns_folder:
            self.checkpoints.set_aside()
            self._owns_folder = True


def _in_short(validation: ValidationResult) -> str:
    psnr_db = validation.network.psnr_db
    return f"loss {validation.loss:.4g}" if psnr_db is None else f"PSNR {psnr_db:.2f} dB"


def _progress_bar(run: TrainingRun) -> tqdm:
    return tqdm(
        total=run.total_steps,
        initial=run.state.step,
        unit="step",
        disable=None if run.world.is_first else True,
        file=sys.stderr,
    )
