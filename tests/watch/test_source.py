"""The input of a live view: what is followed, what is captured, and how each of them ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.tables.passes import SECOND_NS, Settings
from iscsitrace.watch import source
from iscsitrace.watch.source import Watched, capture_command, open_source


class Live:
    """Stands for a live pass: what it was opened with, and how it was stopped."""

    def __init__(self, path: Any, settings: Settings, *, name: str | None = None) -> None:
        self.opened: Any = (str(path), settings.lag_max_ns, settings.capture_filter)
        self.name = name
        self.stopped: list[bool] = []

    def stop(self, *, is_abrupt: bool = False) -> None:
        self.stopped.append(is_abrupt)


@pytest.fixture(autouse=True)
def _live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "Live", Live)


def opened(name: str | Path) -> Any:
    with open_source(str(name), Settings(capture_filter="tcp")) as watched:
        watched.stop()
        assert (watched.last_message(), watched.close()) == ("", 0)
        return watched.live


def test_a_file_ends_at_its_end_and_a_pipe_at_once(tmp_path: Path) -> None:
    """Only what cannot wait is left out when it is two seconds late."""
    file, pipe = tmp_path / "eth0", tmp_path / "pipe"
    file.touch()
    os.mkfifo(pipe)
    for name, lag_ns, is_abrupt in ((file, None, False), (pipe, 2 * SECOND_NS, True), ("-", 2 * SECOND_NS, True)):
        live = opened(name)
        assert live.opened == (str(name), lag_ns, "tcp")
        assert live.stopped == [is_abrupt]


def test_what_is_neither_a_file_nor_an_interface(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match=r"^nowhere: no such file, and no such interface"):
        opened("nowhere")
    (tmp_path / "a").touch()
    for name in ("-", str(tmp_path / "a")):
        with pytest.raises(InputInvalid, match=f"only an interface takes these; {name} is captured already"):
            open_source(name, Settings(), capture_options=["-s", "96"])


def test_the_name_of_a_ring_is_its_last_file(tmp_path: Path) -> None:
    ring = tmp_path / "san.pcapng"
    with pytest.raises(InputInvalid):
        open_source(str(ring), Settings())
    for name in (
        "san_00009_20261121190000.pcapng.zst",
        "san_00010_20261121190001.pcapng",
        "sanx_00011_20261121190002.pcapng",
    ):
        (tmp_path / name).touch()
    assert opened(ring).opened[0] == str(tmp_path / "san_00010_20261121190001.pcapng")
    # a file of that very name is the file
    ring.touch()
    assert opened(ring).opened[0] == str(ring)


def test_an_interface_is_captured_by_a_child_with_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(source, "_capture", lambda *arguments: seen.append(arguments))
    for name in ("lo", "any"):
        open_source(name, Settings(capture_filter="tcp"), capture_options=["-B", "8"])
        command, captured, settings, _ = seen.pop()
        assert (captured, settings.capture_filter, settings.lag_max_ns) == (name, None, 2 * SECOND_NS)
        assert command[1:] == ["-P", "-m", "iscsitrace", "capture", "-q", "-i", name, "-f", "tcp", "-B", "8", "-w", "-"]
    assert capture_command("lo", None, [])[5:] == ["-q", "-i", "lo", "-w", "-"]


def child(program: str) -> Watched:
    return source._capture([sys.executable, "-c", program], "eth0", Settings())


def test_a_child_that_has_ended_leaves_its_code_and_its_words() -> None:
    with child("import sys; sys.stderr.write(' no permission \\n'); sys.exit(3)") as watched:
        assert vars(watched.live)["name"] == "eth0"
        assert watched.close() == 3
        assert watched.last_message() == "no permission"
        # it has ended already
        watched.stop()
    with pytest.raises(ToolMissing, match=r"^cannot capture on eth0"):
        source._capture(["/nowhere/python"], "eth0", Settings())


def test_a_child_gets_sigterm_and_is_killed_where_that_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with child("import time; time.sleep(60)") as watched:
        watched.stop()
        assert watched.close() == -15
    monkeypatch.setattr(source, "_PATIENCE_S", 0.01)
    with child("import time; time.sleep(60)") as watched:
        assert watched.close() == -9
    with child("import time; time.sleep(60)") as watched:
        assert watched._child is not None
    # the end of the block kills it
    assert watched._child.returncode == -9
