"""Pictures of the documents: the SVG holds the answer and asks nobody for a font; the PNGs are of a browser."""

import json
import shutil
import struct
import xml.etree.ElementTree as ElementTree

import pytest

from swinmr_profiling.scripts import make_screenshots
from tests.headless_chromium import chromium
from tests.made_profiles import profile as made_profile


@pytest.fixture
def make(tmp_path, monkeypatch, capsys):
    content = made_profile(config_file="/home/somebody/configs/a.json")
    (tmp_path / "p.json").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        status = make_screenshots.main(["p.json", "--output", "pictures", *arguments])
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


@pytest.mark.slow
def test_the_pngs_have_their_sizes(make, tmp_path):
    if chromium() is None:
        pytest.skip("no Chromium")
    status, out, err = make("--columns", "100")
    assert (status, err) == (0, "")
    assert out.split() == [f"pictures/{name}" for name in ("terminal.svg", "terminal.png", "report.png")]
    for name, width in (("terminal.png", None), ("report.png", 1000)):
        head = (tmp_path / "pictures" / name).read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        size = struct.unpack(">II", head[16:24])
        assert size[0] == (width or make_screenshots.size_of((tmp_path / out.split()[0]).read_text())[0])
