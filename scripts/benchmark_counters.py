"""Which counter of multiply-adds is right: hand-derived cases and whole networks through ours and the others.

    python scripts/benchmark_counters.py                    # operator cases, networks, speed
    python scripts/benchmark_counters.py --only cases --list  # every case that a counter gets wrong

Counters that are not installed are left out and named. Every counter gets a network of its own, in evaluation mode,
and prints its figure in multiply-adds by its own convention.
"""

import argparse
import contextlib
import copy
import importlib
import io
import logging
import multiprocessing
import resource
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import nn

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.options.option_types import OneLineParser, parse_options
from swinmr_profiling.scripts.counter_cases.case_modules import Case
from swinmr_profiling.scripts.counter_cases.foreign_operators import FOREIGN
from swinmr_profiling.scripts.counter_cases.operators import CASES

CLOSE = 0.05  # as far off as a reader of a rounded figure would not notice
GROUPS = ("exact", "off by up to 5 %", "off by more", "silently zero", "listed as unknown", "raises")


class Unknown(Exception):  # noqa: N818 not an error: the counter says that it does not know
    """The counter lists operators that it has not counted."""


def ours(module: nn.Module, inputs: tuple) -> int:
    report = count_forward(module, inputs)
    if report.uncounted_operators:
        raise Unknown(", ".join(report.uncounted_operators))
    return report.macs


def fvcore(module: nn.Module, inputs: tuple) -> float:
    from fvcore.nn import FlopCountAnalysis

    with torch.no_grad():
        return FlopCountAnalysis(module, inputs).total()


def thop(module: nn.Module, inputs: tuple) -> float:
    from thop import profile

    return profile(module, inputs, verbose=False)[0]


def flop_counter_mode(module: nn.Module, inputs: tuple) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as mode:
        module(*inputs)
    return mode.get_total_flops() / 2


def calflops(module: nn.Module, inputs: tuple) -> float:
    from calflops import calculate_flops

    if next(module.parameters(), None) is None:
        # It asks the first parameter for the device; a bare function has none.
        module.register_parameter("unused", nn.Parameter(torch.zeros(1)))
    return calculate_flops(
        module, args=list(inputs), print_results=False, print_detailed=False, output_as_string=False
    )[1]


def ptflops(module: nn.Module, inputs: tuple) -> float:
    from ptflops import get_model_complexity_info

    class OneInput(nn.Module):
        """ptflops passes one input."""

        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, batch):
            return self.module(*batch)

    macs, _ = get_model_complexity_info(
        OneInput(),
        (1,),
        input_constructor=lambda _: inputs,
        as_strings=False,
        print_per_layer_stat=False,
        verbose=False,
    )
    if macs is None:
        raise RuntimeError("no figure")
    return macs


def torchinfo(module: nn.Module, inputs: tuple) -> float:
    from torchinfo import summary

    return summary(module, input_data=list(inputs), verbose=0).total_mult_adds


COUNTERS: dict[str, Callable[[nn.Module, tuple], float]] = {
    "ours": ours,
    "fvcore": fvcore,
    "thop": thop,
    "FlopCounterMode": flop_counter_mode,
    "calflops": calflops,
    "ptflops": ptflops,
    "torchinfo": torchinfo,
}


PACKAGES = ("fvcore", "thop", "calflops", "ptflops", "torchinfo")


def judge(figure: float, macs: int) -> str:
    if figure == macs:
        return "exact"
    if figure == 0:
        return "silently zero"
    return "off by up to 5 %" if macs and abs(figure - macs) <= CLOSE * macs else "off by more"


def ask(counter: str, case: Case) -> tuple[str, float | None, float, str]:
    """(group, figure, seconds, message) of one counter for one case.

    In a forked process: some counters leave torch's functions patched when they raise, and would spoil the next case.
    The parent imports torch but runs nothing of it, so that forking is safe.
    """
    fork = multiprocessing.get_context("fork")
    reader, writer = fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: writer.send(_ask_here(counter, case)))
    process.start()
    writer.close()
    try:
        return reader.recv()
    except EOFError:
        return "raises", None, 0.0, "the process died"
    finally:
        process.join()


class Answers(NamedTuple):
    """How many cases of each group, the seconds they took in all, and a row of each that is not exact."""

    groups: Counter[str]
    seconds: float
    wrong: list[list[str]]


def ask_all(counter: str, cases: Sequence[Case]) -> Answers:
    groups: Counter[str] = Counter()
    seconds, wrong = 0.0, []
    for case in cases:
        group, figure, took, message = ask(counter, case)
        groups[group] += 1
        seconds += took
        if group != "exact":
            shown = message if figure is None else f"{figure:,.0f}"
            wrong.append([counter, case.name, group, f"{case.macs:,}", shown])
    return Answers(groups, seconds, wrong)


def _ask_here(counter: str, case: Case) -> tuple[str, float | None, float, str]:
    torch.manual_seed(0)
    module, inputs = case.build()
    inputs = copy.deepcopy(inputs)
    started = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            figure = COUNTERS[counter](module, inputs)
    except Unknown as unknown:
        return "listed as unknown", None, time.perf_counter() - started, str(unknown)
    except Exception as error:
        return "raises", None, time.perf_counter() - started, one_line(error, 80)
    return judge(figure, case.macs), figure, time.perf_counter() - started, ""


