"""Profiles side by side: ratios by hand, what is not compared, the gate."""

import csv
import io
import json

import pytest

from swinmr_profiling.profiler.comparing.cell_words import not_compared, other_differences
from swinmr_profiling.profiler.comparing.command import slower_than
from swinmr_profiling.profiler.comparing.comparison import compare
from swinmr_profiling.profiler.comparing.console_table import console_lines
from swinmr_profiling.profiler.comparing.latency_difference import Verdict
from swinmr_profiling.profiler.comparing.written_files import csv_text, html_text, markdown_text
from swinmr_profiling.profiler.record.files.reading import parse_profile
from swinmr_profiling.profiler.reports.views.view import view_of
from tests.made_profiles import (
    ORIGINAL,
    SAMPLES_1,
    architecture,
    failed,
    partial,
    profile,
    ran,
    recommended,
    with_training,
)
from tests.training_profiles import measured


def row_of(comparison, kind, batch_size=None):
    return next(one for one in comparison.rows if (one.kind, one.batch_size) == (kind, batch_size))


def view(content, name="p.json"):
    return view_of(parse_profile(json.dumps(content), name))


def compared(*contents):
    return compare([view(content, f"{number}.json") for number, content in enumerate(contents)])


def slower(factor, **changes):
    """The profile with every run `factor` as long."""
    return profile({1: ran(1, [sample * factor for sample in SAMPLES_1])}, **changes)


def ratios(comparison, kind, batch_size=None):
    return [cell.ratio for cell in row_of(comparison, kind, batch_size).cells]


def test_small_against_large_by_the_published_figures():
    """Parameters 903,121 and 11,497,681; MACs at 256 x 256 of 68,065,689,600 and 799,872,122,880 (README)."""
    small = profile(
        architecture=architecture(68_065_689_600, 903_121), batches={1: ran(1, [100.0 + n for n in range(9)])}
    )
    large = profile(
        architecture=architecture(799_872_122_880, 11_497_681),
        batches={1: ran(1, [1200.0 + n for n in range(9)])},
    )
    found = compared(small, large)
    assert ratios(found, "parameters") == [None, pytest.approx(12.7311, abs=1e-4)]
    assert ratios(found, "macs") == ratios(found, "flops") == [None, pytest.approx(11.7515, abs=1e-4)]
    assert ratios(found, "latency", 1) == [None, pytest.approx(1204 / 104)]
    assert row_of(found, "latency", 1).cells[1].difference.verdict is Verdict.SLOWER
    assert ratios(found, "throughput", 1) == [None, pytest.approx(104 / 1204)]
    assert ratios(found, "inference_memory", 1) == [None, 1.0]
    assert not_compared(found) == []


def test_two_runs_of_one_config_do_not_differ():
    found = compared(profile(), slower(1.03))
    difference = row_of(found, "latency", 1).cells[1].difference
    assert difference.ratio == pytest.approx(1.03)
    assert "no significant difference" in difference.verdict.value
    assert slower_than(found, 0.0) == []


def test_a_profile_with_itself():
    found = compare([view(profile(), "a.json"), view(profile(), "a.json")])
    for row in found.rows:
        assert row.cells[1].ratio in (1.0, None)
        assert row.cells[1].against == ()
    assert row_of(found, "latency", 1).cells[1].difference.verdict is Verdict.SAME
    assert row_of(found, "latency", 2).cells[1].difference.p_value == 1.0
    assert "the same file as the first" in other_differences(found)[0]
    assert slower_than(found, 0.0) == []


@pytest.mark.parametrize(
    ("other", "reason", "kinds"),
    [
        (
            profile(device="cuda:0"),
            "other device: cuda (NVIDIA GeForce RTX 3090) against cpu (a processor)",
            "measured",
        ),
        (profile(precision="bf16"), "other precision: bf16 against fp32", "measured"),
        (profile(image=96), "other image size: 1 x 96 x 96 against 1 x 64 x 64", "all"),
        (ORIGINAL, "other schema version: the original script's against ours", "all"),
    ],
)
def test_what_is_not_comparable_is_said_instead(other, reason, kinds):
    found = compared(profile(), other)
    measured = [("latency", 1), ("throughput", 1), ("inference_memory", 1), ("latency", 2)]
    for kind, batch in measured:
        cell = row_of(found, kind, batch).cells[1]
        assert cell.value is not None
        assert cell.ratio is None
        assert cell.difference is None
        assert reason in cell.against
    assert (ratios(found, "macs")[1] is None) == (kinds == "all")
    # The network's size is what it is anywhere.
    assert ratios(found, "parameters") == [None, 1.0]
    assert any(reason in line and "Latency (median), batch 1" in line for line in not_compared(found))
    [line] = slower_than(found, 0.05)
    assert "cannot be compared" in line
    assert reason in line


def test_a_count_of_the_original_script_is_never_compared_as_flops():
    found = compared(profile(), ORIGINAL)
    macs, flops = row_of(found, "macs").cells[1], row_of(found, "flops").cells[1]
    assert (macs.value, macs.ratio) == (4_315_545_600, None)
    assert "other counting convention: fvcore against exact multiply-adds" in macs.against
    assert flops.value is None
    # Two of its own are compared: MACs by one convention, latency without raw samples.
    double = json.loads(json.dumps(ORIGINAL))
    double["architecture"]["flops"] *= 2
    double["single_image"]["timing"]["median_ms"] *= 2
    found = compared(ORIGINAL, double)
    assert ratios(found, "macs") == [None, 2.0]
    assert row_of(found, "latency", 1).cells[1].difference.verdict is Verdict.NO_SAMPLES


