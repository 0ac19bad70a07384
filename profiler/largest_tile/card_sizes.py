"""What fits a card: the GPU that is here, now (also for `test.py --tile auto`), or one `fit_inference.py` names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import torch

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.profiler.allocator.workspaces import KERNELS_BYTES, workspaces_for
from swinmr_profiling.profiler.batch_size.budget import DEFAULT_HEADROOM, Budget, budget_on
from swinmr_profiling.profiler.largest_tile.command_line import FitArguments
from swinmr_profiling.profiler.largest_tile.inference_fit import SizesOnCard, size_at
from swinmr_profiling.profiler.largest_tile.record import Layout
from swinmr_profiling.profiler.largest_tile.size_prediction import predictor
from swinmr_profiling.profiler.measure.machine.devices import DeviceError, resolve_device
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.device_memory import reserved_by_others
from swinmr_profiling.profiler.record.failures import first_lines
from swinmr_profiling.profiler.record.memory_fingerprint import PRECISIONS
from swinmr_profiling.training.errors import DataError


def budget_here(
    device: torch.device, *, reserved_bytes: int = 0, headroom: Fraction = DEFAULT_HEADROOM
) -> tuple[Budget, str]:
    """Of a CUDA device with nothing of this process on it, and its compute capability."""
    properties = torch.cuda.get_device_properties(device)
    capability = f"{properties.major}.{properties.minor}"
    # Opens the device: from here on the context of this process is part of what is used.
    free, total = torch.cuda.mem_get_info(device)
    context = workspaces_for(torch.__version__, capability).context_bytes - KERNELS_BYTES
    others = max(reserved_bytes, reserved_by_others(total, free, context))
    budget = budget_on(
        properties.name,
        total,
        capability,
        torch_version=torch.__version__,
        reserved_elsewhere_bytes=others,
        headroom_share=headroom,
    )
    return replace(budget, is_this_machine=True), capability


class CardSizes:
    """Sizes of a config's images that infer on a card in its own precision, in the memory format of `test.py`."""

    def __init__(
        self,
        config: ExperimentConfig,
        budget: Budget,
        compute_capability: str | None,
        *,
        trust_config: bool = False,
    ) -> None:
        self.name = budget.name
        precision = PRECISIONS[config.system.mixed_precision]
        self._predicted = predictor(
            config, precision, "contiguous", config.data.val_batch_size, budget,
            compute_capability=compute_capability, trust_config=trust_config,
        )  # fmt: skip

    def whole_fits(self, image_hw: tuple[int, int]) -> bool:
        """Whether a batch of whole images fits. Raises DataError for a network that cannot be traced at this size."""
        try:
            return self._predicted.at(image_hw).fits
        except Exception as error:  # whatever a network raises that asks its tensors for values
            size = f"{image_hw[0]} x {image_hw[1]}"
            raise DataError(
                f"--tile auto: the network cannot be predicted at {size} ({first_lines(str(error))}): leave --tile "
                "out, or name a size"
            ) from error

    def largest_side(self, period: int, image_hw: tuple[int, int]) -> int | None:
        """Of a square tile beside a batch of images of that size; None where none fits. Raises as `whole_fits`."""
        own = self._predicted.built.image_hw
        if own is not None:
            self.whole_fits(own)
        held = self._predicted.input_bytes(image_hw)
        steps, _ = SizesOnCard(self._predicted, period, held_bytes=held).largest()
        return None if steps is None else size_at(steps, period, (1, 1))[0]


def budget_asked(parsed: FitArguments) -> tuple[Budget, str | None]:
    """Of the card that is named, else of the one that is here; and its compute capability where that is known.

    Raises DeviceError where there is none.
    """
    if (card := parsed.card) is None:
        device = resolve_device(parsed.device)
        if device.type != "cuda":
            raise DeviceError('no GPU is here: name one with --gpu "RTX 3060 12GB" or --gpu-memory 12GiB')
        return budget_here(device, reserved_bytes=parsed.reserved, headroom=parsed.headroom)
    return parsed.budget(card, torch.__version__), card.compute_capability


def settings_asked(
    parsed: FitArguments, config: ExperimentConfig, budget: Budget
) -> Sequence[tuple[Precision, Layout]]:
    """Each precision in each memory format. Without a list the config's own, and bf16 beside fp32."""
    own = PRECISIONS[config.system.mixed_precision]
    precisions = parsed.precision
    if precisions is None:
        precisions = [own, "bf16"] if own == "fp32" and budget.bf16_hardware is not False else [own]
    return [(precision, layout) for precision in precisions for layout in parsed.layout]
