"""Steps 1 to 3: the network, its parameters, its multiply-adds and what other counters make of them."""

from __future__ import annotations

from collections.abc import Callable

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.isolation.worker_process import WorkerError
from swinmr_profiling.profiler.record.blocks.architecture import (
    Architecture,
    CrossCheck,
    ModuleCount,
    TrainingMacs,
)
from swinmr_profiling.profiler.record.reconstruction_cost import reconstruction_cost
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from swinmr_profiling.profiler.reports.console.counted import (
    print_counts,
    print_module_costs,
    print_module_tree,
    print_training_macs,
)
from swinmr_profiling.profiler.reports.console.steps import (
    print_counters,
    print_parameters,
    print_reconstruction,
)
from swinmr_profiling.profiler.run.context import RunContext


def analyse_architecture(context: RunContext, on_built: Callable[[], None] = lambda: None) -> None:
    """Builds, describes and counts the network; fills `architecture`, saved after each step.

    on_built: what others may begin once the network is known to build.
    """
    console, profile = context.console, context.profile
    console.step(1, "Creating model...")
    context.status.say("creating the model")
    built = context.session.build(runs=not context.options.training.predict_only)
    on_built()
    console.good("Model created")
    for note in built.notes:
        context.warn(ProfileWarning("inputs_derived", note))
    console.step(2, "Analyzing model architecture...")
    context.input_shape = built.architecture.input_shape
    context.training_input_shape = built.training_input_shape
    counted = profile.architecture  # of a resumed profile: what it lacks is added
    if counted is None:
        profile.architecture = built.architecture
        context.save()
    print_parameters(console, counted or built.architecture)
    console.step(3, "Measuring FLOPs...")
    if counted is None:
        context.status.say("counting multiply-adds")
        profile.architecture = counted = _counted(context, built.architecture)
    else:
        print_counts(console, counted)
    if context.options.training.enabled and counted.count_error is None and counted.training_macs is None:
        context.status.say("counting multiply-adds of a training step")
        counted.training_macs = _counted_training(context)
    print_training_macs(console, counted.training_macs)
    counted.reconstruction = reconstruction_cost(config_from_dict(profile.config.resolved), counted.macs)
    print_reconstruction(console, counted)
    context.save()


def _counted(context: RunContext, architecture: Architecture) -> Architecture:
    try:
        counted = context.session.count()
    except WorkerError as error:
        architecture.count_error = error.failure.detail
        context.console.bad(f"not counted: {error.failure.detail}")
        return architecture
    print_counts(context.console, counted)
    if context.options.depth and counted.by_module is not None:
        print_module_tree(context.console, counted.by_module, context.options.depth)
    if counted.uncounted_operators:
        calls = ", ".join(f"{name} ({n} calls)" for name, n in counted.uncounted_operators.items())
        text = f"operators without a formula, counted as 0 MACs: {calls}; register_formula adds one"
        context.warn(ProfileWarning("uncounted_operators", text))
    return counted


def _counted_training(context: RunContext) -> TrainingMacs:
    try:
        return context.session.count_training()
    except WorkerError as error:
        return TrainingMacs(
            source="counted",
            input_shape=context.training_input_shape,
            num_runs=0,
            error=f"the training step does not run without data: {error.failure.detail}",
        )


def ask_other_counters(context: RunContext) -> None:
    """Fills `counters`: after the answer, which does not wait for it."""
    options, architecture = context.options, context.profile.architecture
    if architecture is None:
        return
    context.console.heading("  Other counters:")
    if architecture.counters:  # of a resumed profile
        print_counters(context.console, architecture.counters)
        return
    if options.flops_counter is not None:
        context.status.say(f"asking {options.flops_counter} at the full size")
        quoted = _cross_check(context, "full", [options.flops_counter])
        architecture.quoted_counter = quoted[0] if quoted else None
        print_counters(context.console, quoted, in_full=True)
    if options.cross_check == "off":
        context.console.note("no other counter was asked: --cross-check off")
        return
    context.status.say("asking fvcore and thop")
    checks = _cross_check(context, options.cross_check, ["fvcore", "thop"])
    architecture.counters = checks
    print_counters(context.console, checks)
    for check in checks:
        if check.agrees is False:
            text = f"{check.counter} and our count differ by MACs that nothing explains: see `counters`"
            context.warn(ProfileWarning("counters_disagree", text))
    context.save()


# Levels below the network that are printed where --depth names none.
DEFAULT_DEPTH = 2


def measure_module_costs(context: RunContext) -> None:
    """Fills `module_costs` of the architecture, for --by-module."""
    architecture = context.profile.architecture
    if not context.options.by_module or architecture is None:
        return
    tree = architecture.by_module
    try:
        costs = context.session.measure_modules({} if tree is None else _macs_by_path(tree))
    except WorkerError as error:
        context.console.bad(f"no latency by module: {error.failure.detail}")
        return
    architecture.module_costs = costs
    print_module_costs(context.console, costs, context.options.depth or DEFAULT_DEPTH)
    context.save()


def _macs_by_path(tree: ModuleCount) -> dict[str, int]:
    found = {tree.path: tree.macs}
    for child in tree.children:
        found |= _macs_by_path(child)
    return found


def _cross_check(context: RunContext, size: str, counters: list[str]) -> list[CrossCheck]:
    try:
        return context.session.cross_check(size, counters, context.options.training.cache)
    except WorkerError as error:
        context.console.bad(f"no cross-check: {error.failure.detail}")
        return []


def counting_gate_failed(architecture: Architecture | None) -> bool:
    """Whether `--strict-flops` is violated: an operator without a formula, or no count at all."""
    return architecture is None or architecture.macs is None or bool(architecture.uncounted_operators)
