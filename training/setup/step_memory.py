"""What one training step will need on a CPU, estimated without running it: the step on tensors without data.

Of a CUDA device profiler/prediction knows more; resident memory of a CPU's process cannot be known to the byte.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.training.data.dataset import input_channels
from swinmr_profiling.training.denoising.denoising_step import build_preparation, refuse_further_inputs
from swinmr_profiling.training.step.example_batches import example_batch
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.optimizers import state_bytes

# What no trace sees: kernels' workspaces, what allocators round up and keep. Resident memory grew by 1.39 and 1.45
# times what was counted (SwinMR of 60 channels, 4 and 6 groups).
MARGIN = 1.5
# Python, torch and their libraries in a process that has no network yet.
PROCESS_BYTES = 850 * 2**20


@dataclass(frozen=True)
class StepEstimate:
    """Bytes of one step of one sample, in float32.

    Attributes:
        parameter_bytes: of the network's parameters and buffers.
        state_bytes: optimizer states and moving average.
        step_bytes: high-water mark of forward, loss and backward: activations, gradients, what kernels return.
    """

    parameter_bytes: int
    state_bytes: int
    step_bytes: int

    def needed_bytes(self) -> int:
        """Host memory of a process that trains on a CPU: with the margin, and what the process itself takes."""
        return int(MARGIN * (self.parameter_bytes + self.state_bytes + self.step_bytes)) + PROCESS_BYTES


class LiveBytes(TorchDispatchMode):
    """Adds up the bytes of all storages that operators have made and that still live; keeps the peak."""

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = self.peak_bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        # What was there before (parameters, inputs) is not new memory when an operator returns a view of it.
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, Tensor):
                self._enter(tensor.untyped_storage(), 0)
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._enter(storage, storage.nbytes())
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return result

    def _enter(self, storage: torch.UntypedStorage, counted_bytes: int) -> None:
        key = id(storage)
        if key in self._known:
            return
        self._known.add(key)
        self.live_bytes += counted_bytes
        # An identity may be given to another storage as soon as this one is gone.
        weakref.finalize(storage, self._leave, key, counted_bytes)

    def _leave(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live_bytes -= size


def estimate_step(built: BuiltModel, config: ExperimentConfig) -> StepEstimate:
    """Forward, loss and backward of one sample at the training patch, on the meta device.

    Precision is float32 whatever the config's, because meta tensors know no autocast: mixed precision needs less.
    Raises whatever a network raises that does not run on meta tensors; LossError, DataError for what cannot be trained.
    """
    prepare = build_preparation(config)
    refuse_further_inputs(built, config)
    module = copy.deepcopy(built.module).to("meta").train()
    loss = build_loss(config).to("meta")
    batch = example_batch(built, 1, "training", channels=input_channels(config), with_values=False)
    own_bytes = sum(t.nbytes for t in (*module.parameters(), *module.buffers()))
    trained_bytes = sum(p.nbytes for p in module.parameters() if p.requires_grad)
    kept_bytes = state_bytes(module.parameters(), config.training.optimizer)
    if config.training.ema_decay > 0:
        kept_bytes += trained_bytes
    mode = LiveBytes()
    with mode:
        micro_batch = prepare(batch, torch.device("meta"), 0, 0)
        loss(module(*micro_batch.inputs), micro_batch.target).total.backward()
    return StepEstimate(own_bytes, kept_bytes, mode.peak_bytes)
