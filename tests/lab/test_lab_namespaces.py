"""Network namespaces carry packets as configured, and are removed, however a run ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.lab import guard, namespaces, own_process
from iscsitrace.lab.guard import guarding
from iscsitrace.lab.namespaces import EndSettings, LabNetwork, Namespace, network
from iscsitrace.lab.places import HERE, Place
from tests.support.lab import needs_root, plugged_in
from tests.support.programs import running

ENDS = {"initiator": EndSettings(), "target": EndSettings()}


def existing() -> set[str]:
    """Our namespaces, as iproute2 lists them."""
    command = ["ip", "netns", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout
    return {line.split()[0] for line in listed.splitlines() if line.startswith("iscsitrace-")}


def of_process(process_id: int) -> set[str]:
    return {name for name in existing() if name.startswith(f"iscsitrace-{process_id}-")}


def links(*options: str) -> list[dict[str, Any]]:
    command = ["ip", *options, "-j", "link"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout)
    assert isinstance(found, list)
    return found


def is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_gone(process_id: int) -> bool:
    """Within a second: a process that was killed takes a moment to end."""
    end = time.monotonic() + 1
    while is_alive(process_id) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_alive(process_id)


def ping(place: Place, address: str, count: int = 3) -> int:
    """How many of so many echo requests were answered."""
    words = ("-c", str(count), "-i", "0.05", "-W", "1", "-n", address)
    said = place.run("ping", *words, package="iputils-ping", limit_s=20, is_checked=False).output
    found = re.search(r"(\d+) received", said)
    assert found, said
    return int(found[1])


@contextmanager
def joined(cable: Literal["tap", "veth"]) -> Iterator[LabNetwork]:
    with ExitStack() as stack:
        made = stack.enter_context(network(ENDS, cable=cable))
        for each in made.cables:
            assert (each.taps is None) == (cable == "veth")
            if each.taps:
                stack.enter_context(plugged_in(each))
        yield made


@contextmanager
def connected(near: Namespace, far: Namespace) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A TCP connection from one namespace to another, both its sockets."""
    with far.call(lambda: socket.create_server((far.address, 3260))) as server:
        server.settimeout(5)
        with near.call(lambda: socket.create_connection((far.address, 3260), timeout=5)) as out:
            accepted, _ = server.accept()
            with accepted:
                accepted.settimeout(5)
                yield out, accepted


@needs_root
@pytest.mark.parametrize("cable", ["veth", "tap"])
def test_packets_pass_both_ways(cable: Literal["tap", "veth"]) -> None:
    with joined(cable) as made:
        first, second = made["initiator"], made["target"]
        assert {first.address, second.address} == {"10.71.0.1", "10.71.0.2"}
        assert ping(first, second.address) == 3
        assert ping(second, first.address) == 3
        assert first.address_v6 is not None
        assert second.address_v6 is not None
        assert ping(first, second.address_v6) == 3
        # also to local addresses: a server may listen on loopback
        assert ping(first, "127.0.0.1", 1) == 1


@needs_root
def test_a_tap_cable_without_a_link_carries_nothing() -> None:
    with network(ENDS, cable="tap") as made:
        assert ping(made["initiator"], made["target"].address, 1) == 0
        # and it can be plugged in, pulled out and plugged in again
        for _ in range(2):
            with plugged_in(made.cables[0]):
                # the unanswered requests for an address before are repeated only once a second
                assert any(ping(made["initiator"], made["target"].address, 1) for _ in range(5))
        taps = made.cables[0].taps
        assert taps is not None
        with taps[0].opened(), pytest.raises(ToolMissing, match="eth0: Device or resource busy"), taps[0].opened():
            pass


