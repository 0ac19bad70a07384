"""The one way in which any command writes a file: whole or not at all, and never in the place of a device.

A name that is a symbolic link stays one: the file it leads to is replaced, or made. Folders, devices, pipes and
sockets are refused, and so is the file that the command's own output goes to (`--csv /dev/stdout`).
"""

from __future__ import annotations

import csv
import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from swinmr_profiling.input_error import InputError

# What begins a formula in a spreadsheet.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


class OutputError(InputError):
    """A file cannot be written; one line for the user."""


class UnfitNameError(OSError):
    """The name is of something that no file may take the place of; `strerror` says what."""


def check_writable(file: str | Path, what: str, *, for_devices: str = "") -> None:
    """Makes the folder and proves that `file` can be written in it, before work is done for its sake.

    what: the option or key that names it, for the message. for_devices: what the user can do in place of naming a
    device. Raises OutputError.
    """
    try:
        target = _target(Path(file))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        no_file = isinstance(error, UnfitNameError) and error.errno != errno.EISDIR
        raise OutputError(f"{what} {file}: {reason(error)}{for_devices if no_file else ''}") from error


Named = Sequence[tuple[str, "str | Path | None"]]


def distinct(outputs: Named, inputs: Named = ()) -> None:
    """Refuses an output that is another output or an input, however it is spelt: one would replace the other.

    outputs, inputs: (what names it, file), None and "-" for no file. Raises OutputError.
    """
    seen: dict[object, str] = {place: what for what, file in inputs for place in _places(file)}
    for what, file in outputs:
        places = _places(file)
        for place in places:
            if place in seen:
                raise OutputError(f"{what} and {seen[place]} name the same file: {file}")
        seen |= dict.fromkeys(places, what)


def _places(file: str | Path | None) -> list[object]:
    """What tells a file from others: where its links lead, and its inode (of a hard link, or in another case)."""
    if file is None or str(file) == "-":
        return []
    places: list[object] = [os.path.realpath(file)]
    with suppress(OSError, ValueError):  # it is not there yet
        found = os.stat(file)
        places.append((found.st_dev, found.st_ino))
    return places


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A temporary file to write to, beside the one that `file` names; takes its place when the block ends.

    It keeps the owner and the permissions of what it replaces. When the block raises it is removed, and the old file
    stays. The folder is made. Raises OSError (UnfitNameError for what is refused).
    """
    target = _target(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:32]}.", suffix=".tmp", dir=target.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        _give_permissions(temporary, target)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_text(file: Path, text: str) -> None:
    """Replaces the file by the text in UTF-8, line ends as they are. Raises OSError."""
    with replacing(file) as temporary:
        # A name that is not valid text holds lone surrogates, which UTF-8 lacks; as \udcff they are what JSON
        # writes for them.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def table_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV (RFC 4180) with figures as they are in the JSON."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow([_cell(name) for name in header])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    """A spreadsheet takes a text that starts with one of these for a formula and runs it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value


def reason(error: OSError) -> str:
    """Why a file cannot be written, in words that follow its name."""
    if isinstance(error, UnfitNameError):
        return str(error.strerror)
    return f"cannot be written: {error.strerror or error}"


def _target(file: Path) -> Path:
    """The file itself, or what a symbolic link leads to, there or not. Raises OSError."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return Path(os.path.realpath(file))
    if stat.S_ISDIR(found.st_mode):
        raise UnfitNameError(errno.EISDIR, "is a folder; name a file in it", str(file))
    if not stat.S_ISREG(found.st_mode):
        raise UnfitNameError(errno.EINVAL, "is not an ordinary file", str(file))
    if _is_own_output(found):
        raise UnfitNameError(errno.EINVAL, "is where this command's own output goes", str(file))
    return Path(os.path.realpath(file, strict=True))


def _is_own_output(found: os.stat_result) -> bool:
    for descriptor in (1, 2):
        with suppress(OSError):  # closed
            if os.path.samestat(found, os.fstat(descriptor)):
                return True
    return False


def _give_permissions(temporary: Path, target: Path) -> None:
    """Owner and permissions of the file that is replaced; of a new one what the user's umask leaves."""
    try:
        replaced = os.stat(target)
    except FileNotFoundError:
        # mkstemp makes files for the owner alone.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        return
    with suppress(OSError):  # only root gives files away, and as root nobody's file must become root's
        os.chown(temporary, replaced.st_uid, replaced.st_gid)
    os.chmod(temporary, stat.S_IMODE(replaced.st_mode))
