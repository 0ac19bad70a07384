"""The training step: one function, called by the training loop and measured by the profiler.

What is in it decides the memory of training: the forward under autocast, the loss in fp32, the backward of each
micro-batch, clipping, the optimizer, the moving average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.training import OptimizerSection
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.training.step.averages import build_average, exchanged, update_average
from swinmr_profiling.training.step.host_memory import StatesOnHost, saved_on_host
from swinmr_profiling.training.step.losses import WeightedTarget
from swinmr_profiling.training.step.optimizers import build_optimizer, build_scheduler
from swinmr_profiling.training.step.own_step import OwnStepError, TrainingStep, steps_counted, take_step

MakeOptimizer = Callable[[Iterable[nn.Parameter], OptimizerSection], torch.optim.Optimizer]
AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class NonFiniteLossError(ArithmeticError):
    """The loss of a micro-batch is NaN or infinite; `names` are its samples. The weights are untouched."""

    def __init__(self, step: int, names: list[str], parts: dict[str, float]) -> None:
        self.step, self.names, self.parts = step, names, parts
        shown = ", ".join(f"{name} {value:g}" for name, value in parts.items())
        super().__init__(f"the loss of step {step} is not finite ({shown}); samples: {', '.join(names)}")


class NonFiniteGradientError(ArithmeticError):
    """A gradient of a step is NaN or infinite though its losses are not. The weights are untouched."""

    def __init__(self, step: int, names: list[str]) -> None:
        self.step, self.names = step, names
        super().__init__(f"the gradient of step {step} is not finite; samples: {', '.join(names)}")


@dataclass(frozen=True)
class MicroBatch:
    """What one forward and backward takes, on the device of the network.

    inputs: positional arguments of the network, each (B, ...). target: what the loss takes beside the output,
    (B, C, H, W), for a denoiser with weights. names: what to call the samples when something is wrong with them.
    """

    inputs: tuple[Tensor, ...]
    target: Tensor | WeightedTarget
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StepSettings:
    """How a step is made. autocast_dtype None: no autocast. zero_grad, set_to_none: as in the config's `training`.

    saves_on_host: whether what is saved for the backward pass waits on the host.
    """

    device_type: str
    autocast_dtype: torch.dtype | None = None
    accumulation: int = 1
    clip_norm: float | None = None
    zero_grad: str = "after_step"
    set_to_none: bool = True
    saves_on_host: bool = False


@dataclass
class TrainingState:
    """All that a step changes.

    network: what is called (compiled, or wrapped for several devices). module: the network itself. own_step: of the
    user, in place of all that is below; its micro-batches are the loader's batches on the device. ema_on_host: whether
    the moving average lies there.
    """

    network: nn.Module
    module: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler
    scaler: torch.amp.GradScaler
    ema: AveragedModel | None
    step: int = 0
    own_step: TrainingStep | None = None
    ema_on_host: bool = False

    @contextmanager
    def validated_network(self) -> Iterator[nn.Module]:
        """What is validated: the averaged weights where there are any.

        An average on the host changes places with the trained weights meanwhile, so that no third copy is needed.
        """
        if self.ema is None:
            yield self.module
        elif self.ema_on_host:
            with exchanged(self.module, self.ema.module):
                yield self.module
        else:
            yield self.ema.module


@dataclass(frozen=True)
class StepOutcome:
    """Means over the step's micro-batches, detached, on the device. `grad_norm` is the norm before clipping."""

    loss: Tensor
    parts: dict[str, Tensor]
    grad_norm: Tensor | None
    learning_rate: float


def autocast_dtype(config: ExperimentConfig, device_type: str) -> torch.dtype | None:
    """dtype of `system.mixed_precision`; `true` is bf16 where supported, else fp16 on CUDA."""
    precision = config.system.mixed_precision
    if precision is False or precision == "pure_bf16":
        return None
    if precision is True:
        supported = device_type != "cuda" or torch.cuda.is_bf16_supported()
        return torch.bfloat16 if supported else torch.float16
    return AUTOCAST_DTYPES[precision]


def build_settings(config: ExperimentConfig, device_type: str) -> StepSettings:
    """The step's settings from a config."""
    return StepSettings(
        device_type,
        autocast_dtype(config, device_type),
        config.training.accumulate,
        config.training.gradient.clip_norm,
        config.training.zero_grad,
        config.training.set_to_none,
        "activations" in config.training.on_host,
    )


def build_state(
    config: ExperimentConfig,
    module: nn.Module,
    loss: nn.Module,
    total_steps: int,
    wrap: Callable[[nn.Module], nn.Module] = lambda module: module,
    shard: Callable[[nn.Module], nn.Module] = lambda module: module,
    make_optimizer: MakeOptimizer = build_optimizer,
) -> TrainingState:
    """Optimizer, schedule, scaler and moving average around a network that is on its device already.

    wrap: makes what is called out of the network (torch.compile, DistributedDataParallel). shard, make_optimizer:
    spread the network, its average and the optimizer's states over processes (`training.strategies`).
    Raises ModelError where modules are still to be chosen for a budget.
    """
    if config.training.checkpoint_budget is not None:
        raise ModelError(
            "training.gradient_checkpointing: modules are still to be chosen for the budget, which train.py and "
            "scripts/profile_model.py do; name them here"
        )
    ema, ema_on_host = None, "ema" in config.training.on_host
    if config.training.ema_decay > 0:
        ema = build_average(module, config.training.ema_decay, on_host=ema_on_host)
        # Copied whole: a network that is sharded cannot be copied.
        shard(ema.module)
    module = shard(module)
    device_type = next(module.parameters()).device.type
    optimizer = make_optimizer(module.parameters(), config.training.optimizer)
    if "optimizer_states" in config.training.on_host:
        optimizer = StatesOnHost(optimizer)
    scaled = autocast_dtype(config, device_type) is torch.float16
    return TrainingState(
        network=wrap(module),
        module=module,
        loss=loss,
        optimizer=optimizer,
        scheduler=build_scheduler(optimizer, config.training.scheduler, total_steps),
        scaler=torch.amp.GradScaler(device_type, enabled=scaled),
        ema=ema,
        ema_on_host=ema_on_host,
    )


