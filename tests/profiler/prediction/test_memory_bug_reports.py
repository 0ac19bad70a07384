"""Public bug reports of batch-size tools: what happened there, and that it does not happen here.

Of each report the part that is pure arithmetic on a profile's blocks; the others are with the probes and the step.
"""

import argparse
import io
from fractions import Fraction

import pytest
from pydantic import ValidationError

from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.fit import largest_batch, needed_bytes, runs
from swinmr_profiling.profiler.batch_size.training_recommendation import needs_exit_3, recommend_training
from swinmr_profiling.profiler.record.blocks.batch import Memory
from swinmr_profiling.profiler.record.blocks.training import TrainingRun
from swinmr_profiling.profiler.record.device_memory import reserved_by_others
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.reports.console.training import print_training_recommendation
from swinmr_profiling.profiler.run.options.measuring_options import batch_sizes
from tests.training_profiles import (
    FP32,
    GIB,
    MIB,
    failed,
    measured,
    memory_model,
    setting,
    size_entry,
    typed_model,
    typed_setting,
    typed_training,
)


def budget(mib, is_this_machine=False, **fields):
    return Budget("card", mib * MIB, headroom_share=Fraction(0), is_this_machine=is_this_machine, **fields)


def recommended(model, on, blocks=None, **options):
    ran = typed_training(blocks) if blocks else None
    (entry,) = recommend_training(typed_model(model), [on], measured=ran, **options)
    return entry


def test_report_01_a_batch_beyond_the_largest_that_ran_is_extrapolated_and_not_recommended():
    """Ultralytics' autobatch fitted batches 1 to 16 and advised 281; training ran out of memory."""
    # Live 100 + 10 B MiB, nothing reserved beside it: at 281 exactly 2910.
    table = {batch: (100 + 10 * batch, 100 + 10 * batch) for batch in (1, 2, 4, 8, 16)}
    model = memory_model(settings=[setting(table, is_config=True, validation_mib=50)])
    assert largest_batch(typed_model(model).config_setting, budget(2910)) == 281
    ran = {batch: measured(100 + 10 * batch) for batch in table}

    here = recommended(model, budget(2910, is_this_machine=True), ran)
    assert (here.batch_size, here.largest_batch) == (16, 16)
    assert (here.source, here.verified) == ("measured", True)
    assert "up to 281 may fit (extrapolated from what ran: measure it before using it)" in here.reason
    # Not even to reach a target at once.
    assert recommended(model, budget(2910, is_this_machine=True), ran, target_batch=281).batch_size == 1

    # On a card that is not here nothing can run: the figure is given, under its own label.
    elsewhere = recommended(model, budget(2910), ran)
    assert (elsewhere.batch_size, elsewhere.source, elsewhere.verified) == (
        281,
        "extrapolated",
        False,
    )
    assert "281 fits 2.84 GiB (0 % headroom) as extrapolated from batches 1 to 16" in elsewhere.reason


def test_report_02_memory_that_falls_as_the_batch_grows_is_a_failed_measurement():
    """yolov5 fitted a line through falling memory and advised a batch of 253731."""
    falling = {1: measured(3000), 2: measured(2500), 4: measured(2400)}
    entry = recommended(memory_model(), budget(24000, is_this_machine=True), falling)
    assert (entry.batch_size, entry.largest_batch) == (None, None)
    assert entry.failure == "failed_measurement"
    # 2500 - 40 and 3000 - 40 MiB.
    assert entry.reason == (
        f"the measurement failed: batch 2 took {2460 * MIB:,} bytes, less than the {2960 * MIB:,} of batch 1; "
        "nothing is derived from it: measure again, alone on the GPU"
    )
    assert not needs_exit_3([entry])
    # Equal memory is not a fall: a small batch can be bound by the optimizer step.
    level = {1: measured(3000), 2: measured(3000)}
    assert recommended(memory_model(), budget(24000, is_this_machine=True), level).batch_size == 2


def test_report_03_where_even_batch_1_fails_no_number_is_given():
    """Ultralytics (PR 25739): batch 1 was out of memory, and the tool returned its default of 16."""
    here = budget(8000, is_this_machine=True)
    entry = recommended(memory_model(), here, {1: failed(), 2: failed()})
    assert (entry.batch_size, entry.global_batch, entry.accumulate) == (None, None, None)
    assert entry.reason.startswith("nothing fits: batch 1 was out of memory (CUDA out of memory); fits with ")
    assert "full checkpointing" in entry.reason
    assert needs_exit_3([entry])
    # Predicted alone, the same.
    alone = recommended(memory_model(), budget(1119))
    assert alone.batch_size is None
    assert needs_exit_3([alone])


def test_report_04_reserved_memory_is_counted_once():
    """Ultralytics (PR 25500) computed free memory as total - (reserved + allocated)."""
    # A 24 GiB card: another process holds 1, this one has reserved 3, of which 1.5 are allocated; 20 are free.
    others = reserved_by_others(24 * GIB, 20 * GIB, 3 * GIB)
    assert others == 1 * GIB
    # Usable is what is free and what this process holds already, 23 GiB; counted twice it would be 24 - 4.5 - 1.
    assert Budget("card", 24 * GIB, others, headroom_share=Fraction(0)).usable_bytes == 23 * GIB
    # Nor is what torch has allocated added to what it has reserved in what a batch needs: 2140, not 2140 + 2101.
    assert needed_bytes(typed_setting(setting(FP32)), 2, budget(9000)) == 2140 * MIB


