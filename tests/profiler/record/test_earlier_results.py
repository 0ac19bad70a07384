"""What a run may write over: nothing new never replaces something."""

import json
from functools import partial

import pytest

from swinmr_profiling.profiler.record.files.earlier_results import (
    EarlierResults,
    gpu_check_results,
    pipeline_results,
    profile_results,
)
from swinmr_profiling.profiler.record.files.result_file import ResultFile
from tests.made_profiles import ORIGINAL, SAMPLES_1, SAMPLES_2, failed, memory_model, profile, ran

AGAIN = [sample + 1 for sample in SAMPLES_1]


def run_of(batches, **changes):
    """A run's profile so far; its single image is batch 1, where that has been tried."""
    return profile(batches, **{"single_image": batches.get(1), "recommendation": None, **changes})


ONE, TWO = {1: ran(1, SAMPLES_1)}, {2: ran(2, SAMPLES_2)}
NOTHING = run_of({}, architecture=None)
COUNTED = run_of({})
PREDICTED = run_of({}, memory_model=memory_model())
LPIPS = run_of({}, perceptual_metric={"macs": 1})
KILLED = run_of({1: failed(1, "killed"), 2: failed(2, "skipped")})
TOO_LARGE = run_of({1: failed(1, "OOM")})
TRAINED = run_of({1: {**failed(1, "killed"), "training": {"source": "measured", "peak_bytes": 1}}})
UNTRAINED = run_of({1: {**failed(1, "killed"), "training": {"source": "measured", "error": "killed"}}})
# (what is on disk, what the run has, whether it is written)
CASES = {
    "nothing over a measurement": (run_of(ONE), NOTHING, False),
    "counts over a measurement": (run_of(ONE), COUNTED, False),
    "failures over a measurement": (run_of(ONE), KILLED, False),
    "failed training over a measurement": (run_of(ONE), UNTRAINED, False),
    "nothing over a prediction": (PREDICTED, NOTHING, False),
    "nothing over LPIPS": (LPIPS, NOTHING, False),
    "nothing over out of memory": (TOO_LARGE, NOTHING, False),
    "nothing over trained steps": (TRAINED, NOTHING, False),
    "nothing over the original script's": (ORIGINAL, NOTHING, False),
    "the same over more": (run_of({**ONE, **TWO}), run_of(ONE), False),
    "a measurement over one": (run_of(ONE), run_of({1: ran(1, AGAIN)}), True),
    "another size over one": (run_of(ONE), run_of(TWO), True),
    "more over less": (run_of(ONE), run_of({**ONE, **TWO}), True),
    "out of memory over a measurement": (run_of(ONE), TOO_LARGE, True),
    "a prediction over a measurement": (run_of(ONE), PREDICTED, True),
    "LPIPS over a measurement": (run_of(ONE), LPIPS, True),
    "trained steps over a measurement": (run_of(ONE), TRAINED, True),
    "nothing over nothing": (NOTHING, NOTHING, True),
    "counts over nothing": (NOTHING, COUNTED, True),
    "failures over failures": (KILLED, KILLED, True),
    "nothing over counts": (COUNTED, NOTHING, True),
}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "p.json"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("finished", [False, True])
def test_something_is_replaced_by_something_new_alone(file, case, finished):
    earlier, content, written = CASES[case]
    file.write_text(json.dumps(earlier))
    result = ResultFile(str(file), profile_results)
    result.prepare()
    if finished:
        assert result.finish(content) is None
        assert result.kept_earlier is not written
    else:
        assert result.save(content)
    assert json.loads(file.read_text()) == (content if written else earlier)


@pytest.mark.parametrize(
    "text", ["some notes", "[1, 2]", "{}", "{", "\xff", '{"batch_profiling": [1]}', "[" * 10**5]
)
def test_whatever_else_is_in_the_file_counts_as_something(file, text):
    file.write_bytes(text.encode("latin-1"))
    result = ResultFile(str(file), profile_results)
    result.prepare()
    assert result.save(COUNTED)
    assert file.read_bytes() == text.encode("latin-1")
    assert result.save(run_of(ONE))
    assert json.loads(file.read_text()) == run_of(ONE)


