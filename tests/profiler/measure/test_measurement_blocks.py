"""The JSON blocks of a batch size, by hand from a measurement made up for it."""

import json
from dataclasses import asdict

import pytest
from pydantic import ValidationError

from swinmr_profiling.profiler.measure.measurement import BatchMeasurement
from swinmr_profiling.profiler.measure.measurement_blocks import (
    MIB,
    TIMING_WORDS,
    batch_block,
    measurement_warnings,
    memory_block,
    timing_block,
)
from swinmr_profiling.profiler.measure.timing.latency import LatencySamples
from swinmr_profiling.profiler.measure.timing.timing_statistics import TimingWarning
from swinmr_profiling.profiler.record.blocks.batch import Timing


def measurement(samples_ms=(10.0, 30.0, 20.0), batch_size=4, runs_by_process=(), **changes):
    fields = {
        "batch_size": batch_size,
        "input_shape": [batch_size, 1, 256, 256],
        "latency": LatencySamples(
            list(samples_ms), [50.0, 12.0], "requested", ["a note"], runs_by_process=list(runs_by_process)
        ),
        "before_bytes": 100 * MIB,
        "after_bytes": 110 * MIB,
        "peak_bytes": 160 * MIB + 1,
        "cold_peak_bytes": 160 * MIB + 1,
        "warm_peak_bytes": 160 * MIB,
        "reserved_peak_bytes": 256 * MIB,
        "memory_kind": "torch's CUDA allocator",
        "memory_is_exact": True,
        "first_nonfinite_module": None,
        **changes,
    }
    return BatchMeasurement(**fields)


def codes(raw, device_kind="cuda"):
    return [warning.code for warning in measurement_warnings(raw, device_kind)]


def test_timing_by_hand():
    got = timing_block(measurement(), "cuda")
    expected = {
        "mean_ms": 20.0,
        "std_ms": 10.0,
        "min_ms": 10.0,
        "max_ms": 30.0,
        "median_ms": 20.0,
        # 4 images in 20 ms.
        "fps": 200.0,
        "images_per_second": 200.0,
    }
    assert {key: getattr(got, key) for key in expected} == pytest.approx(expected)
    # Three runs have no quartile, let alone a percentile.
    assert [getattr(got, name) for name in ("iqr_ms", "p90_ms", "p95_ms", "p99_ms")] == [None] * 4
    assert got.ci95_median_ms is None
    assert got.ci95_half_width_share is None
    assert (got.num_runs, got.warmup_runs) == (3, 2)
    assert (got.source, got.input_shape) == ("measured", [4, 1, 256, 256])
    assert (got.stop_reason, got.notes) == ("requested", ["a note"])


def test_one_run_has_a_time_and_no_spread():
    got = timing_block(measurement([7.0]), "cpu")
    unknown = ("std_ms", "iqr_ms", "p90_ms", "p95_ms", "p99_ms", "ci95_median_ms", "ci95_half_width_share")
    assert [getattr(got, name) for name in unknown] == [None] * 7
    assert [getattr(got, name) for name in ("mean_ms", "median_ms", "min_ms", "max_ms")] == [7.0] * 4


def test_raw_samples_are_kept_in_the_order_they_ran():
    got = timing_block(measurement(), "cpu")
    assert got.samples_ms == [10.0, 30.0, 20.0]
    assert got.warmup_ms == [50.0, 12.0]


def test_what_one_run_cannot_say_is_null():
    got = json.loads(json.dumps(timing_block(measurement([10.0]), "cpu").to_json(), allow_nan=False))
    assert [got[key] for key in ("num_runs", "std_ms", "ci95_median_ms", "median_ms")] == [
        1,
        None,
        None,
        10.0,
    ]


def test_the_interval_is_a_list_with_its_share_and_its_target():
    got = timing_block(measurement([9.0, 10.0, 10.0, 11.0, 12.0, 13.0]), "cuda")
    assert got.ci95_median_ms == [9.0, 13.0]
    assert got.ci95_half_width_share == pytest.approx(2 / 10.5)
    assert got.ci95_target_half_width_share == 0.01
    assert timing_block(measurement(), "cpu").ci95_target_half_width_share == 0.02


def test_memory_by_hand():
    got = memory_block(measurement())
    assert (got.before_mb, got.after_mb, got.peak_reserved_mb) == (100.0, 110.0, 256.0)
    # MiB, not 10^6 bytes, and the exact bytes beside them.
    assert got.peak_mb == 160 + 1 / MIB
    assert got.peak_bytes == 160 * MIB + 1
    assert got.activation_bytes == 60 * MIB + 1
    assert got.activation_mb == got.activation_bytes / MIB
    assert got.num_runs == 5
    assert got.kind == "torch's CUDA allocator"


def resident(before, after, peak):
    """Memory of a process, MiB."""
    figures = {"before_bytes": before, "after_bytes": after, "peak_bytes": peak}
    return measurement(**{name: int(mib * MIB) for name, mib in figures.items()}, memory_is_exact=False)