@pytest.mark.slow
def test_report_09_a_reduction_is_said_and_never_reaches_zero():
    """Accelerate (1934, 4226) halved the batch in silence, down to zero."""
    entry = recommended(memory_model(), budget(6300), target_batch=64)
    # What was asked for and what is used are both there, and their product is what was asked for.
    assert entry.target_batch == 64
    assert entry.batch_size * entry.accumulate * entry.devices == entry.global_batch == 64
    assert "6 per device would do too, but does not divide 64" in entry.reason
    for target in range(1, 200):
        entry = recommended(memory_model(), budget(1200), target_batch=target)
        assert (entry.batch_size, entry.global_batch) == (1, target)
    assert recommended(memory_model(), budget(0)).batch_size is None


def test_report_13_sizes_are_integers_without_an_end():
    """nnU-Net (23): a product overflowed 32 bits, and the batch became negative."""
    batch = 3_000_000_000
    need = needed_bytes(typed_setting(setting(FP32)), batch, budget(24000))
    # Beyond the table: live 8100 + 1000 (batch - 8) MiB, times 8300 / 8100, rounded up.
    live = (8100 + 1000 * (batch - 8)) * MIB
    assert need == -(-live * 8300 // 8100)
    assert type(need) is int
    assert need > 2**64 // 8
    assert not runs(typed_setting(setting(FP32)), batch, budget(24000))
    with pytest.raises(argparse.ArgumentTypeError, match="3000000000"):
        batch_sizes("3000000000")
    # As a target it is reached exactly, by whole numbers.
    entry = recommended(memory_model(), budget(6300), target_batch=batch)
    assert (entry.batch_size, entry.accumulate) == (6, 500_000_000)
    # Replayed, too: each segment in whole 2 MiB, 20 + 100 + 1000 B.
    assert (
        needed_bytes(typed_model(memory_model()).config_setting, batch, budget(24000))
        == (120 + 1000 * batch) * MIB
    )


def test_report_14_inference_and_training_never_share_a_label():
    """torchinfo (144) showed a forward-only 130 MB where training took 4,044 MB."""
    # Inference of 8 takes 100 MiB here, training of 1 takes 1120: with 1000 MiB nothing can be trained.
    model = memory_model()
    assert model["inference"]["sizes"]["8"]["reserved_bytes"] == 100 * MIB
    assert recommended(model, budget(1000)).batch_size is None
    # And whatever inference takes, training's answer stays.
    dear = memory_model(inference={"sizes": {"1": size_entry(90000, 90000)}})
    assert recommended(dear, budget(6300)) == recommended(model, budget(6300))
    # A training block is not accepted where an inference block belongs, nor the other way round.
    assert TrainingRun.model_validate(measured(1200)).source == "measured"
    with pytest.raises(ValidationError):
        Memory.model_validate(measured(1200))
    stream = io.StringIO()
    print_training_recommendation(Console(stream), typed_model(model), [recommended(model, budget(6300))])
    assert "Training batch size:" in stream.getvalue()
    assert "nference" not in stream.getvalue()


def test_report_15_out_of_memory_at_batch_1_is_known_before_the_run_with_the_ways_out():
    """KAIR (177), SwinIR (90): out of memory at batch 1 on a card of 32 GB."""
    whole = {1: (33 * 1024, 34 * 1024)}
    model = memory_model(
        settings=[
            setting(whole, patch=None, is_config=True),
            setting({1: (17 * 1024, 18 * 1024)}, patch=None, precision="bf16"),
            setting({1: (4 * 1024, 5 * 1024)}, patch=None, checkpointing="full"),
            setting(FP32, patch=(96, 96)),
        ]
    )
    entry = recommended(model, budget(32 * 1024))
    assert (entry.batch_size, entry.failure) == (None, "nothing_fits")
    assert entry.reason.startswith("nothing fits: batch 1 needs 34.00 GiB of 32.00 GiB usable; fits with ")
    # One change each: the patch gives most, 8300 MiB for 8 and on by (8100 + 1000 n) x 8300 / 8100 <= 32768: n = 23.
    # Checkpointing gives 6 at 5 GiB each, bf16 one.
    assert "fp32, no checkpointing, 96x96 (up to batch 31)" in entry.reason
    assert "fp32, full checkpointing, whole image (up to batch 6)" in entry.reason
    assert "bf16, no checkpointing, whole image (up to batch 1)" in entry.reason


def test_report_17_validation_is_a_second_budget_and_the_smaller_answer_wins():
    """image-restoration-sde (13): trained, and ran out of memory in evaluation."""
    model = memory_model(settings=[setting(FP32, is_config=True, validation_mib=7000)])
    # Training of 4 takes 4160 MiB, but a validation takes 7000 whatever the batch.
    assert recommended(model, budget(6999)).batch_size is None
    assert "validation of 1x1x256x256 needs 6.84 GiB of 6.83 GiB usable (training at batch 1: 1.09 GiB)" in (
        recommended(model, budget(6999)).reason
    )
    # 6 needs 6300 and 7 needs 7300: with 7000 it is validation that decides what is needed, and 6 that fits.
    entry = recommended(model, budget(7000))
    assert (entry.batch_size, entry.needed_bytes) == (6, 7000 * MIB)
    # Measured: training alone would fit.
    heavy = {"input_shape": [1, 1, 512, 512], "allocated_bytes": 5000 * MIB, "reserved_bytes": 5000 * MIB}
    blocks = {1: measured(1200, validation=heavy, process_bytes=None)}
    here = recommended(memory_model(), budget(5000, is_this_machine=True), blocks)
    assert here.batch_size is None  # 5000 + 20 of context
    here = recommended(memory_model(), budget(5020, is_this_machine=True), blocks)
    assert here.batch_size == 1
