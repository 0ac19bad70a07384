"""ST-LPIPS (Ghildyal and Liu 2022) with an AlexNet backbone, from the weights that `stlpips-pytorch` installs.

Only the package's weights file is read. Its code imports IPython and torchsummary without asking pip for them, so
the network is written down here; a test holds it against the package's own.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
