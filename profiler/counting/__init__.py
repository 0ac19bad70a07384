"""Exact MACs of a model, where they sit, and what other counters make of the same model."""

from .count import count_forward
from .cross_check import CrossCheck, cross_check, second_opinion
from .explain import cross_check_module
from .operator_table import KINDS, register_formula
from .report import CountReport, TrainingCountReport
from .training import count_training_step, forward_backward

__all__ = [
    "KINDS",
    "CountReport",
    "CrossCheck",
    "TrainingCountReport",
    "count_forward",
    "count_training_step",
    "cross_check",
    "cross_check_module",
    "forward_backward",
    "register_formula",
    "second_opinion",
]
