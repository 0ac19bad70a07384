"""What a batch needs and which is the largest that fits, by hand from round MiB."""

from fractions import Fraction

import pytest

from swinmr_profiling.profiler.batch_size.budget import Budget, has_bf16
from swinmr_profiling.profiler.batch_size.fit import (
    accumulation_bytes,
    largest_batch,
    lever,
    levers,
    needed_bytes,
    runs,
    source_of,
    training_reserved_bytes,
    validation_needed_bytes,
)
from swinmr_profiling.profiler.record.device_memory import reserved_by_others
from tests import training_profiles as made
from tests.training_profiles import FP32, GIB, MIB, memory_model, size_entry, typed_model, typed_setting


def setting(sizes, **changes):
    return typed_setting(made.setting(sizes, **changes))


def replayed(fixed_mib, per_sample_mib, **changes):
    return typed_setting({**made.replayed(fixed_mib, per_sample_mib), **changes})


def usable(mib, **fields):
    """A budget of so many usable MiB: no headroom, nobody else."""
    return Budget("card", mib * MIB, headroom_share=Fraction(0), **fields)


def test_usable_memory():
    # (24 GiB - 1 GiB) x 0.9 = 24696061952 x 0.9 = 22226455756.8, rounded down.
    budget = Budget("card", 24 * GIB, reserved_elsewhere_bytes=GIB)
    assert budget.usable_bytes == 22_226_455_756
    assert budget.as_block().to_json() == {
        "name": "card",
        "total_bytes": 24 * GIB,
        "reserved_elsewhere_bytes": GIB,
        "headroom_share": 0.1,
        "usable_bytes": 22_226_455_756,
        "context_bytes": 0,
        "workspace_bytes": 0,
    }
    assert Budget("card", GIB, reserved_elsewhere_bytes=2 * GIB).usable_bytes == 0


@pytest.mark.parametrize("fields", [{"headroom_share": Fraction(1)}, {"headroom_share": Fraction(-1, 9)}])
def test_a_headroom_is_a_share(fields):
    with pytest.raises(ValueError, match="headroom"):
        Budget("card", GIB, **fields)


def test_memory_is_never_negative():
    with pytest.raises(ValueError, match="never negative"):
        Budget("card", GIB, context_bytes=-1)


@pytest.mark.parametrize(
    ("capability", "known"),
    [("8.0", True), ("12.0", True), ("7.5", False), ("gfx942", True), (None, None), ("odd", None)],
)
def test_bf16_hardware(capability, known):
    assert has_bf16(capability) is known


def test_a_size_of_the_table_is_taken_as_it_is():
    assert training_reserved_bytes(setting(FP32), 4) == 4160 * MIB


@pytest.mark.parametrize(
    ("batch", "mib"),
    [
        # live 2100 + 1000 = 3100; reserved - live is 40 at 2, 60 at 4.
        (3, 3160),
        # live 4100 + 2 x 1000; 60 at 4, 200 at 8.
        (6, 6300),
    ],
)
def test_between_two_sizes(batch, mib):
    assert training_reserved_bytes(setting(FP32), batch) == mib * MIB


def test_a_third_of_a_byte_is_rounded_up():
    table = {
        size: {**size_entry(1, 1), "live_bytes": live, "reserved_bytes": live}
        for size, live in (("1", 1000), ("4", 2001))
    }
    # 1000 + 1001 / 3 = 1333.67
    odd = typed_setting({**made.setting(FP32), "sizes": table})
    assert training_reserved_bytes(odd, 2) == 1334


