"""Running one row: the command is brought to its moment, the fault strikes, and what is left is judged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import invariant, limits
from tests.faults.commands import COMMANDS, Command
from tests.faults.complete_outputs import state_of_training
from tests.faults.fault_server import REPOSITORY, FaultServer, Running
from tests.faults.rows import FAULTS, Fault, Row
from tests.faults.shared_state import SharedState, build_library
from tests.faults.templates import write_inputs

# A row takes one to three seconds of processor time; one that hangs must not hang the campaign, and one that waits for
# a processor on a busy machine is not a hang.
PATIENCE_S = 300
WITHOUT_TORCH = {"compare", "recommend"}


@dataclass
class Outcome:
    """What became of a row.

    fired: whether the fault struck at the moment; `reason` says why it did not. violations: (kind, text) pairs.
    """

    row: Row
    fired: bool = False
    reason: str | None = None
    exit_code: int | None = None
    next_exit_code: int | None = None
    violations: list[tuple[str, str]] = field(default_factory=list)
    stderr: str = ""

    @property
    def verdict(self) -> str:
        if not self.fired:
            return "not run"
        return "failed" if self.violations else "passed"

    def to_json(self) -> dict[str, Any]:
        record = {"row": str(self.row), **self.row.to_json(), "verdict": self.verdict, "fired": self.fired}
        record |= {"reason": self.reason, "exit_code": self.exit_code, "next_exit_code": self.next_exit_code}
        return record | {
            "violations": self.violations,
            "stderr": self.stderr[-1500:] if self.violations else "",
        }


class Workshop:
    """The server and the templates of a series of rows. Raises NoInjectionError where faults cannot be injected."""

    def __init__(self, folder: Path, commands: Collection[str] = COMMANDS) -> None:
        """commands: those that are to come; where none of them needs torch, none waits for its import."""
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server = FaultServer(build_library(self.folder), with_torch=not set(commands) <= WITHOUT_TORCH)
        self._count = 0
        self._reference: dict[str, int] | None = None

    def close(self) -> None:
        self.server.close()

    def run(self, row: Row) -> Outcome:
        """Runs one row in a folder of its own, which is removed when nothing was wrong."""
        command, fault = COMMANDS[row.command], FAULTS[row.fault]
        outcome = Outcome(row)
        reference = self.reference() if command.extra.get("ends_identical") else None
        place = self._prepared(self._template(command, row.start))
        before = invariant.snapshot(place)
        state = SharedState(place / "state")
        state.set_moment(*row.moment[:3])
        state.set_outputs(place / "out")
        with limits.memory_group(fault.kind == "cgroup") as group:
            if fault.kind == "cgroup" and group is None:
                outcome.reason = "no memory cgroup may be made here"
                return self._done(outcome, state, place)
            running = self._start(command.arguments, command, place, state, cgroup=group and str(group))
            self._to_moment(running, state)
            if not state.reached:
                outcome.reason = "the command did not come to this moment"
            at_moment = invariant.at_moment(command, place) if state.reached else None
            check = self._strike(running, state, fault, command, place, group) if state.reached else None
            state.go = 1
            if outcome.reason is None and isinstance(check, str):
                outcome.reason = check
            try:
                ended = running.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                outcome.violations.append(("hang", f"still running after {PATIENCE_S} s"))
                outcome.fired = True
                return self._done(outcome, state, place)
            outcome.exit_code, outcome.stderr = ended.returncode, ended.stderr
            if callable(check):
                outcome.fired = bool(check())
                outcome.reason = None if outcome.fired else "the command went on without meeting the fault"
            struck_down = group is not None and limits.kills(group) > 0
        state.mend()
        found = invariant.after_fault(row, place, before, at_moment, ended, running.left_behind, struck_down)
        outcome.violations += found
        (place / "lost_gpu").unlink(missing_ok=True)
        try:
            again = self._start(command.next_arguments or command.arguments, command, place, None).wait(
                PATIENCE_S
            )
        except subprocess.TimeoutExpired:
            outcome.violations.append(("hang", f"the next run is still running after {PATIENCE_S} s"))
            return self._done(outcome, state, place)
        outcome.next_exit_code = again.returncode
        outcome.violations += invariant.after_next_run(row, place, before, again, reference)
        if again.returncode:
            outcome.stderr += f"\n--- next run:\n{again.stderr}"
        return self._done(outcome, state, place)

    def _done(self, outcome: Outcome, state: SharedState, place: Path) -> Outcome:
        state.close()
        if outcome.verdict == "failed":
            self._count += 1
            place.rename(self.folder / f"failed_{self._count}")
        return outcome

    @staticmethod
    def _to_moment(running: Running, state: SharedState) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not state.reached and not running.ended() and time.monotonic() < deadline:
            time.sleep(0.002)

    def _start(
        self,
        arguments: tuple[str, ...],
        command: Command,
        place: Path,
        state: SharedState | None,
        **options: Any,
    ) -> Running:
        names = {"{in}": str(place / "in"), "{out}": str(place / "out")}
        given = [str(REPOSITORY / command.script)]
        for argument in arguments:
            for name, folder in names.items():
                argument = argument.replace(name, folder)
            given.append(argument)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "TMPDIR": str(place / "tmp"),
            "HOME": str(place / "home"),
            "XDG_CACHE_HOME": str(place / "home/cache"),
            "FAULT_GPU": str(place / "lost_gpu"),
            "OMP_NUM_THREADS": "1",
        }
        environment.pop("FAULT_STATE", None)
        if state is not None:
            environment["FAULT_STATE"] = str(state.file)
        return self.server.start(given, place / "in", environment, **options)

    def _strike(
        self,
        running: Running,
        state: SharedState,
        fault: Fault,
        command: Command,
        place: Path,
        group: Path | None,
    ) -> Callable[[], bool] | str:
        """Does the fault while the command is held; a check of whether it struck, or why it could not."""
        processes = limits.with_children(running.pid)
        if fault.kind == "signal":
            for name in fault.value:
                os.kill(running.pid, getattr(signal, name))
                time.sleep(0.05 if len(fault.value) > 1 else 0)
                state.go = 1  # the second signal finds it where the first has brought it
            return lambda: True
        if fault.kind == "kill":
            os.kill(running.pid, signal.SIGKILL)
            return lambda: True
        if fault.kind == "kill_children":
            if len(processes) == 1:
                return "no child is running at this moment"
            for pid in processes[1:]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return lambda: True
        if fault.kind == "error":
            state.set_outputs(place / "out", *([place / "tmp"] if fault.everywhere else []))
            state.fail_calls(*fault.value)
        elif fault.kind == "clock":
            state.clock_offset = fault.value
        elif fault.kind == "descriptors":
            state.watched = limits.NO_DESCRIPTOR
            limits.close_descriptors(processes)
        elif fault.kind == "address_space":
            state.watched = limits.NO_MEMORY
            limits.freeze_address_space(processes)
        elif fault.kind == "cgroup":
            limits.freeze_memory(group)
            return lambda: limits.kills(group) > 0
        elif fault.kind == "gpu":
            (place / "lost_gpu").touch()
            return lambda: (place / "lost_gpu.raised").exists()
        elif fault.kind == "second_run":
            second = self._start(command.arguments, command, place, None)
            try:
                ended = second.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                return "the second run did not end"
            (place / "second_run").write_text(f"{ended.returncode}\n{ended.stdout}\n{ended.stderr}")
            return lambda: True
        return lambda: state.fired > 0

    def _template(self, command: Command, start: str) -> Path:
        template = self.folder / f"template_{command.name}_{start}"
        if not template.exists():
            place = self._prepared(None)
            write_inputs(command.template, place / "in", place / "out")
            for name in ("tmp", "home", "sentinel"):
                (place / name).mkdir()
            (place / "sentinel/notes.txt").write_text("nobody writes here\n")
            if start == "again":
                self._earlier(command, place)
            place.rename(template)
        return template

    def _earlier(self, command: Command, place: Path) -> None:
        """The outputs of an earlier run: whole, or for what goes on from there, of a part."""
        arguments = list(command.arguments)
        if command.name in ("profile", "resume"):
            sizes = {"profile": "1,2", "resume": "1"}[command.name]
            arguments[arguments.index("1,2,4")] = sizes
            if "--resume" in arguments:
                arguments.remove("--resume")
        if command.name == "generate_image":
            arguments[arguments.index("--seed") + 1] = "2"
        if command.name == "test":
            self._finish(COMMANDS["train"], COMMANDS["train"].arguments, place)
        if command.name == "train":
            state = SharedState(place / "state")
            state.set_moment("w", '"step": 3,')
            state.set_outputs(place / "out")
            running = self._start(command.arguments, command, place, state)
            while not state.reached and not running.ended():
                time.sleep(0.002)
            os.kill(running.pid, signal.SIGTERM)
            state.go = 1
            assert running.wait(PATIENCE_S).returncode == 4
            state.close()
            (place / "state").unlink()
            return
        self._finish(command, tuple(arguments), place)

    def _finish(self, command: Command, arguments: tuple[str, ...], place: Path) -> None:
        done = self._start(arguments, command, place, None).wait(PATIENCE_S)
        assert done.returncode == 0, done.stderr

    def reference(self) -> dict[str, int]:
        """The last checkpoint of a training that nothing struck."""
        if self._reference is None:
            place = self._prepared(self._template(COMMANDS["train"], "fresh"))
            self._finish(COMMANDS["train"], COMMANDS["train"].arguments, place)
            self._reference = state_of_training(place / "out")
        return self._reference

    def _prepared(self, template: Path | None) -> Path:
        """The folder of the row, as the template is; always the same one, since outputs name the files they are of."""
        place = self.folder / "row"
        shutil.rmtree(place, ignore_errors=True)
        if template is None:
            place.mkdir()
        else:
            shutil.copytree(template, place, symlinks=True)
        return place
