"""Networks of timm, torchvision, transformers and diffusers: our count against PyTorch's FlopCounterMode.

    python scripts/benchmark_agreement.py --resume build/agreement.jsonl              # 200 networks
    python scripts/benchmark_agreement.py --resume build/agreement.jsonl --seconds 100  # and so on: in parts
    python scripts/benchmark_agreement.py --resume build/agreement.jsonl --write docs/counter_agreement.md

Both count the same forward on tensors without data, or, where a network reads values, a real one on the CPU. Where they
differ, the operators that make the difference are named, and their differences add up to it to the unit. Exit status 1
if a difference is made by an operator that is not known to be missing from FlopCounterMode, or if ours lists an
operator that is no solver.
"""

import argparse
import sys
import warnings
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.profiler.options.option_types import parse_options
from swinmr_profiling.scripts.benchmarks.resumed_records import (
    add_record,
    begun_within,
    read_records,
    time_limit,
)
from swinmr_profiling.scripts.counter_cases.agreement_networks import Build, Call, networks
from swinmr_profiling.scripts.counter_cases.flop_counter import differences, macs_by_operator

# Products that FlopCounterMode has no formula for, and the case of counter_cases/ whose MACs were derived by hand.
MISSING_THERE = {
    "aten::mv": "mv",
    "aten::addmv": "addmv",
    "aten::dot": "dot",
    "aten::vdot": "vdot",
    "aten::addbmm": "addbmm",
    "aten::_trilinear": "Bilinear",
    "aten::affine_grid_generator": "affine_grid, 3-D",
    "aten::_euclidean_dist": "cdist by product",
    "aten::_grouped_mm": "grouped products of experts",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "attention, cross",
    "torchvision::deform_conv2d": "DeformConv2d",
}
# Solving and decomposing are no products: both counters leave them out, ours lists them.
LISTED = frozenset(["aten::linalg_solve_triangular"])
# A real run costs memory and time: of networks that read values, small ones alone are compared.
MOST_PARAMETERS = 150_000_000
LONGEST_S = 60
PACKAGES = ("torch", "timm", "torchvision", "transformers", "diffusers")


class LeftOutError(Exception):
    """A network that cannot be compared, in one line."""


