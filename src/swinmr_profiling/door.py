"""`swinmr-profile SUBCOMMAND ...`: the commands of this package from any folder, with their own options."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from importlib import import_module

from swinmr_profiling import command
from swinmr_profiling.program import DOOR, SUBCOMMANDS, run_as, version

EXIT_DONE, EXIT_BAD_INPUT = 0, 2


def usage() -> str:
    """Every subcommand in a line."""
    lines = [f"usage: {DOOR} SUBCOMMAND [options]", ""]
    lines += [f"  {name:<10} {subcommand.summary}" for name, subcommand in SUBCOMMANDS.items()]
    return "\n".join(
        [*lines, "", f"{DOOR} SUBCOMMAND --help lists the options of one; --version says which this is."]
    )


def main() -> int:
    """Runs the console command; does not return where a subcommand was found."""
    command.begin()
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    given = sys.argv[1:]
    if not given or given[0] in ("-h", "--help"):
        print(usage())
        return EXIT_DONE if given else EXIT_BAD_INPUT
    if given[0] == "--version":
        print(f"{DOOR} {version()}")
        return EXIT_DONE
    if given[0] not in SUBCOMMANDS:
        near = difflib.get_close_matches(given[0], SUBCOMMANDS, 1)
        meant = f"did you mean {near[0]}?" if near else f"one of {', '.join(SUBCOMMANDS)}"
        print(f"error: no subcommand {given[0]!r}: {meant} (--help lists them)", file=sys.stderr)
        return EXIT_BAD_INPUT
    run_as(given[0])
    sys.argv = [f"{DOOR} {given[0]}", *given[1:]]
    command.run(_main_of(given[0]))


def _main_of(name: str) -> Callable[[], int]:
    path = list(sys.path)
    module = import_module(f"swinmr_profiling.{SUBCOMMANDS[name].module}")
    # Run as files, commands put the folder of the package there themselves.
    sys.path[:] = path
    return module.main


def _complete() -> None:
    """Completion of a shell (argcomplete): of the subcommand here, of its options by the subcommand's own parser.

    `eval "$(register-python-argcomplete swinmr-profile)"` in the shell's start file turns it on.
    """
    words = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))].split()
    started = words[1:2] if len(words) > 2 or os.environ["COMP_LINE"].endswith(" ") else []
    if started and started[0] in SUBCOMMANDS:
        # The parser that is asked next takes the word after this one as the first of its own.
        os.environ["_ARGCOMPLETE"] = str(int(os.environ["_ARGCOMPLETE"]) + 1)
        run_as(started[0])
        _main_of(started[0])()
    import argparse

    import argcomplete

    parser = argparse.ArgumentParser(prog=DOOR)
    parser.add_argument("subcommand", choices=list(SUBCOMMANDS))
    argcomplete.autocomplete(parser)
