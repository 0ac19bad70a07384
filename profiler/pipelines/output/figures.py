"""Numbers as text, in the units that users of such reports read: GMACs and TFLOPs, not both in one."""

from __future__ import annotations

from swinmr_profiling.profiler.record.units import figure

SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))


def scaled(value: float, unit: str) -> str:
    """1234567890, "MACs" -> "1.23 GMACs"."""
    for size, prefix in SCALES:
        if abs(value) >= size:
            return f"{figure(value / size)} {prefix}{unit}"
    return f"{value:.0f} {unit}"


def macs_text(macs: float) -> str:
    """Multiply-adds as "804.26 GMACs"."""
    return scaled(macs, "MACs")


def flops_text(flops: int) -> str:
    """Floating-point operations, 2 x MACs, as "1.61 TFLOPs"."""
    return scaled(flops, "FLOPs")


def parameters_text(count: int) -> str:
    """865910724 -> "865.91M"."""
    for size, prefix in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= size:
            return f"{figure(count / size)}{prefix}"
    return str(count)


def seconds_text(seconds: float | None) -> str | None:
    """12.34 -> "12.34s"."""
    return None if seconds is None else f"{figure(seconds)}s"


def gib(size: int) -> float:
    """Bytes in GiB (2^30)."""
    return size / 2**30
