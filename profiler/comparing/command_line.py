"""The options of `compare_profiles.py`."""

from __future__ import annotations

import argparse
import re

from swinmr_profiling.profiler.options.option_types import OneLineParser


def share(text: str) -> float:
    """ "5%" or "0.05" -> 0.05."""
    match = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,6})?)\s*(%?)\s*", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a share such as 5% or 0.05")
    value = float(match.group(1)) / (100 if match.group(2) else 1)
    if not match.group(2) and value >= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: {value:g} times slower? {match.group(1)}% is a share")
    return value


def parse_compare_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="compare_profiles.py",
        description="Put profiles side by side: ratios to the first, what is noise, what is not comparable.",
    )
    add = parser.add_argument
    add(
        "profiles",
        nargs="+",
        metavar="PROFILE.json",
        help="written by profile_model.py, of any schema version",
    )
    add("--html", metavar="FILE", help="write the comparison as one HTML file (extra: report)")
    add("--markdown", metavar="FILE", help="write it as Markdown")
    add("--csv", metavar="FILE", help="write it as CSV, a line per figure and profile")
    add("--github-summary", action="store_true", help="add it to the summary of a GitHub Actions job")
    add("--fail-if-slower", type=share, metavar="SHARE", help=(
        "exit 5 if a profile's latency is this much above the first's, such as 5%%, and not known to be noise"
    ))  # fmt: skip
    add("--quiet", action="store_true", help="print nothing but errors")
    return parser.parse_args(arguments)
