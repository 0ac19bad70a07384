"""Exact MACs of a model, where they sit, and what other counters make of the same model."""

from .count import count_forward
from .operator_table import KINDS, register_formula
from .report import CountReport

__all__ = ["KINDS", "CountReport", "count_forward", "register_formula"]