def test_beyond_the_table_the_last_slope_goes_on():
    # live 8100 + 8 x 1000 = 16100 MiB; the larger reserved / live of the last two is 8300 / 8100.
    live = 16100 * MIB
    assert training_reserved_bytes(setting(FP32), 16) == -(-live * 8300 // 8100)


def test_a_batch_that_was_not_replayed_is_extrapolated():
    # Even a size of the table: its need is exact, but not that no larger one fits.
    assert [source_of(setting(FP32), batch) for batch in (7, 8, 16)] == ["extrapolated"] * 3
    assert source_of(replayed(100, 1000), 16) == "predicted"


def test_a_table_of_one_size():
    only = setting({4: (400, 440)})
    assert training_reserved_bytes(only, 8) == 880 * MIB
    assert training_reserved_bytes(only, 1) == 440 * MIB  # no less is known


@pytest.mark.parametrize("batch", [0, -1])
def test_there_is_no_batch_below_one(batch):
    with pytest.raises(ValueError, match="at least 1"):
        training_reserved_bytes(setting(FP32), batch)


def test_what_lies_outside_the_prediction_is_added_once():
    budget = usable(9999, context_bytes=500 * MIB, workspace_bytes=17 * MIB)
    # 4160 + 500 + 17; two devices hold 60 MiB of gradient buckets each.
    assert needed_bytes(setting(FP32), 4, budget) == 4677 * MIB
    assert needed_bytes(setting(FP32), 4, budget, devices=2) == 4737 * MIB
    assert needed_bytes(setting(FP32), 4, budget, extra_bytes=50 * MIB) == 4727 * MIB
    assert validation_needed_bytes(setting(FP32), budget) == 817 * MIB


def test_without_validation_training_alone_counts():
    alone = typed_setting({**made.setting(FP32), "validation": None})
    assert validation_needed_bytes(alone, usable(1)) == 0
    assert needed_bytes(alone, 1, usable(1)) == 1120 * MIB


@pytest.mark.parametrize(
    ("mib", "largest"),
    [
        (1119, None),
        (1120, 1),
        (2139, 1),
        (2140, 2),
        (3160, 3),
        (4159, 3),
        (4160, 4),
        (5299, 4),
        (5300, 5),
        (8299, 7),
        (8300, 8),
    ],
)
def test_largest_batch(mib, largest):
    assert largest_batch(setting(FP32), usable(mib)) == largest


def test_one_byte_too_few():
    exact = Budget("card", 4160 * MIB - 1, headroom_share=Fraction(0))
    assert largest_batch(setting(FP32), exact) == 3


def test_batch_1_counts_as_it_was_traced():
    # Synthesised, batch 1 would be alive with 1100 and reserve 1120; from batch 2 on the replay counts.
    for row, mib, largest in ((900, 1000, 1), (900, 899, None), (1500, 1200, None), (1500, 2120, 2)):
        sizes = made.replayed(100, 1000)["sizes"]
        own = replayed(100, 1000, sizes={**sizes, "1": size_entry(row, row)})
        assert largest_batch(own, usable(mib)) == largest
        assert training_reserved_bytes(own, 1) == row * MIB
    assert training_reserved_bytes(replayed(100, 1000), 2) == 2120 * MIB


def test_a_size_of_the_table_fits_though_the_bound_just_below_it_does_not():
    # At 7 the bound is 170 live + 100 overhead = 270; at 8 the replay has 185.
    odd = setting({4: (140, 240), 8: (180, 185)}, validation_mib=1)
    assert training_reserved_bytes(odd, 7) == 270 * MIB
    assert largest_batch(odd, usable(200)) == 8


def test_the_largest_batch_needs_no_more_than_there_is_and_the_next_would():
    for mib in range(1120, 12000, 97):
        budget = usable(mib)
        largest = largest_batch(setting(FP32), budget)
        assert needed_bytes(setting(FP32), largest, budget) <= budget.usable_bytes
        assert needed_bytes(setting(FP32), largest + 1, budget) > budget.usable_bytes


def test_no_batch_beyond_the_largest_grid_of_a_kernel_runs():
    plenty = Budget("card", 10**18)
    assert largest_batch(setting(FP32), plenty) == 65535
    assert runs(setting(FP32), 65535, plenty)
    assert not runs(setting(FP32), 65536, plenty)
    assert not runs(setting(FP32), 5, usable(5299))


def test_levers_of_two_cards():
    # 1120 MiB: fp32 1 (1120); bf16 2 (120 + 2 x 500); checkpointed 10 (120 + 10 x 100).
    model = typed_model(memory_model())
    small, none = levers(model, usable(1120)), levers(model, usable(310))
    assert [(row.precision, row.checkpointing, row.largest_batch, row.source) for row in small] == [
        ("fp32", "none", 1, "predicted"),
        ("bf16", "none", 2, "predicted"),
        ("fp32", "full", 10, "predicted"),
    ]
    assert small[0].needed_bytes == 1120 * MIB
    # Validation takes 300, so that of 310 MiB batch 1 of the checkpointed setting can use all.
    assert [row.largest_batch for row in none] == [None, None, 1]
    assert none[0].needed_bytes == 1120 * MIB  # of batch 1: what is missing can be seen
    assert none[2].needed_bytes == 300 * MIB


def test_a_lever_that_cannot_be_replayed_is_marked():
    row = lever(setting(FP32), usable(9000))
    assert (row.largest_batch, row.source) == (8, "extrapolated")


def test_accumulated_gradients_are_at_most_the_parameters():
    model = typed_model(memory_model())
    own = model.config_setting
    assert accumulation_bytes(model, own, 1) == 0
    assert accumulation_bytes(model, own, 2) == 50 * MIB
    assert accumulation_bytes(typed_model(memory_model(accumulate=4)), own, 8) == 0
    # Allocations that are not affine have no terms: what is trained stands in, which DDP's buckets hold as well.
    assert accumulation_bytes(model, own.model_copy(update={"terms": None}), 2) == 60 * MIB


def test_memory_of_others():
    assert reserved_by_others(24 * GIB, 24 * GIB, 0) == 0
    assert reserved_by_others(24 * GIB, 23 * GIB, 2 * GIB) == 0  # freed between two questions: never negative
    assert size_entry(1, 2)["reserved_bytes"] == 2 * MIB