@needs_root
def test_several_ends_have_separate_cables() -> None:
    ends = {"initiator": EndSettings(), "target0": EndSettings(), "target1": EndSettings()}
    with network(ends, cable="veth") as made:
        initiator = made["initiator"]
        assert [interface.name for interface in initiator.interfaces] == ["eth0", "eth1"]
        for name in ("target0", "target1"):
            assert ping(initiator, made[name].address) == 3
        said = made["target0"].run(
            "ping", "-c", "1", "-W", "1", made["target1"].address, package="iputils-ping", is_checked=False
        )
        assert "unreachable" in said.errors


@needs_root
def test_two_cables_between_the_same_ends() -> None:
    pair = ("initiator", "target")
    with network(ENDS, cable="veth", cables=[pair, pair]) as made:
        for interface in made["target"].interfaces:
            assert ping(made["initiator"], interface.address) == 3


@needs_root
@pytest.mark.parametrize("cable", ["veth", "tap"])
def test_a_switch_forwards_frames_only_to_their_destination(cable: Literal["tap", "veth"]) -> None:
    ends = {
        "one": EndSettings(),
        "switch": EndSettings(is_switching=True),
        "two": EndSettings(),
        "three": EndSettings(),
    }
    cables = [("one", "switch"), ("switch", "two"), ("switch", "three")]

    def received(end: str) -> int:
        read = made[end].run("cat", "/sys/class/net/eth0/statistics/rx_packets", package="coreutils")
        return int(read.output)

    with ExitStack() as stack:
        made = stack.enter_context(network(ends, cable=cable, cables=cables))
        for each in made.cables:
            if each.taps:
                stack.enter_context(plugged_in(each))
        assert ping(made["one"], made["two"].address) == 3
        assert ping(made["three"], made["one"].address) == 3
        before = received("three")
        assert ping(made["two"], made["one"].address, 20) == 20
        # what hosts say to all of IPv6's routers reaches it, and no more
        assert received("three") < before + 10
        v6 = made["three"].address_v6
        assert v6 is not None
        assert ping(made["one"], v6) == 3


@needs_root
def test_a_switching_end_has_one_address_for_all_its_cables() -> None:
    ends = {"initiator": EndSettings(is_switching=True, mtu_bytes=9000), "target": EndSettings(mtu_bytes=9000)}
    with network(ends | {"target-2": EndSettings(mtu_bytes=9000)}, cable="veth") as made:
        (interface,) = made["initiator"].interfaces
        assert interface.name == "eth0"
        for name in ("target", "target-2"):
            options = ("-c", "1", "-W", "1", "-M", "do", "-s", "8972", made[name].address)
            assert "1 received" in made["initiator"].run("ping", *options, package="iputils-ping").output


@needs_root
def test_settings_apply_only_to_the_namespace() -> None:
    settings = EndSettings(
        mtu_bytes=9000,
        device_queue_packets=123,
        tcp_rmem_bytes=(4096, 65_536, 1_048_576),
        tcp_wmem_bytes=(4096, 32_768, 524_288),
        is_slow_start_after_idle=False,
        sysctls={"net.ipv4.tcp_sack": "0"},
    )
    names = ("tcp_rmem", "tcp_wmem", "tcp_slow_start_after_idle", "tcp_sack")
    paths = [f"/proc/sys/net/ipv4/{name}" for name in names]
    before = [Path(path).read_text() for path in paths]
    with network({"initiator": settings, "target": EndSettings()}, cable="veth") as made:
        values = made["initiator"].run("cat", *paths, package="coreutils").output.splitlines()
        assert [value.split() for value in values] == [
            ["4096", "65536", "1048576"],
            ["4096", "32768", "524288"],
            ["0"],
            ["0"],
        ]
        (link,) = [link for link in links("-n", str(made["initiator"].namespace)) if link["ifname"] == "eth0"]
        assert (link["mtu"], link["txqlen"]) == (9000, 123)
        (link,) = [link for link in links("-n", str(made["target"].namespace)) if link["ifname"] == "eth0"]
        assert link["mtu"] == 1500
        assert [Path(path).read_text() for path in paths] == before


@needs_root
@pytest.mark.parametrize("is_offloading", [True, False])
def test_offloads_are_off_by_default(is_offloading: bool) -> None:
    with network({"one": EndSettings(is_offloading=is_offloading), "two": EndSettings()}, cable="veth") as made:
        shown = made["one"].run("ethtool", "-k", "eth0", package="ethtool").output
        expected = "on" if is_offloading else "off"
        for name in ("tcp-segmentation-offload", "tx-checksumming", "generic-segmentation-offload"):
            assert f"\n{name}: {expected}" in shown


@needs_root
@pytest.mark.parametrize("name", ["reno", "cubic"])
def test_congestion_control_of_both_sides(name: str) -> None:
    other = "cubic" if name == "reno" else "reno"
    before = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text()
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text()
    ends = {"one": EndSettings(congestion_control=name), "two": EndSettings(congestion_control=other)}
    with network(ends, cable="veth") as made, connected(made["one"], made["two"]):
        for end, expected in (("one", name), ("two", other)):
            shown = made[end].run("ss", "-Htin", package="iproute2").output
            assert expected in shown.split()
        assert Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text() == before
        assert Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text() == allowed


@needs_root
def test_an_unsupported_setting_is_an_error_and_is_cleaned_up() -> None:
    for settings in (EndSettings(congestion_control="nosuch"), EndSettings(sysctls={"net.ipv4.nosuch": "1"})):
        with pytest.raises(ToolMissing, match="nosuch"), network({"one": settings, "two": EndSettings()}):
            pass
    assert of_process(os.getpid()) == set()


@needs_root
@pytest.mark.parametrize("cable", ["veth", "tap"])
def test_an_exception_is_cleaned_up(cable: Literal["tap", "veth"]) -> None:
    def run() -> None:
        with joined(cable) as made:
            assert len(of_process(os.getpid())) == 2
            # nothing of it is seen outside
            assert all(not link.get("address", "").startswith("02:71:") for link in links())
            command = ["ip", "netns", "exec", str(made["target"].namespace), "sleep", "60"]
            sleepers.append(subprocess.Popen(command))
            time.sleep(0.1)
            raise RuntimeError("in the middle of it")

    sleepers: list[subprocess.Popen[bytes]] = []
    with pytest.raises(RuntimeError, match="in the middle"):
        run()
    assert of_process(os.getpid()) == set()
    assert sleepers[0].wait(5) == -signal.SIGKILL


RUN = """
import time
from iscsitrace.lab.namespaces import EndSettings, network
with network({"one": EndSettings(), "two": EndSettings()}) as made:
    with made["one"].started("sleep", "60", package="coreutils") as sleeper:
        print(sleeper.process_id, flush=True)
        time.sleep(60)
"""


