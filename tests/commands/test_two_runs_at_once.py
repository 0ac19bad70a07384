"""Every file of every command while another run is writing it: that run keeps it, this one says its own name."""

import fcntl
import json
import os

import pytest

from swinmr_profiling.configs.writing.output_claims import claimed_outputs
from swinmr_profiling.profiler.reports.exports import Exports
from tests.commands.test_written_files import PIPELINE, PROFILE, _umask, folder, run

__all__ = ["_umask", "folder"]  # fixtures
PIPELINES = "swinmr_profiling.scripts.profile_pipeline"
COMPARE = "swinmr_profiling.scripts.compare_profiles"
MODEL = "swinmr_profiling.scripts.profile_model"


@pytest.fixture
def hold():
    """Locks files as another process would: the lock is of the open file, not of the process."""
    descriptors = []

    def lock(*files):
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("of the other run\n")
            lock = file.with_name(f".{file.name}.lock")
            descriptors.append(os.open(lock, os.O_RDWR | os.O_CREAT))
            fcntl.flock(descriptors[-1], fcntl.LOCK_EX)

    yield lock
    for descriptor in descriptors:
        os.close(descriptor)


def check(place, names, err):
    """Each file is the other run's still, `name_2` is this one's, and a line says so. Returns the texts."""
    texts = {}
    for name in names:
        file = place / name
        second = file.with_name(f"{file.stem}_2{file.suffix}")
        assert file.read_text() == "of the other run\n", name
        texts[name] = second.read_bytes()
        assert texts[name]
        line = next(line for line in err.splitlines() if line.endswith(f"this one writes {second}"))
        assert line.startswith("warning: another run is writing "), line
    left = [name for name in os.listdir(place) if name.endswith(".lock")]
    assert sorted(left) == sorted(f".{name}.lock" for name in names)  # the other run's own
    return texts


def test_a_comparison(folder, hold, monkeypatch, capsys):
    place = folder / "out"
    names = ("c.html", "c.md", "c.csv")
    hold(*(place / name for name in names))
    files = zip(("--html", "--markdown", "--csv"), names, strict=True)
    options = [part for option, name in files for part in (option, str(place / name))]
    status, _, err = run(COMPARE, ("a.json", *options, "--quiet"), "", monkeypatch, capsys)
    assert status == 0, err
    assert check(place, names, err)["c.csv"].startswith(b"figure,")


@pytest.mark.slow
def test_the_cost_of_a_pipeline(folder, hold, monkeypatch, capsys):
    pytest.importorskip("diffusers")
    place = folder / "out"
    names = ("p.json", "p.csv", "p.png")
    hold(*(place / name for name in names))
    files = zip(("--output", "--csv", "--chart"), names, strict=True)
    options = [part for option, name in files for part in (option, str(place / name))]
    status, out, err = run(PIPELINES, (*PIPELINE, *options), "", monkeypatch, capsys)
    assert status == 0, err
    texts = check(place, names, err)
    assert json.loads(texts["p.json"])["pipelines"]
    assert texts["p.png"].startswith(b"\x89PNG")
    assert "Results saved to: out/p_2.json\n" in out


@pytest.mark.slow
def test_a_profile(folder, hold, monkeypatch, capsys):
    place = folder / "out"
    names = ("p.json", "p.csv", "p.md", "own.json")
    hold(*(place / name for name in names))
    (folder / "plots").mkdir()
    hold(folder / "plots/charts")
    files = zip(("--output", "--csv", "--markdown", "--save-config"), names, strict=True)
    options = [part for option, name in files for part in (option, str(place / name))]
    status, out, err = run(MODEL, (*PROFILE, *options, "--plot", "plots"), "", monkeypatch, capsys)
    assert status == 0, err
    texts = check(place, names, err)
    assert json.loads(texts["p.json"])["status"] == "complete"
    assert f"{place / 'p_2.csv'}\n" in out
    assert os.listdir(folder / "plots_2")
    assert sorted(os.listdir(folder / "plots")) == [".charts.lock", "charts"]


def test_reports_and_charts_of_a_profile(tmp_path, hold):
    hold(tmp_path / "p.csv", tmp_path / "plots/charts")
    asked = Exports(
        csv=str(tmp_path / "p.csv"), markdown=str(tmp_path / "p.md"), plots=str(tmp_path / "plots")
    )
    with asked.prepared() as taken:
        assert taken == Exports(
            csv=str(tmp_path / "p_2.csv"), markdown=str(tmp_path / "p.md"), plots=str(tmp_path / "plots_2")
        )


def test_a_name_that_was_asked_for_is_nobodys_free_name(tmp_path, hold, capsys):
    """--csv a.csv is taken; a_2.csv is what --report asks for, a_3.csv is there: so it is a_4.csv."""
    hold(tmp_path / "a.csv")
    (tmp_path / "a_3.csv").write_text("earlier")
    asked = [("--csv", str(tmp_path / "a.csv")), ("--report", tmp_path / "a_2.csv"), ("--markdown", None)]
    with claimed_outputs(asked) as names:
        assert names == [str(tmp_path / "a_4.csv"), str(tmp_path / "a_2.csv"), None]
    line = f"warning: another run is writing {tmp_path / 'a.csv'}: this one writes {tmp_path / 'a_4.csv'}\n"
    assert capsys.readouterr().err == line
    assert sorted(os.listdir(tmp_path)) == [".a.csv.lock", "a.csv", "a_3.csv"]
