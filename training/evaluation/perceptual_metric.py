"""LPIPS (Zhang et al. 2018) without a network: which weights are at hand, and what the figure is then called.

In this order: a file that is named, torch's hub cache, the trained weights that `stlpips-pytorch` installs (reported
as `st_lpips`: another scale), otherwise nothing, with the reason. Nothing is fetched, and a random backbone is never
called LPIPS.

ST-LPIPS (Ghildyal and Liu 2022) has an AlexNet backbone. Of the package only the weights file is read: its code imports
IPython and torchsummary without asking pip for them, so the network is written down here; a test holds it against the
package's own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from swinmr_profiling.input_error import InputError
from swinmr_profiling.training.errors import first_line

PACKAGE, WEIGHTS = "stlpips_pytorch", Path("weights/vST0.0/alex_shift_tolerant.pth")
# LPIPS's own eps of unit features; here under the norm, not under the root.
FEATURE_EPS = 1e-10


def weights_file() -> Path | None:
    """The weights in the installed package, None where it is not installed or comes without them."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / WEIGHTS
    return file if file.is_file() else None


class BlurPool(nn.Module):
    """Every second pixel after a [1, 2, 1] blur (Zhang 2019), (B, C, H, W) to about half, edges reflected by 2."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        weights = torch.tensor([1.0, 2.0, 1.0])
        kernel = torch.outer(weights, weights) / 16
        self.filt: Tensor
        self.register_buffer("filt", kernel.expand(channels, 1, 3, 3).clone())

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), self.filt, stride=2, groups=x.shape[1])


def _layers() -> list[nn.Module]:
    """AlexNet's features, each stride replaced by a blur; the first blur stands before its ReLU."""
    return [
        nn.Conv2d(3, 64, 11, padding=2), BlurPool(64), nn.ReLU(),
        nn.MaxPool2d(3, stride=1), BlurPool(64), nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(3, stride=1), BlurPool(192), nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(),
    ]  # fmt: skip


# Which of these layers belong to each compared stage, and the stage's channels.
STAGES = (
    (range(0, 3), 64),
    (range(3, 7), 192),
    (range(7, 11), 384),
    (range(11, 13), 256),
    (range(13, 15), 256),
)


class ShiftTolerantLpips(nn.Module):
    """Distance of two batches (B, 3, H, W) in -1..1, (B,). 0 for equal images; its scale is not LPIPS's."""

    def __init__(self) -> None:
        super().__init__()
        layers = _layers()
        # Names of modules as in the weights file: net.slice1.0, lin0.model.1.
        self.net = nn.Module()
        for number, (members, channels) in enumerate(STAGES):
            stage = nn.Sequential()
            for member in members:
                stage.add_module(str(member), layers[member])
            self.net.add_module(f"slice{number + 1}", stage)
            head = nn.Module()
            # Entry 0 is dropout, which evaluation leaves out.
            head.model = nn.Sequential(nn.Identity(), nn.Conv2d(channels, 1, 1, bias=False))
            self.add_module(f"lin{number}", head)
        self.scaling_layer = nn.Module()
        for name in ("shift", "scale"):
            self.scaling_layer.register_buffer(name, torch.ones(1, 3, 1, 1))

    @classmethod
    def load(cls, file: Path) -> ShiftTolerantLpips:
        """With the weights of a file; nothing in it is executed. Raises what torch raises for a wrong one."""
        with torch.device("meta"):
            metric = cls()
        metric.load_state_dict(torch.load(file, map_location="cpu", weights_only=True), assign=True)
        return metric.requires_grad_(False).eval()

    def _features(self, images: Tensor) -> list[Tensor]:
        shift, scale = map(self.scaling_layer.get_buffer, ("shift", "scale"))
        x = (images - shift) / scale
        features = []
        for number in range(len(STAGES)):
            x = getattr(self.net, f"slice{number + 1}")(x)
            features.append(x / (torch.linalg.vector_norm(x, dim=1, keepdim=True) + FEATURE_EPS))
        return features

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        total = torch.zeros(len(first), device=first.device)
        for number, (x, y) in enumerate(zip(self._features(first), self._features(second), strict=True)):
            head = getattr(self, f"lin{number}").model
            total = total + head((x - y).square()).mean((1, 2, 3))
        return total


