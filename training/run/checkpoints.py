"""Checkpoints: all that a run needs to go on as if it had never stopped, written so that none is ever lost.

The network's weights stand under `params` and their moving average under `params_ema`, where SwinIR's tools look
for them, and a SwinIR's with the masks and indices that those load strictly. A file holds tensors and plain values
alone and is read with `weights_only=True`: nothing in it runs.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from swinmr_profiling.configs.writing.atomic_files import check_writable, reason, replacing
from swinmr_profiling.input_error import InputError
from swinmr_profiling.models.checkpoints.checkpoint_files import NoFileError, refuse_pipes
from swinmr_profiling.models.swin.official_state_dict import without_computed
from swinmr_profiling.training.errors import first_line

FORMAT = "swinmr-profiling training checkpoint"
VERSION = 1
LAST, BEST = "last.pth", "best.pth"
STEP_PATTERN, STEP_NAME = "step_*.pth", "step_{step:09d}.pth"
# Of a state that is spread over processes: a folder (training/run/sharded_checkpoints.py).
SHARDED_SUFFIX = ".dcp"
SHARDED_NAME = "step_{step:09d}" + SHARDED_SUFFIX
# A state with weights that are not numbers is kept to be looked at; no run goes on from it.
NON_FINITE_PATTERN, NON_FINITE_NAME = "nonfinite_step_*.pth", "nonfinite_step_{step:09d}.pth"


class CheckpointError(InputError):
    """A checkpoint cannot be used, or cannot be written; one line for the user."""


def random_states() -> dict[str, Any]:
    """The states of all generators that training draws from, as tensors and plain values."""
    of_numpy = cast("tuple[str, np.ndarray, int, int, float]", np.random.get_state())
    name, keys, position, has_gauss, cached = of_numpy
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Sets what `random_states` read."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"][: torch.cuda.device_count()])
    name, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))


def check_architecture(module: nn.Module, content: dict[str, Any], file: Path) -> None:
    """Raises CheckpointError, naming the first weights that differ, for a checkpoint of another architecture."""
    ours = module.state_dict()
    for weights in filter(None, (content["params"], content.get("params_ema"))):
        theirs = without_computed(weights, ours)
        differs = [f"misses {key}" for key in ours if key not in theirs]
        differs += [f"has {key}" for key in theirs if key not in ours]
        differs += [
            f"{key} is {tuple(theirs[key].shape)}, the network's {tuple(ours[key].shape)}"
            for key in ours
            if key in theirs and ours[key].shape != theirs[key].shape
        ]
        if not differs:
            continue
        more = f" and {len(differs) - 3} more" if len(differs) > 3 else ""
        raise CheckpointError(f"{file} is of another architecture: {', '.join(differs[:3])}{more}")


@contextmanager
def told_as_unwritable(place: Path, and_then: str = "") -> Iterator[None]:
    """What a disk refuses within the block is a CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{place} {reason(error)}{and_then}") from error
    except RuntimeError as error:  # torch's own word for a write of its archive that failed
        raise CheckpointError(f"{place} cannot be written: {first_line(error)}{and_then}") from error


def write_checkpoint(content: dict[str, Any], file: Path) -> None:
    """Replaces the file, whole or not at all: a full disk or a kill leaves the old one as it was.

    Raises CheckpointError.
    """
    written = told_as_unwritable(file, "; the old one stays")
    with written, replacing(file) as temporary, temporary.open("wb") as stream:
        torch.save({"format": FORMAT, "version": VERSION, **content}, stream)


def is_training_checkpoint(content: Any) -> bool:
    """Whether what a file holds says that it is one of ours. (A tensor in its place is equal to nothing.)"""
    said = content.get("format") if isinstance(content, dict) else None
    return isinstance(said, str) and said == FORMAT


def read_checkpoint(file: Path) -> dict[str, Any]:
    """Reads and checks a checkpoint of this project. Raises CheckpointError; nothing in the file is executed."""
    try:
        refuse_pipes(file)
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise CheckpointError(f"{file} is damaged: {damaged} has another checksum")
        content = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: no such checkpoint") from error
    except CheckpointError:
        raise
    except NoFileError as error:
        raise CheckpointError(f"{file} {error}") from error
    except Exception as error:  # zipfile, zlib, pickle and torch each have their own words for a bad file
        raise CheckpointError(f"{file} cannot be read: {first_line(error)}") from error
    if not is_training_checkpoint(content):
        raise CheckpointError(
            f"{file} is not a training checkpoint of this project: to start from its weights set "
            "training.initial_weights"
        )
    version = content.get("version")
    if type(version) is not int or version != VERSION:
        said = repr(version).splitlines()[0][:40]
        raise CheckpointError(f"{file} has version {said}, this code reads {VERSION}")
    return content


def _read(file: Path) -> dict[str, Any]:
    if file.suffix != SHARDED_SUFFIX:
        return read_checkpoint(file)
    from swinmr_profiling.training.run.sharded_checkpoints import read_sharded

    return read_sharded(file)


