"""The page that a test shares with the processes under test, and the library that strikes there."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("injected_faults.c")
PAGE_BYTES = 4096
# Kept in step with `struct state` of injected_faults.c.
FIELDS = {
    name: (offset, kind)
    for name, offset, kind in (
        ("reached", 0, "i"),
        ("go", 4, "i"),
        ("error", 8, "i"),
        ("left", 12, "i"),
        ("fired", 16, "i"),
        ("watched", 20, "i"),
        ("nth", 24, "i"),
        ("seen", 28, "i"),
        ("clock_offset", 32, "q"),
    )
}
MOMENT, TEXT, OUTPUTS = 40, 41, (296, 1320)
TEXT_BYTES, PATH_BYTES = 255, 1024


class NoInjectionError(RuntimeError):
    """This machine cannot inject faults; the message says why."""


def build_library(folder: Path) -> Path:
    """Compiles injected_faults.c. Raises NoInjectionError where there is no compiler, or no such loader."""
    if not sys.platform.startswith("linux"):
        raise NoInjectionError("no LD_PRELOAD on this system")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoInjectionError("no C compiler (cc, gcc, clang)")
    library = folder / "injected_faults.so"
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise NoInjectionError(f"injected_faults.c does not compile: {done.stderr.strip()[-300:]}")
    return library


class SharedState:
    """Fields of the page as attributes; made by the test, mapped by every process that has FAULT_STATE."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(bytes(PAGE_BYTES))
        self.file = file
        with file.open("r+b") as stream:
            self._page = mmap.mmap(stream.fileno(), PAGE_BYTES)
        self.nth = 1

    def __getattr__(self, name: str) -> int:
        if name not in FIELDS:
            raise AttributeError(name)
        offset, kind = FIELDS[name]
        return struct.unpack_from(kind, self._page, offset)[0]

    def __setattr__(self, name: str, value: object) -> None:
        if name in FIELDS:
            offset, kind = FIELDS[name]
            struct.pack_into(kind, self._page, offset, value)
        else:
            super().__setattr__(name, value)

    def set_moment(self, kind: str, text: str, nth: int = 1) -> None:
        self.nth = nth
        self._page[MOMENT : MOMENT + 1] = kind.encode()
        data = text.encode()
        assert len(data) < TEXT_BYTES
        self._page[TEXT : TEXT + len(data)] = data

    def set_outputs(self, *folders: Path) -> None:
        for offset, folder in zip(OUTPUTS, folders, strict=False):
            data = os.fsencode(folder)
            assert len(data) < PATH_BYTES
            self._page[offset : offset + len(data)] = data

    def fail_calls(self, error: str, count: int = -1) -> None:
        """Calls on the outputs fail from now on, `count` of them (-1: all)."""
        self.left = count
        self.error = getattr(errno, error)

    def mend(self) -> None:
        """No call fails any more, and the clock is right."""
        self.error = self.watched = self.clock_offset = 0

    def close(self) -> None:
        self._page.close()
