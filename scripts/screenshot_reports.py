#!/usr/bin/env python3
"""Makes the pictures of the docs: a report and a comparison in headless Chromium, on a desk and on a phone.

    python scripts/screenshot_reports.py results/a.json results/b.json --output docs/pictures

The first profile's report, and the comparison of all. Needs Chromium, and a clone of the repository.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY)]

from tests.headless_chromium import chromium, opened  # noqa: E402

# isort: split
import swinmr_profiling.command  # noqa: E402 - takes both folders off sys.path
from swinmr_profiling.configs.writing.standard_streams import replace_unknown_characters  # noqa: E402
from swinmr_profiling.profiler.comparing.comparison import compare  # noqa: E402
from swinmr_profiling.profiler.comparing.written_files import html_text as comparison_text  # noqa: E402
from swinmr_profiling.profiler.record.files.reading import ProfileFileError, load_profile  # noqa: E402
from swinmr_profiling.profiler.reports.html.html_file import html_text  # noqa: E402
from swinmr_profiling.profiler.reports.views.view import view_of  # noqa: E402

# Name, width and height in pixels, colour scheme.
SHOTS = (("desk", 1280, 1500, "light"), ("desk_dark", 1280, 1500, "dark"), ("phone", 390, 1500, "light"))


def take(
    page: Path, name: str, folder: Path, shots: tuple[tuple[str, int, int, str], ...] = SHOTS
) -> list[Path]:
    """Pictures of the top of a page, `<name>_<shot>.png`."""
    taken = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as browser,
        opened(page, Path(browser)) as tab,
    ):
        for shot, width, height, scheme in shots:
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            tab.call("Emulation.setEmulatedMedia", features=features)
            file = folder / f"{name}_{shot}.png"
            tab.screenshot(file, width, height)
            taken.append(file)
    return taken


def main(arguments: list[str] | None = None) -> int:
    replace_unknown_characters()
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("profiles", nargs="+", metavar="FILE", help="profiles; the report is of the first")
    parser.add_argument("--output", default="docs/pictures", metavar="DIR", help="default docs/pictures")
    parsed = parser.parse_args(arguments)
    if chromium() is None:
        parser.error("no Chromium is installed here")
    folder = Path(parsed.output)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        views = [view_of(load_profile(file)) for file in parsed.profiles]
    except ProfileFileError as error:
        parser.error(str(error))
    pages = {"report": html_text(views[0]), "comparison": comparison_text(compare(views))}
    with tempfile.TemporaryDirectory() as temporary:
        for name, text in pages.items():
            page = Path(temporary) / f"{name}.html"
            page.write_text(text, encoding="utf-8")
            for file in take(page, name, folder):
                print(file)
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