@pytest.mark.parametrize("there", [False, True])
def test_no_file_and_an_empty_one_are_nothing(file, there):
    if there:
        file.touch()
    result = ResultFile(str(file), profile_results)
    result.prepare()
    assert result.save(NOTHING)
    assert json.loads(file.read_text()) == NOTHING


def test_once_written_the_file_is_the_runs_own(file):
    """A size that is measured anew, after a crash, has no figures in between."""
    file.write_text(json.dumps(run_of(ONE)))
    result = ResultFile(str(file), profile_results)
    result.prepare()
    result.save(run_of(TWO))
    result.save(COUNTED)
    assert json.loads(file.read_text()) == COUNTED


def test_a_disk_that_refuses_has_replaced_nothing(file, monkeypatch):
    file.write_text(json.dumps(run_of(ONE)))
    result = ResultFile(str(file), profile_results)
    result.prepare()
    with monkeypatch.context() as patch:
        patch.setattr(
            "swinmr_profiling.profiler.record.files.result_file.write_text",
            lambda *_: (_ for _ in ()).throw(OSError(28, "full")),
        )
        assert result.save(run_of(TWO)) is False
    assert result.save(COUNTED)
    assert json.loads(file.read_text()) == run_of(ONE)


def test_a_run_that_is_complete_replaces_what_was_there(file):
    """Predicted once more: to the same bytes, and of today."""
    file.write_text(json.dumps(PREDICTED))
    result = ResultFile(str(file), profile_results)
    result.prepare()
    later = {**PREDICTED, "environment": {"time_utc": "later"}}
    assert result.save(later)
    assert json.loads(file.read_text()) == PREDICTED
    assert result.finish(later, replace=True) is None
    assert not result.kept_earlier
    assert json.loads(file.read_text()) == later


def test_standard_output_holds_nothing(capsys):
    result = ResultFile("-", profile_results)
    result.prepare()
    assert result.finish(NOTHING) is None
    assert json.loads(capsys.readouterr().out) == NOTHING


@pytest.mark.parametrize(
    ("batches", "written"),
    [
        (ONE, False),
        ({**ONE, 4: failed(4, "killed")}, False),
        ({**ONE, 4: failed(4, "crashed")}, True),
        ({**ONE, 8: failed(8, "killed")}, True),
    ],
)
def test_a_resumed_run_adds_its_failures(file, batches, written):
    """All of the earlier run is in it, so that writing loses nothing; the very same failure says nothing new."""
    earlier = run_of({**ONE, 4: failed(4, "killed")})
    file.write_text(json.dumps(earlier))
    result = ResultFile(str(file), partial(profile_results, failures=True))
    result.prepare()
    assert result.save(run_of(batches))
    assert json.loads(file.read_text()) == (run_of(batches) if written else earlier)


def test_a_gpu_check_is_its_measured_combinations():
    rows = [
        {"name": "a", "status": "measured"},
        {"name": "b", "status": "not run"},
        {"name": "c", "status": "OOM", "as_expected": True},
        {"name": "d", "status": "OOM", "as_expected": False},
        {"name": "e", "status": "exception"},
    ]
    assert list(gpu_check_results({"combinations": rows})) == ["a", "c"]
    assert gpu_check_results({"combinations": [], "workspaces": {"status": "measured"}}) == {}


def test_costed_pipelines_are_those_with_figures():
    records = [{"pipeline": "a", "enabled": True}, {"pipeline": "b", "enabled": False}]
    assert list(pipeline_results({"pipelines": records})) == ["a"]


def test_what_has_not_been_read_outweighs_nothing():
    assert not EarlierResults(profile_results).outweigh(NOTHING)
