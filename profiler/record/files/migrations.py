"""Profiles of earlier schema versions, brought to the present one: one function per step.

What the script before the first of them wrote is of another kind (original_script.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from swinmr_profiling.profiler.record.blocks.figures import LARGEST_FIGURE
from swinmr_profiling.profiler.record.files.original_script import ORIGINAL_SCRIPT
from swinmr_profiling.profiler.record.limits import LEAST_RUNS
from swinmr_profiling.profiler.record.prediction_intervals import interval_bytes, interval_shares
from swinmr_profiling.profiler.record.profile import SCHEMA_VERSION

# Of a file: JSON that nobody has held against a model yet.
Content = dict[str, Any]
Step = Callable[[Content], Content]


class ProfileShapeError(ValueError):
    """A file's content that is not a profile of a known version."""


def version_of(content: Content) -> int:
    """The schema version of a file's content. Raises ProfileShapeError for what is not a profile."""
    version = content.get("schema_version")
    if version is None:
        if not isinstance(content.get("config"), dict) or "total_parameters" not in _block(
            content, "architecture"
        ):
            raise ProfileShapeError(
                "is not a profile (neither schema_version nor architecture.total_parameters): "
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


def _block(holder: Any, key: str) -> Content:
    """The JSON object that an object holds there; an empty one where there is none."""
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def migrate(
    content: Content, version: int, steps: Mapping[int, Step] | None = None, newest: int = SCHEMA_VERSION
) -> Content:
    """The content in the newest schema version. Raises ProfileShapeError.

    steps: by the version they start from; each leads to the next.
    """
    for step in range(version, newest):
        content = (STEPS if steps is None else steps)[step](content)
    return content


def counted_and_named(content: Content) -> Content:
    """Version 1 to 2: what is counted is called so, intervals are named, few runs have no spread.

    What version 1 did not keep is null. Changes the content in place.
    """
    content["schema_version"] = 2
    architecture = _block(content, "architecture")
    if architecture.get("source") == "measured":
        architecture["source"] = "counted"
    settings = _block(content, "memory_model").get("settings")
    for setting in settings if isinstance(settings, list) else ():
        if isinstance(setting, dict):
            setting.setdefault("allocations", None)
    _block(_block(content, "recommendation"), "search").setdefault("held_by_others_bytes", None)
    forget_what_few_runs_do_not_tell(content)
    return with_named_intervals(content)


def forget_what_few_runs_do_not_tell(content: Content) -> None:
    """Sets to null the percentiles and spreads of too few runs, which earlier programs wrote (iqr_ms 0.0 for one)."""
    sizes = _block(content, "batch_profiling").values()
    for block in (*sizes, content.get("single_image"), content.get("perceptual_metric")):
        timing = _block(block, "timing")
        runs = timing.get("num_runs")
        if isinstance(runs, int):
            timing.update(
                {name: None for name, least in LEAST_RUNS.items() if runs < least and name in timing}
            )


def with_named_intervals(content: Content) -> Content:
    """Profiles whose one interval began below what is live and ended above what is reserved.

    Each of the two figures gets the interval that this version gives it. Changes the content in place.
    """
    for block in _block(content, "batch_profiling").values():
        training = _block(block, "training")
        if "interval_bytes" in training:
            spans = training.pop("interval_bytes") is not None
            figures = {"live": training.get("live_bytes"), "reserved": training.get("peak_reserved_bytes")}
            for quantity, figure in figures.items():
                interval = None
                if spans and type(figure) is int and 0 <= figure < LARGEST_FIGURE:
                    interval = interval_bytes(quantity, figure)
                training[f"{quantity}_interval_bytes"] = interval
    model = _block(content, "memory_model")
    if "interval_share" in model:
        model["interval_shares"] = (
            None if model.pop("interval_share") is None else interval_shares().to_json()
        )
    return content


STEPS: dict[int, Step] = {
    1: counted_and_named,
}
