"""Window geometry of Swin Transformer: the orders in which a network keeps its pixels, and what may attend.

Between two blocks the features are rows, (rows, C), in one of three orders:

- "image": (B, H, W), as convolutions read it;
- "regular": (windows, B, N), windows of N = window_size^2 pixels in row-major order;
- "shifted": the same after the cyclic shift, and the windows sorted by mask class (below).

Windows come before images, so that the windows of one class lie together in a batch of any size. Going from
one order to another is one gather with a cached index. Everything here depends on sizes alone, never on
weights: it is made once per resolution and never stored in a checkpoint. (303 MB of the 349 MB of a published
SwinMR checkpoint are such tensors.)
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

# The logit that forbids attention between image parts that only the cyclic shift made neighbours. SwinIR's
# value; not -inf, so that a row that is masked everywhere stays finite.
MASKED_LOGIT = -100.0

# Four indices and a set of masks per resolution, batch size and device; a training run sees the patch, the
# validation size and perhaps a test size. A folder of mixed image sizes would otherwise grow it without end.
CACHED_TENSORS = 40


# No named tuple: torch.compile of PyTorch 2.9 does not evaluate the properties of one.
@dataclass(frozen=True)
class Geometry:
    """The sizes that everything follows from; height and width are multiples of the window."""

    batch: int
    height: int
    width: int
    window_size: int
    shift: int

    @property
    def grid(self) -> tuple[int, int]:
        """Windows down and across."""
        return self.height // self.window_size, self.width // self.window_size

    @property
    def tokens(self) -> int:
        """Pixels of a window."""
        return self.window_size**2

    @property
    def windows(self) -> int:
        """Windows of an image."""
        down, across = self.grid
        return down * across

    def class_sizes(self) -> tuple[int, ...]:
        """Windows of the whole batch in each mask class: interior, right, bottom, corner (some may be 0)."""
        down, across = self.grid
        counts = ((down - 1) * (across - 1), down - 1, across - 1, 1)
        return tuple(count * self.batch for count in counts)


def relative_position_index(window_size: int, device: torch.device | str = "cpu") -> Tensor:
    """Row of the relative-position-bias table for each pair of tokens, int64 (window_size^2, window_size^2).

    Liu et al. 2021, "Swin Transformer", eq. 4: the bias depends on (dy, dx), each in
    [-(window_size - 1), window_size - 1], numbered row-major.
    """
    side = torch.arange(window_size, device=device)
    y, x = torch.meshgrid(side, side, indexing="ij")
    y, x = y.flatten(), x.flatten()
    dy = y[:, None] - y[None, :] + window_size - 1
    dx = x[:, None] - x[None, :] + window_size - 1
    return dy * (2 * window_size - 1) + dx


def class_masks(window_size: int, shift: int, device: torch.device | str = "cpu") -> Tensor:
    """Additive attention masks after the shift, fp32 (4 classes, N, N): 0 or -100.

    The shift brings the image's far edges together inside the last row and column of windows. Two tokens may
    attend to each other only when they come from the same part of the image.
    """
    side = torch.arange(window_size, device=device)
    wrapped = (side >= window_size - shift).to(torch.int64)
    down, across = wrapped[:, None].expand(-1, window_size), wrapped[None, :].expand(window_size, -1)
    masks = []
    for crosses_bottom, crosses_right in ((0, 0), (0, 1), (1, 0), (1, 1)):
        part = (2 * down * crosses_bottom + across * crosses_right).flatten()
        differs = part[:, None] != part[None, :]
        masks.append(torch.zeros(differs.shape, device=device).masked_fill_(differs, MASKED_LOGIT))
    return torch.stack(masks)


def image_rows(geometry: Geometry, order: str) -> Tensor:
    """Which row of the image order stands at each row of `order`, int64 (B * H * W,)."""
    shape = (geometry.batch, geometry.height, geometry.width, 1)
    return _from_image(torch.arange(math.prod(shape), device="cpu").view(shape), geometry, order).flatten()


def order_index(geometry: Geometry, source: str, target: str) -> Tensor:
    """int32 (rows,): `features_in_target = features_in_source[index]`."""
    position = torch.empty(geometry.batch * geometry.height * geometry.width, dtype=torch.int64, device="cpu")
    position[image_rows(geometry, source)] = torch.arange(len(position), device="cpu")
    return position[image_rows(geometry, target)].int()


_cache: OrderedDict[tuple, Tensor] = OrderedDict()
_cache_lock = Lock()


def _cached(key: tuple, device: torch.device, build: Callable[[], Tensor]) -> Tensor:
    """The tensor of a key, shared by every network of the process; the ones used last are kept.

    Made outside inference mode, so that one first needed by a validation pass can take part in a later
    training step. Under a mode that fakes tensors nothing is read from the cache or left in it.
    """
    faked = type(torch.empty(0)) is not Tensor
    if not faked:
        with _cache_lock:
            if key in _cache:
                _cache.move_to_end(key)
                return _cache[key]
    # Modes that count or trace see none of it, so that a first call looks like every later one.
    with torch.inference_mode(False), torch.no_grad(), nullcontext() if faked else _disable_current_modes():
        made = build()
    # What comes to lie on the device is seen: a trace of memory counts it.
    with torch.inference_mode(False), torch.no_grad():
        made = made.to(device)
    if not faked:
        with _cache_lock:
            _cache[key] = made
            while len(_cache) > CACHED_TENSORS:
                _cache.popitem(last=False)
    return made


def clear_cache() -> None:
    """Forgets every cached tensor, so that a trace that begins sees all of them made."""
    with _cache_lock:
        _cache.clear()


def cached_order_index(geometry: Geometry, source: str, target: str, device: torch.device) -> Tensor:
    """`order_index` on a device."""
    key = ("order", geometry, source, target, device)
    return _cached(key, device, lambda: order_index(geometry, source, target))


def cached_class_masks(window_size: int, shift: int, device: torch.device) -> Tensor:
    """`class_masks` on a device. A compiler gets the formula, as it would make the cache part of its graph."""
    if torch.compiler.is_compiling():
        return class_masks(window_size, shift, device)
    return _cached(("masks", window_size, shift, device), device, lambda: class_masks(window_size, shift))


def cached_relative_position_index(window_size: int, device: torch.device) -> Tensor:
    """`relative_position_index` on a device, flat."""
    if torch.compiler.is_compiling():
        return relative_position_index(window_size, device).flatten()
    key = ("positions", window_size, device)
    return _cached(key, device, lambda: relative_position_index(window_size).flatten())


class PermuteRows(torch.autograd.Function):
    """x[index] for a permutation: its gradient is grad[inverse], where indexing would add into zeros."""

    @staticmethod
    def forward(ctx, x: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(index, inverse)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        index, inverse = ctx.saved_tensors
        return PermuteRows.apply(gradient, inverse, index), None, None


def index_pair(geometry: Geometry, source: str, target: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """The gather from one order to another, and the gather back."""
    there = cached_order_index(geometry, source, target, device)
    return there, cached_order_index(geometry, target, source, device)


def reorder(rows: Tensor, geometry: Geometry, source: str, target: str) -> Tensor:
    """(rows, C) from one order to another."""
    if source == target:
        return rows
    if torch.compiler.is_compiling():
        return _from_image(_to_image(rows, geometry, source), geometry, target)
    return PermuteRows.apply(rows, *index_pair(geometry, source, target, rows.device))


# By rolls and permutations, which a compiler can fuse with what comes before and after.
def _from_image(image: Tensor, geometry: Geometry, order: str) -> Tensor:
    """(B, H, W, C) -> (rows, C)."""
    if order == "image":
        return image.flatten(0, 2)
    batch, window, shift = geometry.batch, geometry.window_size, geometry.shift
    down, across = geometry.grid
    if order == "shifted":
        image = image.roll((-shift, -shift), dims=(1, 2))
    grid = image.view(batch, down, window, across, window, -1).permute(1, 3, 0, 2, 4, 5)
    if order == "regular":
        return grid.reshape(-1, image.shape[-1])
    parts = (grid[:-1, :-1], grid[:-1, -1:], grid[-1:, :-1], grid[-1:, -1:])
    return torch.cat([part.reshape(-1, image.shape[-1]) for part in parts])


def _to_image(rows: Tensor, geometry: Geometry, order: str) -> Tensor:
    """(rows, C) -> (B, H, W, C)."""
    batch, height, width = geometry.batch, geometry.height, geometry.width
    window, shift = geometry.window_size, geometry.shift
    down, across = geometry.grid
    if order == "image":
        return rows.view(batch, height, width, -1)
    if order == "regular":
        grid = rows.view(down, across, batch, window, window, -1)
    else:
        parts = rows.split([size * geometry.tokens for size in geometry.class_sizes()])
        shapes = ((down - 1, across - 1), (down - 1, 1), (1, across - 1), (1, 1))
        interior, right, bottom, corner = (
            part.view(*shape, batch, window, window, rows.shape[-1])
            for part, shape in zip(parts, shapes, strict=True)
        )
        grid = torch.cat([torch.cat([interior, right], 1), torch.cat([bottom, corner], 1)])
    image = grid.permute(2, 0, 3, 1, 4, 5).reshape(batch, height, width, -1)
    return image.roll((shift, shift), dims=(1, 2)) if order == "shifted" else image
