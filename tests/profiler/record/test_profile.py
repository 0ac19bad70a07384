"""The record of a run as it grows: what each step puts in, and what stays beside it."""

import pytest

from swinmr_profiling.profiler.record.blocks.batch import FailedBatch, MeasuredBatch
from swinmr_profiling.profiler.record.blocks.recommended import InferenceRecommendation
from swinmr_profiling.profiler.record.blocks.run_description import RunConfig
from swinmr_profiling.profiler.record.blocks.training import TrainingRun
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.warnings import ProfileWarning
from tests.made_profiles import failed, predicted_training, profile, ran


@pytest.fixture
def begun():
    return Profile.begun(RunConfig.model_validate(profile()["config"]))


def test_a_run_that_has_begun_is_a_whole_partial_profile(begun, profile_schema):
    content = begun.to_json()
    assert [error.message for error in profile_schema.iter_errors(content)] == []
    assert (content["status"], content["status_reason"]) == ("partial", "the run has not ended")
    assert list(content) == list(profile())
    assert Profile.model_validate(content) == begun


def test_batch_sizes_stand_in_the_order_of_numbers(begun):
    for size in (16, 2, 1):
        begun.batch_profiling[str(size)] = FailedBatch.model_validate(failed(size))
    assert list(begun.to_json()["batch_profiling"]) == ["1", "2", "16"]


def test_the_training_of_batch_1_is_not_the_single_images(begun):
    begun.single_image = begun.batch_profiling["1"] = MeasuredBatch.model_validate(ran(1, [5.0]))
    training = TrainingRun.model_validate(predicted_training(1, 1100))
    begun.set_training(1, training)
    content = begun.to_json()
    assert content["batch_profiling"]["1"]["training"] == training.to_json()
    # A key that nobody set is absent, not null.
    assert "training" not in content["single_image"]
    assert "expected" not in content["batch_profiling"]["1"]


def test_a_new_part_of_the_recommendation_leaves_the_others(begun):
    best = InferenceRecommendation.model_validate(profile()["recommendation"]["inference"])
    begun.recommend(inference=best)
    assert begun.to_json()["recommendation"] == {"inference": best.to_json(), "training": []}
    begun.recommend(training=[])
    assert begun.recommendation.inference == best
    assert "search" not in begun.to_json()["recommendation"]


def test_a_warning_is_recorded_once(begun):
    assert begun.warn(ProfileWarning("code", "words", 4)) is True
    assert begun.warn(ProfileWarning("code", "words", 4)) is False
    assert begun.warn(ProfileWarning("code", "words")) is True
    assert begun.to_json()["warnings"] == [
        {"code": "code", "message": "words", "batch_size": 4},
        {"code": "code", "message": "words", "batch_size": None},
    ]
