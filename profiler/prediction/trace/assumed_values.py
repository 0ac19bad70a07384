"""What a run without data takes for values that the user's code asks its tensors for, by the line that asks."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

import swinmr_profiling
from swinmr_profiling.training.step.own_step import OwnStepError

aten = torch.ops.aten
# Code that is not the user's: torch's and ours (in a checkout the rooms lie beside his files).
LIBRARIES = (
    *torch.__path__,
    *(
        str(Path(folder) / room)
        for folder in swinmr_profiling.__path__
        for room in ("profiler", "training", "models")
    ),
)
GRAD_SCALER = "amp/grad_scaler.py"
VALUE = aten._local_scalar_dense.default
TO_ELSEWHERE = aten._to_copy.default
NONZERO, MASKED_SELECT, UNIQUE = aten.nonzero.default, aten.masked_select.default, aten._unique2.default
INDEXED = (
    aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default,
)  # fmt: skip
# What needs values: the operators that are asked about before they run.
ASKS = {VALUE, TO_ELSEWHERE, NONZERO, MASKED_SELECT, UNIQUE, *INDEXED}
NOT_ASKED = object()
MASKS = (torch.bool, torch.uint8)


class AssumedValues:
    """given: "file.py:12" -> the value that this line gets. used: those that were asked for.

    Of a mask, or of what makes one (nonzero, unique), the value is the share of the entries that are true, 0 to 1.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = dict(given)
        self.used: dict[str, Any] = {}
        # Masks that a line has answered for: backward asks about the same ones, on the line that calls it.
        self._shares: dict[int, float] = {}

    def told(self) -> list[str]:
        """What a prediction rests on, in words."""
        lines = [
            f"{line} gives {value!r} (assume)" for line, value in self.used.items() if line != "GradScaler"
        ]
        return ["no gradient overflows its scale", *lines] if "GradScaler" in self.used else lines

    def answer(self, function: Any, args: Any, kwargs: Any) -> Any:
        """What an operator that needs values returns; NOT_ASKED where it can run as it is.

        Raises OwnStepError, with the user's line, where nothing was said of it.
        """
        if not args[0].is_meta or function in INDEXED:
            return NOT_ASKED
        if function is TO_ELSEWHERE:
            device = (kwargs or {}).get("device")
            if device is not None and torch.device(device).type == "cpu":
                key, line = users_line(sys._getframe()) or ("a library", "")
                raise OwnStepError(
                    f"{key}: {line!r} copies a tensor to the CPU, which a prediction without data cannot do: let the "
                    "step use the device that setup(device) is given, and leave out what only reports"
                )
            return NOT_ASKED
        if function is VALUE:
            return self._value()
        if function is NONZERO:
            return self._places(args[0])
        if function is UNIQUE:
            return self._distinct(*args)
        shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
        count = round(self._share(args[1]) * shape.numel())
        return torch.empty(count, dtype=args[0].dtype, device="meta")

    def without_masks(self, indices: Sequence[Any]) -> tuple[list[Any], list[Tensor]]:
        """Indices with each mask as the places that it selects; and the memory that those take."""
        found: list[Any] = []
        made = []
        for index in indices:
            if isinstance(index, Tensor) and index.dtype in MASKS and index.is_meta:
                made.append(self._places(index))
                found += made[-1].unbind(1)
            else:
                found.append(index)
        return found, made

    def _value(self) -> Any:
        if _asked_by_scaler(sys._getframe()):
            self.used["GradScaler"] = 0.0  # no gradient overflows
            return 0.0
        line = users_line(sys._getframe())
        if line is None:
            raise OwnStepError(
                "a library asks for a tensor's value, which a prediction without data does not have"
            )
        return self._of(line, "asks for a tensor's value", "0.0")

    def _of(self, line: tuple[str, str], does: str, example: str) -> Any:
        key, text = line
        if key not in self.given:
            raise OwnStepError(
                f"{key}: {text!r} {does}, which a prediction without data does not have; say what to take: "
                f'assume={{"{key}": {example}}} (in a config training.assume)'
            )
        self.used[key] = self.given[key]
        return self.given[key]

    def _share(self, mask: Tensor) -> float:
        storage = mask.untyped_storage()._cdata
        if storage not in self._shares or torch._C._current_autograd_node() is None:
            line = users_line(sys._getframe()) or ("a library", "")
            share = float(self._of(line, "selects by a mask's values", "0.5"))
            if not 0 <= share <= 1:
                raise OwnStepError(
                    f"{line[0]}: {line[1]!r} selects by a mask: assume the share of its entries that are true, "
                    f"0 to 1, not {share:g}"
                )
            self._shares[storage] = share
        return self._shares[storage]

    def _places(self, mask: Tensor) -> Tensor:
        # As CUDA makes it: a row for each axis.
        shape = (mask.dim(), round(self._share(mask) * mask.numel()))
        return torch.empty(shape, dtype=torch.int64, device="meta").t()

    def _distinct(
        self, x: Tensor, is_sorted: bool = True, inverse: bool = False, counts: bool = False
    ) -> tuple[Tensor, ...]:
        found = round(self._share(x) * x.numel())
        return (
            torch.empty(found, dtype=x.dtype, device="meta"),
            torch.empty(x.shape if inverse else (0,), dtype=torch.int64, device="meta"),
            torch.empty(found if counts else 0, dtype=torch.int64, device="meta"),
        )


def _asked_by_scaler(frame: FrameType | None) -> bool:
    """Whether torch's gradient scaler asks, nearer than any line of the user's."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith(GRAD_SCALER):
            return True
        if not file.startswith(LIBRARIES) and not file.startswith("<frozen"):
            return False
        frame = frame.f_back
    return False


def users_line(frame: FrameType | None) -> tuple[str, str] | None:
    """("file.py:12", its text) of the innermost frame that is neither torch's nor ours."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(LIBRARIES) and not file.startswith("<frozen"):
            return f"{Path(file).name}:{frame.f_lineno}", linecache.getline(file, frame.f_lineno).strip()
        frame = frame.f_back
    return None
