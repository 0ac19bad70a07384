"""Keys that other training repositories spell or place differently, moved to where this schema has them.

A config of such a repository has the same sections; a handful of its keys differ. Each move is a message.
"""

from __future__ import annotations

from typing import Any

# Their path -> ours, same meaning and unit.
MOVED = {
    "training.optimizer.scheduler": "training.scheduler",
    "training.print_freq": "logging.log_interval",
    "training.save_freq": "training.checkpoint_every_steps",
    "training.val_freq": "training.validate_every_epochs",
}
# Their path -> why nothing is lost by dropping it, or what to do instead.
DROPPED = {
    "data.degradation_config": "describe the degradation in data.degradation instead",
    "data.val_degradation_config": "validation masks always repeat (data.degradation.seed)",
    "data.cache_dicom_conversions": "slices are read directly",
    "training.checkpoint_freq": "checkpoints are written by steps (training.checkpoint_every_steps)",
    "logging.log_degradation_stats": "the sampled fraction is always recorded",
    "system.gpu_ids": "choose devices with --device, or CUDA_VISIBLE_DEVICES and torchrun",
    "training.early_stopping.mode": "the direction follows from the metric",
}

# `spatial.eps` where a file of swinmr-mriwizard has none.
MRIWIZARD_EPS = 1e-3


def adopt_spellings(raw: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Move or drop foreign keys.

    Returns:
        A changed copy of `raw`, and a message per key. A key that is set in both places stays where it is.
    """
    raw = _copy(raw)
    messages: list[str] = []
    for old, new in MOVED.items():
        if _has(raw, old) and not _has(raw, new):
            value = _take(raw, old)
            if _put(raw, new, value):
                messages.append(f"{old} is read as {new}")
            else:
                _put(raw, old, value)
        elif _has(raw, old) and old == "training.print_freq":
            # swinmr-mriwizard's own file has both.
            value = _take(raw, old)
            messages.append(f"{old} {value} is not used: {new} is there as well")
    if _has(raw, "training.gradient.clip_value") and not _has(raw, "training.gradient.clip_norm"):
        value = _take(raw, "training.gradient.clip_value")
        enabled = (
            _take(raw, "training.gradient.clip_enabled")
            if _has(raw, "training.gradient.clip_enabled")
            else True
        )
        _put(raw, "training.gradient.clip_norm", value if enabled else None)
        messages.append("training.gradient.clip_value is read as training.gradient.clip_norm")
    _adopt_fft_mse(raw, messages)
    for path, instead in DROPPED.items():
        if _has(raw, path):
            _take(raw, path)
            messages.append(f"{path} is not used here: {instead}")
    return raw, messages


def _adopt_fft_mse(raw: dict[str, Any], messages: list[str]) -> None:
    """`fft_mse` by the code that has the name: swinmr-mriwizard's training reads of both losses the weights and
    `spatial.eps`, and takes SwinMR's Charbonnier losses whatever `type` says."""
    parts = "training.loss.components"
    frequency, spatial = f"{parts}.frequency", f"{parts}.spatial"
    if not _has(raw, f"{frequency}.type") or _parent(raw, f"{frequency}.type")[0]["type"] != "fft_mse":
        return
    if not _has(raw, f"{spatial}.eps"):
        _put(raw, f"{spatial}.eps", MRIWIZARD_EPS)
    eps = _parent(raw, f"{spatial}.eps")[0]["eps"] if _has(raw, f"{spatial}.eps") else MRIWIZARD_EPS
    _put(raw, f"{frequency}.type", "charbonnier")
    for key, value in (("transform", "swinmr"), ("eps", eps)):
        if not _has(raw, f"{frequency}.{key}"):
            _put(raw, f"{frequency}.{key}", value)
    messages.append(
        f"{frequency}.type fft_mse is read as what swinmr-mriwizard's training computes: charbonnier with the eps of "
        f'spatial ({eps}) and transform "swinmr"'
    )


def _copy(value: Any) -> Any:
    return {key: _copy(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _parent(raw: dict[str, Any], path: str) -> tuple[Any, str]:
    *parents, key = path.split(".")
    section: Any = raw
    for parent in parents:
        section = section.get(parent) if isinstance(section, dict) else None
    return section, key


def _has(raw: dict[str, Any], path: str) -> bool:
    section, key = _parent(raw, path)
    return isinstance(section, dict) and key in section


def _take(raw: dict[str, Any], path: str) -> Any:
    section, key = _parent(raw, path)
    return section.pop(key)


def _put(raw: dict[str, Any], path: str, value: Any) -> bool:
    """Set a value, making the sections on the way; False where one of them is not an object."""
    *parents, key = path.split(".")
    section: Any = raw
    for parent in parents:
        section = section.setdefault(parent, {})
        if not isinstance(section, dict):
            return False
    section[key] = value
    return True
