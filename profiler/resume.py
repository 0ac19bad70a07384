"""Going on from the partial profile of an earlier run of the same config on the same machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from profiler.failures import FailureKind
from profiler.profile_migrations import with_named_intervals
from profiler.profile_record import SCHEMA_VERSION, Profile
from profiler.profile_warnings import ProfileWarning

# What makes two runs one: with any of these different the figures are of something else.
SAME_CONFIG = (
    "config_sha256", "device", "precision", "channels_last", "compile", "num_runs", "warmup", "time_budget_s",
    "seed", "threads", "resolved",
)  # fmt: skip


class ResumeError(ValueError):
    """The earlier file cannot be gone on from; one line for the user."""


def read_earlier(path: Path | None) -> dict[str, Any] | None:
    """The earlier profile, or None where there is none yet. Raises ResumeError for a file that is no profile."""
    if path is None:
        raise ResumeError("--resume needs the file of an earlier run: --output FILE, not -")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ResumeError(f"--resume: {path} cannot be read as a profile: {error}") from error
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        raise ResumeError(f"--resume: {path} is no profile of schema version {SCHEMA_VERSION}")
    return with_named_intervals(content)


def machine_of(environment: dict[str, Any]) -> dict[str, Any]:
    """What makes a machine the same one for a latency: processor, threads, GPU, torch."""
    cpu, gpu = environment["cpu"], environment["gpu"]
    return {
        "processor": cpu["name"],
        "usable cores": cpu["usable_cores"],
        "threads": cpu["threads"],
        "GPU": None if gpu is None else gpu["name"],
        "torch": environment["packages"]["torch"],
    }


def take_over(profile: Profile, earlier: dict[str, Any]) -> list[str]:
    """Copies what the earlier run finished into the profile, whose environment is known by now.

    Sizes that ran or were out of memory stay; killed, crashed, skipped ones are tried again. Returns the
    batch sizes taken over. Raises ResumeError, naming the difference, for another config or machine.
    """
    for key in SAME_CONFIG:
        if earlier["config"].get(key) != profile.config[key]:
            raise ResumeError(f"--resume: the earlier profile has another {key}: use another --output")
    if not earlier["environment"]:
        return []
    was, is_now = machine_of(earlier["environment"]), machine_of(profile.environment)
    for key, value in is_now.items():
        if was[key] != value:
            raise ResumeError(
                f"--resume: the earlier profile was made with {key} {was[key]}, this is {value}"
            )
    single = earlier["single_image"]
    if single is not None and "timing" in single:
        profile.single_image = single
    architecture = earlier["architecture"]
    if architecture is not None and architecture["macs"] is not None and architecture["counters"]:
        profile.architecture = architecture
    # Predicted for other sizes or levers it would lack some: then it is predicted again, from the traces on disk.
    if earlier["config"]["batch_sizes"] == profile.config["batch_sizes"]:
        profile.memory_model = earlier["memory_model"]
    final = (None, FailureKind.OOM.value)
    profile.batch_profiling = {
        size: block for size, block in earlier["batch_profiling"].items() if block.get("error") in final
    }
    profile.warnings = [
        ProfileWarning(**warning)
        for warning in earlier["warnings"]
        if warning["batch_size"] is None or str(warning["batch_size"]) in profile.batch_profiling
    ]
    profile.environment["resumed_from_utc"] = earlier["environment"]["time_utc"]
    return list(profile.batch_profiling)
