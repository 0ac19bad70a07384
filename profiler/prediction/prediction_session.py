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
from swinmr_profiling.profiler.isolation.worker_process import (
    Answer,
    RequestRefusedError,
    WorkerError,
    WorkerProcess,
)
from swinmr_profiling.profiler.prediction.server import Traced, WrittenSnapshot
from swinmr_profiling.profiler.prediction.settings import TrainingSetting, traced_batches
from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting, PredictedInference
from swinmr_profiling.profiler.record.failures import Failure

# A process that traces the largest network of the configs takes 0.9 GB: two of them stay under two.
MAX_PROCESSES = 2


class PredictionSession:
    """Predicts settings. Use as a context manager: leaving it leaves no process behind."""

    def __init__(
        self,
        config: ExperimentConfig,
        *,
        trust_config: bool,
        timeout_s: float | None = None,
        cache: bool = True,
    ) -> None:
        """cache: keep traces in the user's cache folder. False: in a folder that ends with the session."""
        self.cache = cache
        self._traces: tempfile.TemporaryDirectory[str] | None = None
        self.config, self.trust_config, self.timeout_s = config, trust_config, timeout_s
        self.opened: Traced | None = None
        # Traces of code that is not this project's are shared within this run only: it may change unseen.
        self._run = uuid.uuid4().hex
        self._processes: list[WorkerProcess] = []
        self._not_opened: list[WorkerProcess] = []

    def predict(
        self, settings: Sequence[TrainingSetting], batch_sizes: Sequence[int], processes: int = 1
    ) -> list[MemorySetting]:
        """Entries of `memory_model.settings`, in the order of the settings. Raises WorkerError, RequestRefusedError.

        A setting other than the first that cannot be predicted is left out.
        """
        # Traces first, one at a time and kept on disk, so that two processes share even a single setting.
        self._share(
            [
                partial(self._ask, "trace", int, batch_size=batch, **asdict(setting))
                for setting in settings
                for batch in traced_batches(setting.is_config)
            ],
            processes,
        )
        sizes = list(batch_sizes)
        answers = self._share(
            [
                partial(self._ask, "predict", MemorySetting, batch_sizes=sizes, **asdict(setting))
                for setting in settings
            ],
            processes,
        )
        if isinstance(answers[0], Exception):
            raise answers[0]
        return [answer for answer in answers if not isinstance(answer, Exception)]

    def _ask(self, do: str, answer: type[Answer], process: WorkerProcess, **arguments: Any) -> Answer:
        return process.ask(do, answer, self.timeout_s, **arguments)

    def _share(self, requests: Sequence[Callable[[WorkerProcess], Answer]], processes: int) -> list[Any]:
        """Answers to the requests, by as many processes; an error stands in the place of its answer."""
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(requests)):
            waiting.put(number)
        answers: list[Any] = [None] * len(requests)

        def work(process: WorkerProcess) -> None:
            with suppress(queue.Empty):
                while True:
                    number = waiting.get_nowait()
                    try:
                        answers[number] = requests[number](process)
                    except (WorkerError, RequestRefusedError, OSError) as error:
                        answers[number] = error
                        if not process.alive:
                            return

        threads = [
            threading.Thread(target=work, args=(process,), daemon=True)
            for process in self._running(max(1, min(processes, len(requests), MAX_PROCESSES)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a join without a timeout would keep signals waiting
                thread.join(0.1)
        for number, answer in enumerate(answers):
            if answer is None:  # every process died before it came to this one
                failed = Failure("crashed", "the predicting process died", True)
                answers[number] = next((a for a in answers if isinstance(a, Exception)), WorkerError(failed))
        return answers

    def predict_inference(self, precision: str, batch_sizes: Sequence[int]) -> PredictedInference:
        """`memory_model.inference`."""
        [process] = self._running(1)
        sizes = list(batch_sizes)
        return self._ask(
            "predict_inference", PredictedInference, process, precision=precision, batch_sizes=sizes
        )

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
        [process] = self._running(1)
        return self._ask(
            "snapshot",
            WrittenSnapshot,
            process,
            batch_size=batch_size,
            file=str(file.resolve()),
            workspace_bytes=workspace_bytes,
            title=title,
            private=private,
            **asdict(setting),
        )

    def start(self, count: int) -> None:
        """Starts that many processes, which import while others work; one that is refused is told when it is needed."""
        with suppress(WorkerError, OSError):
            for _ in range(count):
                self._start_one()

    def _start_one(self) -> None:
        process = WorkerProcess(module="swinmr_profiling.profiler.prediction.server")
        self._processes.append(process)
        self._not_opened.append(process)

    def _running(self, count: int) -> list[WorkerProcess]:
        """That many live processes. Started by the main thread: each dies with the thread that started it."""
        if not self.cache and self._traces is None:
            self._traces = tempfile.TemporaryDirectory(prefix="swinmr-traces-", ignore_cleanup_errors=True)
        traces = None if self._traces is None else self._traces.name
        for _ in range(count - sum(process.alive for process in self._processes)):
            self._start_one()
        running = [process for process in self._processes if process.alive][:count]
        for process in running:
            if process not in self._not_opened:
                continue
            config = self.config.model_dump(mode="json")
            self.opened = process.ask(
                "open",
                Traced,
                config=config,
                trust_config=self.trust_config,
                run=self._run,
                traces=traces,
            )
            self._not_opened.remove(process)
        return running

    def kill(self) -> None:
        """Ends all processes at once, from a signal handler."""
        for process in self._processes:
            process.kill()
        self._remove_traces()

    def _remove_traces(self) -> None:
        if self._traces is not None:
            self._traces.cleanup()
            self._traces = None

    def __enter__(self) -> PredictionSession:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._processes:
            process.close()
        self._remove_traces()
