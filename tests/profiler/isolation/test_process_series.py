"""Several measuring processes for one size, with a session whose answers are scripted."""

import pytest

from swinmr_profiling.profiler.isolation.measuring_session import combine, measure_in_processes, shared_notes
from swinmr_profiling.profiler.isolation.worker_process import Progress, RequestRefusedError, WorkerError
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement
from swinmr_profiling.profiler.measure.timing.latency import LatencyPolicy, LatencySamples
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.run.interruption import Interrupted

POLICY = LatencyPolicy(time_budget_s=2, processes=3)
KILLED = WorkerError(Failure("killed", "the measuring process ended by SIGKILL", True))
OOM = WorkerError(Failure("OOM", "DefaultCPUAllocator: can't allocate memory", True))


def part(samples_ms, further=0, stop_reason="precise", notes=(), before=100, peak=200, culprit=None):
    return BatchMeasurement(
        batch_size=2,
        input_shape=[2, 1, 8, 8],
        latency=LatencySamples(list(samples_ms), [samples_ms[0] * 2], stop_reason, list(notes), further),
        before_bytes=before,
        after_bytes=before + 1,
        peak_bytes=peak,
        cold_peak_bytes=peak,
        warm_peak_bytes=peak - 1,
        reserved_peak_bytes=None,
        memory_kind="resident",
        memory_is_exact=False,
        first_nonfinite_module=culprit,
        attention="blocked",
    )


class Session:
    """Answers one measurement or failure after another, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def measure(self, batch_size, policy, expected_ms, on_progress):
        self.asked.append((batch_size, policy, expected_ms))
        on_progress(Progress(1))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self):
        self.asked.append("renew")


def test_a_slow_size_stays_in_its_process():
    only = part([2300.0])
    session, parts = Session(only), []
    assert measure_in_processes(session, 2, POLICY, 5.0, on_part=parts.append) is only
    assert (session.asked, parts) == ([(2, POLICY, 5.0)], [])


def test_a_short_size_is_measured_in_three_each_new_and_with_its_share():
    session = Session(part([1.0, 2.0], further=2), part([3.0]), part([4.0, 5.0, 6.0]))
    got = measure_in_processes(session, 2, POLICY, 5.0)
    share = POLICY.share()
    assert session.asked == [(2, POLICY, 5.0), "renew", (2, share, None), "renew", (2, share, None)]
    assert got.latency == LatencySamples(
        samples_ms=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        runs_by_process=[2, 1, 3],
        warmup_ms=[2.0, 6.0, 8.0],
        stop_reason="precise",
    )
    assert got.latency.series == [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]
    assert (got.batch_size, got.input_shape, got.attention) == (2, [2, 1, 8, 8], "blocked")


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (KILLED, "killed: the measuring process ended by SIGKILL"),
        (OOM, "OOM: DefaultCPUAllocator: can't allocate memory"),
    ],
)
@pytest.mark.parametrize("finished", [1, 2])
def test_a_failure_of_a_later_process_keeps_the_earlier_ones(failure, words, finished):
    session = Session(*[part([1.0], further=2), part([2.0])][:finished], failure)
    got = measure_in_processes(session, 2, POLICY, None)
    assert got.latency.samples_ms == [1.0, 2.0][:finished]
    assert got.latency.notes == [f"{finished} of 3 processes: the next one failed ({words})"]
    # No third attempt, and nothing is left of the failed one for the next size.
    assert session.asked[-1] == "renew"
    assert session.answers == []


def test_a_process_that_is_refused_ends_no_run():
    session = Session(part([1.0], further=2), RequestRefusedError("no module own_network"))
    got = measure_in_processes(session, 2, POLICY, None)
    assert got.latency.notes == ["1 of 3 processes: the next one was refused: no module own_network"]


def test_a_failure_of_the_first_process_is_that_of_the_size():
    with pytest.raises(WorkerError, match="SIGKILL"):
        measure_in_processes(Session(KILLED), 2, POLICY, None)


def test_an_interruption_leaves_what_the_finished_processes_gave():
    session, parts = Session(part([1.0], further=2), part([2.0]), Interrupted("interrupted by SIGINT")), []
    with pytest.raises(Interrupted):
        measure_in_processes(session, 2, POLICY, None, on_part=parts.append)
    assert [one.latency.samples_ms for one in parts] == [[1.0], [1.0, 2.0]]
    assert parts[-1].latency.notes == ["2 of 3 processes: the run ended before the others"]


def test_memory_is_that_of_the_process_with_the_highest_peak():
    parts = [part([1.0], before=150, peak=200), part([1.0], before=100, peak=210), part([1.0], before=90)]
    got = combine(parts, 3, POLICY, None)
    # Never 210 - 150 nor 210 - 90, which no process used.
    assert (got.before_bytes, got.after_bytes, got.peak_bytes) == (100, 101, 210)
    assert (got.cold_peak_bytes, got.warm_peak_bytes) == (210, 209)


def test_a_nan_of_any_process_is_named():
    parts = [part([1.0]), part([1.0], culprit="norm"), part([1.0])]
    assert combine(parts, 3, POLICY, None).first_nonfinite_module == "norm"


@pytest.mark.parametrize(
    ("reasons", "whole"),
    [
        (["precise", "precise"], "precise"),
        (["precise", "max_runs"], "max_runs"),
        (["max_runs", "time_budget"], "time_budget"),
    ],
)
def test_the_weakest_reason_to_stop_is_that_of_all(reasons, whole):
    assert (
        combine([part([1.0], stop_reason=reason) for reason in reasons], 2, POLICY, None).latency.stop_reason
        == whole
    )


def test_few_runs_are_said_of_all_processes_together():
    parts = [part([1.0] * 16, stop_reason="time_budget") for _ in range(3)]
    note = "48 of 50 runs: the time budget of 2 s ended (--time-budget, --num-runs)"
    assert combine(parts, 3, POLICY, None).latency.notes == [note]
    parts[0] = part([1.0] * 18, stop_reason="time_budget")
    assert combine(parts, 3, POLICY, None).latency.notes == []


def test_notes_are_said_once_and_of_whom():
    assert shared_notes([["a", "b"], ["a"], ["a", "c", "b"]]) == ["a", "process 1, 3: b", "process 3: c"]
    assert shared_notes([[], []]) == []
