#!/usr/bin/env python
"""Which one-line mistakes do the tests not notice? Draws mutants of the rooms that decide figures and tests each.

    pip install cosmic-ray
    python scripts/mutant_campaign.py --count 300 --seed 17 --records results/mutants.jsonl

A mutant is one change by an operator of cosmic-ray (+ to -, < to <=, True to False, a number by one) at one place of
the code; places are drawn with equal chance, and changes of annotations alone are not drawn. Each is tried in a copy
of the checkout by the tests of its module, then by those of its room, until one fails. A run that was stopped goes on
where it was: what stands in --records is not tried again. Prints the share that was noticed, by room, and the diff of
every mutant that was not.

Exit status: 0 done, 2 bad arguments, 4 the tests fail without a mutant.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
# Room -> the tests that are asked for it, beside those of the same name; nearest first.
ROOMS = {
    "profiler/batch_size": ["tests/profiler/batch_size", "tests/profiler/run/test_training_choice.py"],
    "profiler/allocator": ["tests/profiler/allocator", "tests/profiler/prediction"],
    "profiler/prediction": ["tests/profiler/prediction", "tests/profiler/gpu_check"],
    "profiler/counting": ["tests/profiler/counting"],
    "profiler/record": [
        "tests/profiler/record",
        "tests/profiler/run",
        "tests/scripts/test_profile_model_resume.py",
    ],
    "training/step": ["tests/training/step", "tests/training/run"],
}
# Another counter's process and whole networks: nothing of the room is decided there.
LEFT_OUT = ("--ignore=tests/profiler/counting/other_counters",)
TIMEOUT_S = 600


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
        except SyntaxError:
            continue
        if changes:
            chosen.append(mutant)
        if len(chosen) == count:
            break
    return chosen


def tests_of(module: str, checkout: Path) -> list[str]:
    """Test files and folders for a module, the nearest first; none twice."""
    room = next(room for room in ROOMS if module.startswith(f"{room}/"))
    stem = Path(module).stem
    own = [
        str(file.relative_to(checkout))
        for file in sorted((checkout / "tests" / Path(module).parent).glob("test_*.py"))
        if stem in file.stem or file.stem.removeprefix("test_") in stem
    ]
    return [*own, *(path for path in ROOMS[room] if (checkout / path).exists())]


def run_tests(checkout: Path, tests: list[str]) -> str:
    """ "passed", or what ended it. In a fork of this process, which has imported PyTorch already."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(checkout)
        sys.path[:0] = [str(checkout / "src"), str(checkout)]
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        import pytest

        options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", "--tb=no", *LEFT_OUT]
        os._exit(int(pytest.main([*options, *tests])))
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return {0: "passed", 1: "failed", 5: "no tests"}.get(code, f"exit {code}")
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
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
    import torch  # noqa: F401  every fork has it

    args.records.parent.mkdir(parents=True, exist_ok=True)
    known = {}
    if args.records.exists():
        for line in args.records.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            known[entry["module"], entry["operator"], entry["occurrence"], entry["before"]] = entry
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
                file.write_text(changed, encoding="utf-8")
                outcome = run_tests(copy, tests_of(mutant.module, copy))
                file.write_text(source, encoding="utf-8")
                diff = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
                entry = {
                    **asdict(mutant),
                    "commit": commit.stdout.strip(),
                    "before": before,
                    "outcome": outcome,
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
    noticed: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for entry in results:
        room = next(room for room in ROOMS if entry["module"].startswith(f"{room}/"))
        tried[room] += 1
        noticed[room] += entry["outcome"] not in ("passed", "no tests")
    for room in tried:
        print(f"{room}: {noticed[room]} of {tried[room]} noticed")
    print(f"all: {sum(noticed.values())} of {sum(tried.values())} noticed")
    for entry in results:
        if entry["outcome"] in ("passed", "no tests"):
            print(f"\n{entry['module']}:{entry['line']} {entry['operator']}", *entry["diff"], sep="\n  ")


if __name__ == "__main__":
    sys.exit(main())
