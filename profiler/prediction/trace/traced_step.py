"""The training step of `training/`, run on tensors without data while a trace looks on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.lora import adapted_layers
from swinmr_profiling.models.recomputation.recomputed_modules import never_called
from swinmr_profiling.models.swin.windows import clear_cache
from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.measure.example_data import ExampleData
from swinmr_profiling.profiler.prediction.cuda.cuda_emulation import cuda_on_meta
from swinmr_profiling.profiler.prediction.trace.allocation_frames import FramesTrace
from swinmr_profiling.profiler.prediction.trace.remembered_results import RememberedResults, Remembering
from swinmr_profiling.profiler.prediction.trace.storage_trace import StorageTrace, Trace
from swinmr_profiling.training.own_gradients import wants_gradients
from swinmr_profiling.training.step.attention_kernels import attention_kernels
from swinmr_profiling.training.step.host_memory import MOVED
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import (
    MicroBatch,
    StepSettings,
    TrainingState,
    build_settings,
    build_state,
    training_step,
)
from swinmr_profiling.training.strategies.engine import Engine, build_engine

# The optimizer makes its state in the first step; from the second on every step is like the one before.
TRACED_STEPS = 2
# From the copied network and its loss, and StorageTrace's own arguments.
MakeTrace = Callable[..., StorageTrace]
Traces = TypeVar("Traces", bound=Callable[..., Trace])
FINITE_ASSUMPTION = "every loss is finite"
# Whether `young_garbage_only` is entered; Python's own count of what is frozen takes as long as a collection.
_garbage_is_young = False


class PhaseScaler:
    """Stands where the step's gradient scaler stands: tells the trace what comes next, and asks no tensor its value.

    In fp16 it makes what torch.amp.GradScaler makes: a scaled loss, the inverse scale, the flag of overflow.
    """

    def __init__(self, trace: StorageTrace, scales: bool) -> None:
        self.trace = trace
        self.scales = scales
        # Made with the first loss, as GradScaler makes it.
        self._scale: Tensor | None = None
        self._inverse: Tensor | None = None
        self._found_inf: Tensor | None = None
        self._unscaled = False
        # Of the last step: trained parameters that the backward pass has not reached, by id.
        self.without_gradient: set[int] = set()

    def scale(self, loss: Tensor) -> Tensor:
        if self.scales and self._scale is None:
            self._scale = torch.empty((), device=loss.device)
            self._growth_tracker = torch.empty((), dtype=torch.int32, device=loss.device)
        scaled = loss if self._scale is None else loss * self._scale
        self.trace.phase = "backward"
        return scaled

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        self.trace.phase = "clipping"
        if self._scale is not None and not self._unscaled:
            self._inverse = self._scale.double().reciprocal().float()
            self._found_inf = torch.empty((), device=self._scale.device)
            self._unscaled = True

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.unscale_(optimizer)
        self.without_gradient = {
            id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is None
        }
        self.trace.phase = "optimizer"
        optimizer.step()

    def update(self) -> None:
        self.trace.phase = "averaging"
        self._inverse = self._found_inf = None
        self._unscaled = False


def _finite(loss: Tensor) -> bool:
    torch.isfinite(loss)  # allocates what the real check allocates
    return True


def copy_of(module: nn.Module, device: str | None = "meta") -> nn.Module:
    """A copy on the meta device, or a real one (None); the module itself is only read."""
    return copy_to(module, (), device)[0]


def _with_gradients_where_wanted(trace: Traces) -> Traces:
    """Traces again, with gradients, where the network's forward takes them itself: half a trace is of no use."""

    @wraps(trace)
    def traced(*args: Any, **options: Any) -> Trace:
        try:
            return trace(*args, **options)
        except RuntimeError as error:
            if not wants_gradients(error):
                raise
        return trace(*args, **options, no_gradients=torch.enable_grad)

    return cast(Traces, traced)


