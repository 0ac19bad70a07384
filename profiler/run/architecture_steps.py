"""Steps 1 to 3: the network, its parameters, its multiply-adds and what other counters make of them."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.isolation.worker_process import WorkerError
from swinmr_profiling.profiler.record.reconstruction_cost import reconstruction_cost
from swinmr_profiling.profiler.record.units import GIGA
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.terminal import (
    print_counters,
    print_counts,
    print_module_tree,
    print_parameters,
    print_reconstruction,
)
from swinmr_profiling.profiler.run.context import RunContext

COUNTED_FIELDS = (
    "macs_complex_as_one", "by_kind", "by_operator", "by_operator_complex_as_one", "by_module",
    "uncounted_operators", "elementwise_flops", "softmax_macs", "counted_on", "note",
)  # fmt: skip


def analyse_architecture(context: RunContext) -> None:
    """Builds, describes and counts the network; fills `architecture`, saved after each step."""
    console = context.console
    console.step(1, "Creating model...")
    built = context.session.build()
    console.good("Model created")
    console.step(2, "Analyzing model architecture...")
    context.input_shape = built["input_shape"]
    context.training_input_shape = built["training_input_shape"]
    if context.profile.architecture is not None:  # of a resumed profile
        context.profile.architecture.setdefault("reconstruction", None)
        print_parameters(console, context.profile.architecture)
        console.step(3, "Measuring FLOPs...")
        print_counts(console, context.profile.architecture)
        print_reconstruction(console, context.profile.architecture)
        print_counters(console, context.profile.architecture["counters"])
        return
    unknown = dict.fromkeys(("macs", "flops", "gmacs", "gflops", "flops_per_parameter"))
    architecture = {
        "source": "counted",
        "input_shape": built["input_shape"],
        "num_runs": 1,
        **built["parameters"],
        **unknown,
        "reconstruction": None,
        "counters": [],
    }
    context.profile.architecture = architecture
    print_parameters(console, architecture)
    context.save()
    console.step(3, "Measuring FLOPs...")
    _count(context, architecture)
    config = config_from_dict(context.profile.config["resolved"])
    architecture["reconstruction"] = reconstruction_cost(config, architecture["macs"])
    print_reconstruction(console, architecture)
    context.save()
    _ask_other_counters(context, architecture)
    context.save()


def _count(context: RunContext, architecture: dict[str, Any]) -> None:
    try:
        counted = context.session.count()
    except WorkerError as error:
        architecture["count_error"] = error.failure.detail
        context.console.bad(f"not counted: {error.failure.detail}")
        return
    parameters = architecture["total_parameters"]
    architecture.update(
        macs=counted["macs"],
        flops=counted["flops"],
        gmacs=counted["macs"] / GIGA,
        gflops=counted["flops"] / GIGA,
        flops_per_parameter=counted["flops"] / parameters if parameters else None,
        **{name: counted[name] for name in COUNTED_FIELDS},
    )
    print_counts(context.console, architecture)
    if context.options.depth:
        print_module_tree(context.console, architecture["by_module"], context.options.depth)
    if counted["uncounted_operators"]:
        calls = ", ".join(f"{name} ({n} calls)" for name, n in counted["uncounted_operators"].items())
        text = f"operators without a formula, counted as 0 MACs: {calls}; register_formula adds one"
        context.warn(ProfileWarning("uncounted_operators", text))


def _ask_other_counters(context: RunContext, architecture: dict[str, Any]) -> None:
    options = context.options
    if options.flops_counter is not None:
        quoted = _cross_check(context, "full", [options.flops_counter])
        architecture["quoted_counter"] = quoted[0] if quoted else None
        print_counters(context.console, quoted)
    if options.cross_check == "off":
        context.console.note("no other counter was asked: --cross-check off")
        return
    checks = _cross_check(context, options.cross_check, ["fvcore", "thop"])
    architecture["counters"] = checks
    print_counters(context.console, checks)
    for check in checks:
        if check["agrees"] is False:
            text = f"{check['counter']} and our count differ by MACs that nothing explains: see `counters`"
            context.warn(ProfileWarning("counters_disagree", text))


def _cross_check(context: RunContext, size: str, counters: list[str]) -> list[dict[str, Any]]:
    try:
        return context.session.cross_check(size, counters)
    except WorkerError as error:
        context.console.bad(f"no cross-check: {error.failure.detail}")
        return []


def counting_gate_failed(architecture: dict[str, Any] | None) -> bool:
    """Whether `--strict-flops` is violated: an operator without a formula, or no count at all."""
    return architecture is None or architecture["macs"] is None or bool(architecture["uncounted_operators"])
