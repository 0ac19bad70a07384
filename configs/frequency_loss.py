"""What the loss on k-space with SwinMR's transform amounts to: how much stronger it is, and what it depends on.

SwinMR transforms all axes of the batch's tensor (N, C, H, W) without normalisation; our own configs transform the last
two axes, orthonormally.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from swinmr_profiling.configs.option_files.kair import is_option_file

if TYPE_CHECKING:
    from swinmr_profiling.configs.schema import ExperimentConfig


def times_stronger(kind: str, shape: tuple[int, int, int, int]) -> float:
    """How many times the orthonormal loss SwinMR's is, for errors of samples that have nothing to do with each other.

    An unnormalised transform of N x C x H x W numbers makes independent errors sqrt(N C H W) times as large, an
    orthonormal one leaves them as large as they are. "charbonnier" and "l1" grow with the error, "mse" with its square
    (by Parseval's theorem whatever the errors are).
    """
    count = math.prod(shape)
    return float(count) if kind == "mse" else count**0.5


def frequency_loss_notes(raw: dict[str, Any], config: ExperimentConfig) -> list[str]:
    """One line on what SwinMR's transform does to the loss of this config, none where the config has another.

    raw: the file as it was read.
    """
    frequency = config.training.loss.components.frequency
    is_used = config.training.loss.type in ("auto", "multi_component") and not config.is_denoiser
    if not is_used or not frequency.weight or frequency.transform != "swinmr":
        return []
    samples, hw = config.data.batch_size, config.training_patch_hw
    channels, scale = getattr(config.model, "in_chans", None), getattr(config.model, "upscale", 1)
    strength = growth = "N x C x H x W" if frequency.type == "mse" else "sqrt(N x C x H x W)"
    if type(samples) is int and hw is not None and channels is not None:
        shape = (samples, channels, hw[0] * scale, hw[1] * scale)
        sizes = " x ".join(map(str, shape))
        strength = f"{times_stronger(frequency.type, shape):,.0f} ({growth} of {sizes})"
    note = (
        'loss on k-space with transform "swinmr": all axes of the batch, unnormalised, so samples mix and it is about '
        f"{strength} times an orthonormal one: another batch per device or patch is another loss"
    )
    # One loss of an option file without `dist` sees the samples of all its GPUs, gathered.
    gathered = is_option_file(raw) and not raw.get("dist")
    whole = _value(raw, "datasets", "train", "dataloader_batch_size") if gathered else None
    if type(samples) is int and whole not in (None, samples):
        note += (
            f"; SwinMR compares the {whole} samples of all gpu_ids at once, here each device its {samples}"
        )
    return [note]


def _value(raw: Any, *path: str) -> Any:
    for key in path:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw
