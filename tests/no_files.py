"""What a name may be of that no file may take the place of, made in a test's own folder and never in /dev."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

# Only root can make a device. Its number is /dev/null's: what a failing test might replace is this copy of it.
KINDS = ("folder", "pipe", "socket", *(("device",) if os.geteuid() == 0 else ()))


def put(kind: str, place: Path) -> Callable[[], None]:
    """Makes it; returns what asserts that it is still the same one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        old = os.getcwd()
        os.chdir(place.parent)  # a socket's name may have 107 bytes
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(place.name)
        os.chdir(old)
    else:
        try:
            os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("this root may not make devices")
    before = place.lstat()

    def check_untouched() -> None:
        after = place.lstat()
        assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino), f"{kind} was replaced"

    return check_untouched
