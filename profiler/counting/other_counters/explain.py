"""One counter's opinion on a module in hand, with its difference from ours taken apart to the unit."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torch import nn

from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.profiler.counting.count import count_forward
from swinmr_profiling.profiler.counting.meta_copy import copy_to, random_state_kept
from swinmr_profiling.profiler.counting.other_counters import fvcore_count, thop_count
from swinmr_profiling.profiler.counting.report import CountReport, ModuleNode
from swinmr_profiling.profiler.record.blocks.architecture import (
    CrossCheck,
    DifferencePart,
    ParameterDifferencePart,
)

# fvcore's operators that are not matrix products.
NOT_MACS = "no matrix product: not a MAC by our convention"
NOT_SEEN = "not counted by fvcore"
FVCORE_COMPLEX = "complex numbers: ours counts four per multiply-add, fvcore one, and three in convolutions"
THOP_COMPLEX = "complex numbers: ours counts four per multiply-add, thop one"
COMPLEX_IN = "complex numbers in "
KIND_IN_WORDS = {"attention": "attention products", "linear": "matrix products", "other": "other products"}


def cross_check_module(
    module: nn.Module, inputs: tuple[Any, ...], counter: str, size: str = "small"
) -> CrossCheck:
    """Runs ``counter`` ("fvcore" or "thop") on a copy of a module in this process.

    A counter that is missing or raises is a record with the reason; an error of our own count raises.
    """
    ours = count_forward(module, inputs)
    told = partial(
        CrossCheck.told,
        counter=counter,
        size=size,
        inexact=counter == "thop",
        convention=fvcore_count.CONVENTION if counter == "fvcore" else thop_count.CONVENTION,
        input_shapes=ours.input_shapes,
        ours=ours.macs,
        ours_parameters=ours.parameters,
        version=_version(counter),
    )
    opinion = _fvcore_opinion if counter == "fvcore" else _thop_opinion
    try:
        with random_state_kept():
            copied, copied_inputs = copy_to(module, inputs, device=None)
            return opinion(copied, copied_inputs, ours, told)
    except ImportError as error:
        return told(status="missing", reason=one_line(error))
    except Exception as error:
        return told(status="raised", reason=one_line(error))


def _fvcore_opinion(
    module: nn.Module, inputs: tuple[Any, ...], ours: CountReport, told: Callable[..., CrossCheck]
) -> CrossCheck:
    figures = fvcore_count.count_with_fvcore(module, inputs)
    exact_macs = sum(figures.exact.values())
    if figures.failures:
        # fvcore alone would have stopped here; the exact figure is still an opinion.
        return told(
            status="raised",
            reason=f"its own handle raises ({figures.failures[0]})",
            exact_macs=exact_macs,
            agrees=exact_macs == ours.macs,
        )
    figure = sum(figures.printed.values())
    parts = []
    for name in sorted({*figures.printed, *figures.exact}):
        printed, exact = figures.printed.get(name, 0), figures.exact.get(name, 0)
        if extra := figures.complex_extra.get(name, 0):
            parts.append(DifferencePart(operator=name, macs=-extra, why=FVCORE_COMPLEX))
            exact -= extra
        if printed != exact:
            why = (
                NOT_MACS
                if name not in figures.exact
                else NOT_SEEN
                if not printed
                else "counted wrongly by fvcore"
            )
            parts.append(DifferencePart(operator=name, macs=printed - exact, why=why))
    if exact_macs != ours.macs:
        candidates = ", ".join(sorted(figures.unsupported)) or "none"
        why = f"unexplained; operators that fvcore has no handle for: {candidates}"
        parts.append(DifferencePart(operator="rest", macs=exact_macs - ours.macs, why=why))
    return told(
        status="ok",
        figure=figure,
        difference=figure - ours.macs,
        parts=parts,
        exact_macs=exact_macs,
        agrees=exact_macs == ours.macs,
    )


def _thop_opinion(
    module: nn.Module, inputs: tuple[Any, ...], ours: CountReport, told: Callable[..., CrossCheck]
) -> CrossCheck:
    figure, figure_parameters, units = thop_count.count_with_thop(module, inputs)
    unit_paths = {unit.path: unit for unit in units}
    differences: dict[str, float] = defaultdict(int)
    sides: dict[str, dict[str, float]] = {"thop": defaultdict(int), "ours": defaultdict(int)}
    for node in _outermost_units(ours.by_module, unit_paths):
        unit = unit_paths.get(node["path"])
        if unit is not None:
            as_thop_counts = node["macs_complex_as_one"]
            differences[unit.module_class] += unit.macs - as_thop_counts
            sides["thop"][unit.module_class] += unit.macs
            sides["ours"][unit.module_class] += as_thop_counts
            differences[f"{COMPLEX_IN}{unit.module_class}"] += as_thop_counts - node["macs"]
            continue
        for kind, macs in node["own"].items():
            name = f"{KIND_IN_WORDS.get(kind, kind)} in {node['class']}"
            differences[name] -= macs
            sides["ours"][name] += macs
    parts = [
        DifferencePart(operator=name, macs=_integer(macs), why=_why_thop(name, sides))
        for name, macs in sorted(differences.items())
        if macs
    ]
    rest = figure - ours.macs - sum(part.macs for part in parts)
    if rest:
        parts.append(DifferencePart(operator="rest", macs=_integer(rest), why="unexplained"))
    parameter_parts = list(_parameter_parts(module, unit_paths))
    parameters_difference = figure_parameters - ours.parameters
    rest = parameters_difference - sum(part.parameters for part in parameter_parts)
    if rest:
        why = "modules thop counts more than once, or counts though a tensor is shared"
        parameter_parts.append(ParameterDifferencePart(parameter="rest", parameters=rest, why=why))
    return told(
        status="ok",
        figure=_integer(figure),
        figure_parameters=figure_parameters,
        difference=_integer(figure - ours.macs),
        parts=parts,
        parameters_difference=parameters_difference,
        parameter_parts=parameter_parts,
        agrees=not any(part.why == "unexplained" for part in parts),
    )


def _outermost_units(node: ModuleNode, unit_paths: Container[str]) -> Iterator[ModuleNode]:
    """The tree's nodes down to the modules that thop takes as a whole."""
    yield node
    if node["path"] not in unit_paths:
        for child in node["children"]:
            yield from _outermost_units(child, unit_paths)


