"""LPIPS (Zhang et al. 2018) without a network: which weights are at hand, and what the figure is then called.

In this order: a file that is named, torch's hub cache, the trained weights that `stlpips-pytorch` installs (reported
as `st_lpips`: another scale), otherwise nothing, with the reason. Nothing is fetched, and a random backbone is never
called LPIPS.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from swinmr_profiling.input_error import InputError
from swinmr_profiling.training.errors import first_line
from swinmr_profiling.training.evaluation.shift_tolerant_lpips import ShiftTolerantLpips, weights_file

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
