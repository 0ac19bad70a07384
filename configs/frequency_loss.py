"""What the loss on k-space with SwinMR's transform amounts to: how much stronger it is, and what it depends on.

SwinMR transforms all axes of the batch's tensor (N, C, H, W) without normalisation; our own configs transform the last
two axes, orthonormally.
"""

from __future__ import annotations

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
    samples, channels, height, width = shape
    count = samples * channels * height * width
    return float(count) if kind == "mse" else count**0.5


def frequency_loss_note(raw: dict[str, Any], config: ExperimentConfig) -> str | None:
    """One line on what SwinMR's transform does to the loss of this config, None where the config has another.

    raw: the file as it was read.
    """
    frequency = config.training.loss.components.frequency
    if config.training.loss.type not in ("auto", "multi_component") or not frequency.weight:
        return None
    if frequency.transform != "swinmr" or config.is_denoiser:
        return None
    batch_size = config.data.batch_size
    growth = "N x C x H x W" if frequency.type == "mse" else "sqrt(N x C x H x W)"
    shape = _loss_shape(config, batch_size)
    if shape is None:
        strength = growth
    else:
        sizes = " x ".join(map(str, shape))
        strength = f"{times_stronger(frequency.type, shape):,.0f} ({growth} of {sizes})"
    note = (
        'loss on k-space with transform "swinmr": all axes of the batch, unnormalised, so samples mix and it is about '
        f"{strength} times an orthonormal one: another batch per device or patch is another loss"
    )
    whole = _batch_of_one_process(raw)
    if type(batch_size) is int and whole not in (None, batch_size):
        note += (
            f"; SwinMR compares the {whole} samples of all gpu_ids at once, here each device its {batch_size}"
        )
    return note


def _batch_of_one_process(raw: dict[str, Any]) -> Any:
    """Samples that one loss of an option file without `dist` sees: those of all its GPUs, gathered."""
    if not is_option_file(raw) or raw.get("dist"):
        return None
    return _value(raw, "datasets", "train", "dataloader_batch_size")


def _loss_shape(config: ExperimentConfig, samples: Any) -> tuple[int, int, int, int] | None:
    """(N, C, H, W) of what the loss compares, None where a size is not known."""
    hw, channels = config.training_patch_hw, getattr(config.model, "in_chans", None)
    if type(samples) is not int or hw is None or channels is None:
        return None
    scale = getattr(config.model, "upscale", 1)
    return samples, channels, hw[0] * scale, hw[1] * scale


def _value(raw: Any, *path: str) -> Any:
    for key in path:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw
