"""Figures in words, the same in every report."""

from __future__ import annotations

from collections.abc import Sequence

from swinmr_profiling.profiler.record.blocks.memory_model import MemorySetting
from swinmr_profiling.profiler.record.blocks.recommended import Lever, TrainingRecommendation
from swinmr_profiling.profiler.record.units import GIB, MIB, figure

AnySetting = MemorySetting | TrainingRecommendation | Lever
UNKNOWN = "not known"
UNITS = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1))


def unit_of(count: float) -> tuple[str, float]:
    """The letter and size of the unit in which a count shows: giga, but for small networks."""
    if not count:
        return UNITS[0]
    return next(((letter, size) for letter, size in UNITS if abs(count) >= size / 100), UNITS[-1])


def in_unit(count: float, what: str) -> str:
    """ "GMACs: 101.00", "MMACs: 4.26"."""
    letter, size = unit_of(count)
    return f"{letter}{what}: {count / size:,.2f}" if letter else f"{what}: {count:,}"


def count(value: float | int | None) -> str:
    """ "1,337,761"."""
    return UNKNOWN if value is None else f"{value:,}"


def giga(value: float | int | None) -> str:
    """Giga, three digits at least: "101.00 G", "0.00426 G"."""
    return UNKNOWN if value is None else f"{figure(value / 1e9)} G"


def mebibytes(value: float | int | None) -> str:
    if value is None:
        return UNKNOWN
    amount = value / MIB
    return f"{amount:,.1f} MiB" if amount >= 1 or amount == 0 else f"{figure(amount)} MiB"


def gibibytes(value: float | int | None) -> str:
    return UNKNOWN if value is None else f"{figure(value / GIB)} GiB"


def milliseconds(value: float | int | None) -> str:
    """Four digits at least: "2,319.71 ms", "0.0123 ms"."""
    return UNKNOWN if value is None else f"{figure(value)} ms"


def per_second(value: float | int | None) -> str:
    return UNKNOWN if value is None else f"{figure(value)} images/s"


def percent(share: float | None, digits: int = 1) -> str:
    return UNKNOWN if share is None else f"{share * 100:,.{digits}f} %"


def ratio(value: float | None) -> str:
    """ "0.52 x"; further digits near nothing."""
    if value is None:
        return "-"
    return f"{value:,.3f} x" if value >= 0.1 or value == 0 else f"{value:.3g} x"


def shape(values: Sequence[int] | None) -> str:
    """ "1 x 1 x 256 x 256"."""
    return UNKNOWN if values is None else " x ".join(map(str, values))


def setting_text(setting: AnySetting) -> str:
    """ "fp32, checkpointing none, patch 96 x 96"."""
    return f"{setting.precision}, checkpointing {setting.checkpointing}, {patch_text(setting)}"


def patch_text(setting: AnySetting) -> str:
    """ "patch 96 x 96" or "whole image"."""
    return "whole image" if setting.patch_size is None else f"patch {shape(setting.patch_size)}"


def shortened(text: str, limit: int) -> str:
    """The end of a text tells files apart, so the middle goes."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"
