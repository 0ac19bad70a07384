"""The sweep over batch sizes, with a session whose answers are scripted."""

from dataclasses import replace

import pytest

from swinmr_profiling.profiler.isolation.worker_process import Progress, WorkerError
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement
from swinmr_profiling.profiler.measure.timing.latency import LatencyPolicy, LatencySamples
from swinmr_profiling.profiler.record.blocks.batch import Expected, MeasuredBatch
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.run.steps.sweep import MIB, Ran, Sweep, expect
from tests import made_profiles

OOM = Failure("OOM", "CUDA out of memory", needs_new_process=True)
KILLED = Failure("killed", "the measuring process ended by SIGKILL", needs_new_process=True)
EXCEPTION = Failure("exception", "ValueError: shape")
UNSUPPORTED = Failure("unsupported", "invalid configuration argument")
POSSIBLY = Failure("exception", "possibly out of memory: cuDNN", True, possibly_memory=True)


def measured(batch_size, samples_ms=(10.0,), before_bytes=100 * MIB, peak_bytes=200 * MIB, further=0):
    return BatchMeasurement(
        batch_size=batch_size,
        input_shape=[batch_size, 1, 8, 8],
        latency=LatencySamples(list(samples_ms), [], "precise", further_processes=further),
        before_bytes=before_bytes,
        after_bytes=before_bytes,
        peak_bytes=peak_bytes,
        cold_peak_bytes=peak_bytes,
        warm_peak_bytes=peak_bytes,
        reserved_peak_bytes=None,
        memory_kind="torch's CUDA allocator",
        memory_is_exact=True,
        first_nonfinite_module=None,
    )


def expected(latency_ms, activation_bytes, from_batch):
    return Expected(
        source="extrapolated", latency_ms=latency_ms, activation_bytes=activation_bytes, from_batch=from_batch
    )


class Session:
    """Answers each batch size with its measurement or failure, and keeps what it was asked."""

    def __init__(self, failures=None, ms_per_image=10.0):
        self.failures = failures or {}
        self.ms_per_image = ms_per_image
        self.asked = []

    def measure(self, batch_size, policy, expected_ms, on_progress):
        self.asked.append((batch_size, expected_ms))
        on_progress(Progress(1))
        if batch_size in self.failures:
            raise WorkerError(self.failures[batch_size], traceback="Traceback ...")
        return measured(
            batch_size, [self.ms_per_image * batch_size], peak_bytes=100 * MIB + batch_size * 50 * MIB
        )

    @property
    def sizes(self):
        return [size for size, _ in self.asked]


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def sweep(session, **options):
    defaults = dict(on_cpu=False, limit_s=None, available=lambda: 0)
    return Sweep(session, LatencyPolicy(), **{**defaults, **options})


def run(session, sizes=(1, 2, 4, 8), **options):
    """batch size -> "measured" or the kind of failure, and the results."""
    under_test = sweep(session, **options)
    results = {size: under_test.measure(size) for size in sizes}
    kinds = {size: r.failure.error if r.failure else "measured" for size, r in results.items()}
    return kinds, results


def test_all_sizes_are_measured_where_nothing_fails():
    session = Session()
    kinds, results = run(session)
    assert set(kinds.values()) == {"measured"}
    assert session.sizes == [1, 2, 4, 8]
    assert all(result.measurement.batch_size == size for size, result in results.items())


def test_after_out_of_memory_larger_sizes_are_skipped_unasked():
    session = Session({4: OOM})
    kinds, results = run(session, (1, 4, 8, 16))
    assert kinds == {1: "measured", 4: "OOM", 8: "skipped", 16: "skipped"}
    assert session.sizes == [1, 4]
    assert results[8].failure.detail == "batch 4 was out of memory"
    assert results[4].traceback == "Traceback ..."