@contextmanager
def another_run(script: str = RUN) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process with a network, and the process id of what runs in it."""
    # under nohup, or in the background of a script, signals are ignored, and programs inherit that
    reset = ["env", "--default-signal=INT,TERM,HUP"]
    with running(
        subprocess.Popen([*reset, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    ) as process:
        try:
            assert process.stdout is not None
            sleeper = int(process.stdout.readline())
            assert len(of_process(process.pid)) == 2
            yield process, sleeper
        finally:
            process.kill()


@needs_root
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 128 + 15), (signal.SIGHUP, 128 + 1), (signal.SIGINT, -signal.SIGINT)]
)
def test_a_signal_removes_everything(number: signal.Signals, code: int) -> None:
    with another_run() as (process, sleeper):
        # a second one, in the middle of the tidying up, changes nothing
        process.send_signal(number)
        time.sleep(0.02)
        process.send_signal(number)
        process.wait(10)
        assert process.returncode in {code, -number}
        assert of_process(process.pid) == set()
        assert is_gone(sleeper)


@needs_root
def test_leftovers_of_a_killed_run_are_removed_at_the_next_start() -> None:
    with another_run() as (living, living_sleeper), another_run() as (killed, sleeper):
        killed.kill()
        killed.wait(5)
        leftovers = of_process(killed.pid)
        assert len(leftovers) == 2
        assert is_alive(sleeper)
        with network(ENDS):
            assert of_process(killed.pid) == set()
            assert is_gone(sleeper)
            # what another run uses stays
            assert len(of_process(living.pid)) == 2
            assert is_alive(living_sleeper)
    namespaces.remove_leftovers()
    assert of_process(living.pid) == set()


@needs_root
def test_a_guard_removes_what_a_killed_run_leaves() -> None:
    guarded = RUN.replace("with network", "from iscsitrace.lab.guard import guarding\nwith guarding(), network")
    with another_run(guarded) as (process, sleeper):
        process.kill()
        process.wait(5)
        assert is_gone(sleeper)
        # the guard ends what runs in them, then removes them, one after another
        end = time.monotonic() + 5
        while of_process(process.pid) and time.monotonic() < end:
            time.sleep(0.01)
        assert of_process(process.pid) == set()


@needs_root
def test_a_guard_ends_with_its_block() -> None:
    begun = time.monotonic()
    with guarding(), network(ENDS):
        assert len(of_process(os.getpid())) == 2
    # it does not wait for this process to end
    assert time.monotonic() - begun < guard._LIMIT_S


def test_a_reused_process_id_is_another_process() -> None:
    start = own_process.start_ticks(os.getpid())
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    now_s = float(Path("/proc/uptime").read_text().split()[0])
    assert start is not None
    assert 0 <= now_s - start / ticks_per_s < 24 * 3600
    assert own_process.start_ticks(2**22 + 1) is None  # above the greatest there is
    assert not own_process.is_left_over(f"{own_process.prefix()}0-one")
    assert own_process.is_left_over(f"iscsitrace-{os.getpid()}-{start + 1}-0-one")
    assert not own_process.is_left_over("iscsitrace-notes")


def test_namespaces_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(namespaces.RootNeeded, match="sudo"), network(ENDS):
        pass


def test_invalid_names_and_cables_are_refused() -> None:
    with pytest.raises(InputInvalid, match="lower-case"), network({"A b": EndSettings()}):
        pass
    with pytest.raises(InputInvalid, match="nobody"), network(ENDS, cables=[("initiator", "nobody")]):
        pass


def test_a_program_that_takes_too_long_is_killed_with_its_children() -> None:
    with pytest.raises(ToolMissing, match=r"sh did not finish in 0\.3 s: \d+"):
        HERE.run("sh", "-c", "sleep 61 & echo $!; wait", package="dash", limit_s=0.3)
    finished = HERE.run("sh", "-c", "sleep 61 & echo $!; wait", package="dash", limit_s=0.3, is_checked=False)
    assert finished.code is None
    assert is_gone(int(finished.output))


def test_a_program_ends_with_its_children() -> None:
    with HERE.started("sh", "-c", "trap '' TERM; sleep 62 & echo $!; wait", package="dash", stop_limit_s=0.2) as shell:
        shell.wait_until(lambda: bool(shell.log), "nothing said")
        sleeper = int(shell.log)
        assert is_alive(sleeper)
    assert not shell.is_running
    assert is_gone(sleeper)


def test_the_output_of_a_program_that_ends_too_early_is_reported() -> None:
    with HERE.started("sh", "-c", "echo one; echo two >&2; exit 3", package="dash") as shell:
        time.sleep(0.2)
        with pytest.raises(ToolMissing, match="sh ended with exit code 3: two"):
            shell.wait_until(lambda: False, "never")
    with pytest.raises(ToolMissing, match="apt install coreutils"):
        HERE.run("nosuchprogram", package="coreutils")


def test_a_signal_during_cleanup_acts_afterwards() -> None:
    done = []

    def tidy_up() -> None:
        with own_process.deferred():
            # to this thread: one to the process may be delivered to another thread, and act any time later
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        tidy_up()
    assert done == [True]
