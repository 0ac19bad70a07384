"""What a CI takes: github-action-benchmark's JSON and the summary of a job."""

import json

import pytest

from swinmr_profiling.configs.writing.atomic_files import OutputError
from swinmr_profiling.profiler.record.files.reading import parse_profile
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.benchmark_action import benchmark_text
from swinmr_profiling.profiler.reports.exports import Exports
from swinmr_profiling.profiler.reports.views.view import view_of
from swinmr_profiling.scripts.compare_profiles import main as compare_main
from tests.made_profiles import partial, profile


def entries(content):
    return json.loads(benchmark_text(view_of(parse_profile(json.dumps(content), "p.json"))))


def test_benchmark_entries_by_hand():
    found = {one["name"]: one for one in entries(profile())}
    # Ten runs 100 to 104.5 in steps of 0.5: median 102.25, its interval here all of them.
    latency = found["own: latency, batch 1"]
    assert (latency["unit"], latency["value"], latency["range"]) == ("ms", 102.25, "± 2.25")
    assert found["own: memory of inference, batch 2"] == {
        "name": "own: memory of inference, batch 2",
        "unit": "MiB",
        "value": 520.0,
        "extra": "measured on cpu, a processor, fp32",
    }
    assert found["own: MACs"]["value"] == 4_000_000_000
    assert found["own: parameters"]["value"] == 903_121
    assert len(found) == 6
    # What the action asks of each: a name, a unit and a number.
    assert all(isinstance(one["value"], int | float) and one["unit"] for one in found.values())
    assert entries(partial()) == []


def test_the_summary_is_added_to(tmp_path, monkeypatch, capsys):
    summary = tmp_path / "summary.md"
    summary.write_text("# of an earlier command\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    exports = Exports(github_summary=True, benchmark=str(tmp_path / "b.json"))
    assert exports.wanted
    with exports.prepared() as taken:
        written = taken.write(Profile.model_validate(profile()), "p.json")
    assert written == [str(tmp_path / "b.json"), "the job's summary"]
    text = summary.read_text()
    assert text.startswith("# of an earlier command\n")
    assert "903,121" in text
    file = tmp_path / "p.json"
    file.write_text(json.dumps(profile()))
    assert compare_main([str(file), str(file), "--github-summary", "--quiet"]) == 0
    assert summary.read_text().startswith(text)
    assert len(summary.read_text()) > len(text)


def test_outside_of_a_job_it_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    with (
        pytest.raises(OutputError, match="this is no job of GitHub Actions"),
        Exports(github_summary=True).prepared(),
    ):
        pass
    file = tmp_path / "p.json"
    file.write_text(json.dumps(profile()))
    assert compare_main([str(file), "--github-summary"]) == 2
    assert "GITHUB_STEP_SUMMARY is not set" in capsys.readouterr().err