def by_operator_of_flop_counter(module: nn.Module, args: tuple, kwargs: dict) -> dict[str, int]:
    """MACs by operator as FlopCounterMode has them."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*args, **kwargs)
    return macs_by_operator(counter)


def by_operator_of_ours(module: nn.Module, args: tuple, kwargs: dict) -> dict[str, int]:
    """MACs by operator of a real run."""
    tracker = ModuleTracker(module)
    with torch.no_grad(), tracker, CountingMode(tracker) as counter:
        module(*args, **kwargs)
    return dict(counter.tallies.by_operator)


def _built(build: Build) -> tuple[nn.Module, list[Call]]:
    """The network without data; one whose initialisation reads values is made first and loses them then."""
    try:
        with torch.device("meta"):
            return build()
    except NotImplementedError:
        module, calls = build()
        return module.to("meta"), calls


def _zeros(module: nn.Module) -> nn.Module:
    real = module.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*real.parameters(), *real.buffers()):
            tensor.zero_()
    return real


def _first_that_runs(module: nn.Module, calls: list[Call]) -> tuple[dict[str, int], Call, nn.Module]:
    """FlopCounterMode's figures of the first call that the network takes.

    Without data, in its own precision or in bfloat16 (which grouped products want); if it is small, for real at last.
    """
    if not calls:
        raise LeftOutError(f"wants inputs that are not made here ({getattr(module, 'main_input_name', '')})")
    reasons = []
    small = sum(p.numel() for p in module.parameters()) <= MOST_PARAMETERS
    ways: list[tuple[Any, Any]] = [
        (lambda: module, lambda x: x.to("meta")),
        (
            lambda: module.to(torch.bfloat16),
            lambda x: x.to("meta", torch.bfloat16 if x.is_floating_point() else None),
        ),
    ]
    if small:
        ways.append((lambda: _zeros(module.float()), lambda x: torch.zeros(x.shape, dtype=x.dtype)))
    for prepared, place in ways:
        ready = prepared()
        for call in calls:
            args, kwargs = tree_map(
                lambda x, place=place: place(x) if isinstance(x, torch.Tensor) else x, call
            )
            try:
                return by_operator_of_flop_counter(ready, args, kwargs), (args, kwargs), ready
            except Exception as error:
                reasons.append(one_line(error, 140))
    raise LeftOutError("; ".join(dict.fromkeys(reasons)))


def compare(name: str, build: Build) -> dict[str, Any]:
    """The record of one network: who counts what, which operators make the difference, or why it was left out."""
    try:
        module, calls = _built(build)
        # Its tracker of modules stumbles over parameters that are handed from module to module with gradients wanted.
        theirs, (args, kwargs), module = _first_that_runs(module.eval().requires_grad_(False), calls)
    except TimeoutError:
        return {"network": name, "left_out": f"took longer than {LONGEST_S} s"}
    except Exception as error:
        reason = str(error) if isinstance(error, LeftOutError) else f"not built: {one_line(error, 140)}"
        return {"network": name, "left_out": reason}
    report = count_forward(module, args, kwargs)
    ours, where = report.by_operator, report.counted_on
    if any(p.device.type == "cpu" for p in module.parameters()):
        # Ours counts without data where theirs could not, and a CPU takes other operators: those are compared.
        ours, where = by_operator_of_ours(module, args, kwargs), "cpu"
    return {
        "network": name,
        "macs": report.macs,
        "flop_counter": sum(theirs.values()),
        "counted_on": where,
        "gaps": differences(ours, theirs),
        "also_there": sorted(set(theirs) & set(ours)),
        "uncounted": dict(report.uncounted_operators),
    }


def is_explained(record: dict[str, Any]) -> bool:
    """Whether every gap is one operator that FlopCounterMode has no formula for, and they add up to the unit."""
    known = all(
        operator in MISSING_THERE and operator not in record["also_there"] for operator in record["gaps"]
    )
    adds_up = sum(record["gaps"].values()) == record["macs"] - record["flop_counter"]
    return known and adds_up and LISTED.issuperset(record["uncounted"])


def line_of(record: dict[str, Any]) -> str:
    if "left_out" in record:
        return f"left out {record['network']}: {record['left_out']}"
    why = ", ".join(f"{operator} {gap:+,}" for operator, gap in record["gaps"].items()) or "equal"
    listed = f"; listed {record['uncounted']}" if record["uncounted"] else ""
    return (
        f"{'' if is_explained(record) else 'DIFFERS '}{record['network']}: {record['macs']:,}, {why}{listed}"
    )


def page(records: list[dict[str, Any]]) -> str:
    """docs/counter_agreement.md."""
    compared = [r for r in records if "left_out" not in r]
    left_out = [r for r in records if "left_out" in r]
    equal = sum(not r["gaps"] for r in compared)
    unexplained = sum(not is_explained(r) for r in compared)
    packages = Counter(r["network"].split()[0] for r in compared)
    gaps: dict[str, list[int]] = {}
    for record in compared:
        for operator, gap in record["gaps"].items():
            gaps.setdefault(operator, []).append(gap)
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    lines = [
        "# Two counters on networks that nobody here wrote",
        "",
        f"{versions}: {len(compared)} networks "
        f"({', '.join(f'{packages[name]} of {name}' for name in PACKAGES if name in packages)}), drawn with seed 0. "
        f"{equal} have the MACs of PyTorch's `FlopCounterMode` / 2 to the unit; {len(compared) - equal} differ by "
        f"operators that it has no formula for, to the unit; {unexplained} differ otherwise. Counted without data, or "
        "for real on the CPU where a network reads values. Made by `scripts/benchmark_agreement.py`.",
        "",
        "## Gaps by operator",
        "",
        "| operator | networks | MACs in all | derived by hand in `scripts/counter_cases/operators.py` |",
        "| --- | ---: | ---: | --- |",
        *(
            f"| `{operator}` | {len(found)} | {sum(found):,} | {MISSING_THERE.get(operator, '')} |"
            for operator, found in sorted(gaps.items())
        ),
        "",
        "## Networks",
        "",
        "| network | MACs | FlopCounterMode / 2 | difference by operator | counted on |",
        "| --- | ---: | ---: | --- | --- |",
        *(
            f"| {r['network']} | {r['macs']:,} | {r['flop_counter']:,} | "
            + (", ".join(f"`{operator}` {gap:,}" for operator, gap in r["gaps"].items()) or "none")
            + "".join(f"; `{name}` listed" for name in r["uncounted"])
            + f" | {r['counted_on']} |"
            for r in sorted(compared, key=lambda r: r["network"].lower())
        ),
        "",
        f"## Left out: {len(left_out)}",
        "",
        "| network | why |",
        "| --- | --- |",
        *(
            f"| {r['network']} | {r['left_out'].replace('|', '/')} |"
            for r in sorted(left_out, key=lambda r: r["network"].lower())
        ),
        "",
    ]
    return "\n".join(lines)


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    options = parse_options(
        argparse.ArgumentParser(description=__doc__.splitlines()[0]),
        arguments,
        {
            "--networks": dict(type=int, default=200, metavar="N", help="how many to compare (200)"),
            "--seed": dict(type=int, default=0, help="of the order they are drawn in"),
            "--resume": dict(type=Path, metavar="FILE", help="records, a line each, to go on from"),
            "--seconds": dict(type=float, metavar="N", help="begin none after N"),
            "--write": dict(type=Path, metavar="FILE", help="the page of all records"),
        },
    )
    warnings.simplefilter("ignore")
    records = read_records(options.resume, "network") if options.resume else {}
    for name, build in begun_within(options.seconds, networks(options.seed)):
        if sum("left_out" not in record for record in records.values()) >= options.networks:
            break
        if name in records:
            continue
        try:
            with time_limit(LONGEST_S):
                records[name] = compare(name, build)
        except TimeoutError:
            records[name] = {"network": name, "left_out": f"took longer than {LONGEST_S} s"}
        print(line_of(records[name]), flush=True)
        if options.resume:
            add_record(options.resume, records[name])
    kept = [record for record in records.values() if "left_out" not in record]
    bad = sum(not is_explained(record) for record in kept)
    print(
        f"{len(kept)} networks, {bad} with a difference that is not explained; "
        f"{len(records) - len(kept)} left out"
    )
    if options.write:
        options.write.write_text(page(list(records.values())), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
