"""CSV and Markdown of a profile."""

import csv
import io
import json
import re

import pytest

from swinmr_profiling.profiler.record.blocks.batch import MeasuredBatch
from swinmr_profiling.profiler.record.files.reading import parse_profile
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.charts.drawing import charts_of
from swinmr_profiling.profiler.reports.console.details import print_details
from swinmr_profiling.profiler.reports.console.steps import print_batch
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.reports.csv_file import csv_text
from swinmr_profiling.profiler.reports.html.html_file import html_text
from swinmr_profiling.profiler.reports.markdown_file import escaped, markdown_text
from swinmr_profiling.profiler.reports.views.view import view_of
from swinmr_profiling.profiler.reports.views.words import giga, milliseconds, per_second, ratio, shortened
from tests.made_profiles import MIB, ORIGINAL, failed, partial, profile, ran, with_training


def view(content):
    return view_of(parse_profile(json.dumps(content), "p.json"))


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_holds_the_figures_to_the_last_digit():
    content = with_training(
        profile({1: ran(1, [1 / 3] * 5 + [0.5]), 4: failed(4, detail='out, of "memory"\nhere')})
    )
    one, four = rows(csv_text(view(content)))
    timing = content["batch_profiling"]["1"]["timing"]
    for name in ("mean_ms", "median_ms", "std_ms", "images_per_second"):
        assert float(one[name]) == timing[name]
    assert [float(one["ci95_low_ms"]), float(one["ci95_high_ms"])] == timing["ci95_median_ms"]
    assert int(one["macs"]) == 4_000_000_000
    assert int(one["flops"]) == 8_000_000_000
    assert int(one["peak_bytes"]) == 510 * MIB
    assert one["input_shape"] == "1x1x64x64"
    assert one["training_source"] == "predicted"
    assert int(one["training_peak_bytes"]) == 1100 * MIB
    assert (four["error"], four["detail"], four["median_ms"]) == ("OOM", 'out, of "memory"\nhere', "")


@pytest.mark.slow
def test_what_lies_within_the_noise_of_resident_memory_is_said_to_in_every_report():
    """10 MiB of activations at batch 1 beside 23 MiB that the process kept; 20 MiB at batch 2 beside nothing."""
    content = profile()
    content["batch_profiling"]["1"]["memory"] |= {"noise_bytes": 23 * MIB, "activation_within_noise": True}
    found = view(content)
    one, two = rows(csv_text(found))
    assert (one["noise_bytes"], one["activation_within_noise"]) == (str(23 * MIB), "True")
    assert (two["noise_bytes"], two["activation_within_noise"]) == ("0", "False")
    text = markdown_text(found)
    assert "10.0 MiB (within the noise of 23.0 MiB)" in text
    assert "20.0 MiB (within" not in text
    assert "the activations of batch 1 are within its noise" in html_text(found)
    assert "within its noise" not in html_text(view(profile()))
    stream = io.StringIO()
    for size in ("1", "2"):
        print_batch(Console(stream), MeasuredBatch.model_validate(content["batch_profiling"][size]))
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert "✓ Activation memory: 10.00 MB (within the noise of 23.00 MB)" in lines
    assert "✓ Activation memory: 20.00 MB" in lines


def test_an_earlier_profile_knows_of_no_noise(profile_schema):
    content = json.loads(json.dumps(profile()))
    for block in (*content["batch_profiling"].values(), content["single_image"]):
        del block["memory"]["noise_bytes"], block["memory"]["activation_within_noise"]
    assert list(profile_schema.iter_errors(content)) == []
    assert rows(csv_text(view(content)))[0]["noise_bytes"] == ""
    assert "within" not in markdown_text(view(content))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("runs", [1, 3, 9, 19, 99, 100])
def test_what_too_few_runs_do_not_tell_is_no_number_in_any_report(runs):
    """Not nan, not None, not 0: an empty cell, a dash on the terminal, words in the reports."""
    content = profile({1: ran(1, [100.0 + number for number in range(runs)])})
    found = view(content)
    [line] = rows(csv_text(found))
    known = {"std_ms": 2, "p90_ms": 10, "p95_ms": 20, "p99_ms": 100}
    assert {name for name in known if line[name] == ""} == {n for n, least in known.items() if runs < least}
    stream = io.StringIO()
    print_details(Console(stream), Profile.model_validate(content))
    printed = stream.getvalue().splitlines()
    row = next(text.split() for text in printed if len(text.split()) == 7 and text.split()[0] == "1")
    assert [cell == "-" for cell in row[3:6]] == [runs < 10, runs < 20, runs < 100]
    explained = "  - is not known: runs needed: p90 10, p95 20, p99 100"
    assert (explained in printed) == (runs < 100)
    texts = ["\n".join(printed), markdown_text(found), html_text(found), csv_text(found)]
    for text in texts:
        assert re.search(r"\b(nan|NaN|None)\b", text) is None
    assert charts_of(found)[0].table[1][7] == ("not known" if runs < 20 else milliseconds(100.0 + runs - 1))


