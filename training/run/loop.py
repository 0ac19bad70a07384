"""The training loop: steps, validation, logs, checkpoints; stopped anywhere, it goes on as if it had not been."""

from __future__ import annotations

import math
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from swinmr_profiling.configs.writing.atomic_files import check_writable
from swinmr_profiling.configs.writing.output_claims import Claim, claim
from swinmr_profiling.training.data.skipping import SkippedSample
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.run.batch_stream import BatchStream
from swinmr_profiling.training.run.checkpoints import LAST, CheckpointError
from swinmr_profiling.training.run.run_log import LOG_NAME, RunLog
from swinmr_profiling.training.run.run_state import RunState
from swinmr_profiling.training.run.step_guard import NonFiniteWeightsError, StepGuard
from swinmr_profiling.training.step.training_step import (
    NonFiniteGradientError,
    NonFiniteLossError,
    is_finite,
    training_step,
)
from swinmr_profiling.training.validation.validation import ValidationResult, validate

EARLY_STOPPING = "early stopping"
# What every process of a run fails with at the same step.
AGREED_FAILURES = (DataError, NonFiniteLossError, NonFiniteGradientError)
FAILURES = (*AGREED_FAILURES, NonFiniteWeightsError)


@dataclass
class TrainingResult:
    """How a run ended. `stopped_by` is None for one that reached its last step."""

    step: int
    total_steps: int
    stopped_by: str | None
    last_validation: dict[str, Any] | None
    images_per_second: float | None
    data_wait_share: float | None
    checkpoint: Path | None
    skipped: list[SkippedSample] = field(default_factory=list)


