"""The typed profile: the schema comes out of it, and it refuses what no run writes."""

import json
import re

import pydantic
import pytest
from pydantic import ValidationError

from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.written_profile import first_fault, json_schema
from tests.conftest import REPOSITORY
from tests.made_profiles import partial, profile, with_training


def typed(content):
    """The content as a profile, or its first fault."""
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


@pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 10),
    reason="pydantic before 2.10 writes the same schema in other words (enum beside const, no propertyNames)",
)
def test_the_schema_in_the_repository_is_the_generated_one():
    kept = json.loads((REPOSITORY / "profiler/record/profile.schema.json").read_text())
    assert kept == json_schema(), "run python -m swinmr_profiling.profiler.record.written_profile"


@pytest.mark.parametrize("content", [profile(), profile(device="cuda:0"), with_training(), partial()])
def test_what_is_read_is_written_back_unchanged(content):
    read = typed(content)
    assert read.to_json() == content


def changed(content, path, value):
    *parents, last = path.split(".")
    block = content
    for key in parents:
        block = block[int(key) if isinstance(block, list) else key]
    if value is KeyError:
        del block[last]
    else:
        block[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema_version", 3, "schema_version"),
        ("architecture.macs", -1, "architecture.macs"),
        ("architecture.macs", 1.5, "architecture.macs"),
        ("architecture.source", "measured", "architecture.source"),
        ("architecture.guess", 1, "architecture.guess"),
        ("architecture.total_parameters", KeyError, "architecture.total_parameters"),
        ("batch_profiling.1.timing.mean_ms", float("nan"), "batch_profiling.1.timing.mean_ms"),
        ("batch_profiling.1.timing.std_ms", None, "std_ms is null with fewer than 2 runs"),
        ("batch_profiling.1.memory.peak_bytes", "5", "batch_profiling.1.memory.peak_bytes"),
        ("batch_profiling.0", {}, "batch_profiling.0"),
        ("status", "partial", "status_reason says why"),
        ("memory_model.settings", [], "memory_model.settings"),
        ("warnings", [{"code": "c", "message": "m", "batch_size": "4"}], "warnings.0.batch_size"),
        ("warnings", [{"code": "c", "message": "m", "line": 4}], "warnings.0.line"),
        ("recommendation.training.0.verified", True, "verified"),
        ("recommendation.training.0.failure", "nothing_fits", "failure"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(path, value, words):
    content = changed(with_training(), path, value)
    with pytest.raises(ValueError, match=words.replace(".", r"\.")) as caught:
        typed(content)
    assert "\n" not in str(caught.value)


def test_a_complete_profile_was_measured_or_predicted():
    content = with_training()
    content["single_image"] = content["memory_model"] = None
    with pytest.raises(ValueError, match="measured or predicted"):
        typed(content)


@pytest.mark.parametrize(("length", "said"), [(107, "k" * 107), (108, "k" * 104 + "...")])
def test_the_place_of_a_fault_is_120_characters_at_most(length, said):
    """A key of a damaged file may be of any length; `architecture.` is 13 of them."""
    content = profile()
    content["architecture"]["k" * length] = 1
    with pytest.raises(ValueError, match=rf"^architecture\.{re.escape(said)}: "):
        typed(content)
