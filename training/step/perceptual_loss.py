"""L1 between VGG19 features (Johnson et al. 2016, with the layers of KAIR and SwinMR), from a local file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from swinmr_profiling.training.errors import LossError, first_line

WEIGHTS_NAME = "vgg19-dcbb9e9d.pth"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def default_weights_file() -> Path:
    """Where torchvision would keep the weights; nothing is fetched."""
    return Path(torch.hub.get_dir()) / "checkpoints" / WEIGHTS_NAME


class PerceptualLoss(nn.Module):
    """Sum over layers of weight x mean |features(output) - features(target)|.

    Images are (B, C, H, W) in 0..1; grey is repeated to 3 channels, other numbers of channels are averaged
    before. `layers` are indices of torchvision's `vgg19().features`, and a layer's own output is compared:
    before the ReLU where it is a convolution (KAIR's in-place ReLU overwrites all but the last).
    """

    def __init__(self, file: Path | None, layers: Sequence[int], layer_weights: Sequence[float]) -> None:
        """file: None for features without values, of which memory can be predicted and nothing computed.

        Raises LossError for a file that is not there, cannot be read or is not a VGG19.
        """
        super().__init__()
        self.layers = dict(zip(layers, layer_weights, strict=True))
        features = _vgg19_features()[: max(layers) + 1]
        if file is not None:
            _load(features, file)
        for layer in features:
            if isinstance(layer, nn.ReLU):
                layer.inplace = False
        self.features = features.requires_grad_(False).eval()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).reshape(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).reshape(1, 3, 1, 1), persistent=False)

    def train(self, mode: bool = True) -> PerceptualLoss:
        """Stays in evaluation mode: these features are a fixed ruler."""
        return super().train(False)

    def _compared(self, image: Tensor) -> list[Tensor]:
        if image.shape[1] != 3:
            image = image.mean(1, keepdim=True).expand(-1, 3, -1, -1)
        x = (image - self.mean) / self.std
        compared = []
        for index, layer in enumerate(self.features):
            x = layer(x)
            if index in self.layers:
                compared.append(x)
        return compared

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self._compared(target)
        parts = zip(self._compared(output), wanted, sorted(self.layers), strict=True)
        distances = [self.layers[index] * F.l1_loss(x, y) for x, y, index in parts]
        return cast(Tensor, sum(distances))


def _vgg19_features() -> nn.Sequential:
    from torchvision.models import vgg19  # a slow import that only this loss needs

    # On the meta device: the classifier's 500 MB are never allocated, and no random number is drawn for weights
    # that are read from a file.
    with torch.device("meta"):
        return vgg19(weights=None, init_weights=False).features


def _load(features: nn.Sequential, file: Path) -> None:
    if not file.is_file():
        raise LossError(f"{file}: no such file; put {WEIGHTS_NAME} there, or set the perceptual weight to 0")
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        wanted = {f"features.{key}" for key in features.state_dict()}
        state = {key.removeprefix("features."): state[key].float() for key in wanted}
        features.load_state_dict(state, assign=True)
    except Exception as error:  # torch.load and load_state_dict raise half a dozen types for a wrong file
        raise LossError(f"{file}: is not {WEIGHTS_NAME}: {first_line(error)}") from error
