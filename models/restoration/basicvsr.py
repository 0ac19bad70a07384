"""BasicVSR: a video enlarged four times, each frame from those before and after it (Chan et al. 2021).

Optical flow is SPyNet's (Ranjan and Black 2017). Names of weights are those of the published files of BasicSR. Flow is
in pixels, (B, 2, H, W), x first.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from swinmr_profiling.models.restoration.residual import ResidualBlock, conv3x3

# Mean and deviation of ImageNet's colours, which SPyNet was trained with.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PYRAMID_LEVELS = 6
SPYNET_CHANNELS = (8, 32, 64, 32, 16, 2)
SCALE = 4


def warped(image: Tensor, flow: Tensor, padding: str = "zeros") -> Tensor:
    """The image (B, C, H, W) where the flow (B, 2, H, W) points to; outside of it `padding` of `grid_sample`."""
    height, width = image.shape[-2:]
    rows = torch.arange(height, dtype=flow.dtype, device=flow.device).view(-1, 1)
    columns = torch.arange(width, dtype=flow.dtype, device=flow.device)
    x = 2 * (columns + flow[:, 0]) / max(width - 1, 1) - 1
    y = 2 * (rows + flow[:, 1]) / max(height - 1, 1) - 1
    grid = torch.stack([x, y], dim=-1)
    return functional.grid_sample(image, grid, padding_mode=padding, align_corners=True)


class FlowStage(nn.Module):
    """One level of the pyramid: what the flow from the coarser level leaves."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for given, made in pairwise(SPYNET_CHANNELS):
            layers += [nn.Conv2d(given, made, 7, padding=3), nn.ReLU()]
        self.basic_module = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Both images and the flow so far, (B, 8, H, W), to (B, 2, H, W)."""
        return self.basic_module(x)


class SpyNet(nn.Module):
    """Flow from one image to another, from coarse to fine, at multiples of 32."""

    def __init__(self) -> None:
        super().__init__()
        self.basic_module = nn.ModuleList(FlowStage() for _ in range(PYRAMID_LEVELS))
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1))

    def _pyramid(self, image: Tensor) -> list[Tensor]:
        levels = [(image - self.mean) / self.std]
        for _ in range(PYRAMID_LEVELS - 1):
            levels.append(functional.avg_pool2d(levels[-1], 2))
        return levels[::-1]

    def forward(self, reference: Tensor, other: Tensor) -> Tensor:
        """Images (B, 3, H, W) to the flow (B, 2, H, W)."""
        height, width = reference.shape[-2:]
        fitting = (-(-height // 32) * 32, -(-width // 32) * 32)
        pair = [
            self._pyramid(functional.interpolate(image, fitting, mode="bilinear"))
            for image in (reference, other)
        ]
        flow = pair[0][0].new_zeros(len(reference), 2, fitting[0] // 64, fitting[1] // 64)
        for stage, first, second in zip(self.basic_module, *pair, strict=True):
            # Of an odd level the half was rounded down, and the last row or column is repeated.
            flow = 2 * functional.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=True)
            missing = [first.shape[-1] - flow.shape[-1], first.shape[-2] - flow.shape[-2]]
            if any(missing):
                flow = functional.pad(flow, (0, missing[0], 0, missing[1]), mode="replicate")
            flow = flow + stage(torch.cat([first, warped(second, flow, "border"), flow], dim=1))
        flow = functional.interpolate(flow, (height, width), mode="bilinear")
        stretch = flow.new_tensor([width / fitting[1], height / fitting[0]])
        return flow * stretch.view(1, 2, 1, 1)


class ResidualTrunk(nn.Module):
    """A convolution and residual blocks, which make a frame's features of it and of its neighbour's."""

    def __init__(self, in_chans: int, channels: int, blocks: int) -> None:
        super().__init__()
        body = nn.Sequential(*(ResidualBlock(channels) for _ in range(blocks)))
        self.main = nn.Sequential(conv3x3(in_chans, channels), nn.LeakyReLU(0.1, inplace=True), body)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, channels, H, W)."""
        return self.main(x)


class BasicVSR(nn.Module):
    """Features carried both ways along the flow, and each frame enlarged from both. num_block: blocks a way."""

    def __init__(self, num_feat: int = 64, num_block: int = 15) -> None:
        super().__init__()
        self.num_feat = num_feat
        self.spynet = SpyNet()
        self.backward_trunk = ResidualTrunk(num_feat + 3, num_feat, num_block)
        self.forward_trunk = ResidualTrunk(num_feat + 3, num_feat, num_block)
        self.fusion = nn.Conv2d(2 * num_feat, num_feat, 1)
        self.upconv1, self.upconv2 = conv3x3(num_feat, 4 * num_feat), conv3x3(num_feat, 4 * 64)
        self.conv_hr, self.conv_last = conv3x3(64, 64), conv3x3(64, 3)
        self.pixel_shuffle = nn.PixelShuffle(2)
        self.lrelu = nn.LeakyReLU(0.1, inplace=True)

    def forward(self, frames: Tensor) -> Tensor:
        """(B, frames, 3, H, W) to (B, frames, 3, 4 H, 4 W)."""
        batch, count, _, height, width = frames.shape
        earlier, later = frames[:, :-1].flatten(0, 1), frames[:, 1:].flatten(0, 1)
        to_later = self.spynet(earlier, later).unflatten(0, (batch, count - 1))
        to_earlier = self.spynet(later, earlier).unflatten(0, (batch, count - 1))
        nothing = frames.new_zeros(batch, self.num_feat, height, width)
        backward: list[Tensor] = []
        features = nothing
        for index in reversed(range(count)):
            if index < count - 1:
                features = warped(features, to_later[:, index])
            features = self.backward_trunk(torch.cat([frames[:, index], features], dim=1))
            backward.append(features)
        backward.reverse()
        enlarged, features = [], nothing
        for index in range(count):
            if index > 0:
                features = warped(features, to_earlier[:, index - 1])
            features = self.forward_trunk(torch.cat([frames[:, index], features], dim=1))
            enlarged.append(self._enlarged(frames[:, index], backward[index], features))
        return torch.stack(enlarged, dim=1)

    def _enlarged(self, frame: Tensor, backward: Tensor, forward: Tensor) -> Tensor:
        features = self.lrelu(self.fusion(torch.cat([backward, forward], dim=1)))
        for conv in (self.upconv1, self.upconv2):
            features = self.lrelu(self.pixel_shuffle(conv(features)))
        residual = self.conv_last(self.lrelu(self.conv_hr(features)))
        return residual + functional.interpolate(frame, scale_factor=SCALE, mode="bilinear")
