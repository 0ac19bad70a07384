"""Exact MACs of a model, where they sit, and what other counters make of the same model."""

from swinmr_profiling.profiler.counting.count import count_forward, count_training_step, forward_backward
from swinmr_profiling.profiler.counting.operators.operator_table import KINDS, register_formula
from swinmr_profiling.profiler.counting.other_counters.cross_check import cross_check, second_opinion
from swinmr_profiling.profiler.counting.other_counters.explain import cross_check_module
from swinmr_profiling.profiler.counting.report import CountReport, TrainingCountReport
from swinmr_profiling.profiler.record.blocks.architecture import CrossCheck

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
