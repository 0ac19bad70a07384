"""Traces on disk: a network that was traced once is not traced again, by the same code, torch and Python.

Python decides when a tensor dies: 3.10 holds a call's arguments until it returns, later versions do not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np
import torch

from swinmr_profiling.configs.atomic_files import replacing
from swinmr_profiling.profiler.prediction.storage_trace import Trace
from swinmr_profiling.profiler.record.memory_fingerprint import canonical

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# What a trace runs through: another version of these files may allocate otherwise.
TRACED_ROOMS = (
    "models",
    "training",
    "profiler/prediction",
    "profiler/counting/meta_copy.py",
    "profiler/measure/example_data.py",
)
ARRAYS = ("sizes", "phases", "categories", "operators", "events", "event_phases")
# Some 200 KB each; the oldest make way.
MAX_FILES = 400


def cache_folder() -> Path:
    """The user's cache folder (XDG_CACHE_HOME, ~/.cache), in a folder of this project's."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "swinmr-profiling" / "traces"


@cache
def code_hash() -> str:
    """SHA-256 over the source files that a trace runs through."""
    digest = hashlib.sha256()
    for room in TRACED_ROOMS:
        path = REPOSITORY / room
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(REPOSITORY)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def trace_key(fingerprint: str, batch_size: int, kind: str, parts: str) -> str:
    """Name of a trace. kind: "training" or "inference"; parts: of the loss, which files on disk may change."""
    what = canonical(
        [fingerprint, batch_size, kind, parts, torch.__version__, platform.python_version(), code_hash()]
    )
    return hashlib.sha256(what.encode()).hexdigest()


def cached(key: str, make: Callable[[], Trace]) -> Trace:
    """The trace of that name, made and kept where there is none. A disk that refuses costs only the time."""
    file = cache_folder() / f"{key}.npz"
    with contextlib.suppress(OSError, ValueError, KeyError, EOFError):
        return _read(file)
    trace = make()
    with contextlib.suppress(OSError):
        _write(file, trace)
    return trace


def _read(file: Path) -> Trace:
    with np.load(file, allow_pickle=False) as content:
        rest = json.loads(str(content["rest"]))
        return Trace(**{name: content[name] for name in ARRAYS}, **rest)


def _write(file: Path, trace: Trace) -> None:
    rest = {field.name: getattr(trace, field.name) for field in fields(Trace) if field.name not in ARRAYS}
    arrays = {name: getattr(trace, name) for name in ARRAYS}
    with replacing(file) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, rest=np.array(json.dumps(rest)), **arrays)
    files = sorted(file.parent.glob("*.npz"), key=lambda path: path.stat().st_mtime)
    for old in files[:-MAX_FILES]:
        old.unlink(missing_ok=True)
