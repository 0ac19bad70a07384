"""SwinIR's residual group of blocks (RSTB, Liang et al. 2021, eq. 5 and 6), on (B, H, W, C) features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from swinmr_profiling.models.stand_in import stands_for
from swinmr_profiling.models.swin.block_layers import BlockOptions, product_dtype
from swinmr_profiling.models.swin.swin_block import SwinBlock
from swinmr_profiling.models.swin.windows import Geometry, index_pair, reorder


class Workspace:
    """Two buffers that the blocks of a forward without gradients fill in turn.

    A block of a 256 x 256 image writes 47 MB. Fresh memory of that size comes from the system page by page,
    which takes eight times as long as writing to memory that is already there.
    """

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def other_than(self, used: Tensor) -> Tensor:
        """A buffer like `used` in other memory."""
        for buffer in self._buffers:
            if buffer.data_ptr() != used.data_ptr():
                return buffer
        self._buffers.append(torch.empty_like(used))
        return self._buffers[-1]


def residual_convolution(channels: int, kind: str) -> nn.Module:
    """The convolution that closes a residual group: one 3 x 3, or a three-layer bottleneck ("3conv")."""
    if kind == "1conv":
        return nn.Conv2d(channels, channels, 3, padding=1)
    if kind == "3conv":
        return nn.Sequential(
            nn.Conv2d(channels, channels // 4, 3, padding=1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(channels // 4, channels // 4, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(channels // 4, channels, 3, padding=1),
        )
    raise ValueError(f"resi_connection is '1conv' or '3conv', not {kind!r}")


def convolve_stream(convolution: nn.Module, x: Tensor) -> Tensor:
    """The convolution of the residual stream x (B, C, H, W), which is fp32 where the weights may not be.

    The stream grows with depth: in fp16 (up to 65504) it overflows in trained networks, so that there the
    convolution is computed in fp32. bf16 has fp32's range.
    """
    weight = next(convolution.parameters())
    dtype = product_dtype(x.device.type, weight)
    if dtype != torch.float16:
        return convolution(x.to(dtype))
    with torch.autocast(stands_for(x.device.type), enabled=False):
        wide = {name: parameter.to(x.dtype) for name, parameter in convolution.named_parameters()}
        return functional_call(convolution, wide, (x,))


class SwinBlocks(nn.Module):
    """The blocks of one residual group; a module of its own only for the official names."""

    def __init__(self, blocks: Sequence[SwinBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def in_order(self) -> Iterable[SwinBlock]:
        """The blocks, or what stands in their places."""
        blocks: Any = self.blocks  # torch says Module
        return blocks

    def forward(
        self, rows: Tensor, geometry: Geometry, options: BlockOptions, workspace: Workspace | None
    ) -> Tensor:
        """rows (B * H * W, C) in image order, in and out."""
        order = "image"
        for block in self.in_order():
            out = None if workspace is None else workspace.other_than(rows)
            rows, order = block(rows, geometry, order, options, out), block.order
        if workspace is None:
            return reorder(rows, geometry, order, "image")
        index, _ = index_pair(geometry, order, "image", rows.device)
        return torch.index_select(rows, 0, index, out=workspace.other_than(rows))


class ResidualSwinGroup(nn.Module):
    """x + convolution(blocks(x)), on (B, H, W, C)."""

    def __init__(self, blocks: Sequence[SwinBlock], channels: int, resi_connection: str) -> None:
        super().__init__()
        self.residual_group = SwinBlocks(blocks)
        self.conv = residual_convolution(channels, resi_connection)

    def forward(
        self,
        x: Tensor,
        window_size: int,
        shift: int,
        options: BlockOptions,
        workspace: Workspace | None = None,
    ) -> Tensor:
        batch, height, width, channels = x.shape
        geometry = Geometry(batch, height, width, window_size, shift)
        rows = self.residual_group(x.reshape(-1, channels), geometry, options, workspace)
        # A permuted (B, H, W, C) is what torch calls channels-last: the convolution takes it without a copy.
        features = convolve_stream(self.conv, rows.view(x.shape).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        if workspace is not None and type(self.conv) is nn.Conv2d and features.dtype == x.dtype:
            return features.add_(x)
        return x + features
