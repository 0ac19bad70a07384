"""What a network takes: shapes without the batch, and example inputs for any batch size, device and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from swinmr_profiling.configs.declared_inputs import DeclaredConstant, DeclaredTensor, read_inputs

# inference: the whole image; training: the training patch; cross_check: a small size of the same network at
# which the counters that need a real forward are compared with ours.
Purpose = Literal["inference", "training", "cross_check"]

# An index input (a time step, a class, a token) must be inside every table it may look up; 0 and 1 are.
INDEX_RANGE = 2

# Side of the images of "cross_check": large enough for every kind of shifted window to occur (2 x 2 windows of 8 and
# more), small enough for a real forward: 1/16 of the work of a 256 x 256 image.
CROSS_CHECK_SIDE = 64


def cross_check_hw(image_hw: tuple[int, int], multiple: int = 1) -> tuple[int, int]:
    """Sides of at most CROSS_CHECK_SIDE pixels, multiples of `multiple`, which is the least."""
    height, width = (max(multiple, min(side, CROSS_CHECK_SIDE) // multiple * multiple) for side in image_hw)
    return height, width


@dataclass(frozen=True)
class InputSpec:
    """One positional input of forward.

    shape: without the batch, which stands at `batch_axis`; None for an input that does not grow with the batch.
    kind: "float" takes the dtype of the run, "complex" the complex one of its width; others are torch's names.
    value_range, rows_per_sample: see configs/declared_inputs.py.
    """

    shape: tuple[int, ...]
    kind: str = "float"
    batch_axis: int | None = 0
    value_range: tuple[float, float] | None = None
    rows_per_sample: int = 1

    def full_shape(self, batch_size: int) -> tuple[int, ...]:
        if self.batch_axis is None:
            return self.shape
        rows = batch_size * self.rows_per_sample
        return (*self.shape[: self.batch_axis], rows, *self.shape[self.batch_axis :])

    def example(
        self, batch_size: int, device: torch.device | str, dtype: torch.dtype, generator: torch.Generator
    ) -> Tensor:
        """A random tensor of the full shape: uniform in [0, 1) as images are, small integers, or bools.

        Drawn on the CPU, so that every device sees the same values.
        """
        full_shape = self.full_shape(batch_size)
        own = {"float": dtype, "complex": dtype.to_complex()}.get(self.kind) or getattr(torch, self.kind)
        if torch.device(device).type == "meta":
            return torch.empty(full_shape, dtype=own, device="meta")
        if own.is_floating_point or own.is_complex:
            # A complex number is drawn as two real ones.
            low, high = self.value_range or (0.0, 1.0)
            drawn = own.to_real() if own.is_complex else torch.float32
            shape = (*full_shape, 2) if own.is_complex else full_shape
            values = torch.rand(shape, generator=generator, dtype=drawn) * (high - low) + low
            return (torch.view_as_complex(values) if own.is_complex else values).to(device=device, dtype=own)
        lowest, highest = (0, INDEX_RANGE - 1) if self.value_range is None else map(int, self.value_range)
        values = torch.randint(lowest, highest + 1, full_shape, generator=generator)
        return values.to(device=device, dtype=own)


class CallsWithInputs(nn.Module):
    """A network whose forward takes keywords, lists or dicts, called with its tensors one behind the other.

    arguments: (positional, keyword) inputs of the network, with the number of a tensor in the place of each.
    """

    def __init__(self, model: nn.Module, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        super().__init__()
        self.model, self.arguments = model, arguments

    def forward(self, *tensors: Tensor) -> Any:
        args, kwargs = placed(self.arguments, tensors)
        return self.model(*args, **kwargs)


@dataclass(frozen=True)
class Samples:
    """In the place of a tensor's number: a list of that tensor's samples, along `axis`."""

    number: int
    axis: int


def placed(structure: Any, tensors: Sequence[Tensor]) -> Any:
    """The nest of containers with each number replaced by the tensor of that number, and each constant by its value.

    Of a constant per sample there are as many as the first tensor is long.
    """
    if isinstance(structure, DeclaredConstant):
        return [structure.value] * len(tensors[0]) if structure.per_sample else structure.value
    if isinstance(structure, Samples):
        return list(tensors[structure.number].unbind(structure.axis))
    if isinstance(structure, dict):
        return {name: placed(item, tensors) for name, item in structure.items()}
    if isinstance(structure, (list, tuple)):
        return type(structure)(placed(item, tensors) for item in structure)
    return tensors[structure]


def specs_of(declared: Any, specs: list[InputSpec]) -> Any:
    """Appends the tensors of a declaration to `specs`; returns its containers with their numbers."""
    if isinstance(declared, DeclaredConstant):
        return declared
    if isinstance(declared, DeclaredTensor):
        axis = declared.batch_axis
        specs.append(
            InputSpec(declared.shape, declared.dtype, axis, declared.value_range, declared.rows_per_sample)
        )
        number = len(specs) - 1
        return Samples(number, axis) if declared.as_list and axis is not None else number
    if isinstance(declared, dict):
        return {name: specs_of(item, specs) for name, item in declared.items()}
    return type(declared)(specs_of(item, specs) for item in declared)


def declared_call(value: dict[str, Any] | list[Any]) -> tuple[tuple[InputSpec, ...], Any]:
    """The tensors of a config's `inputs`, and the arguments made of them; None where they are the arguments."""
    declared = read_inputs(value)
    specs: list[InputSpec] = []
    arguments = (specs_of(declared.args, specs), specs_of(declared.kwargs, specs))
    plain = arguments == (tuple(range(len(specs))), {})
    return tuple(specs), None if plain else arguments


@dataclass(frozen=True)
class BuiltModel:
    """A network, ready on the CPU or without data, with the inputs it takes for each purpose.

    notes: what was taken for granted of them, in words.
    """

    net_type: str
    module: nn.Module
    inputs: dict[Purpose, tuple[InputSpec, ...]]
    notes: tuple[str, ...] = ()

    def example_inputs(
        self,
        batch_size: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        which: Purpose = "inference",
        seed: int = 0,
    ) -> tuple[Tensor, ...]:
        """Positional inputs of one forward, for a batch of that size; the global RNG is left alone."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(spec.example(batch_size, device, dtype, generator) for spec in self.inputs[which])

    def input_shape(self, batch_size: int, which: Purpose = "inference") -> list[int]:
        """Shape of the first input, the one reports name."""
        return list(self.inputs[which][0].full_shape(batch_size))

    @property
    def image_hw(self) -> tuple[int, int] | None:
        """(height, width) of the whole image; None where the first input is no (channels, height, width)."""
        shape = self.inputs["inference"][0].shape
        return (shape[-2], shape[-1]) if len(shape) >= 3 else None

    def at_size(self, image_hw: tuple[int, int]) -> BuiltModel:
        """The same network with whole images of another size: each input that is as large as the image is resized.

        Whether the network takes such an image, running it tells.
        """
        own = self.image_hw

        def resized(spec: InputSpec) -> InputSpec:
            is_image = len(spec.shape) >= 3 and tuple(spec.shape[-2:]) == own
            return replace(spec, shape=(*spec.shape[:-2], *image_hw)) if is_image else spec

        return replace(
            self, inputs={**self.inputs, "inference": tuple(map(resized, self.inputs["inference"]))}
        )
