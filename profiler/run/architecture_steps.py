"""Steps 1 to 3: the network, its parameters, its multiply-adds and what other counters make of them."""

from __future__ import annotations

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.isolation.worker_process import WorkerError
from swinmr_profiling.profiler.record.blocks.architecture import Architecture, CrossCheck
from swinmr_profiling.profiler.record.reconstruction_cost import reconstruction_cost
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.terminal import (
    print_counters,
    print_counts,
    print_module_tree,
    print_parameters,
    print_reconstruction,
)
from swinmr_profiling.profiler.run.context import RunContext


def analyse_architecture(context: RunContext) -> None:
    """Builds, describes and counts the network; fills `architecture`, saved after each step."""
    console, profile = context.console, context.profile
    console.step(1, "Creating model...")
    built = context.session.build()
    console.good("Model created")
    console.step(2, "Analyzing model architecture...")
    context.input_shape = built.architecture.input_shape
    context.training_input_shape = built.training_input_shape
    if profile.architecture is not None:  # of a resumed profile
        architecture = profile.architecture
        print_parameters(console, architecture)
        console.step(3, "Measuring FLOPs...")
        print_counts(console, architecture)
        print_reconstruction(console, architecture)
        print_counters(console, architecture.counters)
        return
    profile.architecture = built.architecture
    print_parameters(console, built.architecture)
    context.save()
    console.step(3, "Measuring FLOPs...")
    profile.architecture = _counted(context, built.architecture)
    config = config_from_dict(profile.config.resolved)
    profile.architecture.reconstruction = reconstruction_cost(config, profile.architecture.macs)
    print_reconstruction(console, profile.architecture)
    context.save()
    _ask_other_counters(context, profile.architecture)
    context.save()


def _counted(context: RunContext, architecture: Architecture) -> Architecture:
    try:
        counted = context.session.count()
    except WorkerError as error:
        architecture.count_error = error.failure.detail
        context.console.bad(f"not counted: {error.failure.detail}")
        return architecture
    print_counts(context.console, counted)
    if context.options.depth:
        print_module_tree(context.console, counted.by_module, context.options.depth)
    if counted.uncounted_operators:
        calls = ", ".join(f"{name} ({n} calls)" for name, n in counted.uncounted_operators.items())
        text = f"operators without a formula, counted as 0 MACs: {calls}; register_formula adds one"
        context.warn(ProfileWarning("uncounted_operators", text))
    return counted


def _ask_other_counters(context: RunContext, architecture: Architecture) -> None:
    options = context.options
    if options.flops_counter is not None:
        quoted = _cross_check(context, "full", [options.flops_counter])
        architecture.quoted_counter = quoted[0] if quoted else None
        print_counters(context.console, quoted)
    if options.cross_check == "off":
        context.console.note("no other counter was asked: --cross-check off")
        return
    checks = _cross_check(context, options.cross_check, ["fvcore", "thop"])
    architecture.counters = checks
    print_counters(context.console, checks)
    for check in checks:
        if check.agrees is False:
            text = f"{check.counter} and our count differ by MACs that nothing explains: see `counters`"
            context.warn(ProfileWarning("counters_disagree", text))


def _cross_check(context: RunContext, size: str, counters: list[str]) -> list[CrossCheck]:
    try:
        return context.session.cross_check(size, counters)
    except WorkerError as error:
        context.console.bad(f"no cross-check: {error.failure.detail}")
        return []


def counting_gate_failed(architecture: Architecture | None) -> bool:
    """Whether `--strict-flops` is violated: an operator without a formula, or no count at all."""
    return architecture is None or architecture.macs is None or bool(architecture.uncounted_operators)
