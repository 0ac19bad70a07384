#!/usr/bin/env python
"""Which one-line mistakes do the tests not notice? Draws mutants of the rooms that decide figures and tests each.

    pip install cosmic-ray
    python scripts/mutant_campaign.py --count 300 --seed 17 --records results/mutants.jsonl

A mutant is one change by an operator of cosmic-ray (+ to -, < to <=, True to False, a number by one) at one place of
the code; places are drawn with equal chance, and changes of annotations alone are not drawn. Each is tried in a copy
of the checkout until a test fails: by the quick tests of its module (named like it, or importing it), by those of its
room, then by the slow tests of its module. A test that fails without the change too has noticed nothing. A run that was
stopped goes on where it was: what stands in --records is not tried again. Prints the share that was noticed, by room,
and the diff of every mutant that was not.

Exit status: 0 done, 2 bad arguments, 4 the tests fail without a mutant.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
# Room -> the tests that are asked for it, beside those of the same name; nearest first.
ROOMS = {
    "profiler/batch_size": [
        "tests/profiler/batch_size",
        "tests/profiler/run/test_training_choice.py",
        "tests/scripts/test_recommend_batch_size.py",
    ],
    "profiler/allocator": ["tests/profiler/allocator", "tests/profiler/prediction"],
    "profiler/prediction": [
        "tests/profiler/prediction",
        "tests/profiler/gpu_check",
        "tests/profiler/own_step",
        "tests/profiler/plan",
    ],
    "profiler/counting": ["tests/profiler/counting"],
    "profiler/record": [
        "tests/profiler/record",
        "tests/profiler/run",
        "tests/scripts/test_profile_model_resume.py",
    ],
    "training/step": ["tests/training/step", "tests/training/run"],
}
# Processes of other counters, with whole networks: they decide nothing but what of our own is about them.
OTHER_COUNTERS = "profiler/counting/other_counters"
CPU_LIMIT_S = 300
TIMEOUT_S = 3600
# What tells a mutant from another in the records: `before` is its line without the change.
KEY = ("module", "operator", "occurrence", "before")
NOT_NOTICED = ("passed", "no tests", "unstable")


@dataclass(frozen=True)
class Mutant:
    """One change: by which operator, at which of the places that it fits in the module."""

    module: str
    line: int
    operator: str
    occurrence: int


def mutated(source: str, operator: str, occurrence: int) -> str:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    return mutate_code(source, get_operator(operator)(), occurrence)


def places(module: str) -> dict[tuple[int, int], list[Mutant]]:
    """Every place of a module that some operator fits, and the mutants there."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast_from_path(CHECKOUT / module)))
    found: dict[tuple[int, int], list[Mutant]] = {}
    for name in operator_names():
        if get_operator(name).arguments():
            continue  # replaces names that one has to give it
        operator, occurrence = get_operator(name)(), 0
        for node in nodes:
            for (line, column), _ in operator.mutation_positions(node):
                found.setdefault((line, column), []).append(Mutant(module, line, name, occurrence))
                occurrence += 1
    return found


def behaviour(source: str) -> str:
    """The program without annotations and docstrings, which change nothing that runs."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
    return ast.dump(tree)


def drawn(count: int, seed: int, rooms: list[str]) -> list[Mutant]:
    """Mutants of as many different places, drawn by the seed."""
    every = []
    for room in rooms:
        for file in sorted((CHECKOUT / room).rglob("*.py")):
            module = str(file.relative_to(CHECKOUT))
            every += [(module, place, mutants) for place, mutants in sorted(places(module).items())]
    chance = random.Random(seed)
    chance.shuffle(every)
    chosen: list[Mutant] = []
    for module, _, mutants in every:
        mutant = chance.choice(mutants)
        source = (CHECKOUT / module).read_text(encoding="utf-8")
        try:
            changes = behaviour(mutated(source, mutant.operator, mutant.occurrence)) != behaviour(source)
        except (SyntaxError, AttributeError):  # the latter from exception_replacer, at `except a.B:`
            continue
        if changes:
            chosen.append(mutant)
        if len(chosen) == count:
            break
    return chosen


def room_of(module: str) -> str:
    return next(room for room in ROOMS if module.startswith(f"{room}/"))


def tests_of(module: str, checkout: Path) -> tuple[list[str], list[str]]:
    """Test files and folders for a module: those of its name and those that import it, then those of its room."""
    rooms = [f"tests/{OTHER_COUNTERS}"] if module.startswith(OTHER_COUNTERS) else ROOMS[room_of(module)]
    stem = Path(module).stem
    named = [
        file
        for file in sorted((checkout / "tests" / Path(module).parent).glob("test_*.py"))
        if stem in file.stem or file.stem.removeprefix("test_") in stem
    ]
    dotted = module.removesuffix(".py").replace("/", ".")
    importing = [
        file
        for file in sorted((checkout / "tests").rglob("test_*.py"))
        if re.search(rf"\b{re.escape(dotted)}\b", file.read_text(encoding="utf-8"))
    ]
    own = [str(file.relative_to(checkout)) for file in dict.fromkeys([*named, *importing])]
    return own, [path for path in rooms if (checkout / path).exists()]


class FirstFailure:
    """pytest plugin: sends the names of tests that fail, of which there is one, as pytest stops there."""

    def __init__(self, sender: Connection) -> None:
        self.sender = sender

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.sender.send(report.nodeid)

    pytest_collectreport = pytest_runtest_logreport


def run_tests(checkout: Path, tests: list[str], marked: str = "not slow") -> tuple[str, str]:
    """ "passed", or what ended it, and the first test that failed. In a fork, which has PyTorch imported already."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_run_here, args=(checkout, tests, marked, sender))
    child.start()
    assert child.pid is not None  # it has been started
    sender.close()
    child.join(TIMEOUT_S)
    code = child.exitcode
    outcomes = {None: "timeout", 0: "passed", 1: "failed", 2: "failed", 5: "no tests"}
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.join()
    failed = ""
    with receiver, contextlib.suppress(EOFError):
        failed = receiver.recv() if receiver.poll() else ""
    return outcomes.get(code, f"exit {code}"), failed


