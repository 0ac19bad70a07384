"""`--fail-if-slower`: which profiles are slower than the first by more than a share. Pure."""

from __future__ import annotations

from swinmr_profiling.profiler.comparing.comparison import LATENCY, Comparison, Row
from swinmr_profiling.profiler.comparing.latency_difference import Verdict


def slower_than(comparison: Comparison, share: float) -> list[str]:
    """A line for every latency that fails the gate, none where all pass.

    A latency fails when it is more than `share` above the first's and the difference is significant, or cannot be told
    from noise because the runs are too few: what is not known to be noise does not pass. So does a batch size that ran
    in the first profile and failed in the other, and a profile that cannot be compared with the first at any size.
    """
    rows = [row for row in comparison.rows if row.kind == LATENCY]
    found = []
    for number in range(1, len(comparison.views)):
        lines = [line for row in rows if (line := _failure(row, number, share)) is not None]
        if not lines and not any(row.cells[number].ratio is not None for row in rows):
            lines = [_why_not_compared(rows, number)]
        found += [f"#{number + 1} {comparison.views[number].file}: {line}" for line in lines]
    return found


def _failure(row: Row, number: int, share: float) -> str | None:
    first, other = row.cells[0], row.cells[number]
    if first.value is not None and other.value is None and other.text != "not measured":
        return f"batch {row.batch_size}: {other.text}, and it ran in the first"
    difference = other.difference
    if difference is None or difference.ratio is None or difference.ratio <= 1 + share:
        return None
    if difference.verdict is not Verdict.SLOWER and not difference.verdict.undecided:
        return None
    return f"batch {row.batch_size}: {difference.ratio - 1:.1%} slower ({difference.verdict.value})"


def _why_not_compared(rows: list[Row], number: int) -> str:
    reasons = dict.fromkeys(reason for row in rows for reason in row.cells[number].against)
    return f"cannot be compared: {'; '.join(reasons) or 'no batch size ran in both'}"
