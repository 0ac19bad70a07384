"""The chart of pipelines: its legend lies beside the bars, whatever their length."""

from types import SimpleNamespace as Stand

import pytest

from swinmr_profiling.profiler.pipelines.output.chart import ROLE_COLOURS, drawn_chart


def cost(name, macs):
    return Stand(
        macs_of=lambda role: macs.get(role),
        size="512x512",
        definition=Stand(name=name),
        denoiser=Stand(calls=31),
    )


@pytest.mark.parametrize("count", [1, 12])
def test_the_legend_is_below_the_axes(count):
    # All as long as each other: inside the axes there is no free corner.
    macs = dict.fromkeys(ROLE_COLOURS, 10**12)
    figure = drawn_chart([cost(f"pipeline {number}", macs) for number in range(count)])
    figure.canvas.draw()
    [legend], [axes] = figure.legends, figure.axes
    renderer = figure.canvas.get_renderer()
    box = legend.get_window_extent(renderer)
    assert not box.overlaps(axes.get_tightbbox(renderer))
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [role.replace("_", " ") for role in ROLE_COLOURS]  # each once
