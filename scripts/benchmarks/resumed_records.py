"""Records of a benchmark that takes hours, a line of JSON each, and limits of the time that it takes at once."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

Item = TypeVar("Item")


def read_records(file: Path, key: str) -> dict[str, dict[str, Any]]:
    """The last record of each value of `key`, without a line that was cut short; none where there is no file."""
    records = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        records[record[key]] = record
    return records


def write_records(file: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """All of a file anew: what is added to it must not stand behind a line that was cut short."""
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def add_record(file: Path, record: Mapping[str, Any]) -> None:
    """One more line, on the disk when this returns."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")


def begun_within(seconds: float | None, items: Iterable[Item]) -> Iterator[Item]:
    """The items until so many seconds are over; None: all."""
    started = time.monotonic()
    for item in items:
        if seconds is not None and time.monotonic() - started > seconds:
            return
        yield item


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in the block where it takes longer. In the main thread."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
