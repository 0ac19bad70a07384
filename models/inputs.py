"""What a network takes: shapes without the batch, and example inputs for any batch size, device and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

# inference: the whole image; training: the training patch; cross_check: a small size of the same network at
# which the counters that need a real forward are compared with ours.
Purpose = Literal["inference", "training", "cross_check"]

# An index input (a time step, a class, a token) must be inside every table it may look up; 0 and 1 are.
INDEX_RANGE = 2


@dataclass(frozen=True)
class InputSpec:
    """One positional input of forward. `kind` "float" takes the dtype of the run, the others keep theirs."""

    shape: tuple[int, ...]
    kind: Literal["float", "int64", "bool"] = "float"

    def example(
        self, batch_size: int, device: torch.device | str, dtype: torch.dtype, generator: torch.Generator
    ) -> Tensor:
        """A random tensor (batch_size, *shape): uniform in [0, 1) as images are, small integers, or bools.

        Drawn on the CPU, so that every device sees the same values.
        """
        full_shape = (batch_size, *self.shape)
        if torch.device(device).type == "meta":
            kinds = {"float": dtype, "int64": torch.int64, "bool": torch.bool}
            return torch.empty(full_shape, dtype=kinds[self.kind], device="meta")
        if self.kind == "float":
            return torch.rand(full_shape, generator=generator).to(device=device, dtype=dtype)
        values = torch.randint(0, INDEX_RANGE, full_shape, generator=generator)
        return values.to(device=device, dtype=torch.bool if self.kind == "bool" else torch.int64)


@dataclass(frozen=True)
class BuiltModel:
    """A network, ready on the CPU, with the inputs it takes for each purpose."""

    net_type: str
    module: nn.Module
    inputs: dict[Purpose, tuple[InputSpec, ...]]

    def example_inputs(
        self,
        batch_size: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        which: Purpose = "inference",
        seed: int = 0,
    ) -> tuple[Tensor, ...]:
        """Positional inputs of one forward, each (batch_size, *shape); the global RNG is left alone."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(spec.example(batch_size, device, dtype, generator) for spec in self.inputs[which])

    def input_shape(self, batch_size: int, which: Purpose = "inference") -> list[int]:
        """Shape of the first input, the one reports name."""
        return [batch_size, *self.inputs[which][0].shape]
