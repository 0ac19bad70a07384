"""From a target batch to what each device holds at once, and how many of these make one optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from swinmr_profiling.input_error import InputError


class TargetBatchError(InputError):
    """A target batch that cannot be reached exactly; one line for the user."""


def share_per_device(target_batch: int | None, devices: int) -> int | None:
    """Samples of one optimizer step that fall to each device. Raises TargetBatchError."""
    if target_batch is None:
        return None
    if target_batch < 1:
        raise TargetBatchError(f"target batch {target_batch}: at least 1")
    if target_batch % devices:
        below, above = target_batch // devices * devices, -(-target_batch // devices) * devices
        choices = f"{below} or {above}" if below else f"{above}"
        raise TargetBatchError(
            f"target batch {target_batch} is not a multiple of {devices} devices: {choices} would be"
        )
    return target_batch // devices


def split_share(
    share: int, candidates: Iterable[int], usable: Callable[[int], bool] = lambda batch: True
) -> tuple[int, int] | None:
    """(batch, accumulation) whose product is share, of the first candidate that can be one; None without one."""
    for batch in candidates:
        if share % batch == 0 and usable(batch):
            return batch, share // batch
    return None
