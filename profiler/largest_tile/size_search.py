"""The largest size that fits, where only looking at a size tells whether it does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

# Sizes beyond one that fits, at which is looked though the next does not: what the allocator reserves may fall as an
# image grows. In steps, as for batches (batch_size/fit.py), and one more as a share.
STRETCH = 16
SHARE_BEYOND = (5, 4)


@dataclass(frozen=True)
class Look:
    """What a size needs beyond what there is.

    excess_bytes: at most 0 where it fits; None: the network refuses it. live_excess_bytes: the same of what is alive at
    once, which grows with the image: where it is above 0, nothing larger fits.
    """

    excess_bytes: int | None
    live_excess_bytes: int = 0

    @property
    def fits(self) -> bool:
        return self.excess_bytes is not None and self.excess_bytes <= 0


@dataclass
class SizeSearch:
    """Whole numbers of steps (a side is steps x period), each looked at once.

    look: of a number of steps. last: no step beyond.
    """

    look: Callable[[int], Look]
    last: int
    seen: dict[int, Look] = field(default_factory=dict)

    def largest(self, start: int) -> int | None:
        """The step that fits while none of the next 16 does, nor one a quarter larger; None where none fits.

        The next one was looked at; the others as long as what is alive leaves it open. start: where to begin.
        """
        low = self._between(0, self.last + 1, start)
        while (further := self._fits_beyond(low)) is not None:
            low = self._between(further, self.last + 1, further + 1)
        return low or None

    def _fits_beyond(self, low: int) -> int | None:
        """The farthest step beyond low + 1 that fits, of those looked at."""
        beyond, found = low + 1, None
        share = -(-beyond * SHARE_BEYOND[0] // SHARE_BEYOND[1])
        for step in sorted({*range(beyond, beyond + STRETCH), share}):
            if step > self.last:
                break
            if self._fits(step):
                found = step
            elif self.seen[step].live_excess_bytes > 0:
                break
        return found

    @property
    def is_monotone(self) -> bool:
        """Whether no size that was looked at needs less than a smaller one."""
        ordered = [look.excess_bytes for _, look in sorted(self.seen.items())]
        needed = [excess for excess in ordered if excess is not None]
        return needed == sorted(needed)

    def _fits(self, step: int) -> bool:
        if step not in self.seen:
            self.seen[step] = self.look(step)
        return self.seen[step].fits

    def _between(self, low: int, high: int, step: int) -> int:
        """A step that fits and whose next does not, with low fitting (or 0) and high not (or beyond the last)."""
        halve = False
        while high - low > 1:
            step = min(max(step, low + 1), high - 1)
            before = high - low
            if self._fits(step):
                low = step
            else:
                high = step
            # Where a guess did not halve what is left, the middle does.
            halve = not halve and 2 * (high - low) > before and high <= self.last
            step = (low + high) // 2 if halve else self._guess(low)
        return low

    def _guess(self, low: int) -> int:
        """Where what is needed is what there is, if bytes grow with the area: by the two sizes nearest to it."""
        known = [(step, one.excess_bytes) for step, one in self.seen.items() if one.excess_bytes is not None]
        known.sort(key=lambda one: abs(one[1]))
        if len(known) < 2:
            return 2 * low if low else max(self.seen, default=2) // 2
        (first, first_excess), (second, second_excess) = known[:2]
        slope = (first_excess - second_excess) / (first**2 - second**2)
        if slope <= 0:
            return 2 * low + 1
        return math.floor(math.sqrt(max(first**2 - first_excess / slope, 0)))
