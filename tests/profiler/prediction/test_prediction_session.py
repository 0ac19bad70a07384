"""Processes that predict share their work, begin before they are asked, leave nothing behind. None is started here."""

import threading
import time

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.isolation.worker_process import RequestRefusedError, WorkerError
from swinmr_profiling.profiler.prediction import prediction_session
from swinmr_profiling.profiler.prediction.prediction_session import PredictionSession
from swinmr_profiling.profiler.prediction.settings import Traced, TrainingSetting
from swinmr_profiling.profiler.record.failures import Failure
from tests.conftest import TINY_SWINIR

OWN = TrainingSetting("fp32", "none", (32, 32), True)
LEVER = TrainingSetting("bf16", "none", (32, 32))


class Process:
    """A process that answers what it is asked; the class says how."""

    made = None  # every one of them
    refuses = False
    dies_at = None  # the number of a request
    imports = None  # an event that it waits for before it opens

    def __init__(self, worker):
        assert worker == "swinmr_profiling.profiler.prediction.server.PredictionWorker"
        self.alive, self.closed, self.asked, self.reading = True, False, [], False
        self.ended = threading.Event()
        self.made.append(self)

    def ask(self, do, answer, timeout_s=None, **arguments):
        self.reading = True
        try:
            return self._answer(do, arguments)
        finally:
            self.reading = False

    def _answer(self, do, arguments):
        assert not self.closed
        self.asked.append((do, arguments))
        if do == "open":
            while self.imports is not None and not self.imports.wait(0.01):
                if self.ended.is_set():
                    raise WorkerError(Failure("killed", "killed", True))
            if self.refuses:
                raise RequestRefusedError("no such loss")
            return Traced("l1", "2.14")
        if self.dies_at is not None and len(self.asked) > self.dies_at:
            self.alive = False
            raise WorkerError(Failure("crashed", "gone", True))
        if do == "trace":
            return arguments["batch_size"]
        return (do, arguments.get("precision"))

    def kill(self):
        self.alive = False
        self.ended.set()

    def close(self):
        assert not self.reading, "a thread still reads what is closed"
        self.closed = True


@pytest.fixture
def process(monkeypatch):
    class Made(Process):
        pass

    Made.made = []
    monkeypatch.setattr(prediction_session, "WorkerProcess", Made)
    return Made


def session():
    return PredictionSession(config_from_dict({"model": TINY_SWINIR}), trust_config=False)


def traced(process):
    """What was traced: (precision, batch size) of each request, sorted."""
    return sorted(
        (arguments["precision"], arguments["batch_size"])
        for one in process.made
        for do, arguments in one.asked
        if do == "trace"
    )


def test_what_is_traced_ahead_is_traced_once_and_nobody_waits_for_it(process):
    process.imports = threading.Event()
    with session() as made:
        made.start(2)
        made.trace_ahead([OWN, LEVER], 2)  # comes back though no process is ready
        assert traced(process) == []
        process.imports.set()
        entries, inference = made.predict_with_inference([OWN, LEVER], "fp32", [1, 4], 2)
    assert entries == [("predict", "fp32"), ("predict", "bf16")]
    assert inference == ("predict_inference", "fp32")
    # Of the config's own setting 1, 2, 3 and 5, of another 2 and 3.
    assert traced(process) == [("bf16", 2), ("bf16", 3), *(("fp32", batch) for batch in (1, 2, 3, 5))]
    assert len(process.made) == 2
    assert [one.asked[0][0] for one in process.made] == ["open", "open"]
    assert all(one.closed for one in process.made)


def test_without_a_start_ahead_the_same_is_predicted(process):
    with session() as made:
        assert made.predict([OWN], [1], 2) == [("predict", "fp32")]
        assert made.opened == Traced("l1", "2.14")
    assert traced(process) == [("fp32", batch) for batch in (1, 2, 3, 5)]


def test_a_refusal_is_the_error_of_the_prediction(process):
    process.refuses = True
    with session() as made:
        made.trace_ahead([OWN], 2)
        with pytest.raises(RequestRefusedError, match="no such loss"):
            made.predict([OWN], [1], 2)


def test_a_process_that_dies_ahead_is_replaced(process):
    process.dies_at = 1  # at the first trace
    with session() as made:
        made.trace_ahead([OWN], 1)
        made._last.answers()
        process.dies_at = None
        assert made.predict([OWN], [1], 1) == [("predict", "fp32")]
    assert len(process.made) == 2


def test_where_every_process_dies_the_prediction_says_so(process):
    process.dies_at = 1
    with session() as made, pytest.raises(WorkerError, match="gone"):
        made.predict([OWN], [1], 2)


def test_a_signal_ends_every_process_at_once(process):
    with session() as made:
        made.start(2)
        made.predict([OWN], [1], 2)
        made.kill()
        assert [one.alive for one in process.made] == [False, False]


def test_leaving_early_closes_no_pipe_that_is_read(process):
    """Ctrl-C while the processes still import: the threads see their end, and then the pipes are closed."""
    process.imports = threading.Event()

    def interrupted():
        with session() as made:
            made.trace_ahead([OWN], 2)
            while not any(one.reading for one in process.made):
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert all(one.closed and not one.reading for one in process.made)