@pytest.mark.parametrize(
    ("before", "after", "peak", "activation", "noise", "within"),
    [
        # Code of libraries stayed: 23 of the 33 MiB over the start are not the forward's, and 10 less than 23.
        (695, 718, 728, 10, 23, True),
        # The next size starts where that one ended: nothing is left behind but half a MiB.
        (718, 718.5, 731.5, 13, 0.5, False),
        # The process gave memory back: the peak is held against what was in use when it began.
        (700, 690, 712, 12, 10, False),
        (700, 690, 705, 5, 10, True),
        # Exactly as large as the noise is not to be told from it; nor is nothing from nothing.
        (700, 704, 708, 4, 4, True),
        (700, 700, 700, 0, 0, True),
        (700, 700, 701, 1, 0, False),
    ],
)
def test_the_noise_of_resident_memory_by_hand(before, after, peak, activation, noise, within):
    got = memory_block(resident(before, after, peak))
    assert got.activation_bytes == activation * MIB
    assert got.activation_mb == activation
    assert got.noise_bytes == noise * MIB
    assert got.activation_within_noise is within


def test_an_allocator_s_own_counters_have_no_noise():
    """What stays after a forward on a GPU is the network's own: a cached mask, counted as it ever was."""
    got = memory_block(measurement())
    assert (got.after_mb, got.activation_bytes) == (110.0, 60 * MIB + 1)
    assert (got.noise_bytes, got.activation_within_noise) == (0, False)
    unused = memory_block(measurement(before_bytes=0, after_bytes=0, peak_bytes=0))
    assert (unused.activation_bytes, unused.activation_within_noise) == (0, False)


def test_a_cpu_reserves_nothing():
    got = memory_block(measurement(reserved_peak_bytes=None))
    assert got.peak_reserved_mb is None
    assert got.peak_reserved_bytes is None


def test_a_batch_block_holds_both():
    raw = measurement()
    got = batch_block(raw, "cuda")
    assert got.timing == timing_block(raw, "cuda")
    assert got.memory == memory_block(raw)
    assert (got.source, got.batch_size, got.num_runs) == ("measured", 4, 3)


def test_a_quiet_measurement_warns_of_nothing():
    assert codes(measurement([10.0] * 50)) == []


def test_each_timing_fault_has_words_and_a_code():
    assert set(TIMING_WORDS) == set(TimingWarning)
    (warning,) = measurement_warnings(measurement([10.0, 12.0] * 25), "cpu")
    assert asdict(warning) == {
        "code": "timing_two_modes",
        "message": "batch 4: the runs fall into two groups: clocks that switch, or other work every few runs",
        "batch_size": 4,
    }


@pytest.mark.parametrize(("cold_mib", "warned"), [(110, False), (111, True)])
def test_a_cold_peak_a_tenth_above_the_warm_one(cold_mib, warned):
    raw = measurement([10.0], cold_peak_bytes=cold_mib * MIB, warm_peak_bytes=100 * MIB)
    assert codes(raw) == (["memory_cold_spike"] if warned else [])
    # Resident memory of a CPU's first run holds what was loaded, not workspaces.
    assert codes(raw, "cpu") == []


def test_a_nan_names_its_module():
    (warning,) = measurement_warnings(measurement([10.0], first_nonfinite_module="layers.3.norm"), "cpu")
    assert warning.code == "nonfinite_output"
    assert warning.message.endswith("made first by module layers.3.norm")


def in_three_processes(*series, **changes):
    samples = [sample for one in series for sample in one]
    return measurement(samples, runs_by_process=[len(one) for one in series], **changes)


def test_several_processes_are_told_apart_and_widen_the_interval():
    got = timing_block(in_three_processes([99.0, 100.0, 101.0], [110.0] * 3, [90.0] * 3), "cpu")
    assert (got.num_processes, got.runs_by_process, got.num_runs) == (3, [3, 3, 3], 9)
    # 100 ± 4.303 x 10 / sqrt(3), half of it over the median of 100.
    assert got.ci95_median_ms == pytest.approx([75.157, 124.843], abs=1e-3)
    assert got.ci95_half_width_share == pytest.approx(0.24843, abs=1e-5)


def test_one_process_says_so():
    got = timing_block(measurement(), "cpu")
    assert (got.num_processes, got.runs_by_process) == (1, [3])


def test_a_joint_between_processes_is_no_drift():
    levels = [[100.0] * 20, [107.0] * 20, [114.0] * 20]
    assert codes(in_three_processes(*levels), "cpu") == ["timing_processes_differ"]
    assert codes(measurement([sample for one in levels for sample in one]), "cpu") == ["timing_drift"]


def test_the_record_takes_three_processes_of_one_run_each():
    block = timing_block(in_three_processes([190.0], [200.0], [210.0]), "cpu").to_json()
    block["stop_reason"] = "time_budget"
    assert Timing.model_validate(block).num_processes == 3
    # One process of three runs has no interval, and three processes have one.
    for wrong in ({"num_processes": 1}, {"ci95_median_ms": None}):
        with pytest.raises(ValidationError, match="ci95_median_ms"):
            Timing.model_validate({**block, **wrong})
