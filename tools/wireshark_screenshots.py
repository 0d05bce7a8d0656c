"""Wireshark under Xvfb with the plugin, the extcap and the profile: the pictures of docs/plugins.md.

``python -m tools.wireshark_screenshots FOLDER`` takes them; look at each before it is copied to docs/images/. Needs
wireshark, xvfb, openbox, xdotool and imagemagick, which no other chore needs. Wireshark uses a separate home folder,
into which ``iscsitrace wireshark install`` copies our files as for any user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import iscsitrace
from iscsitrace.show import sidecar

WIDTH, HEIGHT = 1720, 900
_PROGRAM = str(Path(sys.executable).parent / "iscsitrace")
_SHOWN = "iscsi || iscsitrace.loss_class"
_NO_CAPTURE = "The Wireshark Network Analyzer"
# positions on the screen in this version of Wireshark
_FIRST_ROW = (300, 150)
# between the packet details and the bytes, and where it leaves room for a comment
_SPLITTER = ((859, 600), (1690, 600))
_DETAILS, _CYCLES_IN_MENU = (300, 508), (358, 330)
_GEAR_OF_CAPTURE, _GEAR_OF_WAN = (213, 466), (213, 484)
_SECOND_TAB = (123, 26)
_SMALL = ("+dither", "-colors", "48", "-strip", "-define", "png:compression-level=9")
_SLOW_NS, _ROOM_FRAMES = 50_000_000, 300
_SETTLE_S = 2.0
_PATIENCE_S = 60.0
_RUN = (
    "simulate mixed --one-way-delay 8ms --rate 320Mbit --loss 1/512 --block-size 128K --queue-depth 2 --bytes 8M "
    "--seed 3 --key InitialR2T=Yes"
)

_PREFERENCES = """
gui.update.enabled: FALSE
gui.ask_unsaved: FALSE
"""
_RECENT_COMMON = """
privs.warn_if_elevated: FALSE
gui.geometry_main_maximized: TRUE
"""


class Display:
    """A separate X display, and actions on it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def run(self, *command: str) -> str:
        """The output of a program."""
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Starts a program in the background."""
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, env=self._environment, stdin=quiet, stdout=quiet, stderr=quiet)

    def window(self, title: str) -> str:
        """Waits for the window with this text in its title; returns its number."""
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            found = self.run("xdotool", "search", "--onlyvisible", "--name", title).split()
            if found:
                time.sleep(_SETTLE_S)
                return found[-1]
            time.sleep(0.2)
        raise TimeoutError(f"no window {title!r} appeared")

    def keys(self, *keys: str) -> None:
        """Types keys, one after another."""
        for key in keys:
            self.run("xdotool", "key", "--clearmodifiers", key)
            time.sleep(0.3)

    def click(self, x: int, y: int, *, times: int = 1, button: int = 1) -> None:
        """Clicks at a position."""
        self.run("xdotool", "mousemove", str(x), str(y))
        self.run("xdotool", "click", "--repeat", str(times), "--delay", "80", str(button))
        time.sleep(0.5)

    def drag(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Drags what is at a position to another one."""
        self.run("xdotool", "mousemove", *map(str, start), "mousedown", "1")
        self.run("xdotool", "mousemove", *map(str, end), "mouseup", "1")
        time.sleep(0.5)

    def away(self) -> None:
        """Moves the pointer to a position where it highlights nothing."""
        self.run("xdotool", "mousemove", str(WIDTH - 2), str(HEIGHT - 2))

    def picture(self, file: Path, window: str = "root", crop: str | None = None) -> None:
        """A PNG of a window, with a reduced palette."""
        time.sleep(_SETTLE_S)
        cut = ["-crop", crop, "+repage"] if crop else []
        self.run("import", "-window", window, *cut, *_SMALL, str(file))
        print(f"{file}: {file.stat().st_size} bytes")


@contextmanager
def display(home: Path) -> Iterator[Display]:
    """Xvfb and a window manager."""
    reading, writing = os.pipe()
    screen = f"{WIDTH}x{HEIGHT}x24"
    server = subprocess.Popen(
        [shutil.which("Xvfb") or "Xvfb", "-displayfd", str(writing), "-screen", "0", screen, "-nolisten", "tcp"],
        pass_fds=[writing],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    try:
        with open(reading) as stream:  # noqa: PTH123 -- a descriptor
            number = stream.readline().strip()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "WIRESHARK_", "QT_"))}
        own = {"DISPLAY": f":{number}", "HOME": str(home), "XDG_RUNTIME_DIR": str(home), "LC_ALL": "C.UTF-8"}
        shown = Display(kept | own)
        manager = shown.start("openbox")
        try:
            yield shown
        finally:
            manager.terminate()
            manager.wait()
    finally:
        server.terminate()
        server.wait()


