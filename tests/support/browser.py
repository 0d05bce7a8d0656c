"""Headless Chromium for tests of pages, controlled over a pipe with the DevTools protocol: without a listening port.

It knows nothing about the content of the pages.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_PATIENCE_S = 120
"""Time limit for a hanging browser, far longer than any test."""
# Chromium reads commands from descriptor 3 and answers on 4
_LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
_KEY_CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "Tab": 9, "Escape": 27}


def required() -> str:
    """Path of the program. Where it is missing the test is skipped; in CI it fails."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        message = "Chromium is missing: tools/setup peers installs it"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return program


class Browser:
    """One page in one browser, and its errors and warnings."""

    def __init__(self, program: str, profile: Path) -> None:
        read_end, self._to_browser = os.pipe()
        self._from_browser, write_end = os.pipe()
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ]
        command += ["--no-first-run", "--disable-extensions", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        # no network requests by the browser itself, and rendering by the CPU without a graphics library
        command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        command += ["--disable-gpu-rasterization", "--disable-software-rasterizer"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCHER, str(read_end), str(write_end), *command, "about:blank"],
            pass_fds=(read_end, write_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        """Errors and warnings of the console, and scripts that failed."""
        self.requests: list[str] = []
        """Everything that the page requested."""
        self._is_loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to_browser)
        os.close(self._from_browser)
        self._process.terminate()
        self._process.wait(_PATIENCE_S)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command; returns its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, path: Path) -> None:
        """Loads a file from disk."""
        self._is_loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._is_loaded:
            self._next()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int = 900) -> None:
        """The size of the window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str = "light", media: str = "screen") -> None:
        """Sets the preferred colour scheme, and screen or print."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        text = {"text": key} if len(key) == 1 else {}
        code = _KEY_CODES.get(key, ord(key[0]))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Sends one mouse event: mousePressed, mouseMoved, mouseReleased, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path: Path, *, is_whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=is_whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def _next(self) -> dict[str, Any]:
        """The next message; events of the page are kept."""
        deadline = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from_browser], [], [], max(0.0, deadline - time.monotonic()))
            received = os.read(self._from_browser, 1 << 20) if ready else b""
            assert received, f"Chromium gave no answer; exit code {self._process.poll()}"
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, what: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._is_loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(what["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(what["args"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(what["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
