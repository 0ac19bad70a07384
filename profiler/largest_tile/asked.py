"""From the options of fit_inference.py to a card's budget and the settings that are searched."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.largest_tile.card_sizes import budget_here
from swinmr_profiling.profiler.largest_tile.command_line import FitArguments
from swinmr_profiling.profiler.largest_tile.record import Layout
from swinmr_profiling.profiler.measure.machine.devices import DeviceError, resolve_device
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.record.memory_fingerprint import PRECISIONS


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
