"""A page opened in headless Chromium, by the DevTools protocol over two pipes: no driver, no port, no package.

For the documents' pictures and for the tests of the reports.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
    "--hide-scrollbars",
)  # fmt: skip
PATIENCE_S = 60
# Above what the shell keeps for itself and what the protocol wants (3 to read, 4 to write).
LOWEST_DESCRIPTOR = 20


class BrowserError(RuntimeError):
    """The browser does not do what it was asked, in a line."""


def chromium() -> str | None:
    """The program, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page: `call` asks the browser, `events` are what it told meanwhile."""

    def __init__(self, write: int, read: int) -> None:
        self.write, self.read = write, read
        self.buffer, self.number = b"", 0
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Result of a method of the protocol. Raises BrowserError for an error or no answer."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        try:
            os.write(self.write, json.dumps(message).encode() + b"\0")
        except BrokenPipeError as error:
            raise BrowserError("the browser has ended") from error
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def wait_for(self, method: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next(deadline))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise BrowserError("the browser does not answer")
            piece = os.read(self.read, 2**20)
            if not piece:
                raise BrowserError("the browser has ended")
            self.buffer += piece
        message, _, self.buffer = self.buffer.partition(b"\0")
        return dict(json.loads(message))

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression in the page. Raises BrowserError for what it throws."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def screenshot(self, file: Path, width: int = 1000, height: int = 900) -> None:
        """A PNG of the head of the page."""
        self.resize(width, height)
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def resize(self, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def requests(self) -> list[str]:
        """Addresses that the page asked for, its own left out."""
        sent = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent if one["request"]["url"] != one["documentURL"]]

    def complaints(self) -> list[dict[str, Any]]:
        """Errors, warnings and exceptions of the page's console."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event.get("method") in kinds]


@contextlib.contextmanager
def opened(page: Path, profile_folder: Path) -> Iterator[Tab]:
    """A Tab with a local file, loaded. profile_folder: of the browser. Raises BrowserError."""
    program = chromium()
    if program is None:
        raise BrowserError(f"none of {', '.join(NAMES)} is installed")
    to_browser, our_end = os.pipe()
    from_browser, its_end = os.pipe()
    inherited = [fcntl.fcntl(end, fcntl.F_DUPFD, LOWEST_DESCRIPTOR) for end in (to_browser, its_end)]
    for end in (to_browser, its_end):
        os.close(end)
    command = [program, *FLAGS, f"--user-data-dir={profile_folder}", "about:blank"]
    shell = f'exec "$@" 3<&{inherited[0]} 4>&{inherited[1]}'
    process = subprocess.Popen(
        ["bash", "-c", shell, "bash", *command],
        pass_fds=inherited,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in inherited:
        os.close(end)
    tab = Tab(our_end, from_browser)
    try:
        target = tab.call("Target.createTarget", url="about:blank")["targetId"]
        tab.session = tab.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.events.clear()
        tab.call("Page.navigate", url=page.resolve().as_uri())
        tab.wait_for("Page.loadEventFired")
        yield tab
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(our_end)
        os.close(from_browser)


if __name__ == "__main__":
    raise SystemExit("no command: scripts/make_screenshots.py uses it, and so do the tests of the reports")