@contextmanager
def wireshark(shown: Display, title: str, *arguments: str) -> Iterator[str]:
    """Starts Wireshark with the profile; returns the number of its main window, as large as the screen."""
    process = shown.start("wireshark", "-C", "iscsitrace", *arguments)
    try:
        yield shown.window(title)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(arguments: Sequence[str]) -> int:
    """Takes all screenshots into a folder; returns the exit code."""
    if len(arguments) != 1:
        print("python -m tools.wireshark_screenshots FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="iscsitrace-") as name:
        home = Path(name)
        with display(home) as shown:
            program = _PROGRAM
            run = home / "run"
            print(shown.run(program, *_RUN.split(), "--quiet", "-o", str(run)))
            print(shown.run(program, "export", "--sidecar", str(run / "initiator.pcapng")))
            print(shown.run(program, "wireshark", "install"))
            configuration = home / ".config" / "wireshark"
            (configuration / "recent_common").write_text(_RECENT_COMMON)
            with (configuration / "profiles" / "iscsitrace" / "preferences").open("a") as stream:
                stream.write(_PREFERENCES)
            _take(shown, run / "initiator.pcapng", folder)
    return 0


def _take(shown: Display, capture: Path, folder: Path) -> None:
    frame = _example_frame(capture)
    with wireshark(shown, capture.name, "-r", str(capture), "-Y", _SHOWN, "-g", str(frame)):
        shown.away()
        shown.picture(folder / "wireshark-columns.png", crop=f"{WIDTH}x486+0+0")
        shown.click(*_DETAILS)
        shown.keys("ctrl+Right", "End")
        shown.away()
        shown.picture(folder / "wireshark-tree.png", crop=f"{WIDTH // 2}x362+0+497")
        shown.keys("alt+s")
        shown.click(*_CYCLES_IN_MENU)
        window = shown.window("iSCSI commands")
        shown.run("xdotool", "windowsize", "--sync", window, "1330", "400")
        shown.picture(folder / "wireshark-statistics.png", window)
    _take_annotated(shown, capture, folder)
    with wireshark(shown, _NO_CAPTURE):
        shown.away()
        shown.picture(folder / "wireshark-interfaces.png", crop=f"{WIDTH}x500+0+110")
        for place, name in ((_GEAR_OF_CAPTURE, "wireshark-trigger.png"), (_GEAR_OF_WAN, "wireshark-extcap.png")):
            shown.click(*place)
            window = shown.window("Interface Options")
            if place == _GEAR_OF_CAPTURE:
                shown.run("xdotool", "mousemove", "--window", window, *map(str, _SECOND_TAB), "click", "1")
            shown.away()
            shown.picture(folder / name, window)
            shown.keys("Escape")
        shown.click(_GEAR_OF_WAN[0] + 100, _GEAR_OF_WAN[1], times=2)
        shown.window("iSCSI over a simulated WAN")
        shown.away()
        shown.picture(folder / "wireshark-live.png", crop=f"{WIDTH}x486+0+0")


def _take_annotated(shown: Display, capture: Path, folder: Path) -> None:
    """The frames that the diagnosis names, with the comment of the first."""
    annotated = capture.with_name("annotated.pcapng")
    shown.run(_PROGRAM, "export", "--annotate", str(annotated), str(capture))
    with wireshark(shown, annotated.name, "-r", str(annotated), "-Y", "frame.comment"):
        shown.click(*_FIRST_ROW)
        shown.click(*_DETAILS)
        shown.drag(*_SPLITTER)
        shown.keys("Home", "Right", "Down")
        shown.away()
        shown.picture(folder / "wireshark-annotated.png", crop=f"{WIDTH}x640+0+0")


def _example_frame(capture: Path) -> int:
    """A frame that ends a read shortly after a slow command, with data in the sidecar."""
    rows = (line.split("\t") for line in sidecar.path_of(capture).read_text().splitlines()[2:])
    known = {int(row[0]) for row in rows if not row[3]}
    cycles = [row for row in iscsitrace.read(capture).cycles.rows() if row["latency_ns"] is not None]
    slow = [row["status_frame"] for row in cycles if row["latency_ns"] >= _SLOW_NS]
    # Wireshark shows a retransmitted PDU later than it arrived
    found = [row["status_frame"] for row in cycles if row["operation"] == "read" and not row["has_retransmission"]]
    first = slow[len(slow) // 2] + _ROOM_FRAMES
    return int(next(frame for frame in found if frame > first and frame in known))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
