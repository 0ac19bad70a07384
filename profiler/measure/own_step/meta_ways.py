"""Ways that torch takes by a device's name, where a step of the user's own runs on tensors without data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.cuda.amp import common
from torch.optim import optimizer
from torch.utils import _foreach_utils

FUSED = "_get_fused_kernels_supported_devices"


@contextmanager
def meta_stands_for(device_type: str, *, with_autocast: bool) -> Iterator[None]:
    """`torch.autocast(device.type)` of the device that a step was given is that one's; fused optimizers take it.

    with_autocast: False leaves every autocast off, where only products are counted.
    """
    make = torch.amp.autocast_mode.autocast.__init__

    def made(
        self: Any, given: str, dtype: Any = None, enabled: bool = True, *rest: Any, **options: Any
    ) -> None:
        if not with_autocast:
            make(self, "cpu", torch.bfloat16, False)
        else:
            make(self, device_type if given == "meta" else given, dtype, enabled, *rest, **options)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.amp.autocast_mode.autocast, "__init__", made))
        for module in (_foreach_utils, optimizer):
            if supported := getattr(module, FUSED, None):
                stack.enter_context(mock.patch.object(module, FUSED, return_value=[*supported(), "meta"]))
        if with_autocast:
            # A gradient scaler works as it will on a GPU, whether or not one is here.
            stack.enter_context(mock.patch.object(common, "amp_definitely_not_available", return_value=False))
        yield
