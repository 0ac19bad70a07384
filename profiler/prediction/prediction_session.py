"""The command's side of prediction: as many processes as there are cores for, each with settings to trace."""

from __future__ import annotations

import queue
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.profiler.allocator.workspaces import workspaces_for
from swinmr_profiling.profiler.isolation.worker_process import (
    Answer,
    LeavesNothing,
    RequestRefusedError,
    WorkerError,
    WorkerProcess,
)
from swinmr_profiling.profiler.prediction.settings import (
    Traced,
    TrainingSetting,
    WrittenSnapshot,
    setting_of,
    traced_batches,
)
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting, PredictedInference
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.record.memory_fingerprint import PRECISIONS

_Request = Callable[[WorkerProcess], Any]
# A process that traces the largest network of the configs takes 0.9 GB: two of them stay under two.
MAX_PROCESSES = 2


class _SharedWork:
    """Requests that processes share, each in a thread of its own."""

    def __init__(
        self,
        requests: Sequence[_Request],
        processes: Sequence[WorkerProcess],
        open_process: Callable[[WorkerProcess], None],
    ) -> None:
        self._requests, self._open = requests, open_process
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(requests)):
            self._waiting.put(number)
        self._answers: list[Any] = [None] * len(requests)
        self._refused: Exception | None = None  # what a process said instead of opening
        self._threads = [
            threading.Thread(target=self._work, args=(process,), daemon=True) for process in processes
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, process: WorkerProcess) -> None:
        try:
            self._open(process)
        except (WorkerError, RequestRefusedError, OSError) as error:
            self._refused = error
            return
        with suppress(queue.Empty):
            while True:
                number = self._waiting.get_nowait()
                try:
                    self._answers[number] = self._requests[number](process)
                except (WorkerError, RequestRefusedError, OSError) as error:
                    self._answers[number] = error
                    if not process.alive:
                        return

    def answers(self) -> list[Any]:
        """One for each request, once all are there; an error stands in the place of its answer."""
        for thread in self._threads:
            while thread.is_alive():  # a join without a timeout would keep signals waiting
                thread.join(0.1)
        for number, answer in enumerate(self._answers):
            if answer is None:  # every process died before it came to this one
                failed = Failure("crashed", "the predicting process died", True)
                errors = [found for found in self._answers if isinstance(found, Exception)]
                self._answers[number] = next(iter(errors), self._refused or WorkerError(failed))
        return self._answers


def _settings_of(answers: Sequence[Any]) -> list[MemorySetting]:
    """The entries that there are. Raises what stands in the place of the first."""
    if isinstance(answers[0], Exception):
        raise answers[0]
    return [answer for answer in answers if not isinstance(answer, Exception)]


