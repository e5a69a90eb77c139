"""A headless Chromium, driven through its debugging pipe."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

_SECONDS = 30


class Browser:
    """A page: it records errors and requests, and can be measured and photographed."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._unread = b""
        self._n_calls = 0
        self._n_loaded = 0
        self._session = ""
        self.errors: list[str] = []  # of the console, scripts and policies
        self.requests: list[str] = []
        (target,) = (self.call("Target.createTarget", url="about:blank")["targetId"],)
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._n_calls += 1
        message: dict[str, Any] = {
            "id": self._n_calls,
            "method": method,
            "params": parameters,
        }
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._n_calls:
            self._note(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, path: Path, *, width: int, scheme: Literal["light", "dark"]) -> None:
        """Load a page on a screen of `width` pixels, and wait until it is complete."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        n_before = self._n_loaded
        self.call("Page.navigate", url=path.as_uri())
        while self._n_loaded == n_before:
            self._note(self._next())

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True
        )
        return result["result"].get("value")

    def photograph(self, path: Path) -> None:
        """Save a picture of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], _SECONDS)
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 16)
            assert data, "the browser has exited"
            self._unread += data
        text, self._unread = self._unread.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, found = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(found["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.errors.append(found["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.errors.append(str(found["args"]))
        elif method == "Page.loadEventFired":
            self._n_loaded += 1
        elif method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Run a browser with its own, empty profile."""
    assert CHROMIUM is not None
    theirs_in, to_browser = os.pipe()
    from_browser, theirs_out = os.pipe()

    # The browser reads descriptor 3 and writes descriptor 4.
    command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        [
            *("bash", "-c", command, CHROMIUM, "--headless", "--no-sandbox"),
            *("--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"),
            *(f"--user-data-dir={profile}", "about:blank"),
        ],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(to_browser, from_browser)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        process.kill()
        process.wait()