BACKBONE_NAME = "alexnet-owt-7be5be79.pth"
SHOWN_AS = (
    "mean over slices; each slice's magnitudes are divided by the maximum of its ground truth, clipped to 0..1, mapped "
    "to -1..1 and repeated to 3 channels"
)
DEFINITIONS = {
    "lpips": f"LPIPS 0.1, AlexNet, trained heads: {SHOWN_AS}",
    "st_lpips": f"ST-LPIPS, AlexNet, shift-tolerant; not comparable with LPIPS: {SHOWN_AS}",
}


class PerceptualMetricError(InputError):
    """Weights that were named cannot be used; one line for the user."""


@dataclass(frozen=True)
class PerceptualMetric:
    """A distance of images with trained weights. `name` is "lpips" or "st_lpips"."""

    name: str
    module: nn.Module
    weights: Path
    device: torch.device

    @property
    def definition(self) -> str:
        return DEFINITIONS[self.name]

    def distance(self, output: np.ndarray, target: np.ndarray) -> float:
        """Of two magnitude images (H, W), shown as the target's maximum says. NaN for an empty target.

        Raises RuntimeError for images too small for the backbone (about 32 pixels).
        """
        top = float(target.max())
        if top <= 0:
            return float("nan")
        pair = []
        for image in (output, target):
            shown = torch.from_numpy(np.asarray(image, np.float32) / top).clamp(0, 1) * 2 - 1
            pair.append(shown.to(self.device).expand(1, 3, -1, -1))
        with torch.inference_mode():
            return float(self.module(*pair))


@dataclass(frozen=True)
class PerceptualChoice:
    """The metric there is, or None and why; `notes` say what was passed over on the way."""

    metric: PerceptualMetric | None
    reason: str | None = None
    notes: tuple[str, ...] = ()


def default_backbone_file() -> Path:
    """Where torchvision would keep the AlexNet weights."""
    return Path(torch.hub.get_dir()) / "checkpoints" / BACKBONE_NAME


def choose_perceptual_metric(
    named: Path | None, device: torch.device | str = "cpu", named_by: str = "--lpips-weights"
) -> PerceptualChoice:
    """The best metric that is at hand.

    Args:
        named: the backbone's file where the user names one.
        device: where it runs.
        named_by: the option or key that named it, for messages.

    Raises:
        PerceptualMetricError: for a named file that is not there or no AlexNet, and without the lpips package then.
    """
    device = torch.device(device)
    if named is not None:
        try:
            module = load_lpips(named)
        except PerceptualMetricError as error:
            raise PerceptualMetricError(f"{named_by}: {error}") from error
        return PerceptualChoice(PerceptualMetric("lpips", module.to(device), named, device))
    cached = default_backbone_file()
    notes = []
    if cached.is_file():
        try:
            return PerceptualChoice(PerceptualMetric("lpips", load_lpips(cached).to(device), cached, device))
        except PerceptualMetricError as error:
            notes.append(f"LPIPS passed over: {error}")
    installed = weights_file()
    if installed is not None:
        try:
            module = ShiftTolerantLpips.load(installed).to(device)
            return PerceptualChoice(
                PerceptualMetric("st_lpips", module, installed, device), notes=tuple(notes)
            )
        except Exception as error:  # torch.load and load_state_dict raise half a dozen types for a wrong file
            notes.append(f"ST-LPIPS passed over: {installed} cannot be used: {first_line(error)}")
    reason = "; ".join([*notes, f"no trained backbone: put {BACKBONE_NAME} into {cached.parent}"])
    return PerceptualChoice(None, f"{reason}, or pip install stlpips-pytorch for ST-LPIPS", tuple(notes))


def load_lpips(file: Path) -> nn.Module:
    """LPIPS with the AlexNet backbone of a torchvision file. Raises PerceptualMetricError."""
    if not file.is_file():
        raise PerceptualMetricError(f"{file}: no such file; put {BACKBONE_NAME} there")
    try:
        import lpips
    except ImportError as error:
        raise PerceptualMetricError(f"{file} needs the package lpips: pip install lpips") from error
    # It prints what it loads, calls torchvision in a form that torchvision warns of, and draws random weights.
    quiet = contextlib.redirect_stdout(io.StringIO())
    with quiet, warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        metric = lpips.LPIPS(net="alex", pretrained=True, pnet_rand=True, verbose=False)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        # slice2.3.weight is features.3.weight.
        renamed = {key: state[f"features.{key.partition('.')[2]}"] for key in metric.net.state_dict()}
        metric.net.load_state_dict(renamed)
    except Exception as error:  # torch.load and load_state_dict raise half a dozen types for a wrong file
        raise PerceptualMetricError(f"{file}: is not {BACKBONE_NAME}: {first_line(error)}") from error
    return metric.requires_grad_(False).eval()
