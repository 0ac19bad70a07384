"""Traces on disk: a network that was traced once is not traced again, by the same code, torch and Python.

Python decides when a tensor dies: 3.10 holds a call's arguments until it returns, later versions do not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from swinmr_profiling.configs.writing.atomic_files import replacing
from swinmr_profiling.configs.writing.kept_files import cache_folder, code_hash, make_way
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, PHASES, Trace
from swinmr_profiling.profiler.record.failures import first_lines
from swinmr_profiling.profiler.record.memory_fingerprint import canonical

# What a trace runs through: another version of these files may allocate otherwise.
TRACED_ROOMS = (
    "models",
    "training",
    "profiler/prediction",
    "profiler/counting/meta_copy.py",
    "profiler/allocator/convolution_workspaces.py",
    "profiler/measure/example_data.py",
    "profiler/measure/training/own_step.py",
)
# Each array's type, and the array that has as many entries.
ARRAYS = {
    "sizes": (np.int64, "sizes"),
    "phases": (np.int8, "sizes"),
    "categories": (np.int8, "sizes"),
    "operators": (np.int32, "sizes"),
    "events": (np.int32, "events"),
    "event_phases": (np.int8, "events"),
}
# Some 200 KB a trace.
MAX_BYTES = 100 * 2**20
_folder: Path | None = None


def trace_key(fingerprint: str, batch_size: int, kind: str, parts: str) -> str:
    """Name of a trace. kind: "training" or "inference"; parts: of the loss, which files on disk may change."""
    what = canonical(
        [
            fingerprint,
            batch_size,
            kind,
            parts,
            torch.__version__,
            platform.python_version(),
            code_hash(TRACED_ROOMS),
        ]
    )
    return hashlib.sha256(what.encode()).hexdigest()


def keep_in(folder: Path | None) -> None:
    """From now on traces of this process are kept in this folder; None: in the user's cache folder."""
    global _folder
    _folder = folder


def cached(key: str, make: Callable[[], Trace]) -> Trace:
    """The trace of that name, made and kept where there is none.

    What lies there and is none is told in one line and removed. A disk that refuses costs only the time.
    """
    file = (_folder or cache_folder("traces")) / f"{key}.npz"
    try:
        return _read(file, key)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as error:  # zipfile, zlib, numpy and json each have their own words for a damaged file
        complain(
            f"warning: {file} holds no trace ({first_lines(str(error)) or type(error).__name__}): traced again"
        )
        with contextlib.suppress(OSError):
            file.unlink()
    trace = make()
    with contextlib.suppress(OSError):
        _write(file, key, trace)
    return trace


def _read(file: Path, key: str) -> Trace:
    if not stat.S_ISREG(file.stat().st_mode):  # a pipe would be waited for
        raise ValueError("it is not an ordinary file")
    with np.load(file, allow_pickle=False) as content:
        rest = json.loads(str(content["rest"]))
        arrays = {name: content[name] for name in ARRAYS}
    if rest.pop("key", None) != key:
        raise ValueError("it is of another network, or of another version")
    trace = Trace(**arrays, **rest)
    check_trace(trace)
    with contextlib.suppress(OSError):
        os.utime(file)  # the one used longest ago makes way first
    return trace


def check_trace(trace: Trace) -> None:
    """Raises ValueError for arrays that cannot be those of one trace."""
    for name, (kind, length_of) in ARRAYS.items():
        array = getattr(trace, name)
        if array.dtype != kind or array.shape != (len(getattr(trace, length_of)),):
            raise ValueError(f"its {name} are {array.dtype} of the shape {array.shape}")
    numbers = np.abs(trace.events.astype(np.int64))
    places = [*trace.step_starts, trace.batch_size, *trace.moved_bytes]
    if not (
        all(isinstance(place, int) for place in places)
        and all(0 <= start <= len(trace.events) for start in trace.step_starts)
        and [size >= 0 for size in trace.moved_bytes] == [True, True]
        and all(isinstance(name, str) for name in trace.operator_names)
        and _within(numbers, 1, len(trace.sizes))
        and _within(trace.sizes, 0, None)
        and _within(trace.operators, 0, len(trace.operator_names) - 1)
        and _within(trace.phases, 0, len(PHASES) - 1)
        and _within(trace.event_phases, 0, len(PHASES) - 1)
        and _within(trace.categories, 0, len(CATEGORIES) - 1)
    ):
        raise ValueError("its numbers contradict one another")


def _within(array: np.ndarray, lowest: int, highest: int | None) -> bool:
    return not array.size or bool(array.min() >= lowest and (highest is None or array.max() <= highest))


def _write(file: Path, key: str, trace: Trace) -> None:
    rest = {field.name: getattr(trace, field.name) for field in fields(Trace) if field.name not in ARRAYS}
    arrays = {name: getattr(trace, name) for name in ARRAYS}
    with replacing(file) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, rest=np.array(json.dumps({**rest, "key": key})), **arrays)
    make_way(file.parent, "*.npz", MAX_BYTES)
