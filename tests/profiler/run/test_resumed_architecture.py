"""A resumed run keeps the counts of the earlier one, and asks only for what that one did not come to."""

import copy
import io
from types import SimpleNamespace

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.isolation.measuring_session import MeasureOptions
from swinmr_profiling.profiler.record.blocks.architecture import CrossCheck, TrainingMacs
from swinmr_profiling.profiler.record.files.result_file import ResultFile
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.run.context import RunContext, RunOptions
from swinmr_profiling.profiler.run.steps.architecture_steps import analyse_architecture, ask_other_counters
from tests.conftest import TINY_SWINIR
from tests.profiler.run.test_resume import counter, earlier_profile, same_run, take_over

CHECK = CrossCheck.model_validate(counter())
TRAINING = TrainingMacs(
    source="counted", input_shape=[1, 1, 8, 8], num_runs=0, error="not asked in this test"
)


class Session:
    """The measuring process: says what it was asked; a network is never counted a second time."""

    def __init__(self, architecture):
        self.asked, self.architecture = [], architecture

    def build(self, *, runs):
        assert runs  # for the latency
        plain = copy.deepcopy(self.architecture)
        plain.macs = plain.by_operator = None
        return SimpleNamespace(architecture=plain, training_input_shape=[1, 8, 8], notes=())

    def count(self):
        raise AssertionError("counted again")

    def count_training(self):
        self.asked.append("training")
        return TRAINING

    def cross_check(self, size, counters, keep):
        self.asked.append(size)
        return [CHECK]


def resumed(earlier, **options):
    """(What the process was asked, contents that were saved, the architecture) of a resumed run's first steps."""
    profile = same_run(earlier, device="cpu")
    profile.config.resolved = config_from_dict({"model": TINY_SWINIR}).model_dump(mode="json")
    earlier.config.resolved = profile.config.resolved
    take_over(profile, earlier)
    session, saved = Session(earlier.architecture), []
    result = ResultFile("-")
    result.save = lambda content: saved.append(copy.deepcopy(content)) or True
    context = RunContext(
        RunOptions(MeasureOptions(), **options), session, profile, Console(io.StringIO()), result
    )
    analyse_architecture(context)
    ask_other_counters(context)
    return session.asked, saved, profile.architecture


@pytest.mark.parametrize("cross_check", ["off", "small"])
def test_a_count_that_no_other_counter_was_asked_about_is_never_without_its_figure(cross_check):
    """As after --cross-check off, or a run that ended before the other counters: a kill at any save loses nothing."""
    earlier = earlier_profile()
    earlier.architecture.counters = []
    earlier.architecture.training_macs = TRAINING
    macs = earlier.architecture.macs
    asked, saved, architecture = resumed(earlier, cross_check=cross_check)
    assert asked == ([] if cross_check == "off" else ["small"])
    assert macs is not None
    assert {content["architecture"]["macs"] for content in saved} == {macs}
    assert architecture.counters == ([] if cross_check == "off" else [CHECK])


def test_a_training_step_that_was_not_counted_yet_is_counted():
    earlier = earlier_profile()
    earlier.architecture.training_macs = None
    asked, _, architecture = resumed(earlier)
    assert (asked, architecture.training_macs) == (["training"], TRAINING)
    assert architecture.counters == earlier.architecture.counters


def test_what_is_whole_is_asked_nothing():
    earlier = earlier_profile()
    earlier.architecture.training_macs = TRAINING
    assert resumed(earlier)[0] == []
