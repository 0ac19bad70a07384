"""The batch size that is recommended for inference, by hand from throughputs."""

from swinmr_profiling.profiler.batch_size.inference_recommendation import recommend_inference
from swinmr_profiling.profiler.record.blocks.batch import FailedBatch, MeasuredBatch
from tests import made_profiles


def blocks(throughputs, failed=(), cuda=True, **timing):
    """batch_profiling of sizes with these images per second; the failed ones have an error instead."""
    found = {}
    for size, rate in throughputs.items():
        block = made_profiles.ran(size, [size * 1000 / rate], cuda=cuda)
        block["timing"] |= timing
        block["timing"]["images_per_second"] = rate
        block["memory"]["peak_bytes"] = size * 1000
        found[str(size)] = MeasuredBatch.model_validate(block)
    return {**found, **{str(size): FailedBatch.model_validate(made_profiles.failed(size)) for size in failed}}


def test_the_smallest_size_at_the_knee():
    # 3 % below 100 are 97: batch 4 is within, batch 2 is not.
    got = recommend_inference(blocks({1: 50, 2: 96.9, 4: 97.5, 8: 100, 16: 99}))
    assert got.batch_size == 4
    assert got.images_per_second == 97.5
    assert got.latency_ms == 4 * 1000 / 97.5
    assert got.peak_bytes == 4000
    assert got.reason == "the smallest size within 3 % of the best throughput (2.5% below batch 8)"
    assert (got.source, got.verified) == ("measured", True)


def test_exactly_three_percent_below_is_within():
    assert recommend_inference(blocks({1: 97.0, 2: 100.0})).batch_size == 1
    assert recommend_inference(blocks({1: 96.99, 2: 100.0})).batch_size == 2


def test_the_fastest_is_recommended_where_nothing_smaller_comes_near():
    got = recommend_inference(blocks({1: 10, 4: 40, 8: 70}, failed=[16]))
    assert got.batch_size == 8
    assert got.reason == "the highest throughput of the sizes that ran (1, 4, 8)"


def test_on_a_cpu_that_is_busy_with_one_image_one_is_enough():
    assert recommend_inference(blocks({1: 5.0, 2: 5.1, 4: 4.9}, cuda=False)).batch_size == 1


def test_one_run_each_on_a_cpu_is_no_ranking():
    """0.23, 0.22 and 0.24 images/s of one run each were called "batch 8, the highest throughput"."""
    got = recommend_inference(blocks({1: 0.23, 4: 0.22, 8: 0.24}, cuda=False))
    assert got.batch_size == 1
    assert got.reason == "the smallest of the sizes whose throughput cannot be told apart here (1, 4, 8)"


def test_beyond_what_two_processes_differ_by_a_size_is_slower():
    # 0.20 x 1.15 = 0.23 is below 0.24, 0.21 x 1.15 = 0.2415 is not.
    got = recommend_inference(blocks({1: 0.20, 4: 0.21, 8: 0.24}, cuda=False))
    assert got.batch_size == 4
    assert "(4, 8)" in got.reason


def test_intervals_that_overlap_do_not_rank():
    found = blocks({1: 10.0, 2: 11.0, 4: 12.0}, cuda=False)
    # Images a second: 1 to 9.8..10.2; 2 to 10.5..11.9; 4 to 11.5..12.5: of 2 and 4 they overlap.
    for size, (low, high) in {"1": (9.8, 10.2), "2": (10.5, 11.9), "4": (11.5, 12.5)}.items():
        timing = found[size].timing
        timing.num_processes = 3
        timing.ci95_median_ms = [int(size) * 1000 / high, int(size) * 1000 / low]
    got = recommend_inference(found)
    assert got.batch_size == 2
    assert got.reason == "the smallest of the sizes whose throughput cannot be told apart here (2, 4)"
    found["4"].timing.ci95_median_ms = [4 * 1000 / 12.5, 4 * 1000 / 11.95]
    assert recommend_inference(found).reason == "the highest throughput of the sizes that ran (1, 2, 4)"


def test_a_busy_machine_is_said_there():
    got = recommend_inference(blocks({1: 10, 4: 40}), busy=True)
    assert got.batch_size == 4
    assert got.reason.endswith("(1, 4); the machine was busy, so measure again when it is quiet")


def test_sizes_are_numbers_not_text():
    # As text "16" sorts before "2".
    got = recommend_inference(blocks({16: 1, 2: 1, 8: 2}, failed=[4]))
    assert got.reason == "the highest throughput of the sizes that ran (2, 8, 16)"
    assert recommend_inference(blocks({16: 100, 2: 100})).batch_size == 2


def test_what_did_not_run_is_never_recommended():
    assert recommend_inference(blocks({1: 10}, failed=[2, 4])).batch_size == 1
    assert recommend_inference(blocks({}, failed=[1, 2])) is None
    assert recommend_inference({}) is None


def test_it_speaks_of_inference():
    got = recommend_inference(blocks({1: 10}))
    assert got.purpose == "inference only: training needs many times this memory"
