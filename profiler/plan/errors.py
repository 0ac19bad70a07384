"""The one error of this room that commands turn into a line."""

from __future__ import annotations


class PlanError(ValueError):
    """A plan that cannot be read, or is of another config, or a budget that nothing meets; one line."""
