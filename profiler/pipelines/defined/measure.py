"""One call of one component, counted exactly, and the memory its activations take at their peak."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.models.stand_in import autocast_on_meta
from swinmr_profiling.profiler.counting import CountReport
from swinmr_profiling.profiler.counting.count import report_of
from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from swinmr_profiling.training.setup.step_memory import LiveBytes


@dataclass(frozen=True)
class MeasuredCall:
    """A count, and the high-water mark of what the call's operators made, bytes (its inputs and weights excluded)."""

    count: CountReport
    activation_peak_bytes: int


def measure_call(
    module: nn.Module, call: Callable[[nn.Module], object], inputs: object = (), *, memory: bool = True
) -> MeasuredCall:
    """Runs `call(module)` on meta under the exact counter, without gradients.

    Args:
        module: on the meta device; used as it is, so it should be one made for this.
        call: runs the part that is to be counted.
        inputs: what `call` passes, for the report's shapes.
        memory: follow the live storages too; else the peak is 0.

    Raises PipelineError where the network does not run on meta, or runs an operator nobody has a formula for.
    """
    mode, live = CountingMode(ModuleTracker(module)), LiveBytes()
    try:
        with (
            torch.no_grad(),
            FusedAttention(),
            autocast_on_meta("cpu"),
            live if memory else nullcontext(),
            mode.tracker,
            mode,
        ):
            call(module)
        mode.raise_from_threads()
    except Exception as error:
        raise PipelineError(
            f"{type(module).__name__} does not run on meta tensors: {one_line(error)}"
        ) from error
    count = report_of(mode, inputs, {}, "meta", None)
    if count.uncounted_operators:
        names = ", ".join(count.uncounted_operators)
        raise PipelineError(
            f"{type(module).__name__} runs {names}, for which there is no formula: register_formula teaches one"
        )
    return MeasuredCall(count, live.peak_bytes)


class FusedAttention(TorchFunctionMode):
    """Sends `scaled_dot_product_attention` to one fused operator.

    On meta torch takes attention apart into two products with all scores between them: at 1024 px 4 GiB a layer,
    which no GPU kernel allocates. The fused operator has the same multiply-adds and makes only its result. What no
    fused kernel takes (values of another width, fewer than four dimensions) stays as it is.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention:
            named = (kwargs[name] for name in ("query", "key", "value") if name in kwargs)
            query, key, value = (*args, *named)[:3]
            if query.is_meta and query.dim() == 4 and query.shape[-1] == value.shape[-1] and key.dim() == 4:
                with torch._C.DisableTorchFunction():
                    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]
        return function(*args, **kwargs)
