"""The HTML report: its figures are the JSON's, nothing in it runs or is fetched, what is missing is said."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError

from swinmr_profiling.profiler.record.files.reading import ProfileFileError, parse_profile
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.charts.drawing import charts_of
from swinmr_profiling.profiler.reports.charts.palette import MARKED
from swinmr_profiling.profiler.reports.html.html_file import html_text
from swinmr_profiling.profiler.reports.markdown_file import markdown_text
from swinmr_profiling.profiler.reports.views.view import view_of
from swinmr_profiling.profiler.reports.views.words import milliseconds
from tests.made_profiles import (
    MIB,
    ORIGINAL,
    failed,
    gpu,
    module,
    partial,
    profile,
    ran,
    recommended,
    with_training,
)
from tests.training_profiles import replayed

HOSTILE = (
    "</title></style></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>"
    " $\\frac$ {{ 4321*2 }} --> ]]>"
)
VOID = {"meta", "br", "img", "link", "input", "hr", "use", "path"}


def view(content):
    return view_of(parse_profile(json.dumps(content), "p.json"))


class Page(HTMLParser):
    """Elements with attributes, visible text by element id, nesting checked."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.texts, self.ids = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if "id" in dict(attributes):
            self.ids.append(dict(attributes)["id"])

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def assert_inert(page):
    """One script, ours, by its hash; no handler, no address but fragments; a policy that forbids the rest."""
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1
    assert not {"img", "iframe", "object", "embed", "link", "base", "form"} & set(tags)
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "xlink:href", "src", "srcset", "action", "data"):
                assert value.startswith("#"), (tag, name, value)
    [policy] = [a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    return policy


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["complete", "training", "partial", "original", "cuda"])
def test_pages_are_whole_and_fetch_nothing(kind):
    content = {
        "complete": profile,
        "training": with_training,
        "partial": partial,
        "original": lambda: ORIGINAL,
        "cuda": lambda: profile(device="cuda:0", batches={1: ran(1, [1.0, 2.0], cuda=True)}),
    }[kind]()
    text = html_text(view(content))
    page = Page(text)
    policy = assert_inert(page)
    script = re.search(r"<script>(.*?)</script>", text, flags=re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "http://" not in text
    assert "https://" not in text
    assert len(page.ids) == len(set(page.ids))
    assert "None" not in page.text.replace("None of", "")
    assert "nan" not in page.text.lower().split()


def test_figures_are_the_profiles():
    content = profile()
    page = Page(html_text(view(content))).text
    one = content["architecture"]
    for figure in (one["total_parameters"], one["macs"], one["flops"], 400_000, 300_000):
        assert f"{figure:,}" in page
    for block in content["batch_profiling"].values():
        timing = block["timing"]
        for name in ("mean_ms", "median_ms", "min_ms", "max_ms", "std_ms"):
            assert f"{timing[name]:,.2f} ms" in page
        # Twenty runs of batch 2 have a p95, ten of batch 1 have none.
        assert (timing["p95_ms"] is None) == (block["batch_size"] == 1)
        assert milliseconds(timing["p95_ms"]) in page
        low, high = timing["ci95_median_ms"]
        assert f"{low:,.2f} to {high:,.2f} ms" in page
        assert f"{timing['images_per_second']:,.2f} images/s" in page
        assert f"{block['memory']['peak_bytes']:,}" in page
    assert "measured" in page
    # Batch 1: median 102.25 ms, ten runs, so the interval is [second smallest, second largest] at the most;
    # this profile's own says otherwise, and the page shows the profile's.
    assert "knee is batch 2" in page


def test_training_memory_by_hand():
    found = view(with_training()).training_memory
    bars = {bar.batch_size: bar for bar in found.bars}
    # Up to the first that the largest card (12 GiB = 12,288 MiB) cannot hold: 16,400 + 317. Batch 9 is between rows.
    assert list(bars) == [1, 2, 4, 8, 9, 16]
    parts = dict(bars[4].parts)
    assert parts["saved_activations"] == 4000 * MIB
    assert parts["parameters"] == parts["gradients"] == 50 * MIB
    assert parts["allocator: rounding and caching"] == (4160 - 4100) * MIB
    assert bars[4].total_bytes == (4160 + 317) * MIB
    # Batch 9 lies between rows: live 8100 + 1000 of the line to batch 16, and the larger reserved - live, 300.
    assert bars[9].total_bytes == (9400 + 317) * MIB
    assert bars[9].source == "extrapolated"
    assert dict(bars[9].parts)["saved_activations"] == 9000 * MIB
    # Below batch 2 the terms do not hold: not split.
    assert dict(bars[1].parts)["tensors, not split"] == 1100 * MIB
    assert found.recommended == (("RTX 2060 6GB", 4), ("RTX 3060 12GB", 9))


def test_a_recommended_batch_between_rows_is_replayed():
    content = with_training()
    content["memory_model"]["settings"][0] |= {
        key: value
        for key, value in replayed(100, 1000, sizes=(1, 2, 4, 8, 16, 32)).items()
        if key in ("sizes", "allocations")
    }
    found = view(content).training_memory
    (bar,) = (bar for bar in found.bars if bar.batch_size == 9)
    # Reserved: 120 + 9 x 1000; context and workspaces 317.
    assert (bar.total_bytes, bar.source) == ((9120 + 317) * MIB, "predicted")


@pytest.mark.parametrize(
    "damaged",
    [{"sizes": "AAAA"}, {"sizes": "AAAA", "order": []}, {"sizes": "AAAA", "order": "AAAA"}, "AAAA", 7],
)
def test_damaged_allocations_are_refused_in_one_line(damaged):
    content = with_training()
    content["memory_model"]["settings"][0]["allocations"] = damaged
    with pytest.raises(ProfileFileError, match=r"p.json: is damaged.*allocations"):
        view(content)


@pytest.mark.slow
def test_a_recommendation_beyond_the_table_is_extrapolated():
    content = with_training()
    # The table ends at 32 (32,800 MiB reserved); an H100 takes 70, and its bar is split by the same terms.
    content["recommendation"]["training"] = [recommended("H100", 80, 70, 72_000, source="extrapolated")]
    bar = view(content).training_memory.bars[-1]
    assert (bar.batch_size, bar.source) == (70, "extrapolated")
    assert dict(bar.parts)["saved_activations"] == 70_000 * MIB
    page = Page(html_text(view(content))).text
    assert "extrapolated and predicted" in page


@pytest.mark.slow
def test_cpu_run_with_predicted_gpu_memory_is_a_complete_page():
    page = Page(html_text(view(with_training()))).text
    for words in (
        "RTX 2060 6GB",
        "RTX 3060 12GB",
        "predicted",
        "not verified",
        "Memory of training is predicted",
    ):
        assert words in page
    assert f"{(4160 + 317) * MIB:,}" in page
    assert "Assumed: every loss is finite" in page
    assert "Not tested on a GPU: the size of the CUDA context" in page
    assert "checkpointing full, patch 96 x 96 40" in page
    assert "1 x 1 x 256 x 256: 300.0 MiB reserved" in page


def test_partial_run_says_what_is_missing():
    page = Page(html_text(view(partial()))).text
    for words in (
        "The run is partial: interrupted by SIGTERM",
        "Parameters and MACs: the run ended before",
        "no batch size was measured",
        "neither measured nor predicted",
        "No chart for Latency, Throughput, Memory of inference, Memory of training",
    ):
        assert words in page


def test_failed_sizes_are_shown_with_their_reason():
    content = profile(
        {1: ran(1, [1.0] * 6), 8: failed(8), 16: failed(16, "skipped", "batch 8 was out of memory")}
    )
    page = Page(html_text(view(content))).text
    assert "Batch 8: OOM (the kernel said so)" in page
    assert "Batch 16: skipped (batch 8 was out of memory)" in page


def everywhere(value, text, whole):
    """Every text of a profile replaced where any text may stand, save what steers the reading."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, item in items:
        if isinstance(item, dict | list):
            everywhere(item, text, whole)
        elif isinstance(item, str) and key != "device":
            value[key] = text
            try:
                Profile.model_validate(whole)
            except ValidationError:
                value[key] = item
    return value


def test_hostile_texts_are_inert():
    content = with_training(profile({1: ran(1, [1.0] * 6), 2: failed(2)}))
    everywhere(content, HOSTILE, content)
    assert json.dumps(content).count(json.dumps(HOSTILE)) > 30
    content["environment"]["packages"] = {HOSTILE: HOSTILE, "torch": HOSTILE}
    content["architecture"]["by_kind"] = {HOSTILE: 5}
    content["architecture"]["uncounted_operators"] = {HOSTILE: 5}
    content["warnings"] = [{"code": HOSTILE, "message": HOSTILE, "batch_size": None}]
    found = view(content)
    text = html_text(found)
    page = Page(text)
    assert_inert(page)
    assert "8642" not in page.text  # in a drawing it may be a coordinate
    assert html.escape("<script>alert(1)</script>", quote=False) in text
    assert "<script>alert(1)" in page.text  # as letters
    for chart in charts_of(found):
        ElementTree.fromstring(chart.svg(MARKED))  # well-formed, whatever the names hold


@pytest.mark.slow
def test_charts_are_named_and_described():
    text = html_text(view(with_training()))
    page = Page(text)
    drawings = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(drawings) == 8  # four, each for a desk and for a phone
    for attributes in drawings:
        assert attributes["role"] == "img"
        assert attributes["aria-labelledby"] in page.ids
        assert attributes["aria-describedby"] in page.ids
    # Every reference of a drawing leads to a part of itself.
    for reference in re.findall(r'(?:url\(|xlink:href=")#([^")]+)', text):
        assert reference in page.ids
    # Colours are the page's: none of the placeholders is left.
    assert "#01020" not in text
    assert "var(--ink)" in text


def test_memory_of_a_measured_gpu_has_its_line():
    content = profile(device="cuda:0", batches={1: ran(1, [1.0] * 6, cuda=True)})
    content["environment"]["gpu"] = gpu("NVIDIA H100", 81_000)
    [line] = view(content).inference_memory.lines
    assert (line.name, line.total_bytes) == ("NVIDIA H100", 81_000 * MIB)
    assert view(profile()).inference_memory.lines == ()


def test_a_tree_of_many_modules_is_cut_and_says_so():
    content = profile()
    deep = content["architecture"]["by_module"]
    for _ in range(60):
        deep["children"] = [module("inner", "M", 1, 1)]
        deep = deep["children"][0]
    wide = content["architecture"]["by_module"]["children"][0]
    wide["children"] = wide["children"] + [module(str(n), "M", 1, 1) for n in range(5000)]
    text = html_text(view(content))
    assert len(text) < 5_000_000
    assert "modules inside it are not shown here" in text


@pytest.mark.slow
def test_charts_as_files(tmp_path):
    from swinmr_profiling.profiler.reports.charts.drawing import write_plots

    files = write_plots(view(with_training()), tmp_path / "charts")
    assert sorted(file.name for file in files) == sorted(
        f"{name}.{kind}"
        for name in ("latency", "throughput", "memory_inference", "memory_training")
        for kind in ("svg", "png")
    )
    for file in files:
        content = file.read_bytes()
        if file.suffix == ".png":
            assert content.startswith(b"\x89PNG")
        else:
            ElementTree.fromstring(content)
            assert b"var(--" not in content


def test_a_denoisers_sample_has_its_own_card():
    content = profile()
    content["architecture"]["reconstruction"] = {
        "source": "extrapolated",
        "what": "one sample",
        "sampler": "ddim",
        "sampling_steps": 50,
        "guidance": 2.0,
        "calls_per_step": 2,
        "denoiser_calls": 100,
        "samples_per_slice": 1,
        "macs": 400_000_000_000,
        "flops": 800_000_000_000,
        "gmacs": 400.0,
        "gflops": 800.0,
        "latency_ms": 10_225.0,
    }
    page = Page(html_text(view(content))).text
    assert "400.00 G MACs 400,000,000,000 extrapolated ddim, 50 steps: 100 calls, 10,225.00 ms" in page


def test_operators_with_the_most_macs_stand_beside_the_modules():
    content = profile()
    by_operator = {f"aten.op{number}": 1000 * number for number in range(12)} | {"aten.<b>": 5_500}
    content["architecture"]["by_operator"] = by_operator
    view = view_of(parse_profile(json.dumps(content), "p.json"))
    # The ten with the most, most first: 11,000 down to 5,500 and on to 3,000.
    names = [name for name, _ in view.operators]
    assert names == [f"aten.op{number}" for number in (11, 10, 9, 8, 7, 6)] + ["aten.<b>"] + [
        f"aten.op{number}" for number in (5, 4, 3)
    ]
    page, text = html_text(view), markdown_text(view)
    table = page.split('<table id="operators">')[1].split("</table>")[0]
    assert table.count("<tr>") == 11
    assert "11,000" in table
    assert "aten.&lt;b&gt;" in table
    assert "2,000" not in table
    assert "## Operators with the most MACs" in text
    assert text.index("11,000") < text.index("5,500")
