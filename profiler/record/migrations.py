"""Profiles of earlier schema versions, brought to the present one: one function per step.

Version 0 is what the script had that this repository's layout comes from: `config`, `architecture`, `single_image`,
`batch_profiling`, no `schema_version`, no raw samples. Its `flops` are what fvcore calls flops: multiply-adds, with
five per element of every norm. They become `macs` of the convention "fvcore" and are never FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from swinmr_profiling.profiler.record.blocks.architecture import Architecture
from swinmr_profiling.profiler.record.blocks.batch import Batch, FailedBatch, MeasuredBatch, Memory, Timing
from swinmr_profiling.profiler.record.blocks.run_description import NoEnvironment, RunConfig
from swinmr_profiling.profiler.record.fields import Fields, ProfileShapeError, is_figure
from swinmr_profiling.profiler.record.least_runs import LEAST_RUNS
from swinmr_profiling.profiler.record.prediction_intervals import interval_bytes, interval_shares
from swinmr_profiling.profiler.record.profile import SCHEMA_VERSION, Profile
from swinmr_profiling.profiler.record.units import GIGA, MIB

ORIGINAL_SCRIPT = 0
FVCORE = "fvcore"
TIMINGS = ("mean_ms", "std_ms", "min_ms", "max_ms", "median_ms")
IMPORTED_REASON = "imported from the original script, which recorded no more"


def version_of(content: Mapping[str, Any]) -> int:
    """The schema version of a file's content. Raises ProfileShapeError for what is no profile."""
    version = content.get("schema_version")
    if version is None:
        if not isinstance(content.get("config"), dict) or not _looks_original(content):
            raise ProfileShapeError(
                "is no profile (neither schema_version nor architecture.total_parameters): "
                "scripts/profile_model.py writes one"
            )
        return ORIGINAL_SCRIPT
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ProfileShapeError("schema_version: a whole number of at least 1 is expected")
    if version > SCHEMA_VERSION:
        raise ProfileShapeError(
            f"is a profile of schema version {version}, and this program knows {SCHEMA_VERSION} at most: "
            "update the program"
        )
    return version


def _looks_original(content: Mapping[str, Any]) -> bool:
    architecture = content.get("architecture")
    return isinstance(architecture, dict) and "total_parameters" in architecture


def migrate(
    content: dict[str, Any],
    version: int,
    steps: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] | None = None,
    newest: int = SCHEMA_VERSION,
) -> dict[str, Any]:
    """The content in the newest schema version. Raises ProfileShapeError.

    steps: by the version they start from; each leads to the next.
    """
    for step in range(version, newest):
        content = (STEPS if steps is None else steps)[step](content)
    return content


def counted_and_named(content: dict[str, Any]) -> dict[str, Any]:
    """Version 1 to 2: what is counted is called so, intervals are named, few runs have no spread.

    What version 1 did not keep is null. Changes the content in place.
    """
    content["schema_version"] = 2
    architecture, model = content.get("architecture"), content.get("memory_model")
    if isinstance(architecture, dict) and architecture.get("source") == "measured":
        architecture["source"] = "counted"
    settings = model.get("settings") if isinstance(model, dict) else None
    for setting in settings if isinstance(settings, list) else ():
        if isinstance(setting, dict):
            setting.setdefault("allocations", None)
    recommendation = content.get("recommendation")
    search = recommendation.get("search") if isinstance(recommendation, dict) else None
    if isinstance(search, dict):
        search.setdefault("held_by_others_bytes", None)
    forget_what_few_runs_do_not_tell(content)
    return with_named_intervals(content)


def forget_what_few_runs_do_not_tell(content: dict[str, Any]) -> None:
    """Sets to null the percentiles and spreads of too few runs, which earlier programs wrote (iqr_ms 0.0 for one)."""
    sizes = content.get("batch_profiling")
    blocks = [*(sizes.values() if isinstance(sizes, dict) else ()), content.get("single_image")]
    for block in (*blocks, content.get("perceptual_metric")):
        timing = block.get("timing") if isinstance(block, dict) else None
        runs = timing.get("num_runs") if isinstance(timing, dict) else None
        if isinstance(runs, int):
            timing.update(
                {name: None for name, least in LEAST_RUNS.items() if runs < least and name in timing}
            )


def with_named_intervals(content: dict[str, Any]) -> dict[str, Any]:
    """Profiles whose one interval began below what is live and ended above what is reserved.

    Each of the two figures gets the interval that this version gives it. Changes the content in place.
    """
    batches, model = content.get("batch_profiling"), content.get("memory_model")
    for block in batches.values() if isinstance(batches, dict) else ():
        training = block.get("training") if isinstance(block, dict) else None
        if isinstance(training, dict) and "interval_bytes" in training:
            spans = training.pop("interval_bytes") is not None
            figures = {"live": training.get("live_bytes"), "reserved": training.get("peak_reserved_bytes")}
            for quantity, figure in figures.items():
                known = spans and is_figure(figure) and figure >= 0
                training[f"{quantity}_interval_bytes"] = interval_bytes(quantity, figure) if known else None
    if isinstance(model, dict) and "interval_share" in model:
        model["interval_shares"] = (
            None if model.pop("interval_share") is None else interval_shares().to_json()
        )
    return content


