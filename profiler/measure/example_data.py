"""What stands for a run's data where its training is predicted or probed: batches that go the loop's own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any, cast

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel, Purpose
from swinmr_profiling.profiler.counting.meta_copy import copy_to
from swinmr_profiling.profiler.measure.forward_pass import state_preserved
from swinmr_profiling.profiler.record.memory_fingerprint import SAMPLING_STEPS_THAT_DIFFER
from swinmr_profiling.training.denoising.denoising_step import Preparation, build_preparation
from swinmr_profiling.training.denoising.denoising_validation import denoising_result, largest_call
from swinmr_profiling.training.errors import LossError
from swinmr_profiling.training.own_gradients import without_gradients
from swinmr_profiling.training.step.attention_kernels import every_attention_kernel
from swinmr_profiling.training.step.example_batches import (
    ExampleBatch,
    ExampleSlices,
    example_batch,
    in_loader_s_layout,
    target_for,
)
from swinmr_profiling.training.step.losses import build_loss, first_tensor
from swinmr_profiling.training.step.training_step import MicroBatch, StepSettings
from swinmr_profiling.training.validation.validation import direct_result, to_device


@_disable_current_modes()
def output_shape(built: BuiltModel, batch_size: int, which: Purpose) -> tuple[int, ...]:
    """Shape of the network's first result, found without touching the device that is measured.

    Without data where the network allows it, else by one sample on the CPU, with the network's state as it was. A trace
    that looks on while a batch is made does not see it.
    """
    try:
        module = copy_to(built.module, ())[0].eval()
        inputs = built.example_inputs(batch_size, "meta", which=which)
        with every_attention_kernel():
            output = without_gradients(module, lambda: module(*inputs), torch.no_grad)
        return tuple(first_tensor(output).shape)
    except Exception:  # whatever a network raises that asks its tensors for values
        with state_preserved(built.module), every_attention_kernel():
            built.module.eval()
            inputs = built.example_inputs(1, which=which)
            output = without_gradients(built.module, lambda: built.module(*inputs), torch.no_grad)
            one = first_tensor(output).shape
        return (batch_size * one[0], *one[1:]) if one else ()


def network_key(built: BuiltModel, config: ExperimentConfig) -> tuple[Any, ...]:
    """What the shape of the output can depend on beside the batch: all of the config but what is listed here.

    A forward pass in evaluation mode and without gradients, outside autocast, knows nothing of these settings.
    """
    unseen = {
        "training": {"gradient_checkpointing", "on_host", "accumulate"},
        "system": {"channels_last", "mixed_precision"},
        "data": {"batch_size", "val_batch_size"},
    }
    has_bf16_weights = config.system.mixed_precision == "pure_bf16"
    inputs = tuple((which, *specs) for which, specs in built.inputs.items())
    return type(built.module), inputs, has_bf16_weights, config.model_dump_json(exclude=unseen)


def denoiser_preparation(
    built: BuiltModel,
    config: ExperimentConfig,
    shape_of: Callable[[int, Purpose], tuple[int, ...]] | None = None,
) -> Preparation | None:
    """The loop's own making of micro-batches; None for other networks, and for denoisers that can only be profiled.

    shape_of: `output_shape` of this network, remembered.
    """
    inputs = built.inputs["training"]
    if not config.is_denoiser or len(inputs) != 2 or config.denoiser.in_chans is None:
        return None
    image = (1, config.denoiser.in_chans, *inputs[0].shape[1:])
    try:
        shape = shape_of(1, "training") if shape_of else output_shape(built, 1, "training")
        return build_preparation(config) if shape == image else None
    except LossError:
        return None


def validation_shape(built: BuiltModel, config: ExperimentConfig) -> list[int]:
    """Shape of the first input in the network's largest call of a validation batch."""
    samples = denoiser_preparation(built, config) is not None
    return built.input_shape(largest_call(config) if samples else config.data.val_batch_size)


