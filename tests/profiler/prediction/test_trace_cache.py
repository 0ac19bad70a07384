"""Traces on disk: whatever lies in the place of one is thrown away and named, and the numbers are those of a trace."""

import json
import os
import zipfile

import numpy as np
import pytest

from swinmr_profiling.profiler.prediction.trace import trace_cache
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, Trace
from swinmr_profiling.profiler.prediction.trace.trace_cache import cached, keep_in, make_way

KEY = "0" * 64


def made():
    """Two allocations; the first is released."""
    return Trace(
        batch_size=2,
        sizes=np.array([512, 1024], np.int64),
        phases=np.array([0, 2], np.int8),
        categories=np.array([0, CATEGORIES.index("workspaces")], np.int8),
        operators=np.array([0, 1], np.int32),
        operator_names=["aten::empty", "aten::mm"],
        events=np.array([1, 2, -1], np.int32),
        event_phases=np.array([0, 2, 3], np.int8),
        step_starts=[0],
        assumptions=["none"],
    )


class Maker:
    """Makes the trace, and counts how often it was asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return made()


@pytest.fixture
def file(tmp_path):
    """The file of a kept trace."""
    keep_in(tmp_path / "traces")
    yield_file = tmp_path / "traces" / f"{KEY}.npz"
    cached(KEY, made)
    assert yield_file.is_file()
    yield yield_file
    keep_in(None)


def rewritten(file, **changes):
    """Writes the file again with other arrays or other plain values; None leaves one out."""
    with np.load(file) as content:
        arrays = {name: content[name] for name in content.files}
    rest = json.loads(str(arrays.pop("rest")))
    for name, value in changes.items():
        (arrays if name in arrays else rest)[name] = value
    arrays = {name: value for name, value in arrays.items() if value is not None}
    np.savez(file, rest=np.array(json.dumps(rest)), **arrays)


def flip_a_byte(file):
    with zipfile.ZipFile(file) as archive:
        info = archive.getinfo("sizes.npy")
    data = bytearray(file.read_bytes())
    data[info.header_offset + 30 + len(info.filename) + 40] ^= 0xFF
    file.write_bytes(data)


class RunsWhenRead:
    """What a pickle of a stranger's may do."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def become(make):
    def damage(file):
        file.unlink()
        make(file)

    return damage


DAMAGES = {
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:200]),
    "cut short": lambda file: file.write_bytes(file.read_bytes()[:-30]),
    "empty": lambda file: file.write_bytes(b""),
    "another byte": flip_a_byte,
    "text": lambda file: file.write_text("not a trace"),
    "a pickle": lambda file: np.save(file.open("wb"), np.array([{}], dtype=object), allow_pickle=True),
    "a plain array": lambda file: np.save(file.open("wb"), np.zeros(3)),
    "a folder": become(lambda file: file.mkdir()),
    "a pipe": become(os.mkfifo),
    "of another network": lambda file: rewritten(file, key="1" * 64),
    "of an older version": lambda file: rewritten(file, key=None, older=1),
    "an array less": lambda file: rewritten(file, events=None),
    "another type": lambda file: rewritten(file, sizes=np.array([512.0, 1024.0])),
    "another length": lambda file: rewritten(file, phases=np.array([0], np.int8)),
    "an allocation that is none": lambda file: rewritten(file, events=np.array([1, 3, -1], np.int32)),
    "an operator that is none": lambda file: rewritten(file, operators=np.array([0, 9], np.int32)),
    "a negative size": lambda file: rewritten(file, sizes=np.array([512, -8], np.int64)),
    "a step beyond the end": lambda file: rewritten(file, step_starts=[99]),
    "a batch that is not a number": lambda file: rewritten(file, batch_size="two"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_trace_is_named_and_traced_again(file, capsys, damage):
    DAMAGES[damage](file)
    maker = Maker()
    trace = cached(KEY, maker)
    assert maker.calls == 1
    assert trace.sizes.tolist() == [512, 1024]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {file} holds no trace (")
    assert line.endswith("): traced again")
    # Thrown away: the next run finds a good one, unless something lies there that no file may replace.
    again = cached(KEY, maker)
    assert again.events.tolist() == [1, 2, -1]
    assert maker.calls == (2 if damage == "a folder" else 1)


def test_nothing_that_lies_in_a_kept_trace_is_run(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewritten(file, sizes=np.array([RunsWhenRead(), RunsWhenRead()], dtype=object))
    maker = Maker()
    cached(KEY, maker)
    assert maker.calls == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_a_folder_or_file_without_permission_costs_only_the_time(file, capsys):
    file.chmod(0)
    file.parent.chmod(0o500)
    maker = Maker()
    try:
        assert cached(KEY, maker).batch_size == 2
        assert cached("2" * 64, maker).batch_size == 2
    finally:
        file.parent.chmod(0o700)
    assert maker.calls == 2
    assert "Permission denied" in capsys.readouterr().err


def test_a_cache_that_is_no_folder_or_refuses_costs_only_the_time(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    maker = Maker()
    keep_in(tmp_path / "file")
    try:
        assert cached(KEY, maker).batch_size == 2
        keep_in(tmp_path / "traces")
        monkeypatch.setattr(
            os, "replace", lambda *_: (_ for _ in ()).throw(OSError(30, "Read-only file system"))
        )
        assert cached(KEY, maker).batch_size == 2
    finally:
        keep_in(None)
    assert maker.calls == 2
    assert list((tmp_path / "traces").iterdir()) == []
    assert capsys.readouterr().err == ""


def test_a_good_trace_is_not_made_again_and_counts_as_used(file):
    os.utime(file, (1, 1))
    maker = Maker()
    assert cached(KEY, maker) is not None
    assert maker.calls == 0
    assert file.stat().st_mtime > 1e9


def test_what_was_used_longest_ago_makes_way(tmp_path):
    """Four files of 10 bytes, a limit of 25: the two that were used last stay. A folder is left alone."""
    for number, used in enumerate((40, 10, 30, 20)):
        file = tmp_path / f"{number}.npz"
        file.write_bytes(b"x" * 10)
        os.utime(file, (used, used))
    (tmp_path / "folder.npz").mkdir()
    make_way(tmp_path, "*.npz", limit_bytes=25)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.npz", "2.npz", "folder.npz"]


def test_writing_keeps_the_limit(tmp_path, monkeypatch):
    keep_in(tmp_path)
    monkeypatch.setattr(trace_cache, "MAX_BYTES", 3000)
    try:
        for number in range(4):
            cached(str(number) * 64, made)
    finally:
        keep_in(None)
    sizes = [file.stat().st_size for file in tmp_path.glob("*.npz")]
    assert 0 < sum(sizes) <= 3000
    assert len(sizes) < 4