@pytest.mark.parametrize("failure", [KILLED, EXCEPTION, UNSUPPORTED])
def test_after_any_other_failure_the_sweep_goes_on(failure):
    session = Session({4: failure})
    kinds, results = run(session, (1, 4, 8))
    assert kinds == {1: "measured", 4: failure.error, 8: "measured"}
    assert results[4].failure == failure
    # What is expected of 8 comes from 1, the last that ran.
    assert results[8].expectation.from_batch == 1


def test_a_library_failure_is_memory_only_after_a_smaller_size_ran():
    kinds, results = run(Session({4: POSSIBLY}), (1, 4, 8))
    assert kinds == {1: "measured", 4: "OOM", 8: "skipped"}
    assert results[4].failure.detail == "possibly out of memory: cuDNN (batch 1 ran)"

    kinds, _ = run(Session({1: POSSIBLY, 2: POSSIBLY}), (1, 2, 4))
    assert kinds == {1: "exception", 2: "exception", 4: "measured"}


def test_a_larger_size_that_ran_confirms_nothing():
    kinds, _ = run(Session({1: POSSIBLY}), (2, 1))
    assert kinds == {2: "measured", 1: "exception"}


def test_expectations_by_hand():
    # Median of an even number of samples: (30 + 50) / 2 = 40 ms at batch 4, so 80 at batch 8;
    # activation 260 - 100 = 160 MiB at batch 4, so 320 at batch 8.
    under_test = sweep(Session())
    under_test.session.measure = lambda size, *_: measured(
        size, [90.0, 50.0, 30.0, 10.0], peak_bytes=260 * MIB
    )
    under_test.measure(4)
    assert expect(8, under_test.largest) == expected(80.0, 320 * MIB, 4)
    # Three halves of it at batch 6.
    assert expect(6, under_test.largest) == expected(60.0, 240 * MIB, 4)
    assert list(expect(8, under_test.largest).to_json().items()) == [
        ("source", "extrapolated"),
        ("from_batch", 4),
        ("latency_ms", 80.0),
        ("activation_bytes", 320 * MIB),
    ]
    assert expect(8, None) is None


def test_what_a_process_keeps_is_not_expected_of_a_larger_batch():
    # Of the 90 MiB over the start 60 stayed, code of libraries: 30 were the forward's, so 60 of twice the batch.
    base = measured(1, before_bytes=300 * MIB, peak_bytes=390 * MIB)
    base = replace(base, after_bytes=360 * MIB, memory_is_exact=False)
    under_test = sweep(Session())
    under_test.session.measure = lambda *_: base
    under_test.measure(1)
    assert expect(2, under_test.largest).activation_bytes == 60 * MIB


def test_each_size_is_told_what_it_should_take():
    session = Session(ms_per_image=10.0)
    run(session, (1, 2, 8))
    assert session.asked == [(1, None), (2, 20.0), (8, 80.0)]


def test_the_largest_measured_size_is_the_base():
    under_test = sweep(Session())
    under_test.note(Ran(8, 800.0, 100 * MIB))
    under_test.note(Ran(2, 10.0, 100 * MIB))
    assert under_test.measure(16).expectation.from_batch == 8


def test_a_resumed_measurement_is_a_base_and_confirms_memory():
    under_test = sweep(Session({4: POSSIBLY}))
    batch = MeasuredBatch.model_validate(made_profiles.ran(2, [10.0, 30.0]))
    under_test.note_block(batch)
    # 20 ms; twenty of the 520 MiB are activations.
    assert under_test.largest == Ran(2, 20.0, 20 * MIB)
    assert under_test.measure(4).failure.error == "OOM"


def test_the_default_sweep_on_a_cpu_ends_at_its_limit():
    # 30 s an image: 16 images would take 480 s. Each size's clock stands still; only the expectation counts.
    session = Session(ms_per_image=30_000)
    kinds, results = run(
        session, (1, 2, 4, 8), on_cpu=True, limit_s=120, clock=Clock(), available=lambda: 2**40
    )
    # 4 images take 120 s: not past the limit. 8 take 240.
    assert kinds == {1: "measured", 2: "measured", 4: "measured", 8: "skipped"}
    detail = results[8].failure.detail
    assert detail == (
        "one run would take about 240 s and the default sweep on a CPU past 2 minutes: "
        "--batch-sizes 8 measures it"
    )
    assert results[8].expectation.latency_ms == 240_000


