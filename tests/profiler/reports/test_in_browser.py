"""The report in a real browser: no error, no request, the JSON's figures, sorted and folded by its own script."""

import json
import os
from pathlib import Path

import pytest

from swinmr_profiling.profiler.comparing.comparison import compare
from swinmr_profiling.profiler.comparing.written_files import html_text as comparison_text
from swinmr_profiling.profiler.record.files.reading import parse_profile
from swinmr_profiling.profiler.reports.html.html_file import html_text
from swinmr_profiling.profiler.reports.views.view import view_of
from swinmr_profiling.scripts.browser.headless_chromium import chromium, opened
from tests.conftest import REPOSITORY
from tests.made_profiles import ORIGINAL, SAMPLES_1, partial, profile, ran, with_training

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

AXE = "node_modules/axe-core/axe.min.js"


def axe_source():
    """axe-core, where npm put it: `npm install --no-save axe-core@4` in the repository. In CI it must be there."""
    places = [Path(os.environ.get("AXE_FOLDER", REPOSITORY)) / AXE, REPOSITORY / AXE]
    for place in places:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    assert not os.environ.get("CI"), f"no axe-core in {places[0]}"
    return None


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


# Anything that a finger could push sideways, and anything that ends beyond the screen.
SIDEWAYS = """[...document.querySelectorAll('main *')].filter(one => {
  const box = one.getBoundingClientRect();
  if (!box.width || one.closest('svg') && one.tagName !== 'svg') return false;
  const style = getComputedStyle(one);
  const head = one.closest('thead');  // said by each cell instead
  if (head && getComputedStyle(head).clipPath !== 'none') return false;
  const scrolls = ['auto', 'scroll', 'hidden'].includes(style.overflowX) && one.scrollWidth > one.clientWidth + 1;
  return scrolls || box.right > innerWidth + 1;
}).map(one => one.outerHTML.slice(0, 120))"""
LOOKS = [("screen", "light"), ("screen", "dark"), ("print", "light")]


def comparison_page():
    slower = profile({1: ran(1, [2 * one for one in SAMPLES_1]), 2: ran(2, [300.0] * 9)})
    return comparison_text(compare([view(with_training()), view(slower), view(ORIGINAL)]))


def page_of(kind, folder):
    page = folder / "page.html"
    text = comparison_page() if kind == "comparison" else html_text(view(PAGES[kind]()))
    page.write_text(text, encoding="utf-8")
    return page


def look(tab, media, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    tab.call("Emulation.setEmulatedMedia", media=media, features=features)


@pytest.mark.parametrize("kind", [*PAGES, "comparison"])
def test_nothing_scrolls_sideways_and_axe_finds_nothing_serious(tmp_path, kind):
    axe = axe_source()
    with opened(page_of(kind, tmp_path), tmp_path / "browser") as tab:
        if axe is not None:
            tab.evaluate(axe + "; true")
        for width in (390, 768, 1280):
            tab.resize(width)
            assert tab.evaluate("innerWidth") == width
            # The folds open: what is in them must fit, too.
            tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
            for media, scheme in LOOKS:
                look(tab, media, scheme)
                assert tab.evaluate("document.documentElement.scrollWidth") <= width, (media, scheme)
                if width == 390 and media == "screen":
                    assert tab.evaluate(SIDEWAYS) == []
                if axe is not None and media == "screen" and width != 768:
                    assert serious(tab) == [], (width, scheme)
        assert tab.complaints() == []
        assert tab.requests() == []


def serious(tab):
    """Rules of axe that the page breaks, of the two worst grades, each with the first element."""
    told = "found.violations.map(one => [one.impact, one.id, one.nodes[0].html])"
    run = f"axe.run({{resultTypes: ['violations']}}).then(found => {told})"
    result = tab.call("Runtime.evaluate", expression=run, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in result, result
    return [one for one in result["result"]["value"] if one[0] in ("serious", "critical")]


def test_the_phones_charts_are_drawn_for_it(tmp_path):
    width = "getBoundingClientRect().width"
    shown = f"[...document.querySelectorAll('svg')].filter(s => s.{width}).map(s => s.className.baseVal)"
    texts = "[...document.querySelectorAll('svg.narrow text')].map(t => t.getBoundingClientRect().height)"
    wide = f"document.querySelector('svg.wide').{width} / document.querySelector('main').clientWidth"
    caption = "[...document.querySelectorAll('figcaption')].map(one => one.getBoundingClientRect().height)"
    with opened(page_of("training", tmp_path), tmp_path / "browser") as tab:
        tab.resize(390)
        assert tab.evaluate(shown) == ["narrow"] * 4
        # Letters of a size that can be read: 8.5 pt and more at 3.7 inches of 96 pixels.
        assert min(tab.evaluate(texts)) >= 10
        tab.resize(1280)
        assert tab.evaluate(shown) == ["wide"] * 4
        assert tab.evaluate(wide) > 0.95  # the full width of the page, its margins apart
        assert max(tab.evaluate(caption)) < 32  # one line


def test_modules_are_found(tmp_path):
    shown = "[...document.querySelectorAll('#modules li')].filter(r => !r.hidden).map(r => r.dataset.name)"
    field = "document.getElementById('find-module')"
    type_in = f"{field}.value = %r; {field}.dispatchEvent(new Event('input')); true"
    with opened(page_of("complete", tmp_path), tmp_path / "browser") as tab:
        tab.evaluate("document.querySelector('[data-open=false]').click()")
        tab.evaluate(type_in % "LAYERS.1")
        # What is found, and what it is in, opened.
        assert tab.evaluate(shown) == ["(the network)", "layers", "layers.1".rpartition(".")[2]]
        assert tab.evaluate("[...document.querySelectorAll('#modules details')].every(one => one.open)")
        assert tab.evaluate("document.getElementById('found-modules').textContent") == "1 of 6"
        tab.evaluate(type_in % "conv2d")  # by class
        assert tab.evaluate(shown) == ["(the network)", "conv_first", "conv_last"]
        tab.evaluate(type_in % "")
        assert len(tab.evaluate(shown)) == 6
        assert tab.complaints() == []


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
            "[...document.querySelectorAll('svg.wide')].every(s => s.getBoundingClientRect().height > 50)"
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


def test_a_figure_keeps_its_unit_and_the_field_its_name(tmp_path):
    heights = "[...document.querySelectorAll('.whole')].map(s => s.getClientRects().length)"
    beside = (
        "(() => { const field = document.getElementById('find-module').getBoundingClientRect();"
        " const label = document.querySelector('.sorting label').getBoundingClientRect();"
        " return label.height < 1.6 * field.height; })()"
    )
    with opened(page_of("training", tmp_path), tmp_path / "browser") as tab:
        for width in (390, 768, 1280):
            tab.resize(width)
            pieces = tab.evaluate(heights)
            assert len(pieces) > 10
            assert set(pieces) <= {0, 1}, width  # 0: in a fold that is closed
            assert tab.evaluate(beside), width
