"""Where tiles lie, by hand; and for every length that each pixel is taken once, from a tile that no edge touches."""

import pytest

from swinmr_profiling.training.tiling.tile_grid import (
    Reach,
    Span,
    TileError,
    TilePlan,
    halves,
    smooth_overlap,
    spans,
)


def test_tiles_of_a_length_by_hand():
    # 16 of 40 pixels, windows of 4, 3 pixels touched at a tile's beginning and 2 at its end: 16 - 5 = 11, so a tile
    # begins every 8 pixels, and the last at 40 - 16 = 24. Borders in the middle of what two tiles share: (8 + 16) / 2.
    assert spans(40, 16, 4, Reach(3, 2)) == [
        Span(0, 16, 0, 12),
        Span(8, 24, 12, 20),
        Span(16, 32, 20, 28),
        Span(24, 40, 28, 40),
    ]


def test_the_last_tile_of_an_odd_length_begins_at_a_window_and_ends_with_the_image():
    # 41 - 16 = 25, whose next multiple of 4 is 28: tiles at 0, 8, 16, 24 and 28, the last of 13 pixels.
    found = spans(41, 16, 4, Reach(3, 2))
    assert [span.start for span in found] == [0, 8, 16, 24, 28]
    assert found[-1].end == 41


def test_an_image_that_is_no_larger_is_one_tile():
    assert spans(13, 16, 4, Reach(3, 2)) == [Span(0, 13, 0, 13)]
    assert spans(16, 16, 4, Reach(3, 2)) == [Span(0, 16, 0, 16)]


@pytest.mark.parametrize(
    ("tile", "multiple", "reach"),
    [
        (16, 4, Reach(3, 2)),
        (24, 8, Reach(4, 4)),
        (21, 7, Reach(0, 9)),
        (8, 1, Reach(3, 4)),
        (9, 1, Reach(4, 4)),
    ],
)
def test_every_pixel_is_taken_once_from_where_no_edge_touches(tile, multiple, reach):
    for length in range(1, 130):
        found = spans(length, tile, multiple, reach)
        taken = [pixel for span in found for pixel in range(span.kept_start, span.kept_end)]
        assert taken == list(range(length))
        for span in found:
            assert span.start % multiple == 0
            assert 0 <= span.start < span.end <= length
            assert span.end - span.start <= tile
            assert span.start == 0 or span.kept_start >= span.start + reach.before
            assert span.end == length or span.kept_end <= span.end - reach.after


def test_overlaps_that_leave_nothing_are_refused_with_the_tile_that_would_do():
    # 3 + 2 pixels are two windows of 4 and one that is left: 12.
    with pytest.raises(TileError, match="at least 12 pixels"):
        spans(100, 8, 4, Reach(3, 2))
    with pytest.raises(TileError, match="at least 12 pixels"):
        TilePlan((8, 16), 4, Reach(3, 2), Reach(3, 2), "crop").check()
    assert spans(13, 12, 4, Reach(3, 2))


def test_the_overlap_of_averaged_tiles():
    # An eighth of 256 is 32, four windows; of 64 it is 8, one window; 16 pixels leave one of two.
    assert smooth_overlap(256, 8) == 32
    assert smooth_overlap(64, 8) == 8
    assert smooth_overlap(100, 1) == 12
    assert smooth_overlap(16, 8) == 8
    assert smooth_overlap(8, 8) == 0
    assert halves(9) == Reach(4, 5)
