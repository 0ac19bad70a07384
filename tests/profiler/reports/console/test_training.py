"""The training recommendation on the terminal: every figure with its label, within 80 columns."""

import io
from fractions import Fraction

import pytest

from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.training_recommendation import recommend_training
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.reports.console.training import interval_lines, print_training_recommendation
from tests.training_profiles import FP32, MIB, measured, memory_model, setting, typed_model, typed_training


def printed(budgets, model=None, verbose=False, width=80, **options):
    model = memory_model() if model is None else model
    stream = io.StringIO()
    typed = typed_model(model or None)
    print_training_recommendation(
        Console(stream, width, verbose=verbose), typed, recommend_training(typed, budgets, **options)
    )
    return stream.getvalue()


def card(mib, name="card", **fields):
    return Budget(name, mib * MIB, headroom_share=Fraction(0), **fields)


def test_one_card():
    text = printed([card(6300, context_bytes=512 * MIB, workspace_bytes=256 * MIB)])
    # 6300 - 768 = 5532 leave room for 5 (5120), needing 5888 MiB = 5.75 GiB.
    assert text.splitlines() == [
        "",
        "Training batch size:",
        "",
        "  card: 6.15 GiB in all, 0 % headroom: 6.15 GiB usable",
        "    ✓ batch 5 per device (predicted, not verified)",
        "      global batch 5: 5 per device x 1 accumulated x 1 device(s)",
        # -5 % and +5 % of all of it, for a profile that keeps no interval of its own.
        "      needs 5.75 GiB (5.46 to 6.04); largest batch: 5",
        "      setting: fp32, checkpointing none, patch 96x96",
        "",
        "Predicted largest batch per device (* the config's own setting, ~ extrapolated):",
        "  precision  checkpoint  patch  card",
        "  fp32*      none        96x96     5",
        "  bf16       none        96x96    10",
        "  fp32       full        96x96    54",
        "",
        "  Prediction for torch 2.14.1 and adam: predicted, not yet verified on a GPU.",
    ]


def test_a_verbose_report_says_what_it_assumes():
    text = printed([card(6300, context_bytes=512 * MIB, workspace_bytes=256 * MIB)], verbose=True)
    words = " ".join(text.split())
    assert (
        "card: 6.15 GiB in all, 0 % headroom: 6.15 GiB usable (of which context 0.50 GiB, workspaces 0.25 GiB)"
        in words
    )
    assert "reason: 5 fits" in words
    assert "Intervals of the prediction: live bytes -1 % to +1 %, reserved bytes -2 % to +3 %." in words
    assert "Assumes: every truth value asked of the data was true." in text
    # The long list is for --verbose and the JSON.
    assert "workspaces of cuBLAS" not in text


def test_the_interval_of_a_network_says_what_it_rests_on():
    basis = {
        "precision": "fp16",
        "layers": "workspace",
        "operator": "cudnn.forward",
        "workspace_share": 0.4,
        "cudnn_benchmark": False,
        "shares": {"allocated": [-0.4, 0.006], "reserved": [-0.42, 0.056]},
        "coverage": 0.95,
        "untested": ["cuFFT's plans (not in the prediction)"],
    }
    model = memory_model()
    model["settings"][0]["rests_on"] = basis
    interval, untested = interval_lines(typed_model(model))
    assert interval == (
        "Interval, from what the peak rests on (a convolution's workspace): allocated bytes -40 % to +0.6 %, "
        "reserved bytes -42 % to +5.6 %; 95 % of public GPU records of inference (allocated bytes) lie inside theirs."
    )
    assert untested == "Untested on a GPU at this peak: cuFFT's plans (not in the prediction)."
    basis["untested"] = []
    basis["evidence"] = "6 of 9 lie inside"
    assert interval_lines(typed_model(model))[0].endswith("+5.6 %; 6 of 9 lie inside.")
    # Files of earlier versions have none.
    basis["evidence"] = basis["coverage"] = None
    [line] = interval_lines(typed_model(model))
    assert line.endswith("+5.6 %; how many GPUs lie inside is not known.")


def test_the_table_of_levers():
    lines = printed([card(1120, "NVIDIA GeForce RTX 3090"), card(310, "b")]).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Predicted largest batch"))
    assert [line.split() for line in lines[start + 1 : start + 5]] == [
        ["precision", "checkpoint", "patch", "RTX", "3090", "b"],
        ["fp32*", "none", "96x96", "1", "none"],
        ["bf16", "none", "96x96", "2", "none"],
        ["fp32", "full", "96x96", "10", "1"],
    ]


def test_a_lever_that_was_not_replayed_has_its_mark():
    model = memory_model(settings=[setting(FP32, is_config=True)])
    assert "  fp32*      none        96x96    ~8\n" in printed([card(9000)], model)


def test_nothing_fits_is_no_number():
    text = printed([card(700)])
    assert "✗ no batch size can be recommended" in text
    assert "✓" not in text


def test_many_cards_with_long_names_stay_within_80_columns():
    budgets = [card(1000 * number, f"NVIDIA GeForce RTX 4070 Ti SUPER {number}") for number in range(1, 9)]
    text = printed(budgets, target_batch=64)
    assert max(map(len, text.splitlines())) <= 80
    # 30 columns of the setting and 22 a card, its name whole: two a part, so that eight take four parts.
    assert sum(line.split()[:2] == ["precision", "checkpoint"] for line in text.splitlines()) == 4


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_levers_have_a_layout_for_each_width(width):
    cards = [card(1000 * number, f"NVIDIA GeForce RTX 4070 Ti SUPER {number}") for number in (1, 2, 3)]
    lines = printed(cards, width=width).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if line.split()[:1] in (["precision"], ["setting"])]
    assert len(heads) == {40: 3, 80: 2, 120: 1}[width]
    assert all(f"RTX 4070 Ti SUPER {number}" in " ".join(heads) for number in (1, 2, 3)) or width == 40


def test_a_card_named_by_its_size_keeps_every_digit():
    """Two sizes that differ at the end are two columns."""
    sizes = ["10571.8MiB GPU", "10571.9MiB GPU", "123456789.25MiB GPU"]
    lines = printed([card(11_000, name) for name in sizes]).splitlines()
    names = " ".join(line for line in lines if line.split()[:2] == ["precision", "checkpoint"])
    assert all(name in names for name in sizes)
    longest = "a card with a name that is very long indeed, and longer, 96 GB"
    assert max(map(len, printed([card(11_000, longest)]).splitlines())) <= 80


def test_measured_and_timed():
    here = card(5000, is_this_machine=True)
    blocks = typed_training({4: measured(4500, 20.0)})
    text = printed([here], measured=blocks, training_samples=1000)
    assert "✓ batch 4 per device (measured, has run)" in text
    # 4 / 20 = 0.2 s; 100,000 steps are 20,000 s = 5.6 h; 1000 / 20 = 50 s.
    assert "time: 200.0 ms an optimizer step, 5.6 h per 100,000 steps" in text
    assert "epoch of 1,000 samples: 50.0 s" in text


def test_without_a_prediction_there_is_no_table():
    text = printed([card(5000)], model={}, measured=typed_training({4: measured(4500)}))
    assert "batch 4 per device (measured, not verified)" in text
    assert "Predicted" not in text
    assert "Prediction" not in text


def test_nothing_to_print():
    stream = io.StringIO()
    print_training_recommendation(Console(stream), None, [])
    assert stream.getvalue() == ""
