"""What is being done, on standard error: one line with the time on a terminal, else a line for each thing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tqdm import tqdm

REFRESH_S = 0.5


class StatusLine:
    """`say` names what is done from now on."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None
        self._silent = False

    def say(self, what: str) -> None:
        if self._bar is None:
            return
        if self._bar.disable and not self._silent:
            with suppress(OSError):
                print(f"{what}...", file=sys.stderr, flush=True)
        self._bar.set_description_str(what)

    @contextmanager
    def shown(self, *, silent: bool = False) -> Iterator[None]:
        """Shows the line while the block runs, and takes it away. silent: says nothing."""
        self._silent = silent
        bar_format, disable = "{desc} ({elapsed})", True if silent else None
        self._bar = tqdm(total=0, bar_format=bar_format, disable=disable, file=sys.stderr, leave=False)
        ended = threading.Event()
        thread = threading.Thread(target=self._refresh, args=(self._bar, ended), daemon=True)
        if not self._bar.disable:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.ident is not None:
                thread.join()
            self._bar.close()
            self._bar = None

    @staticmethod
    def _refresh(bar: tqdm, ended: threading.Event) -> None:
        while not ended.wait(REFRESH_S):
            bar.refresh()
