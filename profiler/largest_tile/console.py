"""The largest sizes on the terminal; computes nothing."""

from __future__ import annotations

from swinmr_profiling.profiler.largest_tile.record import FittedSetting, ImageTiles, InferenceFit, SizeFigures
from swinmr_profiling.profiler.record.units import GIB
from swinmr_profiling.profiler.reports.console.terminal import Console


def print_fit(console: Console, fit: InferenceFit) -> None:
    """The table of settings, and the tiles of the image that was asked for."""
    budget = fit.budget
    console.title(f"Largest image for inference: batch {fit.batch_size} on {budget.name}")
    console.line(
        f"{budget.usable_bytes / GIB:,.2f} GiB of {budget.total_bytes / GIB:,.2f} usable "
        f"({budget.headroom_share:.0%} stays free); memory with workspaces and context"
    )
    console.line(f"sides are multiples of {fit.period} pixels (the network's windows and downsampling)")
    console.line()
    console.table(
        ["precision", "layout", "largest", "GiB", "low", "high", "next", "GiB"],
        [_row(setting) for setting in fit.settings],
        names=2,
    )
    for setting in fit.settings:
        name = f"{setting.precision}, {setting.layout}"
        if setting.refused is not None:
            console.line(f"{name}: the network refuses the next size: {setting.refused}")
        elif setting.largest is not None and setting.next_larger is None:
            console.line(f"{name}: nothing larger was looked at")
        if not setting.monotone:
            console.line(f"{name}: memory falls where the image grows; sizes beyond were looked at, too")
    if fit.image_size is not None:
        _print_image(console, fit)
    for note in fit.notes:
        console.line(f"note: {note}")


def _row(setting: FittedSetting) -> list[str]:
    largest, beyond = setting.largest, setting.next_larger
    found = ["-", "", "", ""]
    if largest is not None:
        low, high = largest.needed_interval_bytes
        found = [_size(largest), *(f"{value / GIB:,.2f}" for value in (largest.needed_bytes, low, high))]
    further = ["-", ""] if beyond is None else [_size(beyond), f"{beyond.needed_bytes / GIB:,.2f}"]
    return [setting.precision, setting.layout, *found, *further]


def _size(figures: SizeFigures) -> str:
    return "x".join(map(str, figures.size))


def _print_image(console: Console, fit: InferenceFit) -> None:
    assert fit.image_size is not None
    height, width = fit.image_size
    console.heading(f"An image of {height} x {width}:")
    rows = [[setting.precision, setting.layout, *_tiles(setting.image)] for setting in fit.settings]
    console.table(["precision", "layout", "tile", "tiles", "overlap", "joined"], rows, names=2)
    for reason in dict.fromkeys(map(_reason, fit.settings)):
        console.line(reason)


def _tiles(image: ImageTiles | None) -> list[str]:
    if image is None:
        return ["-", "", "", ""]
    if image.whole:
        return ["whole", "1", "", ""]
    down, across = image.grid
    joined = {"crop": "exactly", "smooth": "averaged", None: ""}[image.blend]
    return ["x".join(map(str, image.tile)), f"{down} x {across}", " x ".join(map(str, image.overlap)), joined]


def _reason(setting: FittedSetting) -> str:
    image = setting.image
    if image is None:
        return f"no tiles: {setting.no_tiles}"
    if image.whole:
        return image.reason
    return f"{'tiling changes the result' if image.changes_result else 'equal to the whole image'}: {image.reason}"