def test_time_that_has_passed_counts_against_the_limit():
    clock, session = Clock(), Session(ms_per_image=1000)
    under_test = sweep(session, on_cpu=True, limit_s=120, clock=clock, available=lambda: 2**40)
    assert under_test.measure(1).failure is None
    clock.now += 119
    assert under_test.measure(2).failure.error == "skipped"
    clock.now -= 1
    assert under_test.measure(2).failure is None


def test_the_first_size_is_measured_whatever_the_time():
    clock = Clock()
    under_test = sweep(Session(), on_cpu=True, limit_s=120, clock=clock)
    clock.now += 1000
    assert under_test.measure(1).failure is None


def test_sizes_the_user_named_have_no_limit():
    session = Session(ms_per_image=3_600_000)
    kinds, _ = run(session, (1, 8), on_cpu=True, limit_s=None, available=lambda: 2**40)
    assert kinds == {1: "measured", 8: "measured"}


def test_a_size_that_host_memory_cannot_hold_is_skipped_unasked():
    # 50 MiB an image by the session: batch 8 needs 400.
    session = Session()
    kinds, results = run(session, (1, 4, 8), on_cpu=True, available=lambda: 399 * MIB)
    assert kinds == {1: "measured", 4: "measured", 8: "skipped"}
    assert session.sizes == [1, 4]
    assert results[8].failure.detail == (
        "expected to need 400 MiB more by batch 4, and 399 MiB of host memory are available"
    )
    kinds, _ = run(Session(), (1, 4, 8), on_cpu=True, available=lambda: 400 * MIB)
    assert kinds[8] == "measured"


def test_memory_is_asked_for_before_each_size():
    left = iter([10_000 * MIB, 10 * MIB, 10_000 * MIB])
    kinds, _ = run(Session(), (1, 2, 4, 8), on_cpu=True, available=lambda: next(left))
    # Nothing is known before the first size; the second is asked for first.
    assert kinds == {1: "measured", 2: "measured", 4: "skipped", 8: "measured"}


def test_host_memory_says_nothing_about_a_gpu():
    kinds, _ = run(Session(), (1, 8), on_cpu=False, available=lambda: 0)
    assert kinds[8] == "measured"


def test_the_start_is_announced_only_for_sizes_that_run():
    started, events = [], []
    under_test = sweep(Session({2: OOM}))
    for size in (1, 2, 4):
        under_test.measure(size, on_start=started.append, on_progress=events.append)
    assert started == [None, expected(20.0, 100 * MIB, 1)]
    assert events == [Progress(1), Progress(1)]


def test_what_the_first_processes_measured_is_given_before_the_last_one_does():
    class ThreeProcesses(Session):
        def measure(self, batch_size, policy, expected_ms, on_progress):
            found = super().measure(batch_size, policy, expected_ms, on_progress)
            return replace(found, latency=replace(found.latency, further_processes=policy.processes - 1))

        def close(self):
            self.asked.append("renew")

    session, parts = ThreeProcesses(), []
    under_test = Sweep(
        session, LatencyPolicy(processes=3), on_cpu=True, limit_s=None, available=lambda: 2**40
    )
    under_test.measure(1)
    result = under_test.measure(2, on_part=parts.append)
    assert [part.measurement.latency.runs_by_process for part in parts] == [[1], [1, 1]]
    # Each knows what was expected of it, as the whole does.
    assert [part.expectation for part in [*parts, result]] == [expected(10.0 * 2, 50 * MIB * 2, 1)] * 3
    assert result.measurement.latency.runs_by_process == [1, 1, 1]
    assert session.asked[5:] == [(2, 20.0), "renew", (2, None), "renew", (2, None)]
