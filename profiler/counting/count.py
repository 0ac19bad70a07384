"""count_forward: the MACs of one call of a model, on a copy without data."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from swinmr_profiling.profiler.counting.complex_numbers import complex_as_one
from swinmr_profiling.profiler.counting.engine import CountingMode
from swinmr_profiling.profiler.counting.meta_copy import copy_to, random_state_kept, restored
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.profiler.counting.operator_table import KINDS
from swinmr_profiling.profiler.counting.report import CountReport
from swinmr_profiling.profiler.counting.script_modules import frozen_numbers


def count_forward(module: nn.Module, inputs: tuple, kwargs: dict | None = None) -> CountReport:
    """Counts ``module(*inputs, **kwargs)``, exactly.

    The call runs without gradients on a copy on the meta device, in the module's own train or eval mode; the
    module itself is left as it is. A model that cannot run on meta (its code reads values) runs once for real
    on a copy, on its own device, and the report's ``counted_on`` and ``note`` say so.

    Raises:
        Whatever the model's forward raises in the real run.
    """

    def forward(copied: nn.Module, args: tuple, keywords: dict) -> None:
        with torch.no_grad():
            copied(*args, **keywords)

    mode, counted_on, note = count_call(module, inputs, kwargs or {}, forward)
    return CountReport(**report_fields(mode, inputs, kwargs or {}, counted_on, note))


def count_call(
    module: nn.Module,
    inputs: tuple,
    kwargs: dict,
    call: Callable[[nn.Module, tuple, dict], None],
    *,
    trains: bool = False,
    **mode_options,
) -> tuple[CountingMode, str, str | None]:
    """Runs ``call(copy, inputs, kwargs)`` under the counter: on meta, or for real where that raises.

    A module that cannot be copied runs itself, and is put back as it was, unless ``call`` trains it.

    Returns:
        the mode with its tallies, the device it ran on, and why it did not run on meta (None if it did).
    """
    with random_state_kept(), compiled_functions_run_eagerly():
        try:
            copied, (args, keywords) = copy_to(module, (inputs, kwargs))
            mode = _run(copied, args, keywords, call, mode_options)
            # What failed in another thread may have failed for want of data, too, and may have been heard by nobody.
            mode.raise_from_threads()
            return mode, "meta", None
        except Exception as error:
            device = _device_of(module)
            if device == "meta":
                raise
            reason = _in_one_line(error)
        note = f"counted in a real run on {device}: the model does not run on the meta device ({reason})"
        try:
            copied, (args, keywords) = copy_to(module, (inputs, kwargs), device=None)
            keep = nullcontext()
        except Exception as error:
            if trains:
                # Gradients and optimizer steps cannot be taken back.
                raise
            copied, args, keywords = module, inputs, kwargs
            keep = restored(module)
            note += f"; on the module itself, which cannot be copied ({_in_one_line(error)})"
        with keep:
            return _run(copied, args, keywords, call, mode_options), device, note


def _run(copied, args, keywords, call, mode_options) -> CountingMode:
    tracker = ModuleTracker(copied)
    mode = CountingMode(tracker, **mode_options)
    with tracker, mode:
        call(copied, args, keywords)
    return mode


def report_fields(mode: CountingMode, inputs, kwargs, counted_on: str, note: str | None) -> dict:
    """CountReport's fields from a mode's tallies."""
    macs = sum(mode.by_kind.values())
    as_one = complex_as_one(macs, mode.complex_by_operator.total())
    uncounted = mode.uncounted + Counter(f"unseen::{name}" for name in mode.tracker.unseen_modules.elements())
    uncounted += Counter(f"unseen::{name}" for name in mode.unfinished())
    remarks = ([note] if note else []) + _remarks(mode, as_one)
    tensors = [t for t in torch.utils._pytree.tree_leaves((inputs, kwargs)) if isinstance(t, torch.Tensor)]
    parameters = [p for p in mode.tracker.root.parameters() if not nn.parameter.is_lazy(p)]
    return {
        "macs": macs,
        "flops": 2 * macs,
        "macs_complex_as_one": as_one,
        "by_kind": {kind: mode.by_kind[kind] for kind in KINDS},
        "by_operator": dict(mode.by_operator.most_common()),
        "by_operator_complex_as_one": {
            name: complex_as_one(n, mode.complex_by_operator[name])
            for name, n in mode.by_operator.most_common()
        },
        "by_module": mode.tracker.tree(),
        "parameters": sum(p.numel() for p in parameters),
        "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "uncounted_operators": dict(uncounted.most_common()),
        "elementwise_flops": mode.apart["elementwise_flops"],
        "softmax_macs": mode.apart["softmax_macs"],
        "input_shapes": [list(t.shape) for t in tensors],
        "counted_on": counted_on,
        "note": "; ".join(remarks) or None,
    }


def _remarks(mode: CountingMode, as_one: int) -> list[str]:
    """What a reader of the figures should know, from the tallies of a finished count."""
    remarks = sorted(mode.remarks)
    if mode.complex_by_operator:
        remarks.append(
            "a complex multiply-add counts as four real ones, also in convolutions, of which PyTorch computes one by "
            f"three real ones; with one for each the MACs are {as_one:,}"
        )
    if mode.tracker.in_other_threads and mode.split_recomputed:
        remarks.append(
            "operators ran in other threads, where autograd numbers them anew: their gradients may stand at another "
            "module, and those of complex convolutions count three for four"
        )
    if mode.tracker.unseen_modules:
        remarks.append(
            "modules ran in a thread that was started before the count: not seen, listed as unseen"
        )
    if mode.unfinished():
        remarks.append(
            "work in other threads had not ended when the forward had: what came later is not counted"
        )
    for error in mode.thread_errors:
        remarks.append(f"another thread raised {_in_one_line(error)}: what it left undone is not counted")
    if frozen := frozen_numbers(mode.tracker.root):
        remarks.append(f"{frozen:,} numbers are constants of frozen scripts and not among the parameters")
    return remarks


@contextmanager
def compiled_functions_run_eagerly() -> Iterator[None]:
    """Compiled code hides its operators in generated kernels. Without dynamo imported there is none."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _device_of(module: nn.Module) -> str:
    tensor = next((t for t in (*module.parameters(), *module.buffers())), None)
    return "cpu" if tensor is None else tensor.device.type


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
