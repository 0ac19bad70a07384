"""Reading profiles that may be anything, and bringing old ones to the present schema."""

import json
import os

import pytest

from swinmr_profiling.profiler.record.files.migrations import ProfileShapeError, migrate, version_of
from swinmr_profiling.profiler.record.files.reading import (
    ProfileFileError,
    load_profile,
    parse_profile,
    printable,
)
from swinmr_profiling.profiler.record.limits import LEAST_RUNS
from swinmr_profiling.profiler.record.profile import SCHEMA_VERSION
from swinmr_profiling.profiler.reports.views.cards import what_is_missing
from swinmr_profiling.profiler.reports.views.view import view_of
from swinmr_profiling.profiler.run.resume import read_earlier
from tests.made_profiles import MIB, ORIGINAL, partial, profile, ran, with_training


def test_made_profiles_follow_the_schema(profile_schema):
    """The profiles that the tests of reports are made of are such as the command writes."""
    assert [error.message for error in profile_schema.iter_errors(profile())] == []
    assert [error.message for error in profile_schema.iter_errors(profile(device="cuda:0"))] == []
    assert [error.message for error in profile_schema.iter_errors(with_training())] == []
    assert [error.message for error in profile_schema.iter_errors(partial())] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is not valid JSON"]),
        ("hello", ["is not valid JSON"]),
        ("[1, 2]", ["is not a profile"]),
        ("{}", ["is not a profile", "profile_model.py writes one"]),
        ('{"model": {"net_type": "swinir"}}', ["is not a profile"]),
        ('{"schema_version": 1}', ["is damaged or of another version", "Field required"]),
        ('{"schema_version": "1", "config": {}}', ["schema_version"]),
        ('{"schema_version": true, "config": {}}', ["schema_version"]),
        ('{"schema_version": 0, "config": {}}', ["schema_version"]),
        (
            f'{{"schema_version": {SCHEMA_VERSION + 1}, "config": {{}}}}',
            ["schema version", "update the program"],
        ),
        ('{"schema_version": 1, "config": {"model": NaN}}', ["NaN", "null"]),
        ('{"schema_version": 1, "config": {"model": -Infinity}}', ["-Infinity"]),
        ('{"schema_version": 1, "config": {"model": 1e999}}', ["1e999"]),
        ('{"schema_version": 1, "config": {"model": ' + "9" * 5000 + "}}", []),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, ["nested too deeply"]),
    ],
)
def test_what_is_no_profile(text, words):
    with pytest.raises(ProfileFileError) as caught:
        parse_profile(text, "bad.json")
    assert str(caught.value).startswith("bad.json: ")
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    text = json.dumps(profile())
    for end in range(1, len(text) - 1, len(text) // 40):
        with pytest.raises(ProfileFileError, match="not valid JSON"):
            parse_profile(text[:end], "cut.json")
    with pytest.raises(ProfileFileError, match="truncated"):
        parse_profile(text[:-20].rstrip("} \n"), "cut.json")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ProfileFileError, match="no such file"):
        load_profile(tmp_path / "none.json")
    with pytest.raises(ProfileFileError, match="is a folder"):
        load_profile(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ProfileFileError, match="UTF-8"):
        load_profile(tmp_path / "latin.json")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as stream:
        stream.truncate(201 * MIB)
    with pytest.raises(ProfileFileError, match="larger than 200 MiB"):
        load_profile(huge)


