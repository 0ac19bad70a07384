"""Reading the training side of a saved profile, without trust: it may be old, partial, cut short or another file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swinmr_profiling.profiler.batch_size.reserved import reserved_of
from swinmr_profiling.profiler.record.reading import ProfileFileError, load_profile

SIZE_KEYS = ("live_bytes", "allocated_bytes", "reserved_bytes")
MODEL_KEYS = (
    "memory_fingerprint", "torch_version", "optimizer", "accumulate", "interval_shares", "assumptions",
    "untested_rules",
)  # fmt: skip
SETTING_KEYS = (
    "precision", "checkpointing", "patch_size", "is_config", "terms", "validation", "ddp_bucket_bytes",
)  # fmt: skip
TRAINING_KEYS = (
    "source", "precision", "checkpointing", "patch_size", "peak_bytes", "peak_reserved_bytes", "process_bytes",
    "context_bytes", "validation", "ddp_bucket_bytes", "steps_run", "step_ms", "images_per_second", "retries",
)  # fmt: skip


@dataclass(frozen=True)
class TrainingProfile:
    """What a recommendation reads.

    Attributes:
        memory_model: None where the network could not be traced, but was measured.
        gpu: `environment.gpu`, None for a profile of a CPU.
        held_by_others_bytes: of it, when the profile was made.
    """

    file: Path
    memory_model: dict[str, Any] | None
    batch_profiling: dict[str, dict[str, Any]]
    gpu: dict[str, Any] | None
    held_by_others_bytes: int
    torch_version: str | None


def read_training_profile(path: str | Path) -> TrainingProfile:
    """Reads and checks a profile. Raises ProfileFileError, also for one from which no batch can be recommended."""
    file, content = Path(path), load_profile(path).content
    try:
        return _checked(file, content)
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration) as error:
        if isinstance(error, ProfileFileError):
            raise
        what = (
            f"{error.args[0]} is missing"
            if isinstance(error, KeyError)
            else str(error) or "no config setting"
        )
        raise ProfileFileError(
            f"{file}: is damaged or of another version ({what}): {_command(content)}"
        ) from None


def _checked(file: Path, content: dict[str, Any]) -> TrainingProfile:
    memory_model, batches = content["memory_model"], content["batch_profiling"]
    gpu, measured = content["environment"].get("gpu"), False
    for size, block in batches.items():
        training = block.get("training")
        if training is None:
            continue
        _positive(int(size), "a batch size")
        if training["source"] == "measured" and gpu is not None:
            measured = True
            _check_measured(training)
    if memory_model is None and not measured:
        raise ProfileFileError(
            f"{file}: holds no training memory (memory_model is null): {_command(content)}"
        )
    if memory_model is not None:
        _check_model(memory_model)
    if gpu is not None:
        _positive(gpu["total_bytes"], "environment.gpu.total_bytes")
        _need(gpu, ("name",))
    environment = content["environment"]
    return TrainingProfile(
        file=file,
        memory_model=memory_model,
        # Resident memory of a CPU run says nothing about a GPU's.
        batch_profiling=batches if gpu is not None else {},
        gpu=gpu,
        held_by_others_bytes=0 if gpu is None else _held_by_others(content["recommendation"], gpu["name"]),
        torch_version=(environment.get("packages") or {}).get("torch"),
    )


def _check_measured(training: dict[str, Any]) -> None:
    if "error" in training:
        return _need(training, ("error", "detail"))
    _need(training, TRAINING_KEYS)
    _positive(training["peak_bytes"], "peak_bytes")
    for key in ("peak_reserved_bytes", "process_bytes", "context_bytes", "ddp_bucket_bytes", "retries"):
        if training[key] is not None:
            _whole(training[key], key)


def _check_model(memory_model: dict[str, Any]) -> None:
    _need(memory_model, MODEL_KEYS)
    _positive(memory_model["accumulate"], "accumulate")
    if sum(bool(setting["is_config"]) for setting in memory_model["settings"]) != 1:
        raise ValueError("not one setting that is the config's")
    for setting in memory_model["settings"]:
        _need(setting, SETTING_KEYS)
        _whole(setting["ddp_bucket_bytes"], "ddp_bucket_bytes")
        for term in (setting["terms"] or {}).values():
            _need(term, ("fixed_bytes",))
        if not setting["sizes"]:
            raise ValueError("a setting without sizes")
        for size, entry in setting["sizes"].items():
            _positive(int(size), "a batch size")
            for key in SIZE_KEYS:
                _positive(entry[key], key)
        if setting.get("allocations") is not None:
            _positive(setting["affine_from_batch"], "affine_from_batch")
            reserved_of(setting)
        if setting["validation"] is not None:
            _positive(setting["validation"]["reserved_bytes"], "validation.reserved_bytes")
            _need(setting["validation"], ("input_shape",))


def _held_by_others(recommendation: dict[str, Any] | None, name: str) -> int:
    """As the recommendation for the machine's own GPU counted it; 0 without one."""
    entries = [] if recommendation is None else recommendation["training"]
    held = [
        entry["budget"]["reserved_elsewhere_bytes"] for entry in entries if entry["budget"]["name"] == name
    ]
    for size in held:
        _whole(size, "budget.reserved_elsewhere_bytes")
    return held[0] if held else 0


def _need(block: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        block[key]


def _positive(value: Any, name: str) -> None:
    _whole(value, name, least=1)


def _whole(value: Any, name: str, least: int = 0) -> None:
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is {value!r}")


def _command(content: dict[str, Any]) -> str:
    """The command that makes what is missing."""
    config = content.get("config")
    file = config.get("config_file") if isinstance(config, dict) else None
    return f"run scripts/profile_model.py --config {file or 'CONFIG'} --predict-only"
