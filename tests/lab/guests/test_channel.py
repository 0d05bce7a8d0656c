"""The channel of a guest, against the agent itself over a pair of sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iscsitrace.errors import ToolMissing
from iscsitrace.lab.guests.boot import agent
from iscsitrace.lab.guests.machine import Channel, Guest


@pytest.fixture
def channel() -> Iterator[Channel]:
    ours, of_agent = socket.socketpair()
    serving = threading.Thread(target=agent.serve, args=(of_agent.detach(),))
    serving.start()
    found = Channel(ours, "initiator")
    found.await_boot(5)
    yield found
    ours.shutdown(socket.SHUT_RDWR)
    ours.close()
    serving.join(5)


@pytest.fixture
def guest(channel: Channel, tmp_path: Path) -> Guest:
    return Guest("initiator", channel, tmp_path / "shell")


def test_a_program_gets_its_input_and_environment(guest: Guest) -> None:
    script = 'cat; echo "$WORD"; echo trouble >&2'
    done = guest.run("/bin/sh", "-c", script, input_text="line\n", environment={"WORD": "öl"})
    assert (done.code, done.output, done.errors) == (0, "line\nöl\n", "trouble\n")


def test_a_program_that_fails_is_one_line(guest: Guest) -> None:
    with pytest.raises(ToolMissing, match=r"^/bin/sh in guest initiator failed with code 3: trouble$"):
        guest.run("/bin/sh", "-c", "echo trouble >&2; exit 3")
    assert guest.run("/bin/sh", "-c", "exit 3", is_checked=False).code == 3
    with pytest.raises(ToolMissing, match="guest initiator: FileNotFoundError"):
        guest.run("no-such-program")


def test_a_program_is_killed_with_its_children_at_its_limit(guest: Guest) -> None:
    begun = time.monotonic()
    done = guest.run("/bin/sh", "-c", "echo before; sleep 60 & wait", limit_s=0.2, is_checked=False)
    assert (done.code, done.output) == (None, "before\n")
    assert time.monotonic() - begun < 30
    with pytest.raises(ToolMissing, match=r"did not finish in 0.2 s"):
        guest.run("sleep", "60", limit_s=0.2)


def test_lines_of_shell_end_at_the_first_that_fails(guest: Guest) -> None:
    assert guest.shell("echo one\necho two") == "one\ntwo\n"
    with pytest.raises(ToolMissing, match="failed with code 1"):
        guest.shell("false\necho two")


def test_a_program_runs_until_its_block_ends(guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iscsitrace.lab.guests.machine._LOG", str(tmp_path / "log-{}"))
    with guest.started("/bin/sh", "-c", "echo ready; exec sleep 60") as process:
        process.wait_until(lambda: process.log == "ready\n", "no line")
        assert process.is_running
        # other requests are answered meanwhile
        assert guest.run("true").code == 0
    assert process.stop() == -15
    with guest.started("/bin/sh", "-c", "echo worse; exit 4") as process:
        with pytest.raises(ToolMissing, match="/bin/sh ended in guest initiator: worse"):
            process.wait_until(lambda: False, "nothing")
        assert process.stop() == 4
    with (
        guest.started("sleep", "60") as process,
        pytest.raises(ToolMissing, match=r"sleep in guest initiator: no miracle not within 0.1 s"),
    ):
        process.wait_until(lambda: False, "no miracle", limit_s=0.1)


def test_files_pass_both_ways(guest: Guest, tmp_path: Path) -> None:
    file = tmp_path / "new" / "file"
    content = "x" * 3_000_000
    guest.write(str(file), content, mode=0o600)
    assert file.read_text() == content
    assert file.stat().st_mode & 0o777 == 0o600
    assert guest.read(str(file), offset=2_999_990) == b"x" * 10
    with pytest.raises(ToolMissing, match="FileNotFoundError"):
        guest.read(str(tmp_path / "missing"))


def test_the_clock_of_a_guest_is_compared_with_this_one(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = guest.clock()
    assert abs(clock.offset_ns) <= clock.error_ns < 50_000_000
    of_agent = time.time_ns
    monkeypatch.setattr(agent, "_time", lambda *_: ({"time_ns": of_agent() + 7_000_000_000, "monotonic_ns": 0}, b""))
    monkeypatch.setitem(agent._ACTIONS, "time", agent._time)
    clock = guest.clock()
    assert abs(clock.offset_ns - 7_000_000_000) <= clock.error_ns


def test_a_guest_that_ends_fails_what_waits_for_it(channel: Channel) -> None:
    waiting = channel.send("run", argv=["sleep", "60"], environment={}, limit_s=0.5)
    channel._connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ToolMissing, match="the guest initiator has ended"):
        waiting.result(5)
    with pytest.raises(ToolMissing, match="the guest initiator has ended"):
        channel.ask("time")


def test_a_guest_that_does_not_answer_is_one_line() -> None:
    ours, silent = socket.socketpair()
    with ours, silent, pytest.raises(ToolMissing, match=r"the guest target did not answer within 0.1 s"):
        Channel(ours, "target").await_boot(0.1)
