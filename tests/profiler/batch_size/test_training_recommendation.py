"""The batch size to train with, by hand from hand-made blocks."""

import json
from fractions import Fraction

import jsonschema
import pytest
from pydantic import ValidationError

from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.fit import share_per_device, split_share
from swinmr_profiling.profiler.batch_size.training_recommendation import (
    TargetBatchError,
    needs_exit_3,
    recommend_training,
)
from tests.conftest import REPOSITORY
from tests.training_profiles import (
    FP32,
    MIB,
    failed,
    measured,
    memory_model,
    profile,
    replayed,
    setting,
    size_entry,
    typed_model,
    typed_training,
)


def usable(mib, **fields):
    return Budget("card", mib * MIB, headroom_share=Fraction(0), **fields)


def here(mib):
    return usable(mib, is_this_machine=True)


def recommended(model, budgets, blocks=None, **options):
    """The blocks of `recommendation.training`, as they stand in a file."""
    measured = None if blocks is None else typed_training(blocks)
    found = recommend_training(typed_model(model), budgets, measured=measured, **options)
    return [entry.to_json() for entry in found]


def one(budget, blocks=None, model=None, **options):
    """The one recommendation for one budget, held against the schema."""
    model = memory_model() if model is None else model
    found = recommended(model or None, [budget], blocks, **options)
    whole = profile(model=model or None, blocks=blocks, recommendation={"inference": None, "training": found})
    schema = json.loads((REPOSITORY / "profiler/record/profile.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(whole, allow_nan=False)))
    (entry,) = found
    return entry


def chosen(entry):
    return entry["batch_size"], entry["accumulate"], entry["global_batch"]


def test_the_largest_predicted_batch():
    entry = one(usable(6300))
    assert chosen(entry) == (6, 1, 6)
    assert (entry["precision"], entry["checkpointing"], entry["patch_size"]) == ("fp32", "none", [96, 96])
    assert (entry["source"], entry["verified"], entry["failure"]) == ("predicted", False, None)
    assert entry["needed_bytes"] == 6120 * MIB
    # 7120 MiB are 6.953 GiB.
    assert entry["reason"] == (
        "6 fits 6.15 GiB (0 % headroom), none of 7 to 22 fits: 7 would need 6.95 GiB; "
        "predicted, not yet verified on a GPU"
    )
    # 120 + 12 x 500 and 120 + 61 x 100 MiB.
    assert [row["largest_batch"] for row in entry["levers"]] == [6, 12, 61]


def test_what_was_not_replayed_is_no_plain_prediction():
    """A profile of an earlier version, and a network whose allocations are not affine."""
    old, odd = memory_model(), memory_model()
    table = setting(FP32, is_config=True)
    old["settings"][0] = table
    odd["settings"][0] = {**table, "not_aligned_because": "batch 2 and batch 3 do not run the same operators"}
    # At 6: live 6100, and the larger of 60 and 200 at 4 and 8.
    entry = one(usable(6300), model=old)
    assert (entry["batch_size"], entry["source"], entry["verified"]) == (6, "extrapolated", False)
    assert entry["reason"] == (
        "6 fits 6.15 GiB (0 % headroom) as interpolated from batches 1 to 8, which can be off by a few (the profile "
        "keeps no allocations to replay; run scripts/profile_model.py again): try it first"
    )
    entry = one(usable(9900), model=odd)
    assert (entry["batch_size"], entry["source"]) == (9, "extrapolated")
    assert "as extrapolated from batches 1 to 8" in entry["reason"]
    assert "(batch 2 and batch 3 do not run the same operators): try it first" in entry["reason"]


def test_the_configs_own_accumulation_stays_without_a_target():
    assert chosen(one(usable(6300), model=memory_model(accumulate=4), devices=1)) == (6, 4, 24)
    # Two devices hold 60 MiB of buckets each: 6 needs 6180.
    assert chosen(one(usable(6179), model=memory_model(accumulate=4), devices=2)) == (5, 4, 40)
    assert chosen(one(usable(6180), model=memory_model(accumulate=4), devices=2)) == (6, 4, 48)


def test_a_target_batch_by_accumulation():
    # 6 fit; with 50 MiB of accumulated gradients 5 do; the largest divisor of 64 up to 5 is 4.
    entry = one(usable(6150), target_batch=64)
    assert chosen(entry) == (4, 16, 64)
    assert entry["largest_batch"] == 6
    assert entry["needed_bytes"] == (4120 + 50) * MIB
    assert "4 per device x 16 accumulated x 1 device = 64 global" in entry["reason"]
    assert "(5 per device would do too, but does not divide 64)" in entry["reason"]


def test_a_target_over_two_devices():
    # 32 a device: 120 + 5 x 1000 + 60 (buckets) + 50 (gradients) = 5230 fits, 6 would; 4 divides 32.
    entry = one(usable(6300), target_batch=64, devices=2)
    assert chosen(entry) == (4, 8, 64)
    assert entry["devices"] == 2
    assert "x 2 devices = 64 global" in entry["reason"]


def test_a_target_that_fits_at_once_is_not_exceeded():
    assert chosen(one(usable(6300), target_batch=3)) == (3, 1, 3)
    assert chosen(one(usable(6300), target_batch=6)) == (6, 1, 6)  # no accumulation, so no gradients to add


def test_a_target_that_nothing_divides_goes_one_by_one():
    assert chosen(one(usable(6300), target_batch=61)) == (1, 61, 61)


@pytest.mark.parametrize(("target", "devices"), [(64, 3), (1, 2), (0, 1), (-4, 1)])
def test_impossible_targets(target, devices):
    with pytest.raises(TargetBatchError):
        recommended(memory_model(), [usable(6300)], target_batch=target, devices=devices)


def test_impossible_targets_name_the_possible():
    with pytest.raises(TargetBatchError, match="64 is not a multiple of 3 devices: 63 or 66 would be"):
        share_per_device(64, 3)
    with pytest.raises(TargetBatchError, match=": 2 would be"):
        share_per_device(1, 2)


def test_accumulated_gradients_can_be_what_does_not_fit():
    # Batch 1 needs 1120; with accumulation 1170, 1.143 GiB.
    entry = one(usable(1150), target_batch=2)
    assert (entry["batch_size"], entry["failure"]) == (None, "nothing_fits")
    assert (
        "batch 1 needs 1.14 GiB of 1.12 GiB usable with the gradients that accumulation keeps;"
        in (entry["reason"])
    )


def test_the_divisor_of_a_target_fits_by_its_own_replay():
    # Batches 1 to 3 reserve 4, 12 and 8 GiB by their rows: 2 divides 4, and does not fit.
    hump = replayed(100, 1000, is_config=True)
    hump["affine_from_batch"] = 4
    hump["sizes"] = {str(batch): size_entry(1000, mib) for batch, mib in ((1, 1120), (2, 9000), (3, 3120))}
    model = memory_model(settings=[hump])
    assert chosen(one(usable(5000), model=model)) == (4, 1, 4)
    assert chosen(one(usable(5000), model=model, target_batch=6)) == (3, 2, 6)
    assert chosen(one(usable(5000), model=model, target_batch=10)) == (1, 10, 10)


def test_splits():
    assert split_share(64, range(5, 0, -1)) == (4, 16)
    assert split_share(12, range(100, 0, -1)) == (12, 1)
    assert split_share(12, [8, 3, 2]) == (3, 4)
    assert split_share(12, [8, 5]) is None
    assert split_share(12, range(12, 0, -1), lambda batch: batch < 6) == (4, 3)
    assert split_share(3_000_000_000, range(65535, 0, -1)) == (64000, 46875)  # 2^9 5^3 x 3 5^6


def test_nothing_fits_names_the_levers_that_would_fit():
    entry = one(usable(700))
    assert chosen(entry) == (None, None, None)
    assert (entry["largest_batch"], entry["verified"], entry["failure"]) == (None, False, "nothing_fits")
    assert entry["needed_bytes"] == 1120 * MIB
    # Both change one thing: the larger batch first (checkpointed: 5 takes 620, 6 takes 720; bf16: 620, 1120).
    assert entry["reason"] == (
        "nothing fits: batch 1 needs 1.09 GiB of 0.68 GiB usable; fits with fp32, full checkpointing, 96x96 "
        "(up to batch 5); or bf16, no checkpointing, 96x96 (up to batch 1)"
    )


def test_bf16_is_named_with_its_price_where_the_card_has_none():
    assert "bf16 emulated there and slow" in one(usable(700, bf16_hardware=False))["reason"]
    assert "emulated" not in one(usable(700, bf16_hardware=True))["reason"]


def test_one_setting_of_a_memory_model_is_the_configs():
    for number, first in ((0, False), (2, True)):
        model = memory_model()
        model["settings"][0]["is_config"] = model["settings"][1]["is_config"] = first
        with pytest.raises(ValueError, match="not one setting that is the config's"):
            typed_model(model)
        assert sum(setting["is_config"] for setting in model["settings"]) == number


def test_where_no_lever_helps_the_memory_that_would_is_named():
    # The cheapest takes 300 MiB (its validation). At 10 % headroom and 100 MiB elsewhere: 300 / 0.9 + 100 = 433.3 MiB.
    tight = Budget("card", 200 * MIB, reserved_elsewhere_bytes=100 * MIB)
    (entry,) = recommend_training(typed_model(memory_model()), [tight])
    assert "none of the 3 settings fits: it takes a GPU with 0.42 GiB" in entry.reason
    assert needs_exit_3([entry])


def test_exit_3_only_where_no_budget_fits():
    small, large = recommend_training(typed_model(memory_model()), [usable(700), usable(6300)])
    assert needs_exit_3([small, small])
    assert not needs_exit_3([small, large])
    assert not needs_exit_3([])


def test_no_more_than_a_kernel_is_launched_with():
    entry = one(Budget("card", 10**18))
    assert entry["batch_size"] == 65535
    assert entry["reason"].startswith("65535 fits ")
    assert "the largest batch a kernel is launched with" in entry["reason"]
    assert entry["source"] == "predicted"


def test_on_the_measured_gpu_what_ran_is_recommended():
    entry = one(here(5000), {1: measured(1200), 2: measured(2300), 4: measured(4500)})
    assert chosen(entry) == (4, 1, 4)
    assert (entry["source"], entry["verified"], entry["needed_bytes"]) == ("measured", True, 4500 * MIB)
    # 120 + 4 x 1000 are predicted, and 5 would not fit.
    assert entry["reason"] == "the largest batch that ran within the budget"


def test_measured_beyond_the_budget_is_not_recommended():
    assert chosen(one(here(4499), {1: measured(1200), 2: measured(2300), 4: measured(4500)})) == (2, 1, 2)


def test_a_batch_that_fitted_only_by_retries_does_not_fit():
    assert chosen(one(here(5000), {2: measured(2300), 4: measured(4500, retries=1)})) == (2, 1, 2)


def test_the_context_counts_where_the_driver_tells_nothing_of_the_process():
    # Reserved 4480, context 600: 5080 of 5000.
    silent = measured(4500, process_bytes=None, context_bytes=600 * MIB)
    assert chosen(one(here(5000), {2: measured(2300), 4: silent})) == (2, 1, 2)


def test_the_knee_of_training_throughput():
    # 97 % of 20 are 19.4.
    rates = {1: measured(1200, 10.0), 2: measured(2300, 19.4), 4: measured(4500, 20.0)}
    entry = one(here(5000), rates)
    assert chosen(entry) == (2, 1, 2)
    assert entry["largest_batch"] == 4
    assert entry["reason"].startswith(
        "the smallest batch within 3 % of the best training throughput; 4 fits too"
    )
    rates[2] = measured(2300, 19.3)
    assert chosen(one(here(5000), rates)) == (4, 1, 4)


def test_a_knee_needs_two_throughputs():
    assert chosen(one(here(5000), {2: measured(2300, 19.9), 4: measured(4500)})) == (4, 1, 4)


def test_time_of_an_epoch_and_of_100000_steps():
    # 8 samples a step at 20 a second: 0.4 s; 1000 samples: 50 s.
    entry = one(here(5000), {4: measured(4500, 20.0)}, target_batch=8, training_samples=1000)
    assert chosen(entry) == (4, 2, 8)
    assert entry["time"] == {
        "source": "measured",
        "images_per_second_per_device": 20.0,
        "optimizer_step_ms": 400.0,
        "seconds_per_100000_steps": 40000.0,
        "training_samples": 1000,
        "seconds_per_epoch": 50.0,
    }
    # The measured step did not accumulate: this batch ran, this step did not.
    assert entry["verified"] is False


def test_time_from_the_median_step_where_no_rate_is_given():
    # Batch 4 in 200 ms (the median of 190, 200, 900): 20 a second.
    entry = one(here(5000), {4: measured(4500, step_ms=[190.0, 900.0, 200.0])})
    assert entry["time"]["images_per_second_per_device"] == 20.0
    assert entry["time"]["seconds_per_epoch"] is None


def test_no_time_without_a_measurement():
    assert one(usable(6300), training_samples=1000)["time"] is None
    assert one(here(5000), {4: measured(4500)})["time"] is None


def test_a_divisor_that_ran_is_taken_on_the_measured_gpu():
    blocks = {1: measured(1200), 3: measured(3400), 4: measured(4500)}
    assert chosen(one(here(5000), blocks, target_batch=9)) == (3, 3, 9)


def test_a_divisor_that_has_not_run_is_named_not_recommended():
    entry = one(here(5000), {3: measured(3400), 4: measured(4500)}, target_batch=10)
    assert (entry["batch_size"], entry["failure"]) == (None, "not_run")
    assert "2 would: measure it with --batch-sizes 2" in entry["reason"]


def test_what_accumulation_keeps_is_added_to_what_ran_without():
    # 50 MiB of gradients: 4 ran in 4500, and 4550 are more than there is.
    blocks = {1: measured(1200), 2: measured(2300), 4: measured(4500)}
    assert chosen(one(here(4549), blocks, target_batch=8)) == (2, 4, 8)
    assert chosen(one(here(4550), blocks, target_batch=8)) == (4, 2, 8)
    assert chosen(one(here(4549), blocks, target_batch=4)) == (4, 1, 4)


def test_only_larger_sizes_were_tried():
    entry = one(here(5000), {8: failed()})
    assert (entry["batch_size"], entry["failure"]) == (None, "not_run")
    assert (
        "no measured batch (8) fits; 4 may, but has not run: measure it with --batch-sizes 4"
        in entry["reason"]
    )


def test_a_bug_at_batch_one_is_no_want_of_memory():
    entry = one(here(5000), {1: failed("exception", "RuntimeError: shape mismatch")})
    assert entry["failure"] == "failed_measurement"
    assert "batch 1 failed, not for memory (exception: RuntimeError: shape mismatch)" in entry["reason"]


def test_exit_3_is_for_memory_alone():
    (not_run,) = recommend_training(
        typed_model(memory_model()), [here(5000)], measured=typed_training({8: failed()})
    )
    assert not_run.failure == "not_run"
    assert not needs_exit_3([not_run])


def test_a_series_of_another_setting_alone_is_no_measurement():
    """Measured in bf16, and the config is fp32 now: the prediction answers."""
    entry = one(here(6300), {2: measured(2300, precision="bf16")})
    assert (entry["batch_size"], entry["source"]) == (6, "predicted")


def test_a_step_that_did_not_run_is_no_measurement():
    with pytest.raises(ValidationError, match="num_runs and steps_run are 0 exactly where nothing ran"):
        typed_training({4: measured(4500, steps_run=0)})


def test_unsupported_is_not_taken_for_memory():
    entry = one(here(5000), {2: measured(2300), 4: failed("unsupported", "invalid configuration argument")})
    assert entry["batch_size"] == 2
    assert "batch 4 is unsupported by a kernel, which is not a question of memory" in entry["reason"]


def test_measured_steps_of_another_setting_do_not_count():
    blocks = {2: measured(2300), 8: measured(4000, precision="bf16")}
    assert chosen(one(here(5000), blocks)) == (2, 1, 2)


def test_another_gpu_is_answered_by_the_prediction():
    entry = one(usable(6300), {2: measured(2300)})
    assert (entry["batch_size"], entry["source"], entry["verified"]) == (6, "predicted", False)


def test_what_cannot_be_traced_is_answered_from_what_was_measured():
    entry = one(usable(5000), {1: measured(1200), 4: measured(4500)}, model={})
    assert (entry["batch_size"], entry["source"], entry["verified"]) == (4, "measured", False)
    assert entry["levers"] == []


def test_nothing_known_is_an_error():
    with pytest.raises(ValueError, match="neither"):
        recommend_training(None, [usable(1)])
    with pytest.raises(ValueError, match="devices 0"):
        recommended(memory_model(), [usable(1)], devices=0)


def test_it_changes_nothing_it_is_given():
    model, blocks = typed_model(memory_model()), typed_training({1: measured(1200)})
    before = model.to_json(), blocks[1].to_json()
    recommend_training(model, [here(5000), usable(700)], target_batch=64, measured=blocks)
    assert (model.to_json(), blocks[1].to_json()) == before
