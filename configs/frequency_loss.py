"""What a foreign file means by its loss on k-space, and what it is here: another transform with the same weight.

SwinMR transforms all axes of the batch's tensor (N, C, H, W) without normalisation; here the last two axes are
transformed, orthonormally.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swinmr_profiling.configs.option_files.kair import is_option_file

if TYPE_CHECKING:
    from swinmr_profiling.configs.schema import ExperimentConfig


def times_weaker(kind: str, shape: tuple[int, int, int, int]) -> float:
    """How many times SwinMR's loss on k-space is ours, for errors of samples that have nothing to do with each other.

    An unnormalised transform of N x C x H x W numbers makes independent errors sqrt(N C H W) times as large, an
    orthonormal one leaves them as large as they are. "charbonnier" and "l1" grow with the error, "mse" with its square
    (by Parseval's theorem whatever the errors are).
    """
    samples, channels, height, width = shape
    count = samples * channels * height * width
    return float(count) if kind == "mse" else count**0.5


def frequency_loss_note(raw: dict[str, Any], config: ExperimentConfig) -> str | None:
    """One line on what the loss on k-space of a foreign file would be there, None where there is nothing to say.

    raw: the file as it was read. config: what became of it.
    """
    frequency = config.training.loss.components.frequency
    if config.training.loss.type not in ("auto", "multi_component") or not frequency.weight:
        return None
    if is_option_file(raw):
        if _value(raw, "train", "beta") is None:
            return None
        return (
            "train.beta weighs another loss here: SwinMR transforms all axes of the batch without normalisation, here "
            f"the last two are, orthonormally; {_comparison(frequency.type, _loss_shape(config, _samples(raw)))}"
        )
    if _value(raw, "training", "loss", "components", "frequency", "type") != "fft_mse":
        return None
    shape = _loss_shape(config, config.data.batch_size)
    return (
        "training.loss.components.frequency.type fft_mse is read as mse of an orthonormal transform of the last two "
        "axes; swinmr-mriwizard's training does not look at the key and takes Charbonnier of all axes of the batch "
        f"without normalisation: {_comparison('charbonnier', shape)} than Charbonnier is here"
    )


def _comparison(kind: str, shape: tuple[int, int, int, int] | None) -> str:
    growth = "N x C x H x W" if kind == "mse" else "sqrt(N x C x H x W)"
    if shape is None:
        return f"theirs is about {growth} times stronger"
    sizes = " x ".join(map(str, shape))
    return f"theirs is about {times_weaker(kind, shape):,.0f} times stronger ({growth} of {sizes})"


def _samples(raw: dict[str, Any]) -> Any:
    """Samples that one loss of an option file sees: the whole batch, or a device's share where each has a process."""
    batch, gpu_ids = _value(raw, "datasets", "train", "dataloader_batch_size"), raw.get("gpu_ids")
    devices = len(gpu_ids) if raw.get("dist") and isinstance(gpu_ids, list) and gpu_ids else 1
    return max(batch // devices, 1) if type(batch) is int else None


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
