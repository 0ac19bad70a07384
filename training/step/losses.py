"""What is minimised: SwinMR's loss in its parts, plain losses, and a stand-in.

Every loss is a module called with (output, target) that returns a LossValue. Losses are computed in float32,
whatever autocast gave: neither the FFT nor a mean over an image can bear 8 bits of mantissa.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.denoiser import DENOISER_TYPES
from swinmr_profiling.configs.sections.training import LossComponentsSection
from swinmr_profiling.training.degradation.kspace import fft2c
from swinmr_profiling.training.errors import LossError
from swinmr_profiling.training.step.perceptual_loss import WEIGHTS_NAME, PerceptualLoss, default_weights_file
from swinmr_profiling.training.step.ssim import ssim

# What "auto" means for a network whose task is known: that of its field.
LOSS_BY_NETWORK = {
    "swinir": "multi_component",
    "swinmr": "multi_component",
    "spandrel": "l1",
    "restoration": "l1",
    "timm": "cross_entropy",
}
PixelLoss = Callable[[Tensor, Tensor], Tensor]


class LossValue(NamedTuple):
    """`total`, a scalar with gradients, and `parts`: each part's contribution (weighted, detached, adding up)."""

    total: Tensor
    parts: dict[str, Tensor]


def charbonnier(output: Tensor, target: Tensor, eps: float = 1e-9) -> Tensor:
    """Mean of sqrt(d^2 + eps) (Charbonnier et al. 1994; eps is added as it is, as in KAIR)."""
    return torch.sqrt((output - target).square() + eps).mean()


def pixel_loss(kind: str, eps: float) -> PixelLoss:
    """The loss "charbonnier", "l1" or "mse" of two real tensors of one shape."""
    if kind == "charbonnier":
        return lambda output, target: charbonnier(output, target, eps)
    return {"l1": F.l1_loss, "mse": F.mse_loss}[kind]


class FrequencyLoss(nn.Module):
    """Mean of the losses on the real and the imaginary part of k-space, of images (B, C, H, W).

    transform: "orthonormal" takes the last two axes. "swinmr" takes all four, unnormalised, as SwinMR's code does
    (`torch.fft.fftn` of the batch): about sqrt(B C H W) times larger, and a coefficient is a sum over all samples.
    """

    def __init__(self, kind: str, eps: float, transform: str = "orthonormal") -> None:
        super().__init__()
        self.loss = pixel_loss(kind, eps)
        self.transform = {"orthonormal": fft2c, "swinmr": torch.fft.fftn}[transform]

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        x, y = self.transform(output), self.transform(target)
        return (self.loss(x.real, y.real) + self.loss(x.imag, y.imag)) / 2


class SsimLoss(nn.Module):
    """1 - SSIM of images (B, C, H, W), the range of each being its target's maximum magnitude."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        data_range = target.abs().amax((1, 2, 3), keepdim=True).clamp_min(torch.finfo(target.dtype).eps)
        return 1 - ssim(output, target, data_range)


class MultiComponentLoss(nn.Module):
    """Weighted sum of named losses on images of one shape.

    Attributes:
        label: what reports call the loss.
        skipped: one line for each part of the config that was left out, and why.
    """

    def __init__(
        self,
        parts: Mapping[str, tuple[float, Callable[..., Tensor]]],
        label: str,
        skipped: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.label, self.skipped = label, skipped
        self.weights = {name: weight for name, (weight, _) in parts.items()}
        self.losses = {name: loss for name, (_, loss) in parts.items()}
        # Modules among the losses move with this one.
        self.modules_of_parts = nn.ModuleDict(
            {name: loss for name, (_, loss) in parts.items() if isinstance(loss, nn.Module)}
        )

    def forward(self, output: Any, target: Tensor) -> LossValue:
        """Raises LossError when the output has another shape than the target."""
        prediction = first_tensor(output)
        _check_shapes(prediction, target)
        with _without_autocast(prediction.device.type):
            prediction, target = prediction.float(), target.float()
            values = {
                name: self.weights[name] * loss(prediction, target) for name, loss in self.losses.items()
            }
            total = torch.stack(list(values.values())).sum()
        return LossValue(total, {name: value.detach() for name, value in values.items()})


class WeightedTarget(NamedTuple):
    """A denoiser's target (B, C, H, W), and the weight of each sample's error (B,)."""

    value: Tensor
    weight: Tensor


class DenoisingLoss(nn.Module):
    """Mean over samples of weight x mean error, squared or absolute, of what a denoiser predicts.

    The weights (min-SNR) are the time steps', so they come with the target; a plain tensor has weights of 1.
    """

    skipped: tuple[str, ...] = ()

    def __init__(self, kind: str, predicted: str) -> None:
        """kind: "mse" or "l1". predicted: "epsilon", "v" or "x0", for the label."""
        super().__init__()
        self.name, self.label = kind, f"{kind} of {predicted}"
        self.error = {"mse": torch.square, "l1": torch.abs}[kind]

    def forward(self, output: Any, target: WeightedTarget | Tensor) -> LossValue:
        """Raises LossError when the output has another shape than the target."""
        prediction = first_tensor(output)
        wanted, weight = (target, None) if isinstance(target, Tensor) else target
        _check_shapes(prediction, wanted)
        with _without_autocast(prediction.device.type):
            errors = self.error(prediction.float() - wanted.float()).flatten(1).mean(1)
            total = errors.mean() if weight is None else (weight * errors).mean()
        return LossValue(total, {self.name: total.detach()})


def _check_shapes(prediction: Tensor, target: Tensor) -> None:
    if prediction.shape != target.shape:
        shapes = f"{tuple(prediction.shape)}, its target {tuple(target.shape)}"
        raise LossError(f"the network's output has the shape {shapes}: this loss compares equal shapes")


class CrossEntropyLoss(nn.Module):
    """Cross entropy of logits (B, classes) and class numbers (B,), int64."""

    label = "cross_entropy"
    skipped: tuple[str, ...] = ()

    def forward(self, output: Any, target: Tensor) -> LossValue:
        total = F.cross_entropy(first_tensor(output).float(), target)
        return LossValue(total, {"cross_entropy": total.detach()})


class StandInLoss(nn.Module):
    """Mean square of the output, whatever it is, without a target.

    For networks whose task is not known here: it costs what a plain loss costs, and trains nothing of use.
    """

    label = "stand-in: mean square of the output, no target"
    skipped: tuple[str, ...] = ()

    def forward(self, output: Any, target: Tensor | None = None) -> LossValue:
        total = first_tensor(output).float().square().mean()
        return LossValue(total, {"stand_in": total.detach()})


def _without_autocast(device_type: str) -> AbstractContextManager[object]:
    """No lower precision inside, also inside an autocast block; the meta device, which counts, has no autocast."""
    supported = torch.amp.is_autocast_available(device_type)
    return torch.autocast(device_type, enabled=False) if supported else nullcontext()


def first_tensor(output: Any) -> Tensor:
    """The output itself, or the first tensor in a tuple, list, dict or output object.

    Raises LossError when there is none.
    """
    if isinstance(output, Tensor):
        return output
    members = (
        output.values()
        if isinstance(output, Mapping)
        else output
        if isinstance(output, (tuple, list))
        else ()
    )
    for member in members:
        if isinstance(member, (Tensor, tuple, list, Mapping)):
            return first_tensor(member)
    raise LossError(f"the network returned a {type(output).__name__} without a tensor")


Loss = MultiComponentLoss | DenoisingLoss | CrossEntropyLoss | StandInLoss


def build_loss(config: ExperimentConfig, *, for_prediction: bool = False) -> Loss:
    """The loss a config asks for: a module (output, target) -> LossValue, with `label` and `skipped`.

    Args:
        config: the experiment. "auto" is `multi_component` for "swinir", the squared error of the prediction for
            denoisers, L1 for "spandrel" and "restoration", cross entropy for "timm", and the stand-in for others.
        for_prediction: nothing will be computed, so that a perceptual part needs no weights where the config says so.

    Raises:
        LossError: for weights that are named but not usable, or when no part is left.
    """
    options = config.training.loss
    kind: str = options.type
    net_type = config.model.net_type
    if net_type in DENOISER_TYPES:
        diffusion = config.training.diffusion
        loss = DenoisingLoss("mse" if kind == "auto" else kind, diffusion.objective)
        if diffusion.min_snr_gamma is not None:
            loss.label += f", min-SNR weights (gamma {diffusion.min_snr_gamma:g})"
        return loss
    if kind == "auto":
        kind = LOSS_BY_NETWORK.get(net_type, "stand_in")
        if config.model.net_type == "timm" and config.model.num_classes == 0:
            kind = "stand_in"  # a network of features, without a classifier
    if kind == "stand_in":
        return StandInLoss()
    if kind == "cross_entropy":
        return CrossEntropyLoss()
    if kind in ("l1", "mse"):
        return MultiComponentLoss({kind: (1.0, pixel_loss(kind, 0.0))}, kind)
    return _multi_component(options.components, for_prediction)


def _multi_component(components: LossComponentsSection, for_prediction: bool) -> MultiComponentLoss:
    spatial, frequency = components.spatial, components.frequency
    parts: dict[str, tuple[float, Callable[..., Tensor]]] = {}
    skipped = []
    if spatial.weight:
        parts["spatial"] = (spatial.weight, pixel_loss(spatial.type, spatial.eps))
    if frequency.weight:
        parts["frequency"] = (
            frequency.weight,
            FrequencyLoss(frequency.type, frequency.eps, frequency.transform),
        )
    if components.perceptual.weight:
        options = components.perceptual
        file = Path(options.weights_file) if options.weights_file else default_weights_file()
        named = file if options.weights_file or file.is_file() else None
        if named is not None or (for_prediction and options.missing_weights == "predict"):
            loss = PerceptualLoss(named, options.layers, options.layer_weights)
            parts["perceptual"] = (options.weight, loss)
        else:
            skipped.append(
                f"perceptual loss skipped: {WEIGHTS_NAME} is not in {file.parent}; put it there, or set "
                "training.loss.components.perceptual.weights_file"
            )
    if components.ssim.weight:
        parts["ssim"] = (components.ssim.weight, SsimLoss())
    if not parts:
        raise LossError(f"no loss is left: {'; '.join(skipped)}")
    # As it was where the transform is our own: profiles are recognised by it.
    names = {"frequency": "frequency (SwinMR's transform)"} if frequency.transform == "swinmr" else {}
    label = " + ".join(f"{weight:g} {names.get(name, name)}" for name, (weight, _) in parts.items())
    return MultiComponentLoss(parts, label, tuple(skipped))
