"""What `lab run --world guests` asks of the world of guests, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab import fault_catalogue as catalogue
from iscsitrace.lab.guests import world
from iscsitrace.lab.guests.world import GuestPrograms

Asked = list[tuple[dict[str, Any], GuestPrograms]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found: Asked = []

    def run(settings: dict[str, Any], *_: Any, programs: GuestPrograms, **__: Any) -> dict[str, Any]:
        found.append((settings, programs))
        raise TrafficImpossible("enough")

    monkeypatch.setattr(world, "run", run)
    return found


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["lab", "run", "read", "--world", "guests", "-o", "nowhere", *words])


def test_by_default_lio_is_captured_at_both_ends_for_five_seconds(asked: Asked) -> None:
    assert run().output == "iscsitrace: enough\n"
    ((settings, programs),) = asked
    assert programs == GuestPrograms("lio", ("initiator", "target"))
    assert settings["client"]["workload"]["duration_ns"] == 5_000_000_000
    assert [each["size_bytes"] for each in settings["portals"][0]["targets"][0]["logical_units"]] == [1 << 30]


def test_options_reach_the_guests(asked: Asked) -> None:
    run(
        *("--set", "target-program=tgt", "--set", "capture=target", "--set=offloads=yes", "--sessions", "2"),
        *("--set", "node-setting=node.session.cmds_max=64", "--set", "snaplen=128"),
        *("--set", "node-setting=node.conn[0].timeo.noop_out_timeout=1"),
        *("--set", "multipath-setting=no_path_retry=queue", "--set", "sysctl=net.ipv4.tcp_sack=0"),
        *("--set", "initiator-program=open-iscsi", "--fault", "black-out,for=3s", "--fault", "rst"),
        *("--congestion-control", "bbr", "--set", "target-key=MaxBurstLength=65536", "--key", "ImmediateData=No"),
    )  # fmt: skip
    ((settings, programs),) = asked
    assert programs == GuestPrograms(
        "tgt",
        ("target",),
        node_settings={"node.session.cmds_max": "64", "node.conn[0].timeo.noop_out_timeout": "1"},
        multipath_settings={"no_path_retry": "queue"},
        sysctls={"net.ipv4.tcp_sack": "0"},
        is_offloading=True,
        faults=(catalogue.parse("black-out,for=3s,at=1s"), catalogue.parse("rst")),
    )
    assert settings["client"]["workload"]["sessions"] == 2
    assert settings["client"]["login"]["offers"] == {"immediate_data": False}
    assert settings["portals"][0]["keys"]["max_burst_length"] == 65_536
    assert settings["world"]["snaplen_bytes"] == 128
    assert settings["world"]["target_tcp"]["congestion_control"] == "bbr"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--connections", "2"), "--connections does not work with guests"),
        (("--set=verify=yes",), "--set verify does not work with guests"),
        (("--fault", "busy"), "faults of single commands are those of our target: not in guests"),
        (("--fault", "ack-loss"), "ack-loss: not in guests; it can be made in simulated, namespaces"),
        (("--set", "status=apart"), "--set status does not work with guests"),
        (("--bypass",), "--bypass does not work with guests"),
        (("--set", "driver=threads"), "--set driver does not work with guests"),
        (("--set", "target-program=istgt"), "the target of a guest is lio or tgt, not istgt"),
        (("--set", "initiator-program=iscsi-perf"), "the initiator of a guest is open-iscsi, not iscsi-perf"),
        (("--set", "sysctl=net.ipv4.tcp_sack"), "'net.ipv4.tcp_sack' is not NAME=VALUE"),
        (("--set", "node-setting==1"), "'=1' is not NAME=VALUE"),
        (("--fault", "flood"), "'flood' is not a fault; there are bad-header-digest,"),
        (("--fault", "rst,for=long"), "rst: for=long is not"),
    ],
    ids=str,
)
def test_what_guests_do_not_have_is_refused(asked: Asked, words: tuple[str, ...], line: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert line in " ".join(result.output.split())
    assert asked == []


@pytest.mark.parametrize(
    "word", ["--set=offloads=yes", "--set=sysctl=a=b", "--set=node-setting=a=b", "--set=multipath-setting=a=b"]
)
def test_options_of_guests_are_refused_in_namespaces(word: str) -> None:
    result = CliRunner().invoke(main, ["lab", "run", "read", "-o", "nowhere", word])
    assert result.exit_code == 2
    assert "does not work with namespaces" in result.output
    assert not Path("nowhere").exists()


def test_bare_sockets_are_not_in_guests() -> None:
    result = CliRunner().invoke(main, ["lab", "run", "socket-read", "--world", "guests", "-o", "nowhere"])
    assert result.output == "iscsitrace: a transfer over bare sockets is between our own programs, not in guests\n"


def test_guests_have_links(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["lab", "up", "--world", "guests", "--bypass"])
    assert "guests are joined by links, not by a bypass" in result.output
