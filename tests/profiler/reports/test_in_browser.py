"""The report in a real browser: no error, no request, the JSON's figures, sorted and folded by its own script."""

import json
import os

import pytest

from swinmr_profiling.profiler.comparing.comparison import compare
from swinmr_profiling.profiler.comparing.html_file import html_text as comparison_text
from swinmr_profiling.profiler.record.reading import parse_profile
from swinmr_profiling.profiler.reports.html.html_file import html_text
from swinmr_profiling.profiler.reports.views.view import view_of
from tests.headless_chromium import chromium, opened
from tests.made_profiles import ORIGINAL, partial, profile, with_training

# Where tests are run for the record (CI=true) a missing browser is a failure, on a user's machine it is none.
pytestmark = [
    pytest.mark.skipif(chromium() is None and not os.environ.get("CI"), reason="no Chromium on this machine"),
    pytest.mark.slow,
]

PAGES = {
    "complete": profile,
    "training": with_training,
    "partial": partial,
    "original": lambda: ORIGINAL,
    "hostile": lambda: profile(
        config_file="<script>console.error('in')</script><img src=http://127.0.0.1:9/x>"
    ),
}


def view(content):
    return view_of(parse_profile(json.dumps(content), "p.json"))


@pytest.mark.parametrize("kind", PAGES)
def test_no_error_and_no_request(tmp_path, kind):
    page = tmp_path / "report.html"
    page.write_text(html_text(view(PAGES[kind]())), encoding="utf-8")
    with opened(page, tmp_path / "browser") as tab:
        assert tab.complaints() == []
        assert tab.requests() == []
        assert tab.evaluate("document.querySelectorAll('script').length") == 1
        # A phone: the page itself does not scroll sideways (tables and charts scroll in their own boxes).
        tab.resize(360)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_figures_are_the_jsons(tmp_path):
    content = with_training()
    page = tmp_path / "report.html"
    page.write_text(html_text(view(content)), encoding="utf-8")
    with opened(page, tmp_path / "browser") as tab:
        cards = tab.evaluate("document.querySelector('.cards').innerText")
        for name in ("total_parameters", "macs", "flops"):
            assert f"{content['architecture'][name]:,}" in cards
        table = tab.evaluate("document.querySelector('#latency details').textContent")
        for block in content["batch_profiling"].values():
            assert f"{block['timing']['median_ms']:,.2f} ms" in table
        # Charts are drawn: each has size, and text in the page's own colour.
        assert tab.evaluate(
            "[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 50)"
        )
        ink = tab.evaluate("getComputedStyle(document.querySelector('#latency svg text')).fill")
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        assert tab.evaluate("getComputedStyle(document.querySelector('#latency svg text')).fill") != ink


def test_tree_is_sorted_and_folded(tmp_path):
    page = tmp_path / "report.html"
    page.write_text(html_text(view(profile())), encoding="utf-8")
    names = "[...document.querySelectorAll('#modules > ul > li > details > ul > li')].map(row => row.dataset.name)"
    with opened(page, tmp_path / "browser") as tab:
        assert tab.evaluate(names) == ["conv_first", "layers", "conv_last"]
        for key, expected in (
            ("macs", ["layers", "conv_first", "conv_last"]),  # 3, 1 and 0 GMACs
            ("name", ["conv_first", "conv_last", "layers"]),
            ("order", ["conv_first", "layers", "conv_last"]),
        ):
            tab.evaluate(f"document.querySelector('[data-sort={key}]').click()")
            assert tab.evaluate(names) == expected
        for state in ("false", "true"):
            tab.evaluate(f"document.querySelector('[data-open={state}]').click()")
            opens = tab.evaluate("[...document.querySelectorAll('#modules details')].map(one => one.open)")
            assert {str(one).lower() for one in opens} == {state}
        assert tab.complaints() == []


def test_a_comparison_opens_too(tmp_path):
    page = tmp_path / "comparison.html"
    page.write_text(comparison_text(compare([view(profile()), view(ORIGINAL)])), encoding="utf-8")
    with opened(page, tmp_path / "browser") as tab:
        assert tab.complaints() == []
        assert tab.requests() == []
        assert "903,121" in tab.evaluate("document.querySelector('#comparison').innerText")