def _run_here(checkout: Path, tests: list[str], marked: str, sender: Connection) -> None:
    os.setsid()
    # Of each process that the tests start, in CPU seconds: a busy machine does not end a test.
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    os.chdir(checkout)
    sys.path[:0] = [str(checkout / "src"), str(checkout)]
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    import pytest

    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", marked, "--tb=no"]
    if not any(OTHER_COUNTERS in test for test in tests):
        options.append(f"--ignore=tests/{OTHER_COUNTERS}")
    os._exit(int(pytest.main([*options, *tests], plugins=[FirstFailure(sender)])))


def verdict(checkout: Path, file: Path, changed: str, module: str) -> tuple[str, str]:
    """The outcome with the change in its file, and the test that noticed it.

    Quick tests of the module and of its room come first, then the slow ones of the module.

    A test that fails without the change too notices nothing: it is tried once more, and where it fails again the
    outcome is "unstable", which is counted as not noticed.
    """
    source = file.read_text(encoding="utf-8")
    try:
        file.write_text(changed, encoding="utf-8")
        own, room = tests_of(module, checkout)
        outcome, noticed_by = run_tests(checkout, [*own, *room])
        if outcome == "passed" and own:
            slow, by = run_tests(checkout, own, "slow")
            if slow != "no tests":
                outcome, noticed_by = slow, by
    finally:
        file.write_text(source, encoding="utf-8")
    if outcome == "failed" and "::" in noticed_by and run_tests(checkout, [noticed_by], "")[0] != "passed":
        return "unstable", noticed_by
    return outcome, noticed_by


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument(
        "--part",
        default="1/1",
        metavar="I/N",
        help="only every N-th, from the I-th: N runs at a time share the work",
    )
    parser.add_argument(
        "--again", action="store_true", help="try those of --records anew that no test has noticed"
    )
    parser.add_argument("--records", type=Path, default=CHECKOUT / "results" / "mutants.jsonl")
    for stream in (sys.stdout, sys.stderr):
        # Not by the package, which no fork may have imported from here.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    args = parser.parse_args(argv)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True
    )
    mutants = drawn(args.count, args.seed, args.rooms)
    part, parts = map(int, args.part.split("/"))
    mutants = mutants[part - 1 :: parts]
    import torch  # noqa: F401  every fork has it

    args.records.parent.mkdir(parents=True, exist_ok=True)
    lines = args.records.read_text(encoding="utf-8").splitlines() if args.records.exists() else []
    known = {tuple(entry[part] for part in KEY): entry for entry in map(json.loads, lines)}
    if args.again:
        known = {key: entry for key, entry in known.items() if entry["outcome"] not in NOT_NOTICED}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(
            CHECKOUT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build", "__pycache__")
        )
        for number, mutant in enumerate(mutants, 1):
            file = copy / mutant.module
            source = file.read_text(encoding="utf-8")
            changed = mutated(source, mutant.operator, mutant.occurrence)
            before = source.splitlines()[mutant.line - 1].strip()
            key = (mutant.module, mutant.operator, mutant.occurrence, before)
            if key not in known:
                started = time.monotonic()
                outcome, noticed_by = verdict(copy, file, changed, mutant.module)
                diff = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
                entry = {
                    **asdict(mutant),
                    "commit": commit.stdout.strip(),
                    "before": before,
                    "outcome": outcome,
                    "noticed_by": noticed_by,
                    "diff": [line for line in list(diff)[2:] if line[:1] in "+-"],
                    "seconds": round(time.monotonic() - started, 1),
                }
                with args.records.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(entry) + "\n")
                known[key] = entry
            results.append(known[key])
            print(
                f"{number}/{len(mutants)} {mutant.module}:{mutant.line} {known[key]['outcome']}",
                file=sys.stderr,
            )
    report(results)
    return 0


def report(results: list[dict]) -> None:
    tried = Counter(room_of(entry["module"]) for entry in results)
    noticed = Counter(room_of(entry["module"]) for entry in results if entry["outcome"] not in NOT_NOTICED)
    for room in tried:
        print(f"{room}: {noticed[room]} of {tried[room]} noticed")
    print(f"all: {sum(noticed.values())} of {sum(tried.values())} noticed")
    for entry in results:
        if entry["outcome"] in NOT_NOTICED:
            print(f"\n{entry['module']}:{entry['line']} {entry['operator']}", *entry["diff"], sep="\n  ")


if __name__ == "__main__":
    sys.exit(main())
