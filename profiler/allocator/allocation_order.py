"""What a training run allocates and releases, in order, for any batch size; and the text that a profile keeps of it.

Without torch: whoever recommends from a saved profile replays it.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# A run of the largest network of the configs has 35,000 events, 0.14 MB: what is far larger is not a run.
MAX_TEXT_BYTES = 64 * 2**20
KIND_TYPE, STEP_TYPE, OPTIONAL_TYPE = np.dtype("<i8"), np.dtype("<i4"), np.dtype("u1")


class AllocationOrderError(ValueError):
    """A text that is not an order of allocations."""


@dataclass(frozen=True)
class AllocationOrder:
    """Allocation i takes fixed_bytes[i] + bytes_per_sample[i] x batch.

    events: int32 (events,), i + 1 where allocation i is made, -(i + 1) where it is released; allocations are made in
    the order of their numbers. fixed_bytes, bytes_per_sample: int64 (allocations,). optional: bool (allocations,),
    workspaces of convolutions, without which a slower algorithm is taken; None: not known, as if there were none.
    streams: int8 (allocations,), on which each is made, 0 for the one that computes; None: all on that.
    """

    events: np.ndarray
    fixed_bytes: np.ndarray
    bytes_per_sample: np.ndarray
    optional: np.ndarray | None = None
    streams: np.ndarray | None = None

    def sizes(self, batch_size: int) -> np.ndarray:
        """(allocations,) bytes; int64, or Python's integers where their sum could be more than 64 bits hold."""
        largest = int(self.bytes_per_sample.max(initial=0)) * batch_size + int(
            self.fixed_bytes.max(initial=0)
        )
        kind = np.int64 if largest * len(self.fixed_bytes) <= np.iinfo(np.int64).max else object
        return self.fixed_bytes.astype(kind) + self.bytes_per_sample.astype(kind) * batch_size


def packed(order: AllocationOrder) -> dict[str, str]:
    """The order as three texts, each base64 of zlib.

    `sizes`: little-endian int64, pairs of fixed bytes and bytes per sample. `order`: little-endian int32, one per
    event: k >= 0 makes an allocation of the k-th pair; -d releases the d-th last one that was made. `optional`: uint8,
    one per pair, 1 for a convolution's workspace, and twice the number of the stream.
    """
    optional = np.zeros(len(order.fixed_bytes), dtype=bool) if order.optional is None else order.optional
    codes = optional.astype(np.int64)
    if order.streams is not None:
        codes += 2 * order.streams.astype(np.int64)
    pairs = np.stack([order.fixed_bytes, order.bytes_per_sample, codes], axis=1)
    kinds, kind_of = np.unique(pairs, axis=0, return_inverse=True)
    numbers = np.abs(order.events) - 1
    steps = np.where(order.events > 0, kind_of.reshape(-1)[numbers], numbers - np.cumsum(order.events > 0))
    return {
        "sizes": _text(kinds[:, :2].astype(KIND_TYPE)),
        "order": _text(steps.astype(STEP_TYPE)),
        "optional": _text(kinds[:, 2].astype(OPTIONAL_TYPE)),
    }


def unpacked(block: Mapping[str, str | None]) -> AllocationOrder:
    """The order that `packed` made texts of; `optional` may be missing, as from earlier versions.

    Raises AllocationOrderError, also for an order that no run can have.
    """
    kinds, steps = _array(block, "sizes", KIND_TYPE), _array(block, "order", STEP_TYPE).astype(np.int64)
    if len(kinds) % 2 or not len(kinds) or not len(steps):
        raise AllocationOrderError("allocations: truncated")
    kinds = kinds.reshape(-1, 2).astype(np.int64)
    codes = None
    if block.get("optional") is not None:
        codes = _array(block, "optional", OPTIONAL_TYPE)
        if len(codes) != len(kinds):
            raise AllocationOrderError("allocations.optional: one for each pair of sizes is expected")
    if (kinds < -(2**62)).any() or (kinds > 2**62).any() or (kinds[:, 1] < 0).any():
        raise AllocationOrderError("allocations: a size that shrinks with the batch, or is none")
    makes = steps >= 0
    made = np.cumsum(makes)
    numbers = np.where(makes, made - 1, made + steps)
    released = numbers[~makes]
    if (steps[makes] >= len(kinds)).any() or (numbers < 0).any() or len(np.unique(released)) < len(released):
        raise AllocationOrderError("allocations: of no known size, or released without having been made")
    of = steps[makes]
    events = np.where(makes, numbers + 1, -(numbers + 1)).astype(np.int32)
    if codes is None:
        return AllocationOrder(events, kinds[of, 0], kinds[of, 1])
    streams = (codes[of] >> 1).astype(np.int8)
    return AllocationOrder(
        events, kinds[of, 0], kinds[of, 1], (codes[of] & 1).astype(bool), streams if streams.any() else None
    )


def _text(values: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(values.tobytes(), 9)).decode("ascii")


def _array(block: Mapping[str, str | None], key: str, kind: np.dtype[Any]) -> np.ndarray:
    text = block.get(key)
    if not isinstance(text, str):
        raise AllocationOrderError(f"allocations.{key} is missing")
    try:
        unfolding = zlib.decompressobj()
        content = unfolding.decompress(base64.b64decode(text, validate=True), MAX_TEXT_BYTES)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise AllocationOrderError(f"allocations.{key}: {error}") from None
    if not unfolding.eof or len(content) % kind.itemsize:
        raise AllocationOrderError(f"allocations.{key} is truncated, or far too long")
    return np.frombuffer(content, dtype=kind)
