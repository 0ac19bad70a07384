"""What the commands keep in the user's cache folder: where, and of which code.

Nothing there is needed: a file that is missing, damaged or of another version costs the time to find it out again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# Networks that are code of this project alone, whose changes the hash below sees. Of any other nothing is kept.
HASHED_NETWORKS = ("swinir", "swinmr", "unet_denoiser")


def cache_folder(kind: str) -> Path:
    """The user's cache folder (XDG_CACHE_HOME, ~/.cache), in a folder of this project's. kind: "traces", "counters"."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swinmr-profiling" / kind


@cache
def code_hash(places: tuple[str, ...]) -> str:
    """SHA-256 over source files. places: folders and files below the top of the checkout or the package."""
    digest = hashlib.sha256()
    for place in places:
        for file in _sources(REPOSITORY / place):
            digest.update(str(file.relative_to(REPOSITORY)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _sources(place: Path) -> Iterable[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def make_way(folder: Path, pattern: str, limit_bytes: int) -> None:
    """Removes the files that were used longest ago, until the rest is within the limit."""
    used = []
    for file in folder.glob(pattern):
        with contextlib.suppress(OSError):  # another process was faster
            found = file.stat()
            if stat.S_ISREG(found.st_mode):
                used.append((found.st_mtime_ns, found.st_size, file))
    kept_bytes = 0
    for _, size, file in sorted(used, reverse=True):
        kept_bytes += size
        if kept_bytes > limit_bytes:
            with contextlib.suppress(OSError):
                file.unlink()