def loader_batch(
    built: BuiltModel, config: ExperimentConfig, device: torch.device, which: Purpose = "training"
) -> Callable[[int], dict[str, Any]]:
    """What makes a batch of a size in the layout of `train.py`'s loader, for a step of the user's own.

    which: "training", or "inference" for the whole images of validation.

    Its targets have the shape of the network's output, those of a denoiser the image's; `further_inputs` are those of
    a network that data has not.
    """
    loss = build_loss(config, for_prediction=True)
    return lambda size: in_loader_s_layout(ExampleData(built, config, loss, device).batch(size, which))


class ExampleData:
    """Micro-batches and a validation batch of a config's shapes, for a loss on its way to or on the device.

    A denoiser's go through the preparation of `train.py`, as does the one image of other networks; a network that can
    only be profiled has its further inputs beside that image, and a target that its loss takes.
    """

    def __init__(
        self,
        built: BuiltModel,
        config: ExperimentConfig,
        loss: nn.Module,
        device: torch.device,
        known_shapes: dict[Any, tuple[int, ...]] | None = None,
    ) -> None:
        """known_shapes: of outputs, for several that differ in batch and memory settings; None: of this one alone."""
        self.built, self.config, self.loss, self.device = built, config, loss, device
        self.known_shapes = {} if known_shapes is None else known_shapes
        self.preparation = denoiser_preparation(built, config, self._output_shape)

    def micro_batches(self, batch_size: int) -> Iterator[MicroBatch]:
        """As training/run/batch_stream.py hands them over: made when asked for, held by nobody else."""
        make = self._maker(batch_size, "training")
        # On a CPU the batch itself is what a step holds: each step gets a new one.
        kept = None if self.device.type == "cpu" else make()
        return (self._prepare(kept or make(), self.device, 0, number) for number in count())

    def batch(self, batch_size: int, which: Purpose = "training") -> ExampleBatch:
        """One batch in the loader's layout, on the host: of patches, or of whole images ("inference")."""
        return self._maker(batch_size, which)()

    def validation(self, settings: StepSettings) -> Callable[[nn.Module], object]:
        """One batch of `training.validation.validation.validate`, to be called with the network in evaluation mode."""
        batch = self._maker(self.config.data.val_batch_size, "inference")()
        if self.preparation is None:
            result = direct_result(
                self.loss,
                settings,
                self.device,
                lambda batch, device: self._prepare(cast(ExampleBatch, batch), device),
            )
        else:
            height, width = batch["input"].shape[-2:]
            slices = ExampleSlices(self.config, (height, width))
            result = denoising_result(_in_few_steps(self.config), self.loss, slices, settings, self.device)
        return lambda network: result(network, batch)

    def _output_shape(self, batch_size: int, which: Purpose) -> tuple[int, ...]:
        key = (network_key(self.built, self.config), batch_size, which)
        if key not in self.known_shapes:
            self.known_shapes[key] = output_shape(self.built, batch_size, which)
        return self.known_shapes[key]

    def _maker(self, batch_size: int, which: Purpose) -> Callable[[], ExampleBatch]:
        """What makes the same batch again and again; the output's shape is looked up here and now."""
        shape = None if self.preparation is not None else self._output_shape(batch_size, which)
        channels = None if self.preparation is None else self.config.denoiser.in_chans

        def make() -> ExampleBatch:
            batch = example_batch(
                self.built, batch_size, which, channels=channels, with_values=self.device.type != "meta"
            )
            if shape is not None:
                batch["target"] = target_for(self.loss, batch["input"], shape)
            return batch

        return make

    def _prepare(
        self, batch: ExampleBatch, device: torch.device, epoch: int = 0, number: int = 0
    ) -> MicroBatch:
        if self.preparation is not None:
            return self.preparation(batch, device, epoch, number)
        micro_batch = to_device(batch, device)
        return replace(
            micro_batch, inputs=(*micro_batch.inputs, *(x.to(device) for x in batch["further_inputs"]))
        )


def _in_few_steps(config: ExperimentConfig) -> ExperimentConfig:
    """The config with no more sampling steps in validation than differ in memory."""
    sampling = config.evaluation.sampling
    few = {"validation_steps": min(sampling.validation_steps, SAMPLING_STEPS_THAT_DIFFER)}
    evaluation = config.evaluation.model_copy(update={"sampling": sampling.model_copy(update=few)})
    return config.model_copy(update={"evaluation": evaluation})