@_with_gradients_where_wanted
def trace_training(
    built: BuiltModel,
    config: ExperimentConfig,
    batch_size: int,
    *,
    as_on_cuda: bool = True,
    validation: bool = True,
    steps: int = TRACED_STEPS,
    device: str = "meta",
    engine: Engine | None = None,
    make_trace: MakeTrace = lambda module, loss, *given, **options: StorageTrace(*given, **options),
    results: RememberedResults | None = None,
    no_gradients: Callable[[], AbstractContextManager[Any]] = torch.no_grad,
) -> Trace:
    """Traces `steps` training steps of micro-batches of `batch_size`, then one validation batch.

    Validation is without gradients, but of a network whose forward takes them itself.

    as_on_cuda: decide as CUDA would (attention, autocast, foreach); else the plain operators of the device.
    device: "meta", or "cpu" for a real run, which is what a trace without data is held against.
    engine: makes the traced step that of one process among several (profiler/ranks); None: of one alone.
    make_trace: a trace that knows more, from the copied network, its loss and StorageTrace's arguments.
    results: of operators, for several traces of much the same network; None: of this one alone.
    Raises whatever the network raises that needs values: it cannot be traced.
    """
    results = RememberedResults() if results is None else results
    clear_cache()
    with attention_kernels(config.system.attention), cuda_on_meta() if as_on_cuda else nullcontext():
        module, loss = (
            copy_of(part, "meta" if device == "meta" else None)
            for part in (built.module, build_loss(config, for_prediction=True))
        )
        settings = build_settings(config, "cuda")
        data = ExampleData(built, config, loss, torch.device(device), results.output_shapes)
        with Remembering(results):  # a forward pass each, for the shape of the output
            batches = data.micro_batches(batch_size)
            validate = data.validation(settings) if validation else None
        clear_cache()
        trace = make_trace(
            module.train(), loss, device, as_on_cuda=as_on_cuda, assumed=config.training.assume
        )
        trace.results = results
        with young_garbage_only(), trace:
            state = _set_up(
                trace, config, module, loss, settings, engine or build_engine(config, 1, torch.device(device))
            )
            stream = _micro_batches(trace, batches)
            outcome = None
            for _ in range(steps):
                trace.start_step()
                moved = MOVED.read()
                outcome = training_step(state, settings, stream, _finite)
                # What only Python's cycles hold would be freed at some time; here it is at the end of a step.
                gc.collect()
            now = MOVED.read()
            if validate is not None:
                trace.phase = "validation"
                trace.start_step()
                # One batch of training/validation/validation.py: the averaged weights on whole images. Not in inference
                # mode, in which operators made of others reach the trace as one, without what they make inside.
                with state.validated_network() as network, no_gradients():
                    validate(network.eval())
            idle = never_called(module)
            notes = [f"chosen for checkpointing and never called: {', '.join(idle)}"] if idle else []
            unreached = adapted_layers(module, cast(PhaseScaler, state.scaler).without_gradient)
            if unreached:
                notes.append(
                    f"training.lora: the network does not call {', '.join(unreached)}: no adapter is trained there"
                )
            traced = trace.finish(batch_size, [FINITE_ASSUMPTION, *notes])
            traced.moved_bytes = [after - before for before, after in zip(moved, now, strict=True)]
            del outcome
    clear_cache()
    return traced


def trace_lines(built: BuiltModel, config: ExperimentConfig, batch_size: int) -> FramesTrace:
    """The same steps without a validation, with the lines that made each allocation; finished."""
    made: list[FramesTrace] = []

    def recorder(*given: Any, **options: Any) -> FramesTrace:
        made.append(FramesTrace(*given, **options))
        return made[-1]

    trace_training(built, config, batch_size, validation=False, make_trace=recorder)
    return made[-1]