def from_original_script(content: dict[str, Any]) -> dict[str, Any]:
    """Version 0 to 1. What version 0 did not record is null; precision, runs and raw samples are unknown."""
    file = Fields(content)
    config, architecture = file.block("config"), file.block("architecture")
    macs = architecture.integer("flops")
    parameters, size_mb = architecture.integer("total_parameters"), architecture.amount("model_size_mb")
    single = file.block("single_image")
    batches = file.block("batch_profiling")
    return {
        "schema_version": 1,
        "status": "partial",
        "status_reason": IMPORTED_REASON,
        "config": {
            "model": config.text("model"),
            "image_size": content["config"].get("image_size"),
            "device": config.text("device"),
            "config_file": config.text("config_file"),
            "precision": None,
            "resolved": {},
        },
        "environment": {},
        "architecture": {
            "source": "measured",
            "input_shape": None if single is None else _list(single.shape("input_shape")),
            "num_runs": 1,
            "total_parameters": parameters,
            "trainable_parameters": architecture.integer("trainable_parameters"),
            "parameter_bytes": None if size_mb is None else round(size_mb * MIB),
            "model_size_mb": size_mb,
            "macs": macs,
            "gmacs": None if macs is None else macs / GIGA,
            "macs_convention": FVCORE,
            "flops": None,
            "gflops": None,
            "counters": [],
        },
        "single_image": None if single is None else _original_block(single, 1),
        "batch_profiling": {
            size: _original_block(batches.block(size), int(size)) for size in _sizes_of(batches)
        },
        "perceptual_metric": None,
        "memory_model": None,
        "recommendation": None,
        "warnings": [],
    }


def original_profile(content: dict[str, Any]) -> Profile:
    """The migrated content of the original script, typed."""
    architecture = {key: value for key, value in content["architecture"].items() if key != "macs_convention"}
    single = content["single_image"]
    return Profile.model_construct(
        **{
            **content,
            "config": RunConfig.imported(**content["config"]),
            "environment": NoEnvironment(),
            "architecture": Architecture.imported(**architecture),
            "single_image": None if single is None else _typed(single),
            "batch_profiling": {size: _typed(block) for size, block in content["batch_profiling"].items()},
        }
    )


def _typed(block: dict[str, Any]) -> Batch:
    if "error" in block:
        return FailedBatch.imported(**block)
    memory = block["memory"]
    return MeasuredBatch.imported(
        **{
            **block,
            "timing": Timing.imported(**block["timing"]),
            "memory": None if memory is None else Memory.imported(**memory),
        }
    )


def _sizes_of(batches: Fields | None) -> list[str]:
    if batches is None:
        return []
    for size in batches.keys():  # noqa: SIM118 (Fields is no mapping)
        if not (size.isascii() and size.isdigit() and 0 < len(size) < 10 and int(size) > 0):
            raise ProfileShapeError(f"batch_profiling: {size[:40]!r} is no batch size")
    return [size for size in batches.keys() if size in batches]  # noqa: SIM118


def _original_block(block: Fields, batch_size: int) -> dict[str, Any]:
    shape = _list(block.shape("input_shape"))
    error = block.text("error")
    if error is not None:
        known = ("OOM", "killed", "crashed", "exception", "skipped", "unsupported")
        return {
            "error": error if error in known else "exception",
            "detail": block.text("detail") or error,
            "batch_size": batch_size,
            "input_shape": shape,
        }
    timing, memory = block.block("timing"), block.block("memory")
    if timing is None:
        raise ProfileShapeError(f"{block.path}: neither timing nor error")
    mean_ms = timing.amount("mean_ms")
    converted = {
        "source": "measured",
        "batch_size": batch_size,
        "input_shape": shape,
        "num_runs": None,
        "timing": {
            "source": "measured",
            **{name: timing.amount(name) for name in TIMINGS},
            # Not its `fps`, which some of these scripts compute per batch and some per image.
            "images_per_second": batch_size * 1000 / mean_ms if mean_ms else None,
            "notes": [],
            "samples_ms": None,
        },
        "memory": None,
    }
    if memory is not None:
        names = ("before", "after", "peak", "activation")
        found = {name: memory.number(f"{name}_mb") for name in names}
        converted["memory"] = {
            "source": "measured",
            "kind": "as the original script measured it",
            **{f"{name}_mb": value for name, value in found.items()},
            **{
                f"{name}_bytes": None if value is None else round(value * MIB)
                for name, value in found.items()
            },
        }
    return converted


def _list(values: tuple[int, ...] | None) -> list[int] | None:
    return None if values is None else list(values)


STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    ORIGINAL_SCRIPT: from_original_script,
    1: counted_and_named,
}