def table(header: list[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def run_cases(counters: list[str], listing: bool) -> None:
    print(f"{len(CASES)} operator cases, MACs derived by hand\n")
    answers = [ask_all(counter, CASES) for counter in counters]
    columns = [[*(one.groups[group] for group in GROUPS), f"{one.seconds:.1f}"] for one in answers]
    print(table(["", *counters], zip((*GROUPS, "seconds"), *columns, strict=True)))
    list_wrong(listing, answers)


def run_foreign(counters: list[str], listing: bool) -> None:
    print("\nComplex, integer, threaded and scripted work: exact of all, and zero without a word\n")
    answers = {name: [ask_all(counter, cases) for counter in counters] for name, cases in FOREIGN.items()}
    print(table(["", *counters], ([name, *map(exact_of, found)] for name, found in answers.items())))
    list_wrong(listing, chain.from_iterable(answers.values()))


def exact_of(answers: Answers) -> str:
    zero = f", {answers.groups['silently zero']} zero" if answers.groups["silently zero"] else ""
    return f"{answers.groups['exact']} of {answers.groups.total()}{zero}"


def list_wrong(listing: bool, answers: Iterable[Answers]) -> None:
    if listing:
        rows = chain.from_iterable(one.wrong for one in answers)
        print("\n" + table(["counter", "case", "", "MACs", "its figure"], rows))


def run_networks(counters: list[str]) -> None:
    from swinmr_profiling.scripts.counter_cases.derived_networks import NETWORKS

    print("\nWhole networks, batch 1: figure in GMACs (difference in %), seconds\n")
    rows = [[case.name, f"{case.macs:,}", *(cell(name, case) for name in counters)] for case in NETWORKS]
    print(table(["network", "MACs", *counters], rows))


def cell(counter: str, case: Case) -> str:
    """What a counter says of a network."""
    _, figure, seconds, message = ask(counter, case)
    if figure is None:
        return message.partition(":")[0]
    said = f"{figure / 1e9:.2f} ({100 * (figure / case.macs - 1):+.1f} %)"
    return f"{'exact' if figure == case.macs else said}, {seconds:.1f} s"


# Each in a fresh process, so that the peak of resident memory is its own.
SPEED = {
    "FLUX.1-dev transformer, 4096 + 512 tokens": "flux",
    "SwinMR as published, 256 x 256": "swinmr",
}


def run_speed() -> None:
    print("\nOur own speed, in a fresh process after imports\n")
    rows = []
    for name, which in SPEED.items():
        child = subprocess.run(
            [sys.executable, __file__, "--measure", which],
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
        answer = child.stdout.strip().splitlines()[-1:] or [child.stderr.strip().splitlines()[-1]]
        rows.append([name, *(answer[0].split("\t") if child.returncode == 0 else [answer[0], "", "", ""])])
    print(table(["network", "count, s", "bare meta forward, s", "times", "peak resident, MB"], rows))


def measure(which: str) -> None:
    """One row of the speed table, tab-separated: the first count of the process, then the quickest bare forward."""
    from swinmr_profiling.scripts.counter_cases.derived_networks import flux_on_meta, swinmr_on_meta

    module, inputs, kwargs = {"flux": flux_on_meta, "swinmr": swinmr_on_meta}[which]()
    started = time.perf_counter()
    count_forward(module, inputs, kwargs)
    counting = time.perf_counter() - started
    bare = []
    for _ in range(3):
        started = time.perf_counter()
        with torch.no_grad():
            module(*inputs, **kwargs)
        bare.append(time.perf_counter() - started)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{counting:.2f}\t{min(bare):.2f}\t{counting / min(bare):.1f}\t{peak_mb:.0f}")


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    parser = OneLineParser(description=__doc__.splitlines()[0])
    options = parse_options(
        parser,
        arguments,
        {
            "--only": dict(choices=("cases", "foreign", "networks", "speed"), help="run one part"),
            "--list": dict(action="store_true", help="also list every case that a counter gets wrong"),
            "--counters": dict(help="comma-separated, of: " + ", ".join(COUNTERS)),
            "--measure": dict(choices=SPEED.values(), help=argparse.SUPPRESS),
        },
    )
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if options.measure:
        measure(options.measure)
        return 0
    counters = options.counters.split(",") if options.counters else list(COUNTERS)
    if unknown := set(counters) - set(COUNTERS):
        parser.error(f"unknown counters {', '.join(sorted(unknown))}: expected {', '.join(COUNTERS)}")
    for counter in [c for c in counters if c in PACKAGES]:
        try:
            importlib.import_module(counter)
        except ImportError as error:
            print(f"{counter} is left out: {error} (pip install {counter})", file=sys.stderr)
            counters.remove(counter)
    # Once, rather than in every fork: the first call imports torch._dynamo, for seconds.
    torch.manual_seed(0)
    parts: dict[str, Callable[[], None]] = {
        "cases": partial(run_cases, counters, options.list),
        "foreign": partial(run_foreign, counters, options.list),
        "networks": partial(run_networks, counters),
        "speed": run_speed,
    }
    for part, run in parts.items():
        if options.only in (None, part):
            run()
    return 0


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