def test_csv_of_a_partial_and_of_an_imported_profile():
    [line] = rows(csv_text(view(partial())))
    assert (line["status"], line["macs"], line["batch_size"]) == ("partial", "", "")
    lines = rows(csv_text(view(ORIGINAL)))
    assert [line["batch_size"] for line in lines] == ["1", "2", "4"]
    assert (lines[0]["macs_convention"], lines[0]["flops"]) == ("fvcore", "")


def test_a_size_of_the_original_script_without_a_median_says_so():
    without = {"2": {"input_shape": [2, 1, 64, 64], "timing": {"mean_ms": 160.0}}}
    found = view({**ORIGINAL, "batch_profiling": without})
    assert "| 2 | no timing: no detail | - |" in markdown_text(found)
    two = rows(csv_text(found))[1]
    assert (two["mean_ms"], two["median_ms"], two["error"], two["memory_kind"]) == ("160.0", "", "", "")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_csv_gives_a_spreadsheet_no_formula(start):
    content = profile(config_file=f'{start}HYPERLINK("x")')
    assert {line["config_file"] for line in rows(csv_text(view(content)))} == {f'\'{start}HYPERLINK("x")'}
    # Negative figures stay figures.
    content["batch_profiling"]["1"]["memory"]["activation_bytes"] = -5
    assert rows(csv_text(view(content)))[0]["activation_bytes"] == "-5"


def test_markdown_holds_every_figure_with_its_source():
    text = markdown_text(view(with_training()))
    for words in (
        "903,121",
        "4,000,000,000",
        "8,000,000,000",
        "measured",
        "predicted, not verified",
        "RTX 3060 12GB",
    ):
        assert words in text
    assert "| 1 | measured | 102.25 ms |" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len(tables) > 15


def test_markdown_gives_each_quantity_of_training_its_own_interval():
    content = with_training()
    content["batch_profiling"]["2"]["training"] = {
        "error": "OOM",
        "detail": "no memory",
        "input_shape": [2, 1, 96, 96],
        "source": "measured",
    }
    lines = markdown_text(view(content)).splitlines()
    (start,) = (number for number, line in enumerate(lines) if "live, interval" in line)
    header, _, first, failed = (
        [cell.strip() for cell in line.split("|")] for line in lines[start : start + 4]
    )
    row = dict(zip(header, first, strict=True))
    # Live 1,100 and reserved 1,120 MiB, as the profile has their intervals.
    assert (row["allocated"], row["reserved"]) == ("1,100.0 MiB", "1,120.0 MiB")
    assert row["live, interval"] == "1,090.0 MiB to 1,110.0 MiB"
    assert row["reserved, interval"] == "1,070.0 MiB to 1,170.0 MiB"
    assert len(failed) == len(header)


def test_markdown_of_hostile_texts_is_text():
    name = "a|b\n# c <script>alert(1)</script> [x](y) `z` **w** <!-- "
    text = markdown_text(view(profile(config_file=name)))
    assert "<script>" not in text
    assert "\n# c" not in text
    assert escaped("a|b\nc") == "a\\|b c"
    # Every row of a table has the columns of its header: no bar of a text makes one.
    block = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append(line.replace("\\|", "").count("|"))
        else:
            assert len(set(block)) <= 1, block
            block = []


def test_figures_in_words():
    assert giga(101_001_461_760) == "101.00 G"
    assert giga(4_260_000) == "0.00426 G"
    assert milliseconds(2319.714) == "2,319.71 ms"
    assert milliseconds(0.01234) == "0.0123 ms"
    assert per_second(0.0431) == "0.0431 images/s"
    assert ratio(11.7506) == "11.751 x"
    assert ratio(0.08507) == "0.0851 x"
    assert shortened("abcdefghij", 7) == "ab…ghij"
    assert shortened("abc", 7) == "abc"
