"""A page opened in headless Chromium, by the DevTools protocol over two pipes: no driver, no port, no package."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
    "--hide-scrollbars",
)  # fmt: skip
PATIENCE_S = 60
# Above what the shell keeps for itself and what the protocol wants (3 to read, 4 to write).
LOWEST_DESCRIPTOR = 20


def chromium():
    """The program, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page: `call` asks the browser, `events` are what it told meanwhile."""

    def __init__(self, write, read):
        self.write, self.read = write, read
        self.buffer, self.number, self.session, self.events = b"", 0, None, []

    def call(self, method, **parameters):
        """Result of a method of the protocol. Raises AssertionError for an error or no answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        deadline = time.monotonic() + PATIENCE_S
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next(deadline))

    def _next(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            piece = os.read(self.read, 2**20)
            assert piece, "the browser has ended"
            self.buffer += piece
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def evaluate(self, expression):
        """Value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, file, width=1000, height=900):
        self.resize(width, height)
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def resize(self, width, height=900):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def requests(self):
        """Addresses that the page asked for, its own left out."""
        sent = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent if one["request"]["url"] != one["documentURL"]]

    def complaints(self):
        """Errors, warnings and exceptions of the page's console."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event.get("method") in kinds]


@contextlib.contextmanager
def opened(page, profile_folder):
    """A Tab with a local file, loaded."""
    to_browser, our_end = os.pipe()
    from_browser, its_end = os.pipe()
    inherited = [fcntl.fcntl(end, fcntl.F_DUPFD, LOWEST_DESCRIPTOR) for end in (to_browser, its_end)]
    for end in (to_browser, its_end):
        os.close(end)
    command = [chromium(), *FLAGS, f"--user-data-dir={profile_folder}", "about:blank"]
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
