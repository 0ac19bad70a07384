"""Rows of the campaign as data: a command, where it starts from, a moment of its progress, a fault."""

from __future__ import annotations

import itertools
import random
from dataclasses import asdict, dataclass
from typing import Any

from tests.faults.commands import COMMANDS, Command, Moment

AT_THE_END = ("late", "last")
# "fresh": no outputs; "again": what an earlier run left there.
STARTS = ("fresh", "again")
NEED_AN_EARLIER_RUN = ("resume", "recommend", "test")


@dataclass(frozen=True)
class Fault:
    """What strikes, and how the command is told from then on.

    kind: "signal", "kill_children", "kill", "error" (calls on the outputs fail), "clock", "descriptors", "cgroup",
    "address_space", "gpu", "second_run".
    """

    name: str
    kind: str
    value: Any = None
    everywhere: bool = False  # an error that the temporary folder has too

    def applies_to(self, command: Command, moment: Moment) -> bool:
        """Whether there is something for it to strike."""
        if self.kind in ("error", "descriptors"):
            return moment.phase != "last"
        if (
            self.kind in ("gpu", "kill_children", "clock", "cgroup", "address_space")
            and moment.phase in AT_THE_END
        ):
            return False
        if self.kind in ("cgroup", "address_space"):
            return command.takes_memory
        if self.kind == "kill_children":
            return command.has_children and moment.phase == "middle"
        if self.kind == "clock":
            return command.reads_clock
        return self.kind != "gpu" or command.runs_network


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("SIGINT", "signal", ("SIGINT",)),
        Fault("SIGTERM", "signal", ("SIGTERM",)),
        Fault("SIGHUP", "signal", ("SIGHUP",)),
        Fault("SIGINT twice", "signal", ("SIGINT", "SIGINT")),
        Fault("SIGTERM, then SIGKILL", "signal", ("SIGTERM", "SIGKILL")),
        Fault("SIGKILL of every child", "kill_children"),
        Fault("SIGKILL", "kill"),
        Fault("ENOSPC", "error", ("ENOSPC", -1)),
        Fault("ENOSPC everywhere", "error", ("ENOSPC", -1), everywhere=True),
        Fault("ENOSPC once", "error", ("ENOSPC", 1)),
        Fault("EIO", "error", ("EIO", -1)),
        Fault("EIO once", "error", ("EIO", 1)),
        Fault("EROFS", "error", ("EROFS", -1)),
        Fault("clock a day ahead", "clock", 86_400),
        Fault("clock a year back", "clock", -365 * 86_400),
        Fault("no file descriptor left", "descriptors"),
        Fault("memory limit (cgroup)", "cgroup"),
        Fault("memory limit (RLIMIT_AS)", "address_space"),
        Fault("lost GPU", "gpu"),
        Fault("second run", "second_run"),
        Fault("SIGUSR1", "signal", ("SIGUSR1",)),
    )
}


@dataclass(frozen=True)
class Row:
    """One combination. `str(row)` is its name, unique."""

    command: str
    start: str
    moment: Moment
    fault: str

    def __str__(self) -> str:
        return f"{self.command} ({self.start}), {self.moment}, {self.fault}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "moment": list(self.moment)}


def all_rows() -> list[Row]:
    """Every combination that has a meaning, in a fixed order."""
    rows = []
    for command, start, fault in itertools.product(COMMANDS.values(), STARTS, FAULTS.values()):
        if start == "fresh" and command.name in NEED_AN_EARLIER_RUN:
            continue
        moments = [moment for moment in command.moments if fault.applies_to(command, moment)]
        moments = [moment for moment in moments if start == "fresh" or not moment.first_run]
        rows += [Row(command.name, start, moment, fault.name) for moment in moments]
    # What came later stands at the end, so that a seed draws nearly what it drew before.
    return sorted(rows, key=lambda row: row.fault == "SIGUSR1" and row.command != "train")


def drawn_rows(count: int, seed: int) -> list[Row]:
    """`count` different combinations, the same for the same seed: every fault of every command comes up in turn."""
    rng = random.Random(seed)
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in all_rows():
        groups.setdefault((row.command, row.fault), []).append(row)
    for group in groups.values():
        rng.shuffle(group)
    drawn: list[Row] = []
    while len(drawn) < count and any(groups.values()):
        order = [group for group in groups.values() if group]
        rng.shuffle(order)
        drawn += [group.pop() for group in order]
    return drawn[:count]
