"""Window geometry of Swin Transformer: cutting an image into windows, and what shifted windows may attend to.

Everything here depends on sizes alone, never on weights: it is computed once per resolution and never stored
in a checkpoint. (303 MB of the 349 MB of a published SwinMR checkpoint are such tensors.)
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

# The logit that forbids attention between image parts that only the cyclic shift made neighbours. SwinIR's
# value; not -inf, so that a row that is masked everywhere stays finite.
MASKED_LOGIT = -100.0

# One training run sees the patch, the validation size and perhaps a test size; a folder of mixed image sizes
# would otherwise grow the cache without end (16 MiB per entry at 256 x 256 in fp32).
CACHED_RESOLUTIONS = 8


def partition_windows(image: Tensor, window_size: int) -> Tensor:
    """(B, H, W, C) -> (B * windows, window_size^2, C), windows in row-major order."""
    batch, height, width, channels = image.shape
    rows, columns = height // window_size, width // window_size
    image = image.view(batch, rows, window_size, columns, window_size, channels)
    return image.transpose(2, 3).reshape(-1, window_size * window_size, channels)


def merge_windows(windows: Tensor, window_size: int, height: int, width: int) -> Tensor:
    """The inverse of `partition_windows`: (B * windows, window_size^2, C) -> (B, H, W, C)."""
    rows, columns = height // window_size, width // window_size
    channels = windows.shape[-1]
    windows = windows.view(-1, rows, columns, window_size, window_size, channels)
    return windows.transpose(2, 3).reshape(-1, height, width, channels)


def relative_position_index(window_size: int) -> Tensor:
    """Row of the relative-position-bias table for each pair of tokens, int64 (window_size^2, window_size^2).

    Liu et al. 2021, "Swin Transformer", eq. 4: the bias depends on (dy, dx), each in
    [-(window_size - 1), window_size - 1], numbered row-major.
    """
    side = torch.arange(window_size)
    y, x = torch.meshgrid(side, side, indexing="ij")
    y, x = y.flatten(), x.flatten()
    dy = y[:, None] - y[None, :] + window_size - 1
    dx = x[:, None] - x[None, :] + window_size - 1
    return dy * (2 * window_size - 1) + dx


def shifted_window_mask(
    height: int, width: int, window_size: int, shift: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Additive attention mask after a cyclic shift, (windows, window_size^2, window_size^2): 0 or -100.

    The shift brings the image's far edges together inside the last row and column of windows. Two tokens may
    attend to each other only when they come from the same of the 3 x 3 image parts.
    """

    def part(size: int) -> Tensor:
        position = torch.arange(size, device=device)
        return (position >= size - window_size).to(torch.int64) + (position >= size - shift).to(torch.int64)

    parts = part(height)[:, None] * 3 + part(width)[None, :]
    windows = partition_windows(parts[None, :, :, None], window_size).squeeze(-1)
    differs = windows[:, None, :] != windows[:, :, None]
    return torch.zeros(differs.shape, device=device, dtype=dtype).masked_fill_(differs, MASKED_LOGIT)


class ShiftedWindowMasks:
    """The masks of the resolutions seen last, made on first use and kept per device and dtype.

    SwinIR rebuilds its mask on the CPU in every forward whose size differs from `img_size`, which is every
    training step on patches.
    """

    def __init__(self, window_size: int, shift: int) -> None:
        self.window_size = window_size
        self.shift = shift
        self._masks: OrderedDict[tuple, Tensor] = OrderedDict()

    def get(self, height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Mask for one padded resolution, (windows, window_size^2, window_size^2)."""
        key = (height, width, device, dtype)
        mask = self._masks.get(key)
        if mask is None:
            # Made outside inference mode, so that a mask first needed by a validation pass can take part in
            # a later training step.
            with torch.inference_mode(False), torch.no_grad():
                mask = shifted_window_mask(height, width, self.window_size, self.shift, device, dtype)
            self._masks[key] = mask
            while len(self._masks) > CACHED_RESOLUTIONS:
                self._masks.popitem(last=False)
        return mask

    def __deepcopy__(self, memo: dict) -> ShiftedWindowMasks:
        return ShiftedWindowMasks(self.window_size, self.shift)

    def __getstate__(self) -> dict:
        return {"window_size": self.window_size, "shift": self.shift, "_masks": OrderedDict()}
