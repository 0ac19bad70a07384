"""The MACs of one call of a model (count_forward) and of a training step (count_training_step), without their data."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from swinmr_profiling.configs.error_words import first_line
from swinmr_profiling.models.stand_in import autocast_on_meta
from swinmr_profiling.profiler.counting.dispatch.complex_numbers import complex_as_one
from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.meta_copy import copy_to, random_state_kept, restored
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.profiler.counting.operators.nested import part_shapes
from swinmr_profiling.profiler.counting.operators.operator_table import KINDS
from swinmr_profiling.profiler.counting.report import CountReport, TrainingCountReport
from swinmr_profiling.profiler.counting.script_modules import frozen_numbers
from swinmr_profiling.training.own_gradients import wants_gradients

# Characters of an error that a note quotes.
LONGEST_REASON = 160
PHASES = ("forward", "loss", "backward", "optimizer")


class NeedsGradientsError(RuntimeError):
    """A forward takes gradients itself (energy and score networks) and was run without."""


def count_forward(
    module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> CountReport:
    """Counts ``module(*inputs, **kwargs)``, exactly.

    The call runs without gradients on a copy on the meta device, in the module's own train or eval mode; the
    module itself is left as it is. A forward that takes gradients itself is run with them, and its MACs include those
    of its own backward. A model that cannot run on meta (its code reads values) runs once for real
    on a copy, on its own device, and the report's ``counted_on`` and ``note`` say so.

    Raises:
        Whatever the model's forward raises in the real run.
    """

    def forward(copied: nn.Module, /, *args: Any, **keywords: Any) -> object:
        with torch.no_grad():
            try:
                return copied(*args, **keywords)
            except RuntimeError as error:
                if wants_gradients(error):
                    raise NeedsGradientsError from error
                raise

    def forward_with_gradients(copied: nn.Module, /, *args: Any, **keywords: Any) -> object:
        with torch.enable_grad():
            return copied(*args, **keywords)

    keywords = kwargs or {}
    try:
        mode, counted_on, note = count_call(module, inputs, keywords, forward)
    except NeedsGradientsError:
        with torch.inference_mode(False):
            mode, counted_on, note = count_call(module, inputs, keywords, forward_with_gradients)
        mode.remarks.add("its forward takes gradients itself: the MACs include those of that backward")
    return report_of(mode, inputs, keywords, counted_on, note)


def forward_backward(module: nn.Module, *inputs: Any, **kwargs: Any) -> None:
    """The plainest training step: the sum of every differentiable output, and its backward."""
    outputs = torch.utils._pytree.tree_leaves(module(*inputs, **kwargs))
    differentiable = [t for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if not differentiable:
        raise ValueError("no output needs a gradient: every parameter and input of the model is frozen")
    total = sum(t.abs().sum() if t.is_complex() else t.sum() for t in differentiable)
    cast(torch.Tensor, total).backward()


def count_training_step(
    step: Callable[..., object],
    module: nn.Module,
    inputs: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    create_graph: bool = False,
    only_without_data: bool = False,
) -> TrainingCountReport:
    """Counts ``step(copy of module, *inputs, **kwargs)``, which runs a forward and a backward, and may do more.

    Args:
        step: calls the module it is given, makes a loss and calls ``backward()``; ``forward_backward`` is the
            plainest. It must not keep the module: that is a copy on the meta device, of which nothing remains.
        module: in the train or eval mode to be counted; left as it is.
        inputs, kwargs: anything the step needs, copied with the module. A loss network or an optimizer of the
            module's parameters belongs here rather than in a closure, so that it is copied too.
        create_graph: the step differentiates its own gradients (a gradient penalty) with custom backwards in Python.
        only_without_data: raise what the step raises on meta, rather than train for real.

    Returns:
        TrainingCountReport. ``training_macs`` is 3 x the forward's where every input of every product needs a
        gradient, less for first layers and frozen parts, and more where an optimizer multiplies matrices, as Muon;
        ``recomputed_macs`` is what checkpointing and fused attention backwards compute again.

    Raises:
        Whatever the step raises in a real run, where it cannot run on meta; whatever copying the module raises.
    """
    keywords = kwargs or {}
    # Around the copying too: a tensor made in inference mode can never have a gradient.
    with torch.inference_mode(False), torch.enable_grad():
        mode, counted_on, note = count_call(
            module,
            inputs,
            keywords,
            step,
            trains=True,
            only_without_data=only_without_data,
            split_recomputed=True,
            create_graph=create_graph,
        )
    counted = report_of(mode, inputs, keywords, counted_on, note)
    return TrainingCountReport(
        **vars(counted),
        training_macs=counted.macs,
        recomputed_macs=mode.tallies.apart["recomputed_macs"],
        macs_by_phase={phase: mode.tallies.by_phase[phase] for phase in PHASES},
        elementwise_flops_by_phase={phase: mode.tallies.elementwise_by_phase[phase] for phase in PHASES},
    )


def count_call(
    module: nn.Module,
    inputs: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[..., object],
    *,
    trains: bool = False,
    only_without_data: bool = False,
    **mode_options: Any,
) -> tuple[CountingMode, str, str | None]:
    """Runs ``call(copy, *inputs, **kwargs)`` under the counter: on meta, or for real where that raises.

    A module that cannot be copied runs itself, and is put back as it was, unless ``call`` trains it.
    only_without_data: raise what the call raises on meta, rather than run it for real.

    Returns:
        the mode with its tallies, the device it ran on, and why it did not run on meta (None if it did).
    """
    with random_state_kept(), compiled_functions_run_eagerly():
        try:
            copied, (args, keywords) = copy_to(module, (inputs, kwargs))
            with autocast_on_meta("cpu"):
                mode = _run(copied, args, keywords, call, mode_options)
            # What failed in another thread may have failed without data, too, and may have been heard by nobody.
            mode.raise_from_threads()
            return mode, "meta", None
        except NeedsGradientsError:
            raise
        except Exception as error:
            held = (*module.parameters(), *module.buffers())
            device = held[0].device.type if held else "cpu"
            if device == "meta" or only_without_data:
                raise
            reason = _in_one_line(error)
        note = f"counted in a real run on {device}: the model does not run on the meta device ({reason})"
        try:
            copied, (args, keywords) = copy_to(module, (inputs, kwargs), device=None)
            keep: AbstractContextManager[None] = nullcontext()
        except Exception as error:
            if trains:
                # Gradients and optimizer steps cannot be taken back.
                raise
            copied, args, keywords = module, inputs, kwargs
            keep = restored(module)
            note += f"; on the module itself, which cannot be copied ({_in_one_line(error)})"
        with keep:
            return _run(copied, args, keywords, call, {**mode_options, "follow_inputs": True}), device, note


def _run(copied: Any, args: Any, keywords: Any, call: Any, mode_options: Any) -> CountingMode:
    tracker = ModuleTracker(copied)
    mode = CountingMode(tracker, inputs=(args, keywords), **mode_options)
    with tracker, mode, optimizer_steps_told(mode):
        mode.returned(call(copied, *args, **keywords))
    return mode


@contextmanager
def optimizer_steps_told(mode: CountingMode) -> Iterator[None]:
    """Tells the mode when an optimizer's step begins and ends."""

    def tell(optimizing: bool) -> Callable[..., None]:
        return lambda *_: setattr(mode.tallies, "optimizing", optimizing)

    handles = (register_optimizer_step_pre_hook(tell(True)), register_optimizer_step_post_hook(tell(False)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def report_of(mode: CountingMode, inputs: Any, kwargs: Any, counted_on: str, note: str | None) -> CountReport:
    """What a mode's tallies say of the call."""
    sums = mode.tallies
    macs = sum(sums.by_kind.values())
    as_one = complex_as_one(macs, sums.complex_by_operator.total())
    uncounted = sums.uncounted + Counter(f"unseen::{name}" for name in mode.tracker.unseen_modules.elements())
    uncounted += Counter(f"unseen::{name}" for name in mode.unfinished())
    remarks = [*([note] if note else []), *_remarks(mode, as_one)]
    tensors = [t for t in torch.utils._pytree.tree_leaves((inputs, kwargs)) if isinstance(t, torch.Tensor)]
    parameters = [p for p in mode.tracker.root.parameters() if not nn.parameter.is_lazy(p)]
    return CountReport(
        macs=macs,
        flops=2 * macs,
        macs_complex_as_one=as_one,
        by_kind={kind: sums.by_kind[kind] for kind in KINDS},
        by_operator=dict(sums.by_operator.most_common()),
        by_operator_complex_as_one={
            name: complex_as_one(n, sums.complex_by_operator[name])
            for name, n in sums.by_operator.most_common()
        },
        by_module=mode.tracker.tree(),
        parameters=sum(p.numel() for p in parameters),
        trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
        uncounted_operators=dict(uncounted.most_common()),
        elementwise_flops=sums.apart["elementwise_flops"],
        softmax_macs=sums.apart["softmax_macs"],
        input_shapes=[shape for t in tensors for shape in part_shapes(t)],
        counted_on=counted_on,
        note="; ".join(remarks) or None,
    )


def _remarks(mode: CountingMode, as_one: int) -> Iterator[str]:
    """What a reader of the figures should know, from the tallies of a finished count."""
    yield from sorted(mode.remarks)
    if mode.storages.decided_by_values:
        names = ", ".join(sorted(mode.storages.decided_by_values))
        yield f"values of the input decide what is computed ({names}): another input can give another count"
    if mode.tallies.complex_by_operator:
        yield (
            "a complex multiply-add counts as four real ones, also in convolutions, of which PyTorch computes one by "
            f"three real ones; with one for each the MACs are {as_one:,}"
        )
    if mode.tracker.unseen_modules:
        yield "modules ran in a thread that was started before the count: not seen, listed as unseen"
    if mode.unfinished():
        yield "work in other threads had not ended when the forward had: what came later is not counted"
    for error in mode.thread_errors:
        yield f"another thread raised {_in_one_line(error)}: what it left undone is not counted"
    if frozen := frozen_numbers(mode.tracker.root):
        yield f"{frozen:,} numbers are constants of frozen scripts and not among the parameters"


def compiled_functions_run_eagerly() -> AbstractContextManager[Any]:
    """Compiled code hides its operators in generated kernels. Without dynamo imported there is none."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _in_one_line(error: BaseException) -> str:
    """PyTorch's first sentence: behind it come advice and lists of backends."""
    line = first_line(error)
    text = line.split(". ")[0] if len(line) > LONGEST_REASON else line
    return f"{type(error).__name__}: {text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + '...'}"
