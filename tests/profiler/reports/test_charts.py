"""Charts to scale, one legend entry a kind, labels that nothing crosses; warnings at the figures that they touch."""

import json
import math
import re

import pytest

from swinmr_profiling.profiler.comparing.charts import comparison_charts
from swinmr_profiling.profiler.comparing.comparison import compare
from swinmr_profiling.profiler.record.files.reading import parse_profile
from swinmr_profiling.profiler.reports.charts.drawing import charts_of
from swinmr_profiling.profiler.reports.charts.palette import LIGHT
from swinmr_profiling.profiler.reports.html.html_file import html_text
from swinmr_profiling.profiler.reports.views.cards import cards_of
from swinmr_profiling.profiler.reports.views.view import view_of
from tests.made_profiles import (
    ORIGINAL,
    SAMPLES_1,
    SAMPLES_2,
    partial,
    profile,
    ran,
    recommended,
    with_training,
)

WIDTHS = (3.7, 8.4)
BUSY = {"code": "machine_busy", "message": "the machine is busy", "batch_size": None}


def view(content):
    return view_of(parse_profile(json.dumps(content), "p.json"))


def drawn(content, name, width):
    [chart] = [one for one in charts_of(view(content)) if one.name == name]
    figure = chart.draw(LIGHT, width)
    figure.canvas.draw()
    return figure, figure.axes[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_batch_axis_is_to_scale_and_the_legend_has_each_kind_once(width):
    content = with_training()
    content["recommendation"]["training"].append(recommended("RTX 4090", 24, 16, 17_000))
    figure, axis = drawn(content, "memory_training", width)
    # Twice the batch is as far to the right everywhere: the middle of each bar is its batch, on a logarithmic axis.
    assert axis.get_xscale() == "log"
    middles = {round(math.sqrt(bar.get_x() * (bar.get_x() + bar.get_width()))) for bar in axis.patches}
    assert middles == {1, 2, 4, 8, 9, 16, 32}  # up to the first that 24 GiB cannot hold
    [legend] = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == len(set(names))
    # Three cards: one entry for what is recommended, none for their lines, which bear their names.
    assert names.count("recommended for a GPU") == 1
    assert not any("RTX" in name for name in names)
    labels = " ".join(text.get_text() for text in axis.texts)
    assert all(name in labels for name in ("RTX 2060 6GB", "RTX 3060 12GB", "RTX 4090"))
    renderer = figure.canvas.get_renderer()
    box = legend.get_window_extent(renderer)
    assert not box.overlaps(axis.get_tightbbox(renderer))
    # Numbers of the axis do not run into each other.
    ticks = [text.get_window_extent(renderer) for text in axis.get_xticklabels()]
    assert all(not one.overlaps(other) for n, one in enumerate(ticks) for other in ticks[n + 1 :])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_line_bears_its_name(width):
    figure, axis = drawn(with_training(), "memory_training", width)
    renderer = figure.canvas.get_renderer()
    for name, gibibytes in (("RTX 2060 6GB", 6), ("RTX 3060 12GB", 12)):
        [label] = [text for text in axis.texts if name in text.get_text()]
        box = label.get_window_extent(renderer)
        _, height = axis.transData.transform((1, gibibytes))
        assert abs((box.y0 + box.y1) / 2 - height) < box.height, name


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("knee", [1, 2])
def test_the_knees_label_is_clear_of_its_line_and_of_the_curve(width, knee):
    slow = [300.0 + one for one in SAMPLES_2]
    content = profile({1: ran(1, SAMPLES_1), 2: ran(2, SAMPLES_2 if knee == 2 else slow)})
    figure, axis = drawn(content, "throughput", width)
    renderer = figure.canvas.get_renderer()
    [label] = [text for text in axis.texts if text.get_text() == f"knee: batch {knee}"]
    box = label.get_window_extent(renderer)
    place, _ = axis.transData.transform((knee, 0))
    assert not box.x0 <= place <= box.x1
    assert axis.bbox.x0 <= box.x0
    assert box.x1 <= axis.bbox.x1
    [curve] = [line for line in axis.lines if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"]
    assert box.y1 < axis.transData.transform_path(curve.get_path()).vertices[:, 1].min()


def test_captions_are_one_line_and_values_stand_in_the_fold():
    page = html_text(view(with_training()))
    for chart in charts_of(view(with_training())):
        assert len(chart.caption) <= 100
        assert "," not in re.sub(r"setting: .*", "", chart.caption.lower())
        figure = page.split(f'<figure id="{chart.name}">')[1].split("</figure>")[0]
        before, fold = figure.split("<details")
        assert f'id="{chart.name}-words"' in fold
        assert f'id="{chart.name}-words"' not in before.replace(f'aria-describedby="{chart.name}-words"', "")


def test_a_warning_stands_at_the_figures_that_it_touches():
    content = with_training()
    spike = {"code": "memory_cold_spike", "message": "batch 2: a spike", "batch_size": 2}
    content["warnings"] = [BUSY, spike, {"code": "of_a_later_version", "message": "?", "batch_size": None}]
    found = {card.label: card.doubts for card in cards_of(view(content))}
    touched = {label for label, doubts in found.items() if doubts}
    assert touched == {"Latency, batch 1", "Best throughput", "Batch for inference"}
    page = html_text(view(content))
    parts = {name: page.split(f'<figure id="{name}">')[1].split("</figure>")[0] for name in
             ("latency", "throughput", "memory_inference", "memory_training")}  # fmt: skip
    for name in ("latency", "throughput"):
        assert "measured, in doubt" in parts[name]
        assert 'badge-measured"' not in parts[name]
        assert '<span class="doubt">the machine is busy</span>' in parts[name]
    assert '<span class="doubt">batch 2: a spike</span>' in parts["memory_inference"]
    assert "in doubt" not in parts["memory_training"]
    assert "in doubt" not in html_text(view(with_training()))
    # Of one size: it touches that size's figures alone.
    content["warnings"] = [{**BUSY, "batch_size": 2}]
    found = {card.label: card.doubts for card in cards_of(view(content))}
    assert not found["Latency, batch 1"]
    assert found["Best throughput"]  # it is batch 2's


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", [profile, with_training, partial])
def test_the_answer_comes_first_and_what_is_missing_last(make):
    page = html_text(view(make()))
    cards, missing = page.index('<dl class="cards">'), page.find('<section class="missing"')
    assert cards < page.index("<h2>Environment</h2>")
    if missing >= 0:
        assert page.index("by module</h2>") < missing
        assert cards < page.find("<figure") < missing or "<figure" not in page
    if make is partial:
        assert page.index("This run is partial: interrupted by SIGTERM") < cards


def test_latency_and_memory_by_module_where_they_were_measured():
    content = profile()
    modules = [
        {"path": path, "class": "M", "calls": 1, "latency_ms": ms, "own_ms": ms, "share": 0.5, "output_bytes": 1,
         "peak_bytes": size, "macs_per_second": None}
        for path, ms, size in (("", 104.0, None), ("layers.1", 61.5, 7 * 2**20))
    ]  # fmt: skip
    content["architecture"]["module_costs"] = {
        "source": "measured", "input_shape": [1, 1, 64, 64], "num_runs": 5, "plain_ms": 100.0, "hooked_ms": 104.0,
        "hook_share": 0.04, "modules": modules,
    }  # fmt: skip
    page = html_text(view(content))
    [row] = re.findall(r'<li [^>]*data-name="1"[^>]*>.*?</li>', page, flags=re.DOTALL)
    assert 'data-latency="61.5"' in row
    assert "61.50 ms" in row
    assert "7.0 MiB" in row
    assert 'data-sort="latency"' in page
    assert "5 runs of 1 x 1 x 64 x 64 with hooks" in page
    assert 'data-sort="latency"' not in html_text(view(profile()))


def test_a_comparison_has_charts_of_latency_memory_and_macs():
    slower = profile({1: ran(1, [2 * one for one in SAMPLES_1]), 2: ran(2, SAMPLES_2)})
    comparison = compare([view(with_training()), view(slower), view(ORIGINAL)])
    charts = {chart.name: chart for chart in comparison_charts(comparison)}
    assert set(charts) == {
        "comparison_latency", "comparison_inference_memory", "comparison_training_memory", "comparison_macs",
    }  # fmt: skip
    figure = charts["comparison_latency"].draw(LIGHT, 8.4)
    [axis] = figure.axes
    widths = sorted({bar.get_width() for bar in axis.patches})
    # Batch 1: 102.25 and twice that; batch 2: 182.375.
    assert {102.25, 204.5, 182.375} <= set(widths)
    spans = {tuple(line.get_xdata()) for line in axis.lines}
    assert {(100.0, 104.5), (200.0, 209.0)} <= spans
    assert "200.00 ms to 209.00 ms" in str(charts["comparison_latency"].table)
    for width in WIDTHS:
        figure = charts["comparison_latency"].draw(LIGHT, width)
        figure.canvas.draw()
        [axis], renderer = figure.axes, figure.canvas.get_renderer()
        # Figures behind the bars end within the drawing.
        assert max(text.get_window_extent(renderer).x1 for text in axis.texts) <= figure.bbox.x1