def test_sizes_that_only_one_has():
    other = profile({1: ran(1, SAMPLES_1), 2: failed(2), 8: ran(8, SAMPLES_1)})
    found = compared(profile(), other)
    assert [cell.text for cell in row_of(found, "latency", 2).cells] == ["", "OOM"]
    assert [cell.text for cell in row_of(found, "latency", 8).cells] == ["not measured", ""]
    assert ratios(found, "latency", 8) == [None, None]
    assert [cell.value for cell in row_of(found, "largest_inference_batch").cells] == [2, 8]
    assert slower_than(found, 0.05) == ["#2 1.json: batch 2: OOM, and it ran in the first"]
    # Batch 8 is new: nothing to be slower than. And the other way round nothing was lost but batch 8, not asked for.
    assert slower_than(compared(profile({1: ran(1, SAMPLES_1)}), other), 0.05) == []


def test_training_memory_and_recommendations():
    first, other = with_training(), with_training()
    block = other["batch_profiling"]["1"]["training"]
    block["peak_bytes"] = first["batch_profiling"]["1"]["training"]["peak_bytes"] // 2
    nothing = {"accumulate": None, "global_batch": None}
    other["recommendation"]["training"] = [
        recommended("RTX 2060 6GB", 6, 8, 4000),
        recommended("RTX 3060 12GB", 12, None, 40_000, failure="nothing_fits", **nothing),
    ]
    found = compared(first, other)
    assert ratios(found, "training_memory", 1) == [None, 0.5]
    rows = [row for row in found.rows if row.kind == "largest_training_batch"]
    assert [[cell.value for cell in row.cells] for row in rows] == [[4, 8], [9, None]]
    assert rows[0].cells[1].ratio == 2.0
    # Measured against predicted is not a comparison, nor is another patch.
    other["batch_profiling"]["1"]["training"] = measured(1200, input_shape=[1, 1, 64, 64])
    [cell] = row_of(compared(first, other), "training_memory", 1).cells[1:]
    assert cell.ratio is None
    assert cell.against == (
        "other kind of figure: measured against predicted",
        "other image size: 1 x 64 x 64 against 1 x 96 x 96",
    )


def test_partial_profiles_are_compared_as_far_as_they_go():
    for pair in ((partial(), profile()), (profile(), partial()), (partial(), partial())):
        found = compared(*pair)
        assert all(cell.ratio is None for row in found.rows for cell in row.cells)
        assert len(slower_than(found, 0.05)) == 1
        for writer in (markdown_text, csv_text, html_text):
            assert writer(found)


@pytest.mark.parametrize(
    ("factor", "share", "fails"),
    [(1.3, 0.05, True), (1.3, 0.35, False), (1.03, 0.0, False), (0.7, 0.0, False)],
)
def test_the_gate(factor, share, fails):
    lines = slower_than(compared(profile(), slower(factor)), share)
    assert bool(lines) == fails
    if fails:
        assert lines == ["#2 1.json: batch 1: 30.0% slower (significantly slower)"]


def test_the_gate_lets_no_unknown_pass():
    """Too few runs, no samples or a busy machine: more than the share slower, and not known to be noise."""
    two = profile({1: ran(1, [100.0, 101.0])}), profile({1: ran(1, [120.0, 121.0])})
    assert "too few runs" in slower_than(compared(*two), 0.05)[0]
    busy = slower(
        1.3, warnings=[{"code": "machine_busy", "message": "the machine is busy", "batch_size": None}]
    )
    assert "disturbed machine" in slower_than(compared(profile(), busy), 0.05)[0]
    assert slower_than(compared(*reversed(two)), 0.05) == []


@pytest.mark.parametrize("count", [1, 2, 3, 4, 50])
def test_console_fits_eighty_columns(count):
    long = "a/very/long/path/that/goes/on/and/on/" * 2
    contents = [
        with_training(slower(1 + 0.01 * number, config_file=f"{long}{number}.json"))
        for number in range(count)
    ]
    contents[-1]["recommendation"]["training"][0]["budget"]["name"] = (
        "a card with a name that is very long indeed"
    )
    lines = list(console_lines(compared(*contents)))
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "903,121" in text
    assert f"#{count} " in text


def test_fifty_profiles_in_every_format():
    contents = [slower(1 + 0.02 * number) for number in range(50)]
    found = compared(*contents)
    assert ratios(found, "latency", 1)[49] == pytest.approx(1.98)
    rows = list(csv.DictReader(io.StringIO(csv_text(found))))
    assert len(rows) == 50 * len(found.rows)
    last = [row for row in rows if row["figure"] == "latency" and row["profile"] == "50"]
    assert float(last[0]["ratio_to_first"]) == pytest.approx(1.98)
    assert last[0]["verdict"] == "significantly slower"
    assert "49.json" in html_text(found)
    header = next(line for line in markdown_text(found).splitlines() if line.startswith("|"))
    assert header.count("|") == 52


def test_hostile_names_in_a_comparison():
    name = "<script>alert(1)</script>"
    found = compare([view(profile(config_file=name), name), view(profile(), name)])
    text = html_text(found)
    assert name not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert name not in markdown_text(found)


def test_nothing_to_compare():
    with pytest.raises(ValueError, match="nothing to compare"):
        compare([])
