"""The one judgement after every row: nothing lost, nothing broken, nothing left, nothing touched."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults.commands import COMMANDS, Command
from tests.faults.complete_outputs import (
    REPOSITORY,
    BrokenOutputError,
    check_profile,
    is_temporary,
    measured_sizes,
    out_of_memory,
    state_of_training,
)
from tests.faults.rows import FAULTS, Fault, Row

Violations = list[tuple[str, str]]
# Folders of the checkout in which nothing is a command's output.
NOT_WATCHED = {
    ".git",
    "__pycache__",
    ".ruff_cache",
    ".pytest_cache",
    ".mypy_cache",
    ".hypothesis",
    "build",
    "results",
}
ALL_SIZES = {"batch 1", "batch 2", "batch 4"}
# After which a size that was out of memory is a result like any other.
MEMORY_FAULTS = ("cgroup", "address_space")


def snapshot(place: Path) -> dict[str, Any]:
    """All that no command may touch (the checkout, the row's inputs and its sentinel), and the outputs as they are."""
    return {"foreign": _foreign(place), "outputs": {str(f): f.read_bytes() for f in _outputs(place)}}


def _foreign(place: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for root in (REPOSITORY, place / "in", place / "sentinel"):
        folders = [root]
        while folders:
            for entry in folders.pop().iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    if entry.name not in NOT_WATCHED and not entry.name.endswith(".egg-info"):
                        folders.append(entry)
                elif entry.suffix != ".pyc":
                    status = entry.lstat()
                    found[str(entry)] = (status.st_size, status.st_mtime_ns)
    return found


def _outputs(place: Path) -> list[Path]:
    return [file for file in sorted((place / "out").rglob("*")) if file.is_file()]


def at_moment(command: Command, place: Path) -> dict[str, Any]:
    """What is complete while the command is held, and whether profile.json is this run's own by now."""
    profile = place / "out/profile.json"
    try:
        complete = command.complete(place / "out")
    except BrokenOutputError as error:
        complete = {"broken": str(error)}
    return {"complete": complete, "profile": profile.read_bytes() if profile.exists() else None}


def after_fault(
    row: Row,
    place: Path,
    before: dict[str, Any],
    then: dict[str, Any] | None,
    ended: subprocess.CompletedProcess,
    left_behind: list[str],
    struck_down: bool,
) -> Violations:
    """What is wrong once the command has ended. struck_down: the kernel has killed processes because memory ran out."""
    command, fault = COMMANDS[row.command], FAULTS[row.fault]
    found: Violations = []
    if ended.returncode not in _codes(command, fault, struck_down):
        found.append(("code", f"exit status {ended.returncode}"))
    if "Traceback (most recent call last)" in ended.stderr and not _is_shown_exception(command, place, ended):
        found.append(("traceback", ended.stderr.strip().splitlines()[-1][:300]))
    if left_behind:
        found.append(("process left", "; ".join(left_behind)))
    found += _touched(place, before)
    try:
        complete = command.complete(place / "out")
    except BrokenOutputError as error:
        return [*found, ("broken output", str(error))]
    if then is not None:
        found += _lost(command, fault, place, before, then, complete, ended)
    return found


def _codes(command: Command, fault: Fault, struck_down: bool) -> set[int]:
    """The documented exit statuses. Of a signal nobody dies but of SIGKILL, and of a second Ctrl-C."""
    codes = {0, *command.codes}
    if fault.kind == "signal" and fault.value.count("SIGINT") > 1:
        codes |= {130, -signal.SIGINT}
    if fault.kind == "kill" or struck_down or (fault.kind == "signal" and "SIGKILL" in fault.value):
        codes.add(-signal.SIGKILL)
    return codes


def _is_shown_exception(command: Command, place: Path, ended: subprocess.CompletedProcess) -> bool:
    """An exception of a measuring process is shown with the place it came from, and stands in the profile."""
    if command.complete.__name__ != "of_profile" or ended.returncode not in (2, 4):
        return False
    said = ended.stderr.count("Traceback (most recent call last)")
    with suppress(OSError, ValueError):
        text = (place / "out/profile.json").read_text()
        return (
            text.count('"error": "exception"') + text.count('"count_error"') + text.count('"status_reason"')
            >= said
        )
    return False


def _touched(place: Path, before: dict[str, Any]) -> Violations:
    was, now = before["foreign"], _foreign(place)
    changed = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
    return [("touched", ", ".join(changed[:5]))] if changed else []


def _lost(
    command: Command,
    fault: Fault,
    place: Path,
    before: dict[str, Any],
    then: dict[str, Any],
    complete: dict[str, Any],
    ended: subprocess.CompletedProcess,
) -> Violations:
    earlier = before["outputs"].get(str(place / "out/profile.json"))
    was = then["complete"]
    if "broken" in was:
        return [("broken output", f"at the moment: {was['broken']}")]
    if command.complete.__name__ == "of_profile":
        return _lost_profile(command, fault, place, earlier, then, complete, ended)
    if command.complete.__name__ == "of_training":
        lost = [name for name in was if name not in complete]
        lost += ["step"] if complete.get("step", 0) < was.get("step", 0) else []
        return [("lost", ", ".join(lost))] if lost else []
    lost = [name for name in was if name not in complete and not is_temporary(Path(name))]
    return [("lost", ", ".join(lost))] if lost else []


def _lost_profile(
    command: Command,
    fault: Fault,
    place: Path,
    earlier: bytes | None,
    then: dict[str, Any],
    complete: dict[str, Any],
    ended: subprocess.CompletedProcess,
) -> Violations:
    was = then["complete"]
    file = place / "out/profile.json"
    is_earlier = earlier is not None and then["profile"] == earlier
    contents = [complete, *_elsewhere(place, ended.stderr)]
    if fault.kind == "second_run":
        contents = [measured_sizes(json.loads(f.read_text())) for f in (place / "out").glob("*.json")]
        return _lost_to_second(place, contents)
    if is_earlier and not command.extra.get("keeps_all"):
        # A new run may replace an earlier one's results by its own, not by nothing.
        measured = any(name.startswith("batch") for name in complete)
        measured |= fault.kind in MEMORY_FAULTS and bool(out_of_memory(place / "out"))
        kept = file.exists() and (file.read_bytes() == earlier or measured)
        return [] if kept else [("lost", "the earlier results, for nothing new")]
    lost = [name for name, value in was.items() if not any(found.get(name) == value for found in contents)]
    if fault.kind == "error" and ended.returncode in (0, 4) and ended.stderr:
        whole = any(found.keys() >= ALL_SIZES for found in contents)
        lost += [] if whole else ["what was measured after the fault"]
    return [("lost", ", ".join(lost))] if lost else []


def _lost_to_second(place: Path, contents: list[dict[str, Any]]) -> Violations:
    """Two runs that both say that they are done have both left a result, under two names."""
    code, _, text = (place / "second_run").read_text().partition("\n")
    whole = sum(found.keys() >= ALL_SIZES for found in contents)
    found: Violations = []
    if "Traceback" in text:
        found.append(("traceback", f"second run: {text.strip().splitlines()[-1][:200]}"))
    if code == "0" and whole < 2:
        found.append(("lost", "the results of one of two runs into one --output"))
    return found


def _elsewhere(place: Path, stderr: str) -> list[dict[str, Any]]:
    """Results that went to the temporary folder or to standard error."""
    found = []
    for name in re.findall(r"the result is in (\S+)", stderr):
        found.append(measured_sizes(json.loads(Path(name).read_text())))
        shutil.rmtree(Path(name).parent)
    start = stderr.find('{\n  "schema_version"')
    if start >= 0:
        content, _ = json.JSONDecoder().raw_decode(stderr[start:])
        check_profile(content, "standard error")
        found.append(measured_sizes(content))
    return found


def after_next_run(
    row: Row,
    place: Path,
    before: dict[str, Any],
    again: subprocess.CompletedProcess,
    reference: dict[str, int] | None,
) -> Violations:
    """What is wrong once the next run, which nothing struck, has ended."""
    command = COMMANDS[row.command]
    found = _touched(place, before)
    # A size that was out of memory is a result: it is not measured again, and where all were, none fits.
    keeps_memory_faults = FAULTS[row.fault].kind in MEMORY_FAULTS and "--resume" in again.args
    if again.returncode not in ((0, 3) if keeps_memory_faults else (0,)):
        found.append(("next run", f"exit status {again.returncode}"))
        return found
    try:
        complete = command.complete(place / "out")
    except BrokenOutputError as error:
        return [*found, ("broken output", f"after the next run: {error}")]
    if command.complete.__name__ == "of_profile":
        there = complete.keys() | (out_of_memory(place / "out") if keeps_memory_faults else set())
        if not there >= ALL_SIZES:
            found.append(("next run", "a batch size is missing"))
    if reference is not None and state_of_training(place / "out") != reference:
        found.append(("next run", "the training ended in another state than one that nothing struck"))
    return found
