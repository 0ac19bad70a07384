"""The batch size that is recommended for inference, by hand from throughputs."""

from swinmr_profiling.profiler.batch_size.inference_recommendation import recommend_inference
from swinmr_profiling.profiler.record.blocks.batch import FailedBatch, MeasuredBatch
from tests import made_profiles


def blocks(throughputs, failed=()):
    """batch_profiling of sizes with these images per second; the failed ones have an error instead."""
    found = {}
    for size, rate in throughputs.items():
        block = made_profiles.ran(size, [size * 1000 / rate])
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
    assert recommend_inference(blocks({1: 5.0, 2: 5.1, 4: 4.9})).batch_size == 1


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
