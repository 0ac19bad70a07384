"""One counter's opinion on a module in hand, with its difference from ours taken apart to the unit.

thop hooks modules of the types in its table and sees nothing of what happens in a forward between them: no matmul, no
attention, no raw parameter. Its figure is inexact in both directions and bounds nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from torch import nn

from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.profiler.counting.count import count_forward
from swinmr_profiling.profiler.counting.meta_copy import copy_to, random_state_kept
from swinmr_profiling.profiler.counting.other_counters.fvcore_count import count_with_fvcore, whole_or_not
from swinmr_profiling.profiler.counting.report import CountReport, ModuleNode
from swinmr_profiling.profiler.record.blocks.architecture import (
    CrossCheck,
    DifferencePart,
    ParameterDifferencePart,
)

CONVENTIONS = {
    "fvcore": (
        "fvcore: multiply-adds (which it calls flops) of the operators in its table, plus 5 per element of norms, "
        "upsampling and adaptive pooling; 0 for operators without a handle"
    ),
    "thop": (
        "thop: multiply-adds (MACs) of the module types in its table, plus norms (2 to 4 per element), pooling and "
        "softmax; transposed convolutions by output size; 0 for what is done outside such modules"
    ),
}
# fvcore's operators that are not matrix products.
NOT_MACS = "no matrix product: not a MAC by our convention"
NOT_SEEN = "not counted by fvcore"
FVCORE_COMPLEX = "complex numbers: ours counts four per multiply-add, fvcore one, and three in convolutions"
THOP_COMPLEX = "complex numbers: ours counts four per multiply-add, thop one"
COMPLEX_IN = "complex numbers in "
KIND_IN_WORDS = {"attention": "attention products", "linear": "matrix products", "other": "other products"}


class ThopUnit(NamedTuple):
    """One module that thop counts as a whole."""

    path: str
    module_class: str
    macs: float
    parameters: int


# In the place of a module that is no unit.
RAN = ThopUnit("", "", 0, 1)


def told_by(counter: str, size: str, **known: Any) -> partial[CrossCheck]:
    """Makes the record of a counter, of what is known of it already and of what it is told."""
    convention, inexact = CONVENTIONS[counter], counter == "thop"
    return partial(
        CrossCheck.told, counter=counter, size=size, convention=convention, inexact=inexact, **known
    )


def cross_check_module(
    module: nn.Module, inputs: tuple[Any, ...], counter: str, size: str = "small"
) -> CrossCheck:
    """Runs ``counter`` ("fvcore" or "thop") on a copy of a module in this process.

    A counter that is missing or raises is a record with the reason; an error of our own count raises.
    """
    ours = count_forward(module, inputs)
    told = told_by(
        counter,
        size,
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
    figures = count_with_fvcore(module, inputs)
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
    figure, figure_parameters, units = count_with_thop(module, inputs)
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
        DifferencePart(operator=name, macs=whole_or_not(macs), why=_why_thop(name, sides))
        for name, macs in sorted(differences.items())
        if macs
    ]
    rest = figure - ours.macs - sum(part.macs for part in parts)
    if rest:
        parts.append(DifferencePart(operator="rest", macs=whole_or_not(rest), why="unexplained"))
    parameter_parts = list(_parameter_parts(module, unit_paths))
    parameters_difference = figure_parameters - ours.parameters
    rest = parameters_difference - sum(part.parameters for part in parameter_parts)
    if rest:
        why = "modules thop counts more than once, or counts though a tensor is shared"
        parameter_parts.append(ParameterDifferencePart(parameter="rest", parameters=rest, why=why))
    return told(
        status="ok",
        figure=whole_or_not(figure),
        figure_parameters=figure_parameters,
        difference=whole_or_not(figure - ours.macs),
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
    module: nn.Module, unit_paths: Mapping[str, ThopUnit]
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
            if not covered or not unit_paths.get(path, RAN).parameters:
                missed[f"{type(child).__name__}.{name}"] += parameter.numel()
    for name, count in sorted(missed.items()):
        why = "not counted by thop: in no module of its table, or in one that did not run"
        yield ParameterDifferencePart(parameter=name, parameters=-count, why=why)


def _version(counter: str) -> str | None:
    try:
        return version(counter)
    except PackageNotFoundError:
        return None


def count_with_thop(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[float, int, list[ThopUnit]]:
    """thop's MACs and parameters of ``module(*inputs)``, and its units. Pass a copy: thop leaves traces behind.

    Raises:
        ImportError without thop (or, from Python 3.12, without setuptools, whose distutils it needs); whatever the
        forward raises.
    """
    import thop

    macs, parameters, layers = thop.profile(module, inputs, verbose=False, ret_layer_info=True)
    return macs, int(parameters), list(_units(module, layers, ""))


# By name: MACs, parameters and the layers inside.
ThopLayers = dict[str, tuple[float, float, "ThopLayers"]]


def _units(module: nn.Module, layers: ThopLayers, prefix: str) -> Iterator[ThopUnit]:
    from thop.profile import register_hooks

    for name, (macs, parameters, inner) in layers.items():
        child = module.get_submodule(name)
        path = f"{prefix}.{name}" if prefix else name
        # thop's own rule for what it takes as a whole.
        if type(child) in register_hooks and not isinstance(child, (nn.Sequential, nn.ModuleList)):
            yield ThopUnit(path, type(child).__name__, macs, int(parameters))
        else:
            yield from _units(child, inner, path)
