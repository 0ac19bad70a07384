"""What fvcore and thop said of a network of this project, kept: the same code and versions are not asked twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import ValidationError

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.writing.atomic_files import write_text
from swinmr_profiling.configs.writing.kept_files import HASHED_NETWORKS, cache_folder, code_hash, make_way
from swinmr_profiling.profiler.counting.other_counters.cross_check import cross_check
from swinmr_profiling.profiler.record.blocks.architecture import CrossCheck
from swinmr_profiling.profiler.record.memory_fingerprint import canonical, memory_fingerprint

# What is counted, and what counts it.
CODE = ("models", "profiler/counting")
# An answer takes some 5 KB.
MAX_BYTES = 5 * 2**20


def kept_cross_check(
    config: ExperimentConfig, *, counters: Sequence[str], size: str, trust_config: bool, keep: bool
) -> list[CrossCheck]:
    """The same as `cross_check`, which is asked only what no earlier run was told.

    keep: look for answers in the user's cache folder, and leave new ones there.
    """
    files = {counter: _file(config, counter, size) for counter in counters} if keep else {}
    known = {
        counter: check
        for counter, file in files.items()
        if file is not None and (check := _read(file, counter, size)) is not None
    }
    if asked := [counter for counter in counters if counter not in known]:
        raw = config.model_dump(mode="json")
        for check in cross_check(raw, counters=asked, size=size, trust_config=trust_config):
            known[check.counter] = check
            file = files.get(check.counter)
            # What was killed or took too long may be told the next time.
            if file is not None and check.status == "ok":
                _write(file, check)
    return [known[counter] for counter in counters]


def _file(config: ExperimentConfig, counter: str, size: str) -> Path | None:
    """None for a network that may change unseen, or a counter of no known version."""
    if config.model.net_type not in HASHED_NETWORKS:
        return None
    try:
        versions = [version(counter), version("torch"), platform.python_version()]
    except PackageNotFoundError:
        return None
    what = canonical([memory_fingerprint(config), counter, size, *versions, code_hash(CODE)])
    return cache_folder("counters") / f"{hashlib.sha256(what.encode()).hexdigest()}.json"


def _read(file: Path, counter: str, size: str) -> CrossCheck | None:
    try:
        if not file.is_file() or file.stat().st_size > MAX_BYTES:
            return None
        check = CrossCheck.model_validate(json.loads(file.read_bytes()))
    except (OSError, ValueError, RecursionError, ValidationError):
        return None
    if (check.counter, check.size, check.status) != (counter, size, "ok"):
        return None
    return check.model_copy(update={"from_earlier_run": True})


def _write(file: Path, check: CrossCheck) -> None:
    with contextlib.suppress(OSError):
        write_text(file, json.dumps(check.to_json()))
        make_way(file.parent, "*.json", MAX_BYTES)
