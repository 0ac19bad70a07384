"""A network on a test set: every slice and volume measured by both conventions, beside its zero-filled input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from swinmr_profiling.input_error import InputError
from swinmr_profiling.training.data.dataset import ReconstructionDataset
from swinmr_profiling.training.degradation.data_consistency import consistent, sampled_error
from swinmr_profiling.training.denoising.diffusion_reconstruction import DiffusionSampler
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.evaluation.perceptual_metric import PerceptualMetric
from swinmr_profiling.training.own_gradients import without_gradients
from swinmr_profiling.training.step.losses import first_tensor
from swinmr_profiling.training.step.ssim import WINDOW
from swinmr_profiling.training.validation.metrics import nmse, psnr, ssim
from swinmr_profiling.training.validation.validation import magnitudes

IMAGE_METRICS = ("psnr_db", "ssim", "nmse")
# Of sampled reconstructions: |M (F x - k0)| / |M k0|.
SAMPLED_ERROR = "sampled_kspace_error"


class ReconstructionError(InputError):
    """A network that makes no image of its input; one line for the user."""


@dataclass(frozen=True)
class Measured:
    """The metrics of one slice or one volume; NaN or infinite where they are not defined.

    Attributes:
        volume, slice: the volume's name; the slice's number in it, None for a volume.
        image_hw: (H, W).
        slices: 1, or how many slices of the volume were measured.
        data_range: the range of PSNR and SSIM: the maximum of the ground truth of this slice or volume.
        sampled_fraction: mean share of k-space that the masks sampled.
        reconstruction, zero_filled: name of a metric to its value.
        spread: of the samples of a slice, None where there is one reconstruction and nothing to spread.
    """

    volume: str
    slice: int | None
    image_hw: tuple[int, int]
    slices: int
    data_range: float
    sampled_fraction: float
    reconstruction: dict[str, float]
    zero_filled: dict[str, float]
    spread: SampleSpread | None = None


@dataclass(frozen=True)
class SampleSpread:
    """How far the samples of one slice are apart; their mean is the reconstruction.

    Attributes:
        samples: how many, at least 2.
        pixel_std: standard deviation over samples (n - 1), mean over pixels, as a share of the slice's maximum.
        psnr_db: of each sample alone.
    """

    samples: int
    pixel_std: float
    psnr_db: list[float]


@dataclass(frozen=True)
class Picture:
    """Magnitudes (H, W) of one slice, for the picture grid, and the deviation of its samples where there is one."""

    name: str
    target: np.ndarray
    zero_filled: np.ndarray
    reconstruction: np.ndarray
    measured: Measured
    deviation: np.ndarray | None = None


@dataclass
class Evaluation:
    """All that was measured. `stopped_by` names what ended it before the last slice, None otherwise."""

    slices: list[Measured] = field(default_factory=list)
    volumes: list[Measured] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    stopped_by: str | None = None
    perceptual_failure: str | None = None


def image_metrics(target: np.ndarray, output: np.ndarray) -> dict[str, float]:
    """PSNR in dB, SSIM and NMSE of a slice (H, W) or a volume (slices, H, W), its own maximum as the range."""
    return {"psnr_db": psnr(target, output), "ssim": ssim(target, output), "nmse": nmse(target, output)}


def reconstruct(network: nn.Module, inputs: Tensor, autocast_dtype: torch.dtype | None) -> Tensor:
    """The network's image (B, C, H, W), float32, of inputs (B, C, H, W) on its device.

    Raises ReconstructionError for an output of another size.
    """
    device = inputs.device.type
    with torch.autocast(device, autocast_dtype, enabled=autocast_dtype is not None):
        output = first_tensor(without_gradients(network, lambda: network(inputs))).detach()
    if output.ndim != 4 or output.shape[-2:] != inputs.shape[-2:] or len(output) != len(inputs):
        raise ReconstructionError(
            f"the network makes {tuple(output.shape)} of {tuple(inputs.shape)}: a reconstruction has the size of its "
            "input"
        )
    return output.float()


@dataclass(frozen=True)
class EvaluationOptions:
    """What is done beside the metrics.

    Attributes:
        autocast_dtype: precision of the network, None for float32.
        perceptual: LPIPS or its stand-in, None without.
        data_consistency: whether measured k-space replaces the network's.
        limit: only so many slices, None for all.
        pictures: how many slices to keep for the picture grid, spread evenly.
        sampler: how a denoiser makes images (data consistency is in it), None for networks that make them at once.
    """

    autocast_dtype: torch.dtype | None = None
    perceptual: PerceptualMetric | None = None
    data_consistency: bool = False
    limit: int | None = None
    pictures: int = 0
    sampler: DiffusionSampler | None = None


def evaluate(
    network: nn.Module,
    loader: DataLoader,
    device: torch.device,
    options: EvaluationOptions,
    *,
    stop: Callable[[], str | None] = lambda: None,
    on_slices: Callable[[int], object] = lambda count: None,
) -> Evaluation:
    """Runs the network in evaluation mode over the loader of a whole split, in its order.

    Args:
        network: on the device already; its training flag is given back.
        loader: of `build_loader(config, "test")`.
        stop: asked between batches; names what asks for an end, and the volume under way counts as it is then.
        on_slices: told how many slices were done.

    Raises:
        DataError: for slices that cannot be read or are smaller than SSIM's window.
        ReconstructionError: for a network whose output is not an image of its input's size.
    """
    dataset = cast("ReconstructionDataset", loader.dataset)
    total = len(dataset) if options.limit is None else min(options.limit, len(dataset))
    shown = set(np.linspace(0, total - 1, min(options.pictures, total)).round().astype(int).tolist())
    result = Evaluation()
    open_volume: list[_OpenSlice] = []
    was_training = network.training
    network.eval()
    try:
        for batch in loader:
            result.stopped_by = stop()
            if result.stopped_by is not None or len(result.slices) >= total:
                break
            done = 0
            for one in _slices_of(network, batch, dataset, device, options):
                if len(result.slices) >= total:
                    break
                if open_volume and open_volume[0].volume_index != one.volume_index:
                    _close(open_volume, result)
                measured = _measure_slice(one, options, result)
                open_volume.append(one)
                result.slices.append(measured)
                if one.index in shown:
                    arrays = (one.target, one.zero_filled, one.output)
                    result.pictures.append(Picture(one.name, *arrays, measured, one.deviation))
                done += 1
            on_slices(done)
    finally:
        network.train(was_training)
    if open_volume:
        _close(open_volume, result)
    return result


@dataclass(frozen=True)
class _OpenSlice:
    """Magnitudes of one slice in their original unit, until its volume is complete."""

    index: int
    name: str
    volume_index: int
    volume: str
    slice: int
    sampled_fraction: float
    output: np.ndarray
    zero_filled: np.ndarray
    target: np.ndarray
    samples: np.ndarray | None = None
    sampled_errors: tuple[float, float] | None = None

    @property
    def deviation(self) -> np.ndarray | None:
        """Standard deviation over samples of each pixel, None for fewer than 2."""
        if self.samples is None or len(self.samples) < 2:
            return None
        return self.samples.std(axis=0, ddof=1)


def _slices_of(
    network: nn.Module,
    batch: dict[str, Any],
    dataset: ReconstructionDataset,
    device: torch.device,
    options: EvaluationOptions,
):
    """The slices of one batch, reconstructed."""
    height, width = batch["target"].shape[-2:]
    if min(height, width) < WINDOW:
        raise DataError(f"{batch['name'][0]}: is {height} x {width}; SSIM needs at least {WINDOW} x {WINDOW}")
    samples = None
    if options.sampler is not None:
        all_samples = options.sampler.reconstruct(network, batch, device, dataset)
        output = all_samples.mean(0)
        samples = torch.stack([magnitudes(x, batch["offset"], batch["scale"]) for x in all_samples], 1)
    else:
        inputs = batch["input"].to(device, non_blocking=True)
        output = reconstruct(network, inputs, options.autocast_dtype).cpu()
    if options.data_consistency and options.sampler is None:
        indices = batch["index"].tolist()
        output = torch.stack([_made_consistent(dataset, i, x) for i, x in zip(indices, output, strict=True)])
    made, given, wanted = (
        magnitudes(x, batch["offset"], batch["scale"]).numpy()
        for x in (output, batch["input"], batch["target"])
    )
    for position, index in enumerate(batch["index"].tolist()):
        volume, number = dataset.locate(index)
        errors = None
        if options.sampler is not None:
            errors = _sampled_errors(dataset, index, output[position], batch["input"][position])
        yield _OpenSlice(
            index,
            batch["name"][position],
            volume,
            dataset.volumes[volume].name,
            number,
            float(batch["sampled_fraction"][position]),
            made[position],
            given[position],
            wanted[position],
            samples=None if samples is None else samples[position].numpy(),
            sampled_errors=errors,
        )


def _sampled_errors(
    dataset: ReconstructionDataset, index: int, output: Tensor, zero_filled: Tensor
) -> tuple[float, float]:
    """Relative k-space error at the sampled points, of the reconstruction and of the zero-filled image."""
    degraded, mask = dataset.degraded(index)
    magnitude_only = dataset.volumes[dataset.locate(index)[0]].magnitude_only
    of_output, of_zero_filled = (
        sampled_error(image, degraded, mask, magnitude_only=magnitude_only) for image in (output, zero_filled)
    )
    return of_output, of_zero_filled


def _made_consistent(dataset: ReconstructionDataset, index: int, output: Tensor) -> Tensor:
    """One channel of magnitudes, (1, H, W)."""
    degraded, mask = dataset.degraded(index)
    magnitude_only = dataset.volumes[dataset.locate(index)[0]].magnitude_only
    return consistent(output, degraded, mask, magnitude_only=magnitude_only)[None]


def _measure_slice(one: _OpenSlice, options: EvaluationOptions, result: Evaluation) -> Measured:
    values = [image_metrics(one.target, image) for image in (one.output, one.zero_filled)]
    metric = options.perceptual
    if metric is not None and result.perceptual_failure is None:
        try:
            distances = [metric.distance(image, one.target) for image in (one.output, one.zero_filled)]
        except RuntimeError as error:
            size = " x ".join(map(str, one.target.shape))
            result.perceptual_failure = f"{one.name}: {metric.name} cannot take {size} pixels: {error}"
        else:
            for metrics, distance in zip(values, distances, strict=True):
                metrics[metric.name] = distance
    if one.sampled_errors is not None:
        for metrics, sampled in zip(values, one.sampled_errors, strict=True):
            metrics[SAMPLED_ERROR] = sampled
    return Measured(
        volume=one.volume,
        slice=one.slice,
        image_hw=one.target.shape,
        slices=1,
        data_range=float(one.target.max()),
        sampled_fraction=one.sampled_fraction,
        reconstruction=values[0],
        zero_filled=values[1],
        spread=_spread(one),
    )


def _spread(one: _OpenSlice) -> SampleSpread | None:
    deviation = one.deviation
    if deviation is None or one.samples is None:
        return None
    top = float(one.target.max())
    return SampleSpread(
        samples=len(one.samples),
        pixel_std=float(deviation.mean()) / top if top > 0 else float("nan"),
        psnr_db=[psnr(one.target, sample) for sample in one.samples],
    )


def _close(open_volume: list[_OpenSlice], result: Evaluation) -> None:
    """Measures the volume whose slices are at hand, and lets them go."""
    target, output, zero_filled = (
        np.stack([getattr(one, name) for one in open_volume]) for name in ("target", "output", "zero_filled")
    )
    result.volumes.append(
        Measured(
            volume=open_volume[0].volume,
            slice=None,
            image_hw=target.shape[1:],
            slices=len(open_volume),
            data_range=float(target.max()),
            sampled_fraction=float(np.mean([one.sampled_fraction for one in open_volume])),
            reconstruction=image_metrics(target, output),
            zero_filled=image_metrics(target, zero_filled),
        )
    )
    open_volume.clear()
