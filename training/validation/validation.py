"""Validation: whole images through the averaged weights, metrics beside those of the zero-filled input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from swinmr_profiling.training.data.dataset import ReconstructionDataset
from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.own_gradients import without_gradients
from swinmr_profiling.training.step.losses import first_tensor
from swinmr_profiling.training.step.training_step import MicroBatch, StepSettings
from swinmr_profiling.training.validation.metrics import (
    Convention,
    MetricAccumulator,
    MetricResult,
    summarise,
)

# Which way each metric of `early_stopping.metric` improves.
HIGHER_IS_BETTER = {"val_psnr": True, "val_ssim": True, "val_nmse": False, "val_loss": False}


@dataclass(frozen=True)
class ValidationResult:
    """Means over the validation set, in every process the same.

    sampled_fraction is the share of k-space that the masks really sampled. example: (zero-filled, output, target)
    magnitudes of the first slice, (3, H, W), scaled to the target's maximum; None in the other processes, and where
    no images were made. `network` is then without values.
    """

    network: MetricResult
    zero_filled: MetricResult
    loss: float
    sampled_fraction: float
    example: Tensor | None

    def values(self) -> dict[str, Any]:
        """What the logs record and `early_stopping.metric` names."""
        return {
            "val_psnr": self.network.psnr_db,
            "val_ssim": self.network.ssim,
            "val_nmse": self.network.nmse,
            "val_loss": self.loss,
            "zero_filled_psnr": self.zero_filled.psnr_db,
            "zero_filled_ssim": self.zero_filled.ssim,
            "zero_filled_nmse": self.zero_filled.nmse,
            "sampled_fraction": self.sampled_fraction,
        }


def to_device(batch: Mapping[str, Any], device: torch.device) -> MicroBatch:
    """A collated batch of samples as the step takes it."""
    inputs = batch["input"].to(device, non_blocking=True)
    return MicroBatch((inputs,), batch["target"].to(device, non_blocking=True), batch["name"])


def magnitudes(images: Tensor, offset: Tensor, scale: Tensor) -> Tensor:
    """Normalised images (B, C, H, W) as magnitudes in their original unit, (B, H, W), float32.

    Two channels are real and imaginary part; more are one magnitude repeated.
    """
    images = images.float()
    single = torch.linalg.vector_norm(images, dim=1) if images.shape[1] == 2 else images.mean(1)
    return single * scale[:, None, None].to(single) + offset[:, None, None].to(single)


def on_host(tensor: Tensor) -> Tensor:
    """The tensor on the CPU. One without data (meta, where a trace looks on) becomes zeros of its shape."""
    return torch.zeros(tensor.shape, dtype=tensor.dtype) if tensor.is_meta else tensor.cpu()


def validate_batch(
    network: nn.Module, loss: nn.Module, micro_batch: MicroBatch, settings: StepSettings
) -> tuple[Tensor, float]:
    """The network's output (B, C, H, W) and the loss of one batch, for a caller in evaluation and inference mode."""
    enabled = settings.autocast_dtype is not None
    with torch.autocast(settings.device_type, settings.autocast_dtype, enabled=enabled):
        output = first_tensor(network(*micro_batch.inputs))
    return output, float(on_host(loss(output, micro_batch.target).total.detach()))


# (network, collated batch) to the loss, a mean over its samples, and images (B, C, H, W) on the CPU, None where none
# are made. Nothing of a batch is left on the device when the next one comes.
BatchResult = Callable[[nn.Module, Mapping[str, Any]], tuple[float, Tensor | None]]


def direct_result(
    loss: nn.Module,
    settings: StepSettings,
    device: torch.device,
    prepare: Callable[[Mapping[str, Any], torch.device], MicroBatch] = to_device,
) -> BatchResult:
    """The images that the network makes of its inputs, and their loss. prepare: makes micro-batches of batches."""

    def run(network: nn.Module, batch: Mapping[str, Any]) -> tuple[float, Tensor]:
        output, value = validate_batch(network, loss, prepare(batch, device), settings)
        return value, on_host(output.detach())

    return run


def validate(
    network: nn.Module,
    result_of: BatchResult,
    loader: DataLoader,
    world: World,
    convention: Convention,
) -> ValidationResult:
    """Runs the network over the loader in evaluation mode; its training flag is given back.

    result_of: `direct_result`, or what a denoiser has instead of it. Raises DataError, in every process.
    """
    dataset = cast("ReconstructionDataset", loader.dataset)
    slices = Counter(str(dataset.locate(index)[0]) for index in range(len(dataset)))
    outputs = MetricAccumulator(convention, slices)
    inputs = MetricAccumulator(convention, slices)
    losses: list[float] = []
    fractions: list[float] = []
    example = None
    failure: str | None = None
    was_training = network.training
    network.eval()
    try:
        for batch in loader:
            value, output = without_gradients(network, partial(result_of, network, batch))
            losses += [value] * len(batch["name"])
            fractions += batch["sampled_fraction"].tolist()
            place = (batch["offset"], batch["scale"])
            zero_filled, target = (magnitudes(x, *place) for x in (batch["input"], batch["target"]))
            got = None if output is None else magnitudes(output, *place)
            for position, index in enumerate(batch["index"].tolist()):
                volume = str(dataset.locate(index)[0])
                true = target[position].numpy()
                inputs.add(volume, zero_filled[position].numpy(), true)
                if got is not None:
                    outputs.add(volume, got[position].numpy(), true)
            if example is None and got is not None and world.is_first:
                example = torch.stack([x[0] for x in (zero_filled, got, target)])
                example = example / example[2].max().clamp_min(torch.finfo(torch.float32).tiny)
    except DataError as error:
        failure = str(error)
    finally:
        network.train(was_training)
    if (told := world.first(failure)) is not None:
        raise DataError(told)
    # Volumes that an accumulator still holds open are closed before they travel.
    outputs.result()
    inputs.result()
    gathered = world.gather((outputs.values, inputs.values, losses, fractions))
    merged = [[value for part in parts for value in part] for parts in zip(*gathered, strict=True)]
    return ValidationResult(
        network=summarise(merged[0], convention),
        zero_filled=summarise(merged[1], convention),
        loss=sum(merged[2]) / len(merged[2]),
        sampled_fraction=sum(merged[3]) / len(merged[3]),
        example=example,
    )