def is_finite(loss: Tensor) -> bool:
    """Whether the loss is a number; waits for the device."""
    return bool(torch.isfinite(loss))


def training_step(
    state: TrainingState,
    settings: StepSettings,
    micro_batches: Iterable[MicroBatch],
    check: Callable[[Tensor], bool] = is_finite,
) -> StepOutcome:
    """One optimizer step over `settings.accumulation` micro-batches.

    check: says whether a loss is finite; a trace without values passes its own assumption.
    Raises NonFiniteLossError before any weight is changed.
    """
    if state.own_step is not None:
        return _own_step(state, state.own_step, micro_batches, check)
    state.network.train()
    sums: dict[str, Tensor] = {}
    total: Tensor | None = None
    count = 0
    if settings.zero_grad == "before_forward":
        state.optimizer.zero_grad(settings.set_to_none)
    for micro_batch in micro_batches:
        count += 1
        last = count == settings.accumulation
        loss, parts = _forward_and_backward(
            state, settings, micro_batch, check, synchronise=last, first=count == 1
        )
        total = loss if total is None else total + loss
        for name, value in parts.items():
            sums[name] = value if name not in sums else sums[name] + value
        # The next micro-batch is made while nothing of this one is held.
        del micro_batch
        if last:
            break
    if total is None:
        raise ValueError("a step needs at least one micro-batch")
    if count != settings.accumulation:
        raise ValueError(f"a step needs {settings.accumulation} micro-batches, not {count}")
    grad_norm = None
    if settings.clip_norm is not None:
        state.scaler.unscale_(state.optimizer)
        grad_norm = nn.utils.clip_grad_norm_(state.module.parameters(), settings.clip_norm)
        # Of sharded gradients it is a sum that no process has yet.
        grad_norm = getattr(grad_norm, "full_tensor", lambda norm=grad_norm: norm)()
    learning_rate = state.optimizer.param_groups[0]["lr"]
    state.scaler.step(state.optimizer)
    state.scaler.update()
    if settings.zero_grad == "after_step":
        state.optimizer.zero_grad(settings.set_to_none)
    state.scheduler.step()
    if state.ema is not None:
        update_average(state.ema, state.module, on_host=state.ema_on_host)
    state.step += 1
    means = {name: value / count for name, value in sums.items()}
    return StepOutcome(total / count, means, grad_norm, learning_rate)


def _own_step(
    state: TrainingState,
    step: TrainingStep,
    batches: Iterable[Any],
    check: Callable[[Tensor], bool],
) -> StepOutcome:
    """One call of a step of the user's own, in training mode. Raises OwnStepError where it returns no loss."""
    batch = next(iter(batches))
    names = list(batch["name"])

    def refuse(loss: Tensor) -> None:
        if not check(loss):
            raise NonFiniteLossError(state.step + 1, names, {"loss": float(loss)})

    state.network.train()
    with steps_counted() as counts:
        loss = take_step(step, batch, refuse)
    del batch
    if isinstance(loss, Tensor) and loss.numel() == 1:
        value = loss.detach().reshape(()).float()
    elif isinstance(loss, (int, float)) and not isinstance(loss, bool):
        value = torch.tensor(float(loss))
    else:
        raise OwnStepError(f"training.step returned {type(loss).__name__}: give the loss, one number")
    if not counts:
        raise OwnStepError("training.step made no step of its optimizer: each call must make one")
    state.scheduler.step()
    state.step += 1
    return StepOutcome(value, {}, None, state.optimizer.param_groups[0]["lr"])


def _forward_and_backward(
    state: TrainingState,
    settings: StepSettings,
    micro_batch: MicroBatch,
    check: Callable[[Tensor], bool],
    synchronise: bool,
    first: bool,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Gradients of one micro-batch, added to those there are; its loss and parts, detached."""
    # Between devices gradients are averaged once per step, with the last micro-batch.
    network = state.network
    with (
        network.no_sync()
        if isinstance(network, DistributedDataParallel) and not synchronise
        else nullcontext()
    ):
        enabled = settings.autocast_dtype is not None
        with saved_on_host(state.module, micro_batch.inputs) if settings.saves_on_host else nullcontext():
            with torch.autocast(settings.device_type, settings.autocast_dtype, enabled=enabled):
                output = state.network(*micro_batch.inputs)
            loss, parts = state.loss(output, micro_batch.target)
        if not check(loss.detach()):
            values = {name: float(value) for name, value in parts.items()}
            raise NonFiniteLossError(state.step + 1, micro_batch.names, values)
        if first and settings.zero_grad == "before_backward":
            state.optimizer.zero_grad(settings.set_to_none)
        state.scaler.scale(loss / settings.accumulation).backward()
    return loss.detach(), {name: value.detach() for name, value in parts.items()}