class TrainingRun(RunState):
    """One run in one process of the world. Build it, then `run`."""

    def run(self) -> TrainingResult:
        """Trains to the last step, or until a stop; the state is saved then.

        Raises DataError, NonFiniteLossError and NonFiniteGradientError with the state before the bad step saved
        (`saved` names the file), NonFiniteWeightsError with the last good checkpoint in place, CheckpointError for a
        disk that refuses, and OutputError before the first step for folders that cannot be written.
        """
        state = self.state
        self.checkpoints.check_writable()
        check_writable(self.folders.logs / LOG_NAME, "the log")
        held = self._claim_folder()
        log = self._open_log() if self.world.is_first else None
        stopped_by: str | None = None
        seen, started = 0, time.perf_counter()
        bar = tqdm(
            total=self.total_steps,
            initial=state.step,
            unit="step",
            disable=None if self.world.is_first else True,
            file=sys.stderr,
        )
        with closing(self._stream()) as batches, bar:
            asked = {"anywhere": self.world.any} if self.engine.shards_parameters else {}
            guard = StepGuard(state, lambda: batches.names, **asked)
            try:
                made_up = self._validation_is_due
                if made_up and self._validate_and_keep(log, bar):
                    stopped_by = EARLY_STOPPING
                while stopped_by is None and state.step < self.total_steps:
                    if self._must_stop(batches, log):
                        stopped_by = self.stop.signal_name or "a signal to another process"
                        break
                    guard.begin()
                    outcome = training_step(state, self.settings, batches, self._finite_everywhere)
                    guard.end()
                    seen += self.batch_sizes["global_batch_size"]
                    bar.update()
                    bar.set_postfix(loss=f"{float(outcome.loss):.4g}", refresh=False)
                    means: dict[str, float] = {}
                    if self._is_due(self.config.logging.log_interval):
                        values = {"loss": outcome.loss, **outcome.parts}
                        means = self.world.means({name: float(value) for name, value in values.items()})
                    if log is not None and means:
                        norm = {} if outcome.grad_norm is None else {"grad_norm": float(outcome.grad_norm)}
                        elapsed_s = time.perf_counter() - started
                        log.record(
                            "train",
                            state.step,
                            **means,
                            **norm,
                            learning_rate=outcome.learning_rate,
                            images_per_second=seen / elapsed_s,
                            data_wait_share=batches.waited_s / elapsed_s,
                        )
                    if self._step_ends_with_validation() and self._validate_and_keep(log, bar):
                        stopped_by = EARLY_STOPPING
                    elif self._is_due(self.config.training.checkpoint_every_steps):
                        self._save()
                elapsed_s = time.perf_counter() - started
                if (seen or made_up) and self._saved_at != state.step:
                    self._save()
            except AGREED_FAILURES as error:
                guard.undo()
                self._save_before_the_failure()
                raise self._in_one_voice(error) from error
            except (NonFiniteWeightsError, CheckpointError):
                raise
            except Exception:
                # One process fails alone: nothing can be agreed on. Memory that ran out, a network's own mistake.
                if self.world.size == 1 and not guard.is_updating:
                    guard.undo()
                    self._save_before_the_failure()
                raise
            finally:
                if log is not None:
                    log.close()
                if held is not None:
                    held.release()
        return TrainingResult(
            step=state.step,
            total_steps=self.total_steps,
            stopped_by=stopped_by,
            last_validation=self._last_validation,
            images_per_second=seen / elapsed_s if seen else None,
            data_wait_share=batches.waited_s / elapsed_s if seen else None,
            checkpoint=self.saved,
            skipped=list(self.skipped.samples.values()),
        )

    def _claim_folder(self) -> Claim | None:
        """The right to write this run's folder. Raises CheckpointError, in every process, where another run has it."""
        held = claim(self.folders.checkpoints / LAST) if self.world.is_first else None
        if self.world.any(self.world.is_first and held is None):
            raise CheckpointError(
                f"{self.folders.checkpoints}: another run is training there: wait for its end, or take another "
                "experiment_name"
            )
        return held

    def _open_log(self) -> RunLog:
        options = self.config.logging
        return RunLog(
            self.folders.logs,
            tensorboard=options.tensorboard,
            images=options.log_images,
            first_step=self.state.step,
            anew=self._starts_anew,
            loggers=options.loggers,
            name=self.config.experiment_name,
            config=self.config.model_dump(mode="json"),
        )

    def _must_stop(self, batches: BatchStream, log: RunLog | None) -> bool:
        """Reads the next step's data; whether any process was asked to stop.

        All processes agree before a step begins: one that raised alone would leave the others waiting for its
        gradients. Raises DataError in all of them.
        """
        stops, failure, skipped = bool(self.stop), None, []
        try:
            skipped = [] if stops else self.skipped.unknown(batches.draw())
        except DataError as error:
            failure = str(error)
        stopping, failing, skipping = self.world.counts(stops, failure is not None, bool(skipped))
        if failing:
            raise DataError(self.world.first(failure))
        if skipping:
            everywhere = [one for part in self.world.gather(skipped) for one in part]
            for one in self.skipped.add(everywhere):
                if log is not None:
                    log.record(
                        "skipped", self.state.step + 1, file=one.file, slice=one.slice, reason=one.reason
                    )
        return stopping > 0

    def _finite_everywhere(self, loss: Tensor) -> bool:
        """Whether a micro-batch's loss is a number in every process."""
        return not self.world.any(not is_finite(loss))

    def _in_one_voice(self, error: Exception) -> Exception:
        """What the first process that has the mistake itself says of it, in every process."""
        if not isinstance(error, NonFiniteLossError):
            return error
        mine = not all(math.isfinite(value) for value in error.parts.values())
        names, parts = self.world.first((error.names, error.parts) if mine else None) or (
            error.names,
            error.parts,
        )
        return NonFiniteLossError(error.step, names, parts)

    def _save_before_the_failure(self) -> None:
        if self._saved_at != self.state.step and (
            self.state.step > self._first_step or self._validation_is_due
        ):
            with suppress(NonFiniteWeightsError):
                self._save()

    def _stream(self) -> BatchStream:
        return BatchStream(
            self.train_loader, self.world.device, self.state.step, self.accumulation, self.prepare
        )

    def _is_due(self, every: int) -> bool:
        return self.state.step % every == 0

    def _step_ends_with_validation(self) -> bool:
        if self.val_loader is None:
            return False
        training = self.config.training
        if self.state.step == self.total_steps:
            return True
        if training.validate_every_steps is not None:
            return self._is_due(training.validate_every_steps)
        # The step that completes an epoch (accumulation may straddle its end).
        every = training.validate_every_epochs * self.batches_per_epoch
        consumed = self.state.step * self.accumulation
        return consumed // every > (consumed - self.accumulation) // every

    def _validate_and_keep(self, log: RunLog | None, bar: tqdm) -> bool:
        """Validates, keeps the best; whether early stopping ends the run."""
        is_first = self.progress.best is None
        self._validation_is_due = True
        validation, better = self._validate(log)
        self._validation_is_due = False
        self._last_validation = validation.values()
        psnr_db = validation.network.psnr_db
        bar.set_description(f"loss {validation.loss:.4g}" if psnr_db is None else f"PSNR {psnr_db:.2f} dB")
        if better:
            self._save_best(is_first)
        return self.progress.is_exhausted(self.early_stopping)

    def _validate(self, log: RunLog | None) -> tuple[ValidationResult, bool]:
        assert self.val_loader is not None
        with self.state.validated_network() as network:
            result = validate(
                network,
                self.result_of,
                self.val_loader,
                self.validating,
                self.config.evaluation.convention,
            )
        values = result.values()
        better = self.progress.update(
            values[self.early_stopping.metric], self.state.step, self.early_stopping
        )
        if log is not None:
            log.record("validation", self.state.step, **values)
            if result.example is not None:
                # Zero-filled, reconstruction, target, side by side.
                log.image("validation", self.state.step, torch.cat(list(result.example), -1)[None])
        return result, better
