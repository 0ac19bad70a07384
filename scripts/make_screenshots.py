#!/usr/bin/env python3
"""Makes the pictures of the documents from profiles: the answer on a terminal, the report, and a comparison.

    python scripts/make_screenshots.py results/a.json results/b.json --output docs/pictures

The answer and the report of the first profile; a comparison where there are several. Writes terminal.svg (by rich's
export, without the font that it would fetch), and by a headless Chromium terminal.png, report_*.png, comparison_*.png:
the head of a page on a desk, in the dark, and on a phone. Without a Chromium the SVG alone, and exit status 4. Other
statuses: 0 done, 2 bad arguments or profile.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.atomic_files import OutputError, reason, write_text
from swinmr_profiling.configs.writing.standard_streams import complain, say
from swinmr_profiling.profiler.comparing.comparison import compare
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE, EXIT_PARTIAL
from swinmr_profiling.profiler.options.option_types import OneLineParser, at_least, parse_options
from swinmr_profiling.profiler.record.files.private_record import private_content
from swinmr_profiling.profiler.record.files.reading import (
    LoadedProfile,
    load_profile,
    parse_profile,
)
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.console.summary import print_answer
from swinmr_profiling.profiler.reports.console.terminal import LEAST_WIDTH, WIDTH, Console
from swinmr_profiling.profiler.reports.exports import require
from swinmr_profiling.profiler.reports.views.view import view_of
from swinmr_profiling.scripts.browser.headless_chromium import NAMES, BrowserError, chromium, opened

# Pixels, width and height, and the colour scheme.
Shot = tuple[int, int, str]
PAGE_SHOTS = {
    "desk": (1280, 1500, "light"),
    "desk_dark": (1280, 1500, "dark"),
    "phone": (390, 1500, "light"),
}
# rich's SVG names a font on a server; the terminal's own is as good.
WEB_FONT = re.compile(r"\s*@font-face \{[^}]*\}")


class Terminal(io.StringIO):
    """Takes colours and every character, as a terminal in UTF-8 does."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def nameless(loaded: LoadedProfile) -> LoadedProfile:
    """The profile without what names a user, a machine or a folder: pictures are for strangers."""
    content = private_content(loaded.profile.to_json())
    return parse_profile(json.dumps(content), Path(loaded.file).name)


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


def pages_of(profiles: list[LoadedProfile]) -> dict[str, str]:
    """Name -> HTML: the report of the first, and the comparison of several."""
    from swinmr_profiling.profiler.comparing.written_files import html_text as comparison_text
    from swinmr_profiling.profiler.reports.html.html_file import html_text

    views = [view_of(one) for one in profiles]
    pages = {"report": html_text(views[0])}
    if len(views) > 1:
        pages["comparison"] = comparison_text(compare(views))
    return pages


def photograph(page: Path, shots: dict[Path, Shot]) -> None:
    """PNGs of the head of a local page. Raises OutputError where the browser does not do it."""
    try:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            opened(page, Path(folder)) as tab,
        ):
            for file, (width, height, scheme) in shots.items():
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                tab.call("Emulation.setEmulatedMedia", features=features)
                tab.screenshot(file, width, height)
    except BrowserError as error:
        raise OutputError(f"{next(iter(shots))}: no picture: {error}") from error


def photograph_all(profiles: list[LoadedProfile], svg: Path, folder: Path) -> list[Path]:
    """All PNGs. Raises OutputError, MissingPackageError, OSError."""
    terminal = folder / "terminal.png"
    photograph(svg, {terminal: (*size_of(svg.read_text(encoding="utf-8")), "light")})
    taken = [terminal]
    with tempfile.TemporaryDirectory() as made:
        for name, text in pages_of(profiles).items():
            page = Path(made, f"{name}.html")
            page.write_text(text, encoding="utf-8")
            shots = {folder / f"{name}_{shot}.png": size for shot, size in PAGE_SHOTS.items()}
            photograph(page, shots)
            taken += shots
    return taken


def columns(text: str) -> int:
    """Columns of a terminal."""
    return at_least(text, LEAST_WIDTH)


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse_options(
        OneLineParser(prog="make_screenshots.py", description="Make the documents' pictures from profiles."),
        arguments,
        {
            "profiles": dict(nargs="+", metavar="PROFILE.json", help="several: a comparison too"),
            "--output": dict(
                type=Path, default=Path("docs/pictures"), metavar="FOLDER", help="default docs/pictures"
            ),
            "--columns": dict(type=columns, default=WIDTH, metavar="N", help=f"default {WIDTH}"),
        },
    )
    svg = parsed.output / "terminal.svg"
    try:
        require(("jinja2", "matplotlib"), "the report's picture")
        profiles = [nameless(load_profile(Path(file))) for file in parsed.profiles]
        write_text(svg, terminal_svg(profiles[0].profile, parsed.columns))
        say(str(svg))
        if chromium() is None:
            complain(f"error: no PNG: none of {', '.join(NAMES)} is installed")
            return EXIT_PARTIAL
        for file in photograph_all(profiles, svg, parsed.output):
            say(str(file))
    except OSError as error:
        raise OutputError(f"{parsed.output}: {reason(error)}") from None
    return EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