def _why_thop(name: str, sides: dict[str, dict[str, float]]) -> str:
    if name.startswith(COMPLEX_IN):
        return THOP_COMPLEX
    if not sides["ours"][name]:
        return NOT_MACS
    if name.startswith("ConvTranspose"):
        return "thop multiplies by the output's size instead of the input's"
    if not sides["thop"][name]:
        return "not seen by thop: outside the modules it hooks, or the module is called through a function"
    if name.startswith(("RNN", "LSTM", "GRU")):
        return "thop adds the gates' elementwise work and biases"
    return "unexplained"


def _parameter_parts(
    module: nn.Module, unit_paths: Mapping[str, thop_count.ThopUnit]
) -> Iterator[ParameterDifferencePart]:
    """Parameters outside thop's units, and those of units that never ran, by class and name."""
    missed: Counter[str] = Counter()
    seen: set[int] = set()
    for path, child in module.named_modules():
        covered = any(path == unit or path.startswith(f"{unit}.") for unit in unit_paths)
        for name, parameter in child.named_parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            if not covered or not unit_paths.get(path, _RAN).parameters:
                missed[f"{type(child).__name__}.{name}"] += parameter.numel()
    for name, count in sorted(missed.items()):
        why = "not counted by thop: in no module of its table, or in one that did not run"
        yield ParameterDifferencePart(parameter=name, parameters=-count, why=why)


_RAN = thop_count.ThopUnit("", "", 0, 1)


def _version(counter: str) -> str | None:
    try:
        return version(counter)
    except PackageNotFoundError:
        return None


def _integer(number: Any) -> int | float:
    return int(number) if float(number).is_integer() else float(number)
