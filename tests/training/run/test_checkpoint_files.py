"""Checkpoint files: atomic, checked, harmless."""

import errno
import os
import pickle
import struct
import zipfile

import pytest
import torch

from swinmr_profiling.models.checkpoints.published_weights import load_weights
from swinmr_profiling.models.swin.swinir import SwinIR
from swinmr_profiling.training.run.checkpoints import (
    BEST,
    LAST,
    CheckpointError,
    CheckpointFolder,
    read_checkpoint,
    write_checkpoint,
)


def content(step, **more):
    return {"step": step, "params": {"w": torch.full((4,), float(step))}, **more}


def test_last_points_at_the_newest_and_old_ones_go(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=2)
    for step in (1, 5, 12):
        folder.save(content(step))
    assert sorted(f.name for f in tmp_path.iterdir()) == [LAST, "step_000000005.pth", "step_000000012.pth"]
    assert read_checkpoint(tmp_path / LAST)["step"] == 12


def test_a_run_that_goes_on_makes_its_checkpoint_the_last(tmp_path):
    """As after a fault between the two names of a step."""
    folder = CheckpointFolder(tmp_path, keep=2)
    folder.save(content(4))
    write_checkpoint(content(6), tmp_path / "step_000000006.pth")
    folder.make_last(tmp_path / "step_000000006.pth")
    assert read_checkpoint(tmp_path / LAST)["step"] == 6
    before = (tmp_path / LAST).stat().st_ino
    folder.make_last(tmp_path / "step_000000006.pth")
    assert (tmp_path / LAST).stat().st_ino == before


def test_damaged_file_falls_back_to_the_one_before(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=3)
    for step in (1, 2):
        folder.save(content(step))
    damaged = tmp_path / "step_000000002.pth"
    data = bytearray(damaged.read_bytes())
    damaged.unlink()  # not through the hard link of last.pth
    with zipfile.ZipFile(tmp_path / "step_000000001.pth") as archive:
        [storage] = [info for info in archive.infolist() if "/data/" in info.filename]
    # A local header is 30 bytes, with the lengths of the name and of the extra field in its last four.
    header = storage.header_offset
    name_length, extra_length = struct.unpack_from("<HH", data, header + 26)
    data[header + 30 + name_length + extra_length] ^= 1
    damaged.write_bytes(data)
    found, file, complaints = folder.latest()
    assert (found["step"], file.name) == (1, "step_000000001.pth")
    assert len(complaints) == 1
    assert "step_000000002.pth" in complaints[0]


@pytest.mark.parametrize("keep_bytes", [0, 10, 700])
def test_truncated_files(tmp_path, keep_bytes):
    folder = CheckpointFolder(tmp_path, keep=3)
    file = folder.save(content(1))
    data = file.read_bytes()
    file.write_bytes(data[:keep_bytes])
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read"):
        folder.latest()


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "it_ran"),))

    file = tmp_path / "step_000000001.pth"
    torch.save({"params": Evil()}, file)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(file)
    plain = tmp_path / "plain.pth"
    plain.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointError):
        read_checkpoint(plain)
    assert not (tmp_path / "it_ran").exists()


def test_foreign_weights_are_no_training_checkpoint(tmp_path):
    file = tmp_path / "10_G.pth"
    torch.save({"w": torch.zeros(1)}, file)
    with pytest.raises(CheckpointError, match=r"training\.initial_weights"):
        read_checkpoint(file)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        read_checkpoint(tmp_path / "none.pth")


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch, moment):
    file = tmp_path / BEST
    write_checkpoint(content(1), file)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, moment, full)
    with pytest.raises(CheckpointError, match="No space left on device; the old one stays"):
        write_checkpoint(content(2), file)
    assert read_checkpoint(file)["step"] == 1
    assert [f.name for f in tmp_path.iterdir()] == [BEST]


def test_a_disk_that_refuses_the_pointer_is_left_without_a_temporary_file(tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path, keep=3)
    folder.save(content(1))
    replace = os.replace

    def refuse_last(source, target):
        if os.path.basename(target) == LAST:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_last)
    with pytest.raises(CheckpointError, match=r"last\.pth cannot be written: Permission denied"):
        folder.save(content(2))
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [LAST, "step_000000001.pth", "step_000000002.pth"]
    assert read_checkpoint(tmp_path / LAST)["step"] == 1


def test_checkpoint_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_checkpoint(content(1), tmp_path / "file" / LAST)


def test_weights_of_a_run_load_like_published_ones(tiny_run, tmp_path):
    """The averaged weights stand where SwinIR's tools look for them."""
    run = tiny_run({"training.total_steps": 2})
    run.run()
    network = SwinIR(img_size=32, depths=[2], num_heads=[2], embed_dim=8)
    load_weights(network, tmp_path / "results/tiny/checkpoints" / LAST)
    expected = run.state.ema.module.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in network.state_dict().items())
    assert not torch.equal(expected["conv_first.weight"], run.state.module.state_dict()["conv_first.weight"])