def paths_of(value, path=()):
    """Every place of a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_of(item, (*path, key))


def refusal(content):
    """The line that refuses a profile, "" for one that is taken."""
    try:
        view_of(parse_profile(json.dumps(content), "p.json"))
    except ProfileFileError as error:
        return str(error)
    return ""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("wrong", ["text", -1, 1.5, True, [], {}, [{}], {"a": {}}, None])
def test_a_value_of_the_wrong_kind_anywhere_is_named_or_harmless(wrong):
    """Each value of a profile is replaced in turn: the view is made, or one line says what is wrong; never a crash."""
    good = profile({1: {**profile()["batch_profiling"]["1"]}})
    good["batch_profiling"]["1"]["timing"]["samples_ms"] = [1.0]
    refused = 0
    for path in list(paths_of(good))[1:]:
        content = json.loads(json.dumps(good))
        place = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = wrong
        message = refusal(content)
        assert "\n" not in message
        refused += bool(message)
    if wrong is not None:
        assert refused > 20


def test_a_wrong_value_is_named_by_its_path():
    content = profile()
    content["batch_profiling"]["2"]["timing"]["median_ms"] = "fast"
    with pytest.raises(
        ProfileFileError,
        match=r"p.json: .*\(batch_profiling.2.timing.median_ms: Input should be a valid number\)",
    ):
        view_of(parse_profile(json.dumps(content), "p.json"))
    with pytest.raises(ProfileFileError, match=r"batch_profiling.-1.*: String should match pattern"):
        view_of(parse_profile(json.dumps(profile(batch_profiling={"-1": {}})), "p.json"))


def test_texts_are_made_printable():
    assert printable("a\x00b\u202ec\ud800d\ne") == "a�b�c�d\ne"
    content = profile(warnings=[{"code": "x\x00", "message": "a\u202eb", "batch_size": None}])
    content["config"]["experiment_name"] = "\x1b[31mred"
    content["architecture"]["by_module"]["children"][0]["name"] = "\x00"
    content["architecture"]["by_operator"] = {"aten.\x1bmm": 5}
    view = view_of(parse_profile(json.dumps(content), "p\x07.json"))
    assert (view.file, view.operators) == ("p�.json", (("aten.�mm", 5),))
    assert view.title == view.profile.config.experiment_name == "�[31mred"
    assert [(warning.code, warning.message) for warning in view.profile.warnings] == [("x�", "a�b")]
    assert view.tree.children[0].name == "�"


def test_the_original_script_is_imported_and_its_count_is_not_flops():
    loaded = parse_profile(json.dumps(ORIGINAL), "old.json")
    assert loaded.version == 0
    view = view_of(loaded)
    assert view.imported
    assert view.profile.architecture.macs == 4_315_545_600
    assert view.profile.architecture.flops is None
    assert view.macs_convention == "fvcore"
    assert view.profile.config.precision is None
    # The single image is batch 1.
    assert [(size.batch_size, getattr(size, "error", None)) for size in view.sizes] == [
        (1, None), (2, None), (4, "OOM"),
    ]  # fmt: skip
    assert view.size(1).timing.median_ms == 99.0
    assert view.size(1).timing.samples_ms is None
    assert view.size(1).memory.peak_bytes == 512.25 * MIB
    # Two images in a mean of 160 ms, whatever its fps (6.25: of batches) says.
    assert view.size(2).timing.images_per_second == pytest.approx(12.5)
    assert "original script" in what_is_missing(view)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": {"total_parameters": "many"}},
        {"batch_profiling": {"one": {}}},
        {"batch_profiling": {"²": {}}},
        {"batch_profiling": {"1": {}}},
        {"batch_profiling": [1]},
        {"single_image": {"timing": {"mean_ms": -1}}},
        {"config": {"model": 1}},
    ],
)
def test_broken_files_of_the_original_script(change):
    with pytest.raises(ProfileFileError):
        view_of(parse_profile(json.dumps({**ORIGINAL, **change}), "old.json"))


def test_migrations_are_applied_one_after_the_other():
    steps = {
        0: lambda c: {**c, "a": 1},
        1: lambda c: {**c, "b": c["a"] + 1},
        2: lambda c: {**c, "c": c["b"] + 1},
    }
    assert migrate({}, 0, steps, newest=3) == {"a": 1, "b": 2, "c": 3}
    assert migrate({"a": 5}, 1, steps, newest=3) == {"a": 5, "b": 6, "c": 7}
    assert migrate({"x": 1}, 3, steps, newest=3) == {"x": 1}


def as_first_written(content):
    """The profile as version 1 was written before each quantity had an interval of its own."""
    content = json.loads(json.dumps(content))
    content["schema_version"] = 1
    for block in content["batch_profiling"].values():
        for name in ("live_interval_bytes", "reserved_interval_bytes"):
            del block["training"][name]
        block["training"]["interval_bytes"] = [990 * MIB, 1_071 * MIB]
    del content["memory_model"]["interval_shares"]
    content["memory_model"]["interval_share"] = [-0.01, 0.05]
    return content


def test_an_earlier_profiles_one_interval_becomes_one_of_each_quantity(profile_schema):
    old = as_first_written(with_training())
    (training,) = [old["batch_profiling"]["1"]["training"]]
    # Live 1100 MiB and 1 %; reserved 1120 MiB and 5 %, which is 56 MiB.
    assert (training["live_bytes"], training["peak_reserved_bytes"]) == (1100 * MIB, 1120 * MIB)
    content = parse_profile(json.dumps(old), "p.json").profile.to_json()
    training = content["batch_profiling"]["1"]["training"]
    assert training["live_interval_bytes"] == [1089 * MIB, 1111 * MIB]
    assert training["reserved_interval_bytes"] == [1064 * MIB, 1176 * MIB]
    assert "interval_bytes" not in training
    assert content["memory_model"]["interval_shares"] == {"live": [-0.01, 0.01], "reserved": [-0.05, 0.05]}
    assert [error.message for error in profile_schema.iter_errors(content)] == []
    old["memory_model"]["interval_share"] = None
    assert parse_profile(json.dumps(old), "p.json").profile.memory_model.interval_shares is None
    # What is damaged has none, and is named.
    old["batch_profiling"]["2"]["training"]["live_bytes"] = "much"
    with pytest.raises(ProfileFileError, match=r"batch_profiling.2.training.live_bytes: Input should be"):
        parse_profile(json.dumps(old), "p.json")


def test_resuming_reads_the_earlier_interval(tmp_path):
    file = tmp_path / "p.json"
    file.write_text(json.dumps(as_first_written(with_training())))
    training = read_earlier(file).batch_profiling["1"].training
    assert training.live_interval_bytes == [1089 * MIB, 1111 * MIB]


def test_what_was_called_measured_is_counted():
    old = as_first_written(with_training())
    old["architecture"]["source"] = "measured"
    content = parse_profile(json.dumps(old), "p.json").profile.to_json()
    assert (content["schema_version"], content["architecture"]["source"]) == (2, "counted")
    assert content["batch_profiling"]["1"]["source"] == "measured"


def test_there_is_a_step_from_every_earlier_version():
    assert version_of(ORIGINAL) == 0
    content = migrate({**profile(), "schema_version": 1}, 1)
    assert content["schema_version"] == SCHEMA_VERSION
    with pytest.raises(ProfileShapeError):
        version_of({"config": {}, "architecture": {}})


def written_by_an_earlier_program(runs):
    """A profile that holds figures of any number of runs, as programs wrote them before they knew better."""
    content = profile({1: ran(1, [100.0] * runs)})
    content["schema_version"] = 1
    for timing in (content["single_image"]["timing"], content["batch_profiling"]["1"]["timing"]):
        timing.update(std_ms=0.0, iqr_ms=0.0, p90_ms=100.0, p95_ms=100.0, p99_ms=100.0)
    return content


@pytest.mark.parametrize(
    ("runs", "unknown"),
    [
        (1, {"std_ms", "iqr_ms", "p90_ms", "p95_ms", "p99_ms"}),
        (3, {"iqr_ms", "p90_ms", "p95_ms", "p99_ms"}),
        (4, {"p90_ms", "p95_ms", "p99_ms"}),
        (19, {"p95_ms", "p99_ms"}),
        (99, {"p99_ms"}),
        (100, set()),
    ],
)
def test_what_too_few_runs_do_not_tell_is_unknown_in_earlier_files_too(tmp_path, runs, unknown):
    content = written_by_an_earlier_program(runs)
    text = json.dumps(content)
    (tmp_path / "p.json").write_text(text)
    for loaded in (parse_profile(text, "p.json").profile, read_earlier(tmp_path / "p.json")):
        read = loaded.to_json()
        for block in (read["single_image"], read["batch_profiling"]["1"]):
            figures = {name: block["timing"][name] for name in LEAST_RUNS}
            assert {name for name, value in figures.items() if value is None} == unknown
            assert block["timing"]["median_ms"] == 100.0


def test_the_original_script_s_deviation_stays_since_its_runs_are_not_known():
    assert view_of(parse_profile(json.dumps(ORIGINAL), "old.json")).size(1).timing.std_ms == 5.0


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "p.json")
    with pytest.raises(ProfileFileError, match="is not an ordinary file: copy the profile to one"):
        load_profile(tmp_path / "p.json")
