"""Pictures of the documents: the SVG holds the answer and asks nobody for a font; the PNGs are of a browser."""

import json
import shutil
import struct
import xml.etree.ElementTree as ElementTree

import pytest

from swinmr_profiling.profiler.record.files.reading import load_profile
from swinmr_profiling.scripts import make_screenshots
from swinmr_profiling.scripts.browser.headless_chromium import chromium
from tests.made_profiles import profile as made_profile


@pytest.fixture
def make(tmp_path, monkeypatch, capsys):
    content = made_profile(config_file="/home/somebody/configs/a.json")
    (tmp_path / "p.json").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)

    def run(*arguments, profiles=("p.json",)):
        capsys.readouterr()
        status = make_screenshots.main([*profiles, "--output", "pictures", *arguments])
        return status, *capsys.readouterr()

    return run


def shown(svg):
    """The text of an SVG, as it is read; also proof that it is well-formed."""
    root = ElementTree.fromstring(svg)
    texts = ("".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text"))
    return " ".join(texts).replace("\xa0", " ")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_the_svg_is_the_answer_and_needs_nothing_else(make, tmp_path, monkeypatch, no_color):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("NO_COLOR", no_color)
    status, out, err = make()
    assert (status, out) == (4, "pictures/terminal.svg\n")
    assert err.startswith("error: no PNG: none of chromium, ")
    svg = (tmp_path / "pictures/terminal.svg").read_text(encoding="utf-8")
    text = shown(svg)
    for words in ("ANSWER", "903,121 (3.45 MB)", "4.00 G = 8.00 GFLOPs", "102.25 ± 1.51 ms (n=10)"):
        assert words in text
    assert "╭" in text  # framed, as a terminal that shows colours has it
    assert "@font-face" not in svg
    assert "url(http" not in svg
    assert "somebody" not in svg


def test_what_is_no_profile_is_one_line(make, tmp_path):
    (tmp_path / "p.json").write_text("{}")
    status, out, err = make()
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


def size_of_png(file):
    head = file.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


@pytest.mark.slow
def test_the_pngs_have_their_sizes(make, tmp_path):
    if chromium() is None:
        pytest.skip("no Chromium")
    status, out, err = make("--columns", "100", profiles=("p.json", "p.json"))
    assert (status, err) == (0, "")
    folder = tmp_path / "pictures"
    sizes = {name.removeprefix("pictures/"): None for name in out.split()}
    of_pages = {"desk": (1280, 1500), "desk_dark": (1280, 1500), "phone": (390, 1500)}
    expected = {
        f"{page}_{shot}.png": size for page in ("report", "comparison") for shot, size in of_pages.items()
    }
    svg = make_screenshots.size_of((folder / "terminal.svg").read_text())
    assert list(sizes) == ["terminal.svg", "terminal.png", *expected]
    for name, size in {"terminal.png": svg, **expected}.items():
        assert size_of_png(folder / name) == size, name
    # The dark one is another picture of the same page.
    assert (folder / "report_desk.png").read_bytes() != (folder / "report_desk_dark.png").read_bytes()


def test_one_profile_makes_no_comparison(tmp_path):
    (tmp_path / "p.json").write_text(json.dumps(made_profile()))
    loaded = load_profile(tmp_path / "p.json")
    assert list(make_screenshots.pages_of([loaded])) == ["report"]
    assert list(make_screenshots.pages_of([loaded, loaded])) == ["report", "comparison"]
    # Nor does a picture say where the file lay.
    nameless = make_screenshots.nameless(loaded)
    assert str(tmp_path) not in "".join(make_screenshots.pages_of([nameless, nameless]).values())


def test_a_browser_that_ends_is_one_line(make, tmp_path, monkeypatch):
    (tmp_path / "chromium").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "chromium").chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(tmp_path / "chromium"))
    status, _, err = make()
    assert (status, err) == (2, "error: pictures/terminal.png: no picture: the browser has ended\n")
