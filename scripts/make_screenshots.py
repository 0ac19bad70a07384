#!/usr/bin/env python3
"""Makes the pictures of the documents from a profile: the answer on a terminal, and the head of the HTML report.

    python scripts/make_screenshots.py results/profile_results.json --output docs

Writes terminal.svg (by rich's export, without the font that it would fetch), and terminal.png and report.png by a
headless Chromium; without one the SVG alone, and exit status 4. Other statuses: 0 done, 2 bad arguments or profile.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.atomic_files import OutputError, reason, write_text
from swinmr_profiling.configs.writing.standard_streams import complain, replace_unknown_characters, say
from swinmr_profiling.profiler.options.exit_codes import EXIT_BAD_INPUT, EXIT_DONE, EXIT_PARTIAL
from swinmr_profiling.profiler.options.option_types import OneLineParser, at_least
from swinmr_profiling.profiler.record.files.private_record import private_content
from swinmr_profiling.profiler.record.files.reading import (
    LoadedProfile,
    ProfileFileError,
    load_profile,
    parse_profile,
)
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.console.answer import print_answer
from swinmr_profiling.profiler.reports.console.terminal import LEAST_WIDTH, WIDTH, Console
from swinmr_profiling.profiler.reports.optional import MissingPackageError, require
from swinmr_profiling.profiler.reports.views.view import view_of

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
BROWSER_TIMEOUT_S = 120
# Pixels, width and height: the head of the report.
REPORT_SIZE = (1000, 900)
# rich's SVG names a font on a server; the terminal's own is as good.
WEB_FONT = re.compile(r"\s*@font-face \{[^}]*\}")


class Terminal(io.StringIO):
    """Takes colours and every character, as a terminal in UTF-8 does."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def nameless(loaded: LoadedProfile) -> LoadedProfile:
    """The profile without what names a user and a machine: pictures are for strangers."""
    content = private_content(loaded.profile.to_json())
    return parse_profile(json.dumps(content), loaded.file)


def terminal_svg(profile: Profile, columns: int) -> str:
    """The answer of a profile as `profile_model.py` prints it on a terminal of so many columns."""
    from rich.console import Console as RichConsole
    from rich.text import Text

    stream = Terminal()
    console = Console(stream, columns)
    console.coloured = True  # whatever NO_COLOR says where the picture is made
    print_answer(console, profile)
    recorder = RichConsole(record=True, width=columns, file=io.StringIO(), highlight=False, _environ={})
    recorder.print(Text.from_ansi(stream.getvalue().strip("\n")))
    return WEB_FONT.sub("", recorder.export_svg(title="profile_model.py"))


def size_of(svg: str) -> tuple[int, int]:
    """Width and height of the picture, in pixels, rounded up."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None, "rich writes a viewBox"
    return int(float(found[1])) + 1, int(float(found[2])) + 1


def photograph(browser: str, page: Path, file: Path, size: tuple[int, int]) -> None:
    """A PNG of a local page. Raises OutputError."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            browser,
            *BROWSER_FLAGS,
            f"--user-data-dir={folder}/browser",
            f"--window-size={size[0]},{size[1]}",
            f"--screenshot={folder}/picture.png",
            page.resolve().as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=BROWSER_TIMEOUT_S)
            picture = Path(folder, "picture.png")
            if not picture.is_file():
                raise OutputError(f"{file}: {browser} ended with {done.returncode} and without a picture")
            shutil.copyfile(picture, file)
        except subprocess.TimeoutExpired:
            raise OutputError(f"{file}: no picture within {BROWSER_TIMEOUT_S} s") from None


def photograph_all(browser: str, loaded: LoadedProfile, svg: Path, folder: Path) -> list[Path]:
    """The two PNGs. Raises OutputError, MissingPackageError, OSError."""
    from swinmr_profiling.profiler.reports.html.html_file import html_text

    terminal, report = folder / "terminal.png", folder / "report.png"
    photograph(browser, svg, terminal, size_of(svg.read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as made:
        page = Path(made, "report.html")
        page.write_text(html_text(view_of(loaded)), encoding="utf-8")
        photograph(browser, page, report, REPORT_SIZE)
    return [terminal, report]


def columns(text: str) -> int:
    """Columns of a terminal."""
    return at_least(text, LEAST_WIDTH)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command."""
    parser = OneLineParser(
        prog="make_screenshots.py", description="Make the documents' pictures from a profile."
    )
    parser.add_argument("profile", metavar="PROFILE.json")
    parser.add_argument("--output", type=Path, default=Path("docs"), metavar="FOLDER", help="default docs")
    parser.add_argument("--columns", type=columns, default=WIDTH, metavar="N", help=f"default {WIDTH}")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    replace_unknown_characters()
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    svg = parsed.output / "terminal.svg"
    try:
        require(("jinja2", "matplotlib"), "the report's picture")
        loaded = nameless(load_profile(Path(parsed.profile)))
        write_text(svg, terminal_svg(loaded.profile, parsed.columns))
        say(str(svg))
        browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
        if browser is None:
            complain(f"error: no PNG: none of {', '.join(BROWSERS)} is installed")
            return EXIT_PARTIAL
        for file in photograph_all(browser, loaded, svg, parsed.output):
            say(str(file))
    except (ProfileFileError, MissingPackageError, OutputError) as error:
        complain(f"error: {error}")
        return EXIT_BAD_INPUT
    except OSError as error:
        complain(f"error: {parsed.output}: {reason(error)}")
        return EXIT_BAD_INPUT
    return EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
