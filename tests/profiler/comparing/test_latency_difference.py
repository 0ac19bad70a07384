"""When a difference in latency is one."""

import random

import pytest

from swinmr_profiling.profiler.comparing.latency_difference import Verdict, compare_latency
from swinmr_profiling.profiler.record.files.reading import LoadedProfile
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.views.view import view_of
from tests.made_profiles import profile, ran


def size(samples, runs_by_process=None):
    made = Profile.model_validate(profile({1: ran(1, samples, runs_by_process)}))
    return view_of(LoadedProfile("p.json", made, 1)).size(1).timing


def around(centre, count=10):
    """Distinct values within 1 % of the centre."""
    return [centre * (1 + 0.001 * number) for number in range(-count // 2, count // 2)]


@pytest.mark.parametrize(
    ("first", "other", "on_cpu", "expected"),
    [
        (around(100), around(100), False, Verdict.SAME),
        (around(100), around(102), False, Verdict.SLOWER),
        (around(102), around(100), False, Verdict.FASTER),
        # On a CPU one process each: 2 % and 14 % are within what two processes differ by, 20 % is not.
        (around(100), around(102), True, Verdict.ONE_PROCESS),
        (around(100), around(114), True, Verdict.ONE_PROCESS),
        (around(100), around(120), True, Verdict.SLOWER),
        (around(120), around(100), True, Verdict.FASTER),
        # 3 against 3 runs: p = 0.1 at best, 2 in 20 orders.
        (around(100, 3), around(900, 3), False, Verdict.TOO_FEW),
        (around(100, 4), around(900, 4), False, Verdict.SLOWER),  # 2 in 70
        ([100.0], [900.0], True, Verdict.TOO_FEW),
    ],
)
def test_verdicts(first, other, on_cpu, expected):
    found = compare_latency(size(first), size(other), on_cpu=on_cpu)
    assert found.verdict is expected
    assert found.verdict.undecided == (expected is Verdict.TOO_FEW)


def test_processes_that_differ_among_themselves_hide_a_small_difference():
    """Medians 100, 104, 108 against 104, 108, 112: ranks differ, and the processes' own spread is larger."""
    first = [*around(100), *around(104), *around(108)]
    other = [*around(104), *around(108), *around(112)]
    split = [10, 10, 10]
    pooled = compare_latency(size(first), size(other), on_cpu=False)
    assert pooled.p_value < 0.05
    found = compare_latency(size(first, split), size(other, split), on_cpu=True)
    # Logarithms of the medians: distance 0.038, deviation 0.038, error 0.038 sqrt(2/3) = 0.031, times 2.776 = 0.086.
    assert found.verdict is Verdict.BETWEEN_PROCESSES
    # 12 % instead of 4: 0.113 > 0.086.
    far = [*around(112), *around(116.5), *around(121)]
    assert compare_latency(size(first, split), size(far, split), on_cpu=True).verdict is Verdict.SLOWER


def test_a_disturbed_machine_may_be_the_reason():
    fast, slow = size(around(100)), size(around(150))
    assert compare_latency(fast, slow, on_cpu=True, disturbed=(False, True)).verdict is Verdict.DISTURBED
    assert compare_latency(slow, fast, on_cpu=True, disturbed=(True, False)).verdict is Verdict.DISTURBED
    # The one that is faster although it was disturbed is faster.
    assert compare_latency(slow, fast, on_cpu=True, disturbed=(False, True)).verdict is Verdict.FASTER


def test_runs_of_one_network_are_not_called_different():
    """Processes 4 % apart (deviation), runs 1 %: ranks alone call nearly all pairs different, the verdict few."""
    generator = random.Random(3)

    def measured():
        samples = []
        for _ in range(3):
            centre = 100 * (1 + generator.gauss(0, 0.04))
            samples += [centre * (1 + abs(generator.gauss(0, 0.01))) for _ in range(17)]
        return size(samples, [17, 17, 17])

    found = [compare_latency(measured(), measured(), on_cpu=True) for _ in range(200)]
    by_ranks = sum(one.p_value < 0.05 for one in found)
    called = sum(one.verdict in (Verdict.FASTER, Verdict.SLOWER) for one in found)
    assert by_ranks > 100
    assert called <= 20  # 5 % of 200 are 10, three deviations more are 19
