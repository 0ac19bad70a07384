"""The one error of this room that commands turn into a line."""

from __future__ import annotations

from swinmr_profiling.input_error import InputError


class PlanError(InputError):
    """A plan that cannot be read, or is of another config, or a budget that nothing meets; one line."""