@contextmanager
def young_garbage_only() -> Iterator[None]:
    """Keeps what is there already out of garbage collection: it cannot be garbage of the traced steps.

    Around several traces it is done once for all: to look through all of Python's objects takes a third of a second.
    """
    global _garbage_is_young
    if _garbage_is_young or gc.get_freeze_count():  # what another program has frozen is left so
        yield
        return
    # What the first operator under a dispatch mode imports is as large as all the rest: it shall be there already.
    import torch._dynamo  # noqa: F401

    gc.collect()
    gc.freeze()
    _garbage_is_young = True
    try:
        yield
    finally:
        _garbage_is_young = False
        gc.unfreeze()


@_with_gradients_where_wanted
def trace_inference(
    built: BuiltModel,
    config: ExperimentConfig,
    batch_size: int,
    no_gradients: Callable[[], AbstractContextManager[Any]] = torch.no_grad,
) -> Trace:
    """Traces two forward passes of whole images, as the profiler measures them on CUDA: without gradients, but of a
    network whose forward takes them itself.
    """
    clear_cache()
    with attention_kernels(config.system.attention), cuda_on_meta():
        module = copy_of(built.module).eval()
        settings = build_settings(config, "cuda")
        trace = StorageTrace(assumed=config.training.assume)
        with trace, no_gradients():
            trace.category = "parameters"
            trace.move_in(module)
            if config.system.channels_last:
                module.to(memory_format=torch.channels_last)
            output = None
            for _ in range(TRACED_STEPS):
                trace.start_step()
                trace.phase, trace.category = "inputs", "inputs"
                inputs = built.example_inputs(batch_size, "meta", which="inference")
                if config.system.channels_last:
                    inputs = tuple(
                        x.to(memory_format=torch.channels_last) if x.ndim == 4 else x for x in inputs
                    )
                trace.phase, trace.category = "forward", None
                with torch.autocast(
                    "cuda", settings.autocast_dtype, enabled=settings.autocast_dtype is not None
                ):
                    output = module(*inputs)
                del inputs
            traced = trace.finish(batch_size, [])
            del output
    clear_cache()
    return traced


def _set_up(
    trace: StorageTrace,
    config: ExperimentConfig,
    module: nn.Module,
    loss: nn.Module,
    settings: StepSettings,
    engine: Engine,
) -> TrainingState:
    # In the order of training/run/loop.py: the loss is on the device before the network.
    trace.category = "loss_networks"
    trace.move_in(loss)
    trace.category = "parameters"
    # Else the network and its copy are on the host until they are sharded.
    is_moved_whole = not engine.shards_parameters
    if is_moved_whole:
        trace.move_in(module)
    if config.system.channels_last:
        module.to(memory_format=torch.channels_last)
    trace.category, trace.is_looking = "ema", is_moved_whole

    def shard(network: nn.Module) -> nn.Module:
        trace.is_looking = True
        trace.category = "parameters" if network is module else "ema"
        return engine.shard(network)

    def wrap(network: nn.Module) -> nn.Module:
        trace.category = "communication"
        return engine.wrap(network)

    def announced_loss(output: Any, target: Tensor) -> Any:
        trace.phase = "loss"
        return loss(output, target)

    state = build_state(
        config, module, loss, TRACED_STEPS, wrap=wrap, shard=shard, make_optimizer=engine.optimizer
    )
    trace.category = None
    # They stand where the loop has torch's own scaler and the loss.
    state.scaler = cast(torch.amp.GradScaler, PhaseScaler(trace, settings.autocast_dtype is torch.float16))
    state.loss = cast(nn.Module, announced_loss)
    return state


def _micro_batches(trace: StorageTrace, batches: Iterator[MicroBatch]) -> Iterator[MicroBatch]:
    """The batches, announced to the trace, and held by nobody here."""
    while True:
        yield _announced(trace, batches)


def _announced(trace: StorageTrace, batches: Iterator[MicroBatch]) -> MicroBatch:
    trace.phase, trace.category = "inputs", "inputs"
    micro_batch = next(batches)
    trace.phase, trace.category = "forward", None
    return micro_batch