class CheckpointFolder:
    """`step_*.pth`, the latest also as `last.pth`, and `best.pth`."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def check_writable(self) -> None:
        """Proves, before hours are spent training, that checkpoints can be written. Raises OutputError."""
        for name in (LAST, BEST, STEP_NAME.format(step=0)):
            check_writable(self.folder / name, "the checkpoint")

    def save(self, content: dict[str, Any]) -> Path:
        """Writes the state of a step, points `last.pth` at it, removes what is older than `keep`."""
        file = self.folder / STEP_NAME.format(step=content["step"])
        write_checkpoint(content, file)
        with told_as_unwritable(self.folder / LAST):
            self._point_last_at(file)
        self._remove_old()
        return file

    def save_sharded(self, tensors: dict[str, torch.Tensor], rest: dict[str, Any], *, is_first: bool) -> Path:
        """Writes the state of a step, of which every process has a part; every process must call it.

        rest: what is no tensor of the state, the same everywhere. is_first: whether this process tidies the folder.
        `last.pth`, which is whole, is not of this step: it goes. Raises CheckpointError, in every process.
        """
        from swinmr_profiling.training.run.sharded_checkpoints import write_sharded

        folder = self.folder / SHARDED_NAME.format(step=rest["step"])
        write_sharded(tensors, rest, folder)
        if is_first:
            with told_as_unwritable(self.folder / LAST):
                (self.folder / LAST).unlink(missing_ok=True)
                self._remove_old()
        return folder

    def _remove_old(self) -> None:
        # What only has the name of a checkpoint (a pipe, a folder) counts for none, or it would displace one.
        ours = [
            one
            for one in self._by_step()
            if (one.is_dir() if one.suffix == SHARDED_SUFFIX else one.is_file())
        ]
        for old in ours[self.keep :]:
            if old.suffix == SHARDED_SUFFIX:
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.unlink(missing_ok=True)

    def save_aside(self, content: dict[str, Any]) -> Path:
        """Writes a state that no run may go on from; `last.pth` and the others stay as they are."""
        file = self.folder / NON_FINITE_NAME.format(step=content["step"])
        write_checkpoint(content, file)
        return file

    def save_best(self, content: dict[str, Any], *, is_first: bool = False) -> None:
        """Writes `best.pth`.

        is_first: nothing was better or worse before; what is there was chosen by other means, and is kept beside it.
        Raises CheckpointError.
        """
        best = self.folder / BEST
        if is_first and best.exists():
            # A copy, not a move: should the disk refuse the new one, the old one stays where it is looked for.
            aside = self.folder / f"best_before_step_{content['step']:09d}.pth"
            with told_as_unwritable(aside):
                shutil.copyfile(best, aside)
        write_checkpoint(content, best)

    def latest(self) -> tuple[dict[str, Any], Path, list[str]] | None:
        """Content, file and complaints of the newest checkpoint that can be read; None where there is none.

        A damaged file is passed over, with a line that says so. Raises CheckpointError when all are damaged.
        """
        complaints: list[str] = []
        for file in self._by_step():
            try:
                return _read(file), file, complaints
            except CheckpointError as error:
                complaints.append(f"{error}; going back to the one before")
        if complaints:
            raise CheckpointError(f"no checkpoint in {self.folder} can be read: {complaints[0]}")
        return None

    def make_last(self, file: Path) -> None:
        """Points `last.pth` at a checkpoint that a run goes on from, where a fault had kept it from that."""
        last = self.folder / LAST
        if file.suffix != SHARDED_SUFFIX and not (last.exists() and last.samefile(file)):
            with told_as_unwritable(last):
                self._point_last_at(file)

    def set_aside(self) -> Path | None:
        """Moves all checkpoints into a folder of their own and returns it; None where there are none.

        A run that starts anew has lower steps than theirs: it would be taken for the older one. Raises
        CheckpointError.
        """
        files = self._all()
        if not files:
            return None
        numbers = itertools.count(1)
        aside = next(path for n in numbers if not (path := self.folder / f"before_restart_{n}").exists())
        with told_as_unwritable(aside):
            aside.mkdir()
            for file in files:
                os.replace(file, aside / file.name)
        return aside

    @property
    def is_empty(self) -> bool:
        return not self._all()

    def _all(self) -> list[Path]:
        named = [file for file in (self.folder / LAST, self.folder / BEST) if file.exists()]
        return named + self._by_step() + sorted(self.folder.glob(NON_FINITE_PATTERN))

    def _by_step(self) -> list[Path]:
        return sorted(
            [*self.folder.glob(STEP_PATTERN), *self.folder.glob(f"step_*{SHARDED_SUFFIX}")], reverse=True
        )

    def _point_last_at(self, file: Path) -> None:
        # A hard link costs no space; where a file system has none, a relative symbolic link does. So this name is
        # itself a link of this folder's, and the one that is not followed but set anew.
        temporary = self.folder / f".{LAST}.tmp"
        temporary.unlink(missing_ok=True)
        try:
            try:
                os.link(file, temporary)
            except OSError:
                os.symlink(file.name, temporary)
            os.replace(temporary, self.folder / LAST)
        finally:
            temporary.unlink(missing_ok=True)