class PredictionSession(LeavesNothing):
    """Predicts settings."""

    def __init__(
        self,
        config: ExperimentConfig,
        *,
        trust_config: bool,
        timeout_s: float | None = None,
        cache: bool = True,
        worker: str = "swinmr_profiling.profiler.prediction.server.PredictionWorker",
    ) -> None:
        """cache: keep traces in the user's cache folder. False: in a folder that ends with the session. worker: the
        class that answers in a process; it answers what PredictionWorker answers.
        """
        self.worker = worker
        self.cache = cache
        self._traces: tempfile.TemporaryDirectory[str] | None = None
        self.config, self.trust_config, self.timeout_s = config, trust_config, timeout_s
        self.opened: Traced | None = None
        # Traces of code that is not this project's are shared within this run only: it may change unseen.
        self._run = uuid.uuid4().hex
        self._processes: list[WorkerProcess] = []
        self._not_opened: list[WorkerProcess] = []
        self._ahead: _SharedWork | None = None
        self._last: _SharedWork | None = None

    def snapshot(
        self,
        setting: TrainingSetting,
        batch_size: int,
        file: Path,
        *,
        workspace_bytes: int,
        title: str,
        private: bool,
    ) -> WrittenSnapshot:
        """Writes the predicted step for PyTorch's memory viewer. Raises WorkerError, RequestRefusedError.

        private: without the folders of the user's own files.
        """
        return self.ask_one(
            "snapshot",
            WrittenSnapshot,
            batch_size=batch_size,
            file=str(file.resolve()),
            workspace_bytes=workspace_bytes,
            title=title,
            private=private,
            **asdict(setting),
        )

    def ask_one(self, do: str, answer: type[Answer], **arguments: Any) -> Answer:
        """The answer of one process to a request of its worker. Raises WorkerError, RequestRefusedError."""
        [process] = self._running(1)
        self._open(process)
        return self._ask(do, answer, process, **arguments)

    def start(self, count: int) -> None:
        """Starts that many processes, which import while others work; one that is refused is told when it is needed."""
        with suppress(WorkerError, OSError):
            for _ in range(count):
                self._start_one()

    def trace_ahead(self, settings: Sequence[TrainingSetting], processes: int = 1) -> None:
        """Has settings traced while the caller does something else; `predict` waits for it, and tells what failed."""
        with suppress(WorkerError, OSError):
            self._ahead = self._share(self._traces_of(settings), processes)

    def predict(
        self,
        settings: Sequence[TrainingSetting],
        batch_sizes: Sequence[int],
        processes: int = 1,
    ) -> list[MemorySetting]:
        """Entries of `memory_model.settings`, in the order of the settings. Raises WorkerError, RequestRefusedError.

        A setting other than the first that cannot be predicted is left out.
        """
        self._trace(settings, processes)
        return _settings_of(self._share(self._predictions(settings, batch_sizes), processes).answers())

    def predict_with_inference(
        self,
        settings: Sequence[TrainingSetting],
        precision: str,
        batch_sizes: Sequence[int],
        processes: int = 1,
    ) -> tuple[list[MemorySetting], PredictedInference]:
        """The same, and `memory_model.inference` at a precision."""
        self._trace(settings, processes)
        inference: _Request = partial(
            self._ask,
            "predict_inference",
            PredictedInference,
            precision=precision,
            batch_sizes=list(batch_sizes),
        )
        found, *answers = self._share(
            [inference, *self._predictions(settings, batch_sizes)], processes
        ).answers()
        entries = _settings_of(answers)
        if isinstance(found, Exception):
            raise found
        return entries, found

    def _traces_of(self, settings: Sequence[TrainingSetting]) -> list[_Request]:
        return [
            partial(self._ask, "trace", int, batch_size=batch, **asdict(setting))
            for setting in settings
            for batch in traced_batches(setting.is_config)
        ]

    def _trace(self, settings: Sequence[TrainingSetting], processes: int) -> None:
        """Traces first, one at a time and kept on disk, so that two processes share even a single setting."""
        ahead, self._ahead = self._ahead, None
        # What could not be traced is told by the prediction that needs it.
        (ahead or self._share(self._traces_of(settings), processes)).answers()

    def _predictions(self, settings: Sequence[TrainingSetting], batch_sizes: Sequence[int]) -> list[_Request]:
        return [
            partial(self._ask, "predict", MemorySetting, batch_sizes=list(batch_sizes), **asdict(setting))
            for setting in settings
        ]

    def _ask(self, do: str, answer: type[Answer], process: WorkerProcess, **arguments: Any) -> Answer:
        return process.ask(do, answer, self.timeout_s, **arguments)

    def _share(self, requests: Sequence[_Request], processes: int) -> _SharedWork:
        """Has the requests answered by as many processes."""
        running = self._running(max(1, min(processes, len(requests), MAX_PROCESSES)))
        self._last = _SharedWork(requests, running, self._open)
        return self._last

    def _start_one(self) -> None:
        process = WorkerProcess(worker=self.worker)
        self._processes.append(process)
        self._not_opened.append(process)

    def _running(self, count: int) -> list[WorkerProcess]:
        """That many live processes. Started by the main thread: each dies with the thread that started it."""
        if not self.cache and self._traces is None:
            self._traces = tempfile.TemporaryDirectory(prefix="swinmr-traces-", ignore_cleanup_errors=True)
        for _ in range(count - sum(process.alive for process in self._processes)):
            self._start_one()
        return [process for process in self._processes if process.alive][:count]

    def _open(self, process: WorkerProcess) -> None:
        """Tells a process the config, once."""
        if process not in self._not_opened:
            return
        opened = process.ask(
            "open",
            Traced,
            config=self.config.model_dump(mode="json"),
            trust_config=self.trust_config,
            run=self._run,
            traces=None if self._traces is None else self._traces.name,
        )
        self.opened = opened
        self._not_opened.remove(process)

    def kill(self) -> None:
        """Ends all processes at once, from a signal handler."""
        for process in self._processes:
            process.kill()
        self._remove_traces()

    def _remove_traces(self) -> None:
        if self._traces is not None:
            self._traces.cleanup()
            self._traces = None

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        if self._last is not None:
            self._last.answers()  # a thread that still reads must not find its pipe closed
        for process in self._processes:
            process.close()
        self._remove_traces()


def predict_single_step_bytes(
    config: ExperimentConfig, compute_capability: str | None, *, trust_config: bool, timeout_s: float
) -> int:
    """Bytes of device memory of a process that trains this config at batch 1 and validates one of its batches.

    What the allocator reserves, the libraries' workspaces and the CUDA context, as in a profile's
    `batch_profiling["1"].training.process_bytes`. timeout_s: for each trace.

    Raises WorkerError or RequestRefusedError for a network that cannot be traced.
    """
    setting = setting_of(config, PRECISIONS[config.system.mixed_precision])
    with PredictionSession(config, trust_config=trust_config, timeout_s=timeout_s) as session:
        [entry] = session.predict([setting], [1], processes=MAX_PROCESSES)
        assert session.opened is not None
        libraries = workspaces_for(session.opened.torch_version, compute_capability)
    return entry.sizes["1"].reserved_bytes + libraries.process_bytes + libraries.context_bytes
