"""One run at a time writes a result: an advisory lock beside the file, held while the run lives.

The lock ends with its process, however that ends; a lock file that is left over blocks nobody. Where there are no such
locks (Windows, some network file systems) nothing is held.
"""

from __future__ import annotations

import atexit
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from swinmr_profiling.configs.writing.atomic_files import Named, check_writable
from swinmr_profiling.configs.writing.standard_streams import complain

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Claim:
    """A held lock."""

    def __init__(self, lock: Path, descriptor: int | None) -> None:
        self.lock, self.descriptor = lock, descriptor

    def release(self) -> None:
        """Lets the name go, and removes the lock file."""
        _held.pop(self.lock, None)
        if self.descriptor is None:
            return
        with suppress(OSError):
            self.lock.unlink()
        os.close(self.descriptor)
        self.descriptor = None


_held: dict[Path, Claim] = {}


@atexit.register
def _release_all() -> None:
    for held in list(_held.values()):
        held.release()


def _forget_in_child() -> None:
    # A loader process is a fork: it must not hold the lock of a run that was killed.
    for claim in _held.values():
        if claim.descriptor is not None:
            with suppress(OSError):
                os.close(claim.descriptor)
            claim.descriptor = None
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _lock_of(file: Path) -> Path:
    target = Path(os.path.realpath(file))
    return target.with_name(f".{target.name[:200]}.lock")


def claim(file: Path) -> Claim | None:
    """The right to write a file, whose folder is there; None where another process has it."""
    lock = _lock_of(file)
    if lock in _held:
        return _held[lock]
    found = Claim(lock, None)
    while fcntl is not None and found.descriptor is None:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
        except OSError:
            break
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                found.descriptor = descriptor
        except BlockingIOError:
            return None
        except FileNotFoundError:  # whoever had it has just removed it
            pass
        except OSError:  # a file system without locks
            break
        finally:
            if found.descriptor is None:
                os.close(descriptor)
    _held[lock] = found
    return found


def claim_free_file(file: Path) -> tuple[Path, Claim]:
    """The file, or the first of name_2, name_3, ... that is neither there nor claimed, and the claim."""
    for number in itertools.count(1):
        candidate = file if number == 1 else file.with_name(f"{file.stem}_{number}{file.suffix}")
        if number == 1 or not (candidate.exists() or _lock_of(candidate) in _held):
            held = claim(candidate)
            if held is not None:
                return candidate, held
    raise AssertionError


@contextmanager
def claimed_outputs(outputs: Named) -> Iterator[list[str | None]]:
    """The names that this run writes: those that were asked for, or free ones beside what another run is writing.

    outputs: (option, file), None for no file. Proves that each can be written, says which have another name, and holds
    them until the block ends. Raises OutputError.
    """
    for option, file in outputs:
        if file is not None:
            check_writable(file, option)
    asked = [None if file is None else Path(file) for _, file in outputs]
    # Those asked for first, so that none of them is the free name for another.
    claims = {file: claim(file) for file in asked if file is not None}
    names = dict(zip(claims, claims, strict=True))
    for file in [file for file, held in claims.items() if held is None]:
        names[file], claims[file] = claim_free_file(file)
        say_another_name(file, names[file])
    try:
        yield [None if file is None else str(names[file]) for file in asked]
    finally:
        for held in claims.values():
            if held is not None:
                held.release()


def say_another_name(asked: Path, found: Path) -> None:
    """The line about a run that has another name than it asked for."""
    complain(f"warning: another run is writing {asked}: this one writes {found}")


def claim_free_folder(folder: Path, name: str) -> tuple[Path, Claim]:
    """The folder, or the first of folder_2, folder_3, ... that is not there, in which `name` can be claimed.

    Makes the folder. Raises OSError.
    """
    for number in itertools.count(1):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}_{number}")
        if number == 1 or not candidate.exists():
            candidate.mkdir(parents=True, exist_ok=True)
            held = claim(candidate / name)
            if held is not None:
                return candidate, held
    raise AssertionError
