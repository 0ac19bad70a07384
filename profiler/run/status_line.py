"""One line on standard error that says what is being done, and for how long already; silent without a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

REFRESH_S = 0.5


class StatusLine:
    """`say` names what is done from now on."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None

    def say(self, what: str) -> None:
        if self._bar is not None:
            self._bar.set_description_str(what)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows the line while the block runs, and takes it away."""
        self._bar = tqdm(total=0, bar_format="{desc} ({elapsed})", disable=None, file=sys.stderr, leave=False)
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
