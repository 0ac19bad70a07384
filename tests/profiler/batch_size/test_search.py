"""The search for a batch size on a device that is made up: bytes are a formula, so every choice is known by hand."""

import json
from dataclasses import dataclass, field

import pytest

from swinmr_profiling.profiler.batch_size.estimate import expected_bytes
from swinmr_profiling.profiler.batch_size.search import LARGEST_BATCH, search_batch
from swinmr_profiling.profiler.record.blocks.recommended import BudgetChange, Reduction
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.record.search_record import (
    MemoryNow,
    MemoryReadError,
    ProbeResult,
    falling_memory,
)

MIB, GIB = 2**20, 2**30
OOM = Failure("OOM", "OutOfMemoryError: CUDA out of memory", needs_new_process=True)
POSSIBLY = Failure("exception", "possibly out of memory: CUDNN_STATUS_ALLOC_FAILED", True, True)
SHAPE = Failure("exception", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")
CONFIGURATION = Failure("unsupported", "RuntimeError: CUDA error: invalid configuration argument")


@dataclass
class Device:
    """24 GiB of which `free` are left; a batch takes 200 MiB + 300 MiB a sample unless `needs` says otherwise."""

    free: int = 20 * GIB
    needs: object = lambda batch: 200 * MIB + batch * 300 * MIB
    failures: dict = field(default_factory=dict)
    free_before_trial: dict = field(default_factory=dict)
    steps: dict = field(default_factory=dict)
    retries: dict = field(default_factory=dict)
    cached: int = 0
    fails_from: tuple = (None, None)
    asked: list = field(default_factory=list)
    reads: int = 0

    def read(self):
        self.reads += 1
        self.free = self.free_before_trial.get(self.reads, self.free)
        return MemoryNow(self.free, self.cached, 24 * GIB)

    def probe(self, batch):
        self.asked.append(batch)
        smallest, failure = self.fails_from
        if smallest is not None and batch >= smallest:
            return ProbeResult(batch, None, 0, failure=failure)
        if batch in self.failures:
            return ProbeResult(batch, None, 0, failure=self.failures[batch])
        needed = self.needs(batch)
        if needed > self.free + self.cached:
            return ProbeResult(batch, None, 0, failure=OOM)
        retries = self.retries.get(batch, 0)
        return ProbeResult(batch, needed, self.steps.get(batch, 3), retries, measurement={"batch": batch})

    def search(self, predict="right", **options):
        predictions = {"right": self.needs, None: None}
        return search_batch(self.probe, predictions.get(predict, predict), self.read, **options)


def verdicts(result):
    return {trial.batch_size: trial.verdict for trial in result.trials}


def test_predict_two_small_sizes_sixty_percent_choose():
    """Usable are 18 GiB of 20: 18,432 = 200 + 300 x 60.77 MiB, so 60. Of 60 % of it, 11,059 MiB: 36."""
    device = Device()
    result = device.search()
    assert device.asked == [1, 2, 36, 60]
    assert (result.outcome, result.batch_size) == ("found", 60)
    assert result.usable_bytes == 18 * GIB
    assert result.steps_run == 12
    assert set(verdicts(result).values()) == {"fits"}
    # Free memory is read anew before each of the trials.
    assert device.reads == 4
    assert set(result.measurements) == {1, 2, 36, 60}


def test_a_prediction_that_is_wrong_is_corrected_by_what_was_measured():
    """Half and twice the truth lead to the same batch, and neither runs out of memory."""
    for factor in (0.5, 2):
        device = Device()
        result = device.search(lambda batch, f=factor, needs=device.needs: int(needs(batch) * f))
        assert result.batch_size == 60
        assert set(verdicts(result).values()) == {"fits"}
        assert len(device.asked) <= 5


def test_without_a_prediction_nothing_unmeasured_is_returned():
    device = Device()
    result = device.search(None)
    assert result.batch_size in device.asked
    assert 57 <= result.batch_size <= 60  # 95 % of 60
    assert all(trial.expected_bytes is None for trial in result.trials[:2])


def test_the_reason_names_the_next_batch_where_that_was_tried():
    device = Device(needs=lambda batch: GIB if batch == 1 else 30 * GIB)
    result = device.search(lambda batch: batch * GIB)
    assert (result.batch_size, result.reason) == (1, "batch 2 does not fit")


def test_out_of_memory_on_the_way_is_survived_and_recorded():
    """The prediction is linear, the truth has a jump at 30 that nothing below it foretells."""

    def needs(batch):
        return 200 * MIB + batch * 300 * MIB + (12 * GIB if batch >= 30 else 0)

    device = Device(needs=needs)
    result = device.search(lambda batch: 200 * MIB + batch * 300 * MIB)
    assert verdicts(result)[36] == "OOM"
    # 29 fits: 8,900 of 18,432 MiB. 95 % of 29 is 27.55.
    assert result.batch_size in (28, 29)
    assert verdicts(result)[result.batch_size] == "fits"
    assert len(device.asked) <= 9
    assert json.loads(json.dumps(result.to_json()))["trials"][2]["verdict"] == "OOM"


@pytest.mark.parametrize("free_gib", [1, 2, 3.3, 5, 7.77, 11, 16, 23, 40, 80, 141])
@pytest.mark.parametrize("error", [0.8, 1.0, 1.25])
def test_at_most_nine_trials_and_at_least_95_percent(free_gib, error):
    """A peak that is a maximum of two regimes, and a prediction off by a fifth."""

    def needs(batch):
        return max(700 * MIB + 11 * MIB * batch, 100 * MIB + 137 * MIB * batch)

    device = Device(free=int(free_gib * GIB), needs=needs)
    result = device.search(lambda batch: int(needs(batch) * error))
    usable = int(free_gib * GIB) - int(int(free_gib * GIB) * 0.1)
    best = max(batch for batch in range(1, 3000) if needs(batch) <= usable)
    assert 0.95 * best <= result.batch_size <= best
    assert result.batch_size in device.asked
    assert len(device.asked) <= 9


def test_retries_of_the_allocator_are_no_fit():
    device = Device(retries={60: 2})
    result = device.search()
    assert verdicts(result)[60] == "too_large"
    assert 57 <= result.batch_size <= 59
    assert "2 times" in next(trial.detail for trial in result.trials if trial.batch_size == 60)


def test_cached_memory_counts_once():
    """4 GiB free and 16 GiB cached by the process itself are 20 GiB, not 4 and not 36."""
    result = Device(free=4 * GIB, cached=16 * GIB).search()
    assert (result.available_bytes, result.batch_size) == (20 * GIB, 60)


def test_another_process_takes_memory_meanwhile():
    """Before the fourth trial 10 GiB are gone: 9 GiB usable are 9,216 MiB, 30 samples; 36 no longer fits."""
    device = Device(free_before_trial={4: 10 * GIB})
    said = []
    result = device.search(on_event=said.append)
    # The trial chosen for 20 GiB runs out of memory, and the search goes on below it.
    assert verdicts(result)[60] == "OOM"
    assert result.budget_changes == [BudgetChange(before_trial=4, from_bytes=20 * GIB, to_bytes=10 * GIB)]
    assert 0.95 * 30 <= result.batch_size <= 30
    assert result.batch_size in device.asked
    assert any("10,240 MiB less memory" in line for line in said)


def test_memory_given_back_meanwhile_is_used():
    device = Device(free=5 * GIB, free_before_trial={4: 20 * GIB})
    result = device.search()
    assert 57 <= result.batch_size <= 60
    assert result.budget_changes[0].to_bytes == 20 * GIB


def test_no_free_memory_at_all():
    device = Device(free=0)
    result = device.search()
    assert (result.outcome, result.batch_size, device.asked) == ("no_free_memory", None, [])


def test_free_memory_that_cannot_be_read_ends_the_search_with_its_reason():
    def read():
        raise MemoryReadError(Failure("killed", "the measuring process ended by SIGKILL"))

    result = search_batch(Device().probe, None, read)
    assert (result.outcome, result.failure.error) == ("failed", "killed")
    assert "SIGKILL" in result.reason


def test_library_failures_are_memory_once_a_smaller_size_ran():
    device = Device(fails_from=(50, POSSIBLY))
    result = device.search()
    assert verdicts(result)[60] == "OOM"
    assert "(batch 36 ran)" in next(trial.detail for trial in result.trials if trial.batch_size == 60)
    assert 47 <= result.batch_size <= 49


def test_a_library_failure_at_batch_1_stays_possibly():
    result = Device(fails_from=(1, POSSIBLY)).search()
    assert (result.outcome, result.batch_size) == ("failed", None)
    assert result.failure.detail.startswith("possibly out of memory")


def test_a_size_beyond_the_prediction_is_not_tried():
    """A prediction that ends (its bytes no longer fit 64 bits) is not an invitation."""

    def predict(batch):
        if batch > 40:
            raise OverflowError
        return 200 * MIB + batch * 300 * MIB

    result = Device().search(predict)
    assert 36 <= result.batch_size <= 40


def test_a_flat_prediction_ends():
    result = Device(free=10**15, needs=lambda batch: 100 * MIB).search()
    assert result.batch_size == LARGEST_BATCH


@pytest.mark.parametrize("size", [3_000_000_000, 0, -1])
def test_requested_sizes(size):
    device = Device()
    if size < 1:
        with pytest.raises(ValueError, match="at least 1"):
            device.search(requested=size)
    else:
        # 200 MiB + 3e9 x 300 MiB is computed as it is and refused: no size was tried that cannot fit.
        result = device.search(requested=size)
        assert result.batch_size == 60
        assert max(device.asked) == 60
        why = "it is not expected to fit"
        assert Reduction(from_batch=size, to_batch=60, reason=why, detail=None) in result.reductions


def test_falling_memory_by_hand():
    assert falling_memory({1: 1000 * MIB, 2: 2000 * MIB}) is None
    # 2 % of 10,000 MiB are 200: cuDNN may choose another algorithm.
    assert falling_memory({4: 10_000 * MIB, 8: 9_810 * MIB}) is None
    text = "memory falls from 10,000 MiB at batch 4 to 9,790 MiB at batch 8"
    assert falling_memory({8: 9_790 * MIB, 4: 10_000 * MIB}) == text
    # Small networks: two segments of 20 MiB.
    assert falling_memory({1: 100 * MIB, 2: 60 * MIB}) is None
    assert falling_memory({1: 100 * MIB, 2: 59 * MIB}) is not None


# The public bug reports, by their numbers in the list of reports.


def test_report_05_the_choice_has_run():
    """Lightning 18426 doubled until it failed and returned a size it had not tried."""
    for free in (3, 6, 11, 20):
        for predict in ("right", None):
            device = Device(free=free * GIB)
            result = device.search(predict)
            assert result.batch_size in device.asked
            assert verdicts(result)[result.batch_size] == "fits"


def test_report_06_a_trial_without_a_step_is_a_failed_measurement():
    """Lightning 13851: later trials ran no training step and fitted splendidly."""
    result = Device(steps={36: 0}).search()
    assert (result.outcome, result.batch_size) == ("failed", None)
    assert result.failure.detail == "failed measurement: 0 training steps ran, and 3 are needed"
    assert [trial.steps_run for trial in result.trials] == [3, 3, 0]
    assert result.steps_run == 6


def test_report_08_beyond_65535_is_unsupported_not_out_of_memory():
    """Lightning 20614. 18 GiB usable at 100 KiB a sample would be 188,743 samples; the kernels take 65,535."""
    device = Device(needs=lambda batch: 1024 * batch * 100, fails_from=(65_536, CONFIGURATION))
    result = device.search()
    assert result.batch_size == 65_535
    assert "OOM" not in verdicts(result).values()
    assert result.unsupported.largest_that_works == 65_535
    assert result.unsupported.batch_size > 65_535
    assert "invalid configuration argument" in result.unsupported.detail
    assert result.reason.endswith("is more than the kernels take")


def test_report_08_a_limit_of_kernels_below_65535_is_found_too():
    device = Device(needs=lambda batch: 1024 * batch * 100, fails_from=(20_000, CONFIGURATION))
    result = device.search()
    assert result.batch_size in device.asked
    assert result.batch_size < 20_000
    assert result.unsupported.largest_that_works == result.batch_size


def test_report_09_every_reduction_is_told_and_none_goes_below_1():
    """Accelerate 1934 and 4226: the batch shrank silently, down to zero."""
    said = []
    device = Device(fails_from=(50, OOM))
    result = device.search(requested=64, on_event=said.append)
    assert (result.requested, result.batch_size) == (64, result.largest_that_ran)
    assert result.batch_size < 50
    steps = [(reduction.from_batch, reduction.to_batch) for reduction in result.reductions]
    assert all(0 < to < start for start, to in steps)
    assert [line for line in said if "reduced to" in line] == [
        f"batch {reduction.from_batch} reduced to {reduction.to_batch}: {reduction.reason}"
        for reduction in result.reductions
    ]
    assert 64 in {start for start, _ in steps}
    assert steps[-1][1] == result.batch_size
    # Where not even 1 fits, nothing is returned, and 0 was never tried.
    nothing = Device(fails_from=(1, OOM))
    result = nothing.search(requested=64)
    assert (result.outcome, result.batch_size, result.requested) == ("nothing_fits", None, 64)
    assert nothing.asked == [1]


def test_report_10_a_shape_error_is_shown_as_itself_and_shrinks_nothing():
    """timm 1226: any RuntimeError made the batch smaller."""
    for size in (1, 2, 36):
        device = Device(failures={size: SHAPE})
        result = device.search()
        assert (result.outcome, result.batch_size) == ("failed", None)
        assert "mat1 and mat2 shapes cannot be multiplied" in result.reason
        assert device.asked[-1] == size
        assert result.reductions == []


def test_memory_that_falls_as_the_batch_grows_is_a_failed_measurement():
    """yolov5 fitted a falling line and advised 253731 (report 2)."""
    result = Device(needs=lambda batch: 4 * GIB - batch * 100 * MIB).search(None)
    assert (result.outcome, result.batch_size) == ("failed", None)
    assert result.failure.detail.startswith("failed measurement: memory falls from 3,996 MiB at batch 1")


def test_an_estimate_is_the_prediction_corrected_by_the_largest_measurement():
    """As little as one byte predicted is a measure, and nothing predicted is none to divide by."""
    assert expected_bytes(4, {1: 100, 2: 150}, lambda batch: 10 * batch) == 40 * 150 // 20
    assert expected_bytes(4, {1: 100}, lambda batch: batch) == 400
    assert expected_bytes(4, {1: 100}, lambda batch: batch - 1) == 300
