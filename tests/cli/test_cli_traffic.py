"""The commands that make traffic: the settings from their options, and errors of invalid options.

The core is replaced: the tests check the settings that it would get.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import COMMANDS, GROUPS, main
from iscsitrace.cli.traffic import experiment
from iscsitrace.compare import truth as truth_analysis
from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab import run_files, traffic
from iscsitrace.show import line as bars
from iscsitrace.wording.login_keys import LOGIN_KEYS

ROOT = Path(__file__).resolve().parents[2]
URL = "iscsi://127.0.0.1/iqn.2025-01.org.example:disk/0"


class Called(Exception):
    """Ends a command when the core would start."""


@pytest.fixture
def called_with(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings that the core got."""
    seen: dict[str, Any] = {}

    def record_call(settings: dict[str, Any], *_: Any, **__: Any) -> None:
        seen.update(json.loads(json.dumps(settings)))
        raise Called

    for name in ("run_initiator", "run_target", "run_link", "simulate"):
        monkeypatch.setattr(traffic, name, record_call)
    return seen


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def settings(called_with: dict[str, Any], *arguments: str) -> dict[str, Any]:
    """The settings of the core for these arguments, which are split at spaces."""
    called_with.clear()
    result = run(*(word for argument in arguments for word in argument.split()))
    assert isinstance(result.exception, Called), result.output
    return called_with


def simulated(called_with: dict[str, Any], tmp_path: Path, *arguments: str) -> dict[str, Any]:
    return settings(called_with, "simulate", "read", "-o", str(tmp_path / "out"), *arguments)


def fields(struct: str, file: str) -> set[str]:
    """The fields of a struct of the core, from its source."""
    text = (ROOT / "core" / "lab" / "src" / file).read_text()
    body = re.search(rf"pub struct {struct} \{{(.*?)\n\}}", text, re.DOTALL)
    assert body is not None
    return set(re.findall(r"^    pub (\w+):", body[1], re.MULTILINE))


# --- the workload and its keys


def test_a_workload(called_with: dict[str, Any]) -> None:
    found = settings(
        called_with,
        f"initiator mixed {URL} --block-size 128K --queue-depth 8 --bytes 1G --seconds 2.5 --random --seed 9",
        "--read-share 30% --think-time 3ms --verify --set pattern-seed=4 --set start-lba=64 --set span=1M",
        "--connections 4 --sessions 2 --mirror --set deal=least-loaded --set system-call-size=1M",
        "--set max-transfer=64K --set errors-allowed=5",
    )["client"]
    assert found["mode"] == "run"
    assert found["workload"] == {
        "operation": "mixed",
        "block_size_bytes": 131_072,
        "system_call_bytes": 1 << 20,
        "max_transfer_bytes": 65_536,
        "queue_depth": 8,
        "total_bytes": 1 << 30,
        "duration_ns": 2_500_000_000,
        "access": "random",
        "seed": 9,
        "read_share": 0.3,
        "think_time_ns": 3_000_000,
        "verify": True,
        "pattern_seed": 4,
        "contents": "pattern",
        "start_lba": 64,
        "span_bytes": 1 << 20,
        "connections": 4,
        "tuning": None,
        "sessions": 2,
        "layout": "mirror",
        "dealing": "least_loaded",
        "errors_allowed": 5,
    }
    # every setting of the core can be set, and nothing else is
    assert set(found["workload"]) == fields("WorkloadSettings", "workload/settings.rs")


def test_options_that_are_not_given(called_with: dict[str, Any], tmp_path: Path) -> None:
    workload = settings(called_with, "initiator", "read", URL)["client"]["workload"]
    assert (workload["duration_ns"], workload["total_bytes"]) == (5_000_000_000, None)
    assert (workload["access"], workload["layout"], workload["dealing"]) == (
        "sequential",
        "stripe",
        "turn_then_finished",
    )
    assert simulated(called_with, tmp_path)["client"]["workload"]["total_bytes"] == 16 << 20
    first = settings(called_with, "initiator", "read", URL)["client"]["isid_seed"]
    assert first != settings(called_with, "initiator", "read", URL)["client"]["isid_seed"]


def test_every_key_of_the_core_can_be_set(called_with: dict[str, Any]) -> None:
    assert {name for name, _ in LOGIN_KEYS.values()} == fields("Offers", "protocol/keys/offers.rs")


def test_keys(called_with: dict[str, Any]) -> None:
    keys = (
        "MaxBurstLength=65536",
        "InitialR2T=yes",
        "ImmediateData=No",
        "TaskReporting=FastAbort,RFC3720",
        "MaxConnections=",
    )
    options = [part for key in keys for part in ("--key", key)]
    found = settings(
        called_with,
        "initiator",
        "read",
        URL,
        *options,
        "--set",
        "header-digest=crc32c,none",
        "--set",
        "data-digest=CRC32C",
    )
    assert found["client"]["login"]["offers"] == {
        "header_digest": ["CRC32C", "None"],
        "data_digest": ["CRC32C"],
        "max_burst_length": 65_536,
        "initial_r2t": True,
        "immediate_data": False,
        "task_reporting": ["FastAbort", "RFC3720"],
        "max_connections": None,
    }


def test_the_other_settings_of_an_initiator(called_with: dict[str, Any]) -> None:
    found = settings(
        called_with,
        f"initiator ping {URL} iscsi://[::1]:860/iqn.2025-01.org.example:other/3 --initiator-name",
        "iqn.2025-01.org.example:me --timeout 2s --bind 127.0.0.1 --set nagle=yes --set congestion-control=reno",
        "--set send-buffer=64K --set receive-buffer=128K --set mss=1000",
        "--ping-count 3 --ping-interval 1ms --ping-size 1K",
    )
    assert found["urls"] == [
        {"url": URL, "address": "127.0.0.1:3260"},
        {"url": "iscsi://[::1]:860/iqn.2025-01.org.example:other/3", "address": "[::1]:860"},
    ]
    client = found["client"]
    assert client["mode"] == "ping"
    assert client["login"]["initiator_name"] == "iqn.2025-01.org.example:me"
    assert client["timeouts"] == {"login_ns": 2 * 10**9, "task_ns": 2 * 10**9, "nop_ns": 2 * 10**9}
    assert client["ping"] == {"count": 3, "interval_ns": 1_000_000, "bytes": 1024}
    assert found["sockets"] == {
        "congestion_control": "reno",
        "send_buffer_bytes": 65_536,
        "receive_buffer_bytes": 131_072,
        "mss_bytes": 1000,
        "is_nagle": True,
        "bind_address": "127.0.0.1",
    }
    # whether to sleep at once the lab alone decides
    assert set(found["sockets"]) == fields("SocketSettings", "world/socket_settings.rs") - {"sleeps_at_once"}


# --- the target


def test_a_target(called_with: dict[str, Any], tmp_path: Path) -> None:
    found = settings(
        called_with,
        "target --lun 1G --lun ram:64M --lun null:1T --lun address:1TB --lun sparse:8M --block-length 4096",
        "--name iqn.2025-01.org.example:disk --listen 127.0.0.1 --listen [::1]:0 --chap joe%one-secret --chap",
        "jim%a%b --mutual-chap disk%other --set short-secrets=yes",
        "--target-key InitialR2T=Yes --set status=apart-held --service-delay",
        "30ms-40ms --set write-delay=exp:5ms --set serial=yes --set max-connections=8 --set command-window=16",
        "--set r2t-order=shuffled --seed 3",
    )
    assert found["listen"] == ["127.0.0.1:3260", "[::1]:0"]
    portal = found["portal"]
    (device,) = portal["targets"]
    assert device["target_name"] == "iqn.2025-01.org.example:disk"
    assert [(unit["medium"], unit["size_bytes"], unit["block_bytes"]) for unit in device["logical_units"]] == [
        ("sparse", 1 << 30, 4096),
        ("ram", 64 << 20, 4096),
        ("null_zeros", 1 << 40, 4096),
        ("null_address", 10**12, 4096),
        ("sparse", 8 << 20, 4096),
    ]
    assert portal["chap"] == {
        "initiators": [{"name": "joe", "secret": "one-secret"}, {"name": "jim", "secret": "a%b"}],
        "target": {"name": "disk", "secret": "other"},
    }
    assert portal["keys"]["initial_r2t"] is True
    assert portal["keys"]["max_connections"] == 8
    assert portal["read_delay"] == {"distribution": "uniform", "low_ns": 30_000_000, "high_ns": 40_000_000}
    assert portal["write_delay"] == {"distribution": "exponential", "mean_ns": 5_000_000}
    assert (portal["status"], portal["service_order"], portal["r2t_order"]) == (
        "apart_held",
        "one_at_a_time",
        "shuffled",
    )
    assert (portal["command_window_count"], portal["seed"]) == (16, 3)
    # what waits for the ACK needs Nagle's algorithm
    assert found["sockets"]["is_nagle"] is True
    assert set(portal) <= fields("PortalSettings", "protocol/target/settings.rs")


def test_a_target_keeps_no_log_unless_its_truth_is_requested(called_with: dict[str, Any], tmp_path: Path) -> None:
    bounds = {"session_count": 1024, "waiting_bytes": 256 << 20}
    limits = settings(called_with, "target")["portal"]["limits"]
    assert limits == bounds | {"logged_task_count": 0, "logged_connection_count": 0}
    with_truth = settings(called_with, "target", "--truth", str(tmp_path / "truth.json"))
    assert with_truth["portal"]["limits"] == bounds
    fewer = settings(called_with, "target", "--max-sessions", "2", "--waiting-memory", "8M")["portal"]["limits"]
    assert (fewer["session_count"], fewer["waiting_bytes"]) == (2, 8 << 20)


def test_faults(called_with: dict[str, Any]) -> None:
    rules = (
        *("bad-data-digest,operation=read,nth=5", "busy,every=3", "late-r2t,by=20ms,operation=write"),
        *("check-condition,sense=b/1f/0a", "reject,reason=9"),
    )
    found = settings(called_with, "target", *(part for rule in rules for part in ("--fault", rule)))
    assert found["portal"]["faults"] == [
        {"fault": "bad_data_digest", "operation": "read", "nth": 5, "is_repeated": False},
        {"fault": "busy", "nth": 3, "is_repeated": True},
        {"fault": "late_r2t", "by_ns": 20_000_000, "operation": "write"},
        {"fault": "check_condition", "sense": [0x0B, 0x1F, 0x0A]},
        {"fault": "reject", "reason": 9},
    ]


def test_every_fault_of_a_command_can_be_requested(called_with: dict[str, Any]) -> None:
    text = (ROOT / "core/lab/src/protocol/target/fault.rs").read_text()
    of_commands = re.search(r"match self \{(.*?)=> Subject::Command,", text, re.DOTALL)
    assert of_commands is not None
    for variant in re.findall(r"Self::(\w+)", of_commands[1]):
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", variant).lower()
        (rule,) = settings(called_with, "target", "--fault", name)["portal"]["faults"]
        assert rule == {"fault": name.replace("-", "_")}


@pytest.mark.parametrize(
    ("address", "is_warned"),
    [("127.0.0.1", False), ("[::1]:9", False), ("::1", False), ("0.0.0.0:9", True), ("[::]", True)],
)
def test_a_target_prints_who_can_reach_it(called_with: dict[str, Any], address: str, is_warned: bool) -> None:
    result = run("target", "--listen", address)
    assert isinstance(result.exception, Called)
    assert ("not a loopback address" in result.stderr) == is_warned
    assert result.stderr.count("\n") == is_warned


# --- the link and the simulated world


def test_a_link(called_with: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = str(tmp_path / "log.json")
    monkeypatch.setattr("iscsitrace.cli.traffic.link._NAMESPACES", tmp_path)
    (tmp_path / "near").touch()
    found = settings(
        called_with,
        "link near:tap0 tap1 --rate 100Mbit --set to-initiator-rate=2Mbit --one-way-delay 4ms --queue 100",
        "--set to-target-queue=64K --loss 1/65536 --burst-loss 0.1%,25%,50% --jitter 1ms --jitter-reorders",
        f"--reorder 1%,2ms --overhead 24 --seed 5 --log {log}",
    )
    assert found["initiator"] == {"name": "tap0", "namespace": str(tmp_path / "near")}
    assert found["target"] == {"name": "tap1", "namespace": None}
    both = {
        "delay_ns": 4_000_000,
        "loss_probability": 1 / 65_536,
        "burst_loss": {"enter_probability": 0.001, "leave_probability": 0.25, "loss_in_bad_probability": 0.5},
        "jitter_ns": 1_000_000,
        "is_jitter_reordering": True,
        "reorder_probability": 0.01,
        "reorder_by_ns": 2_000_000,
        "overhead_bytes": 24,
    }
    assert found["link"] == {
        "to_target": both | {"rate_bps": 10**8, "queue_packets": None, "queue_bytes": 65_536},
        "to_initiator": both | {"rate_bps": 2 * 10**6, "queue_packets": 100, "queue_bytes": None},
        "seed": 5,
        "is_logging_packets": False,
    }
    # faults are those of a run
    faults = {"interruptions", "reorderings"}
    assert set(found["link"]["to_target"]) == fields("DirectionSettings", "link/settings.rs") - faults


def test_a_missing_namespace_is_a_one_line_error() -> None:
    result = run("link", "no-such-namespace:tap0", "tap1")
    assert (result.exit_code, result.stderr) == (2, "iscsitrace: there is no network namespace no-such-namespace\n")


def test_a_link_without_root_reports_its_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise TrafficImpossible("cannot open TAP device a: Operation not permitted")

    monkeypatch.setattr(traffic, "run_link", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    result = run("link", "a", "b")
    assert result.exit_code == 2
    assert result.stderr == "iscsitrace: cannot open TAP device a: Operation not permitted; a link needs root\n"


def test_a_world(called_with: dict[str, Any], tmp_path: Path) -> None:
    found = simulated(
        called_with,
        tmp_path,
        "--target-delay 1ms --target-delay 20ms --rate 10Mbit --set access-rate=15Mbit --set ipv6=yes",
        "--set snaplen=128 --seed 7 --set receive-buffer=64K --congestion-control reno --set sack=no",
        "--set initiator-host-delay=20us --set nagle=yes --set initiator-tcp=nagle=no",
        "--set target-tcp=mss=536 --set target-tcp=congestion-control=cubic",
    )
    world = found["world"]
    assert world["initiator_tcp"] == {
        "congestion_control": "reno",
        "receive_buffer_bytes": 65_536,
        "sack": False,
        "nagle": False,
    }
    assert world["target_tcp"] == {**world["initiator_tcp"], "nagle": True, "mss": 536, "congestion_control": "cubic"}
    assert [path["to_target"]["delay_ns"] for path in world["paths"]] == [1_000_000, 20_000_000]
    assert [path["to_initiator"]["rate_bps"] for path in world["paths"]] == [10**7, 10**7]
    assert len({path["seed"] for path in world["paths"]}) == 2, "they do not lose the same packets"
    assert world["access"] == {"to_target": {"rate_bps": 15 * 10**6}, "to_initiator": {"rate_bps": 15 * 10**6}}
    assert (world["is_ipv6"], world["snaplen_bytes"], world["seed"]) == (True, 128, 7)
    assert (world["initiator_host_delay_ns"], world["target_host_delay_ns"]) == (20_000, 0)
    assert set(world) == fields("SimulatedSettings", "world/simulated/mod.rs") - {"start_ns", "faults"}
    names = [portal["targets"][0]["target_name"] for portal in found["portals"]]
    assert len(set(names)) == 2
    assert found["client"]["isid_seed"] == 7


def test_every_tcp_setting_of_the_core_can_be_set(called_with: dict[str, Any], tmp_path: Path) -> None:
    switches = ("delayed-ack", "nagle", "sack", "timestamps", "window-scaling", "hystart", "slow-start-after-idle")
    options = [f"--set={name}=no" for name in switches]
    options += [
        "--congestion-control",
        "reno",
        "--set",
        "mss=900",
        "--set",
        "send-buffer=1M",
        "--set",
        "receive-buffer=1M",
        "--set",
        "initial-window=4",
    ]
    found = simulated(called_with, tmp_path, *options)["world"]["target_tcp"]
    assert set(found) == fields("Settings", "tcp/settings.rs")
    assert all(found[name.replace("-", "_")] is False for name in switches)


def test_a_held_status_needs_nagle(called_with: dict[str, Any], tmp_path: Path) -> None:
    world = simulated(called_with, tmp_path, "--set", "status=apart-held")["world"]
    assert (world["target_tcp"]["nagle"], world["initiator_tcp"]["nagle"]) == (True, False)
    assert (
        simulated(called_with, tmp_path, "--set", "status=apart-held", "--set=nagle=no")["world"]["target_tcp"]["nagle"]
        is False
    )


# --- invalid options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["initiator", "read"], "URL"),
        (["initiator", "erase", URL], "'erase'"),
        (["initiator", "read", URL, "--key", "MaxBurst=1"], "'MaxBurst' is not a login key; there are HeaderDigest,"),
        (["initiator", "read", URL, "--key", "MaxBurstLength=x"], "MaxBurstLength: 'x' is not a size"),
        (["initiator", "read", URL, "--key", "MaxBurstLength"], "MaxBurstLength: '' is not a size"),
        (["initiator", "read", URL, "--key", "InitialR2T=1"], "InitialR2T: '1' is not yes or no"),
        (["initiator", "read", URL, "--set", "data-digest=md5"], "'md5' is not a digest"),
        (["initiator", "read", URL, "--connections", "65"], "write 1 to 64"),
        (["initiator", "read", URL, "--seconds", "0"], "'0' is not a number above 0"),
        (["initiator", "read", URL, "--set", "read-share=120%"], "'120%' is not a share"),
        (["target", "--lun", "big"], "'big' is not a logical unit"),
        (["target", "--lun", "tape:1G"], "'tape:1G' is not a logical unit"),
        (["target", "--fault", "fire"], "'fire' is not a fault; there are bad-header-digest"),
        (["target", "--fault", "busy,nth=0"], "'nth=0': a rule takes nth=5"),
        (["target", "--fault", "busy,when=now"], "'when=now': a rule takes nth=5"),
        *(
            (["target", "--fault", f"check-condition,sense={sense}"], "sense=3/11/00")
            for sense in ("xyz", "3/11", "3/1g/0")
        ),
        (["target", "--service-delay", "40ms-30ms"], 'two like "30ms-40ms"'),
        (["target", "--service-delay", "soon"], "'soon' is not a time"),
        (["target", "--listen", "localhost"], "'localhost' is not an address"),
        (["target", "--listen", "127.0.0.1:70000"], "is not an address"),
        (["target", "--listen", "[::1"], "is not an address"),
        (["target", "--listen", "[::1]3260"], "is not an address"),
        (["target", "--listen", ""], "is not an address"),
        (["target", "--chap", "joe%"], "like joe%"),
        (["target", "--mutual-chap", "disk%secret-of-12"], "--mutual-chap needs --chap"),
        (["link", "tap0"], "TARGET_TAP"),
        (["link", "a", "b", "--queue", "many"], "'many' is not a number of packets"),
        (["link", "a", "b", "--set", "burst-loss=1%"], "ENTER,LEAVE"),
        (["link", "a", "b", "--set", "reorder=1%"], "like 1%,2ms"),
        (["link", "a", "b", "--rate", "fast"], "'fast' is not a rate"),
        (["simulate", "read"], "-o"),
        (["simulate", "ping", "-o", "x"], "'ping'"),
        (["simulate", "read", "-o", "x", "--targets", "3", "--target-delay", "1ms"], "given 1 times for 3 targets"),
        (
            ["simulate", "read", "-o", "x", "--set", "initiator-tcp=speed=1"],
            "'speed' is not a setting of TCP; there are congestion-control",
        ),
        (["simulate", "read", "-o", "x", "--set", "target-tcp=nagle=maybe"], "nagle: 'maybe' is not yes or no"),
    ],
)
def test_invalid_options_are_usage_errors(called_with: dict[str, Any], arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, called_with) == (2, "", {})
    assert message in " ".join(result.stderr.split())


def test_errors_of_the_core_are_one_line_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    class LabError(Exception):
        pass

    class Core:
        @staticmethod
        def parse_url(_: str) -> str:
            raise LabError("no host\nin the URL")

    Core.LabError = LabError  # type: ignore[attr-defined]
    monkeypatch.setattr(traffic, "_core", Core)
    result = run("initiator", "read", URL)
    assert (result.exit_code, result.stderr) == (2, "iscsitrace: no host in the URL\n")
    monkeypatch.setattr(traffic, "_core_missing", ImportError("not built"))
    assert "the compiled core is missing" in run("initiator", "read", URL).stderr


def test_an_existing_file_is_not_overwritten(called_with: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text("mine")
    for arguments in (
        ["initiator", "read", URL, "--truth", str(file)],
        ["initiator", "read", URL, "--tcp-info", str(file)],
        ["target", "--truth", str(file)],
        ["link", "a", "b", "--log", str(file)],
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stderr) == (2, f"iscsitrace: {file} exists; --force overwrites it\n")
    assert (file.read_text(), called_with) == ("mine", {})


def test_an_unwritable_file_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(TrafficImpossible, match=r"cannot write .*: No such file or directory"):
        run_files.write_truth(tmp_path / "none" / "truth.json", {})


def test_an_incomplete_truth_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_the_disk(*_: object, **__: object) -> str:
        assert list(tmp_path.iterdir())
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ValueError, match="JSON compliant"):
        run_files.write_truth(tmp_path / "truth.json", {"seconds": float("nan")})
    monkeypatch.setattr(json, "dumps", fill_the_disk)
    with pytest.raises(TrafficImpossible, match=r"cannot write .*: No space left on device"):
        run_files.write_truth(tmp_path / "truth.json", {})
    assert list(tmp_path.iterdir()) == []


def test_a_refused_run_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        assert list(tmp_path.iterdir())
        raise TrafficImpossible("settings that make no sense")

    monkeypatch.setattr(traffic, "run_initiator", refuse)
    result = run("initiator", "read", URL, "--tcp-info", str(tmp_path / "tcp.json"))
    assert (result.exit_code, result.stderr) == (2, "iscsitrace: settings that make no sense\n")
    assert list(tmp_path.iterdir()) == []


def test_a_run_does_not_start_if_its_files_cannot_be_written(called_with: dict[str, Any], tmp_path: Path) -> None:
    mine, nowhere = tmp_path / "mine.json", tmp_path / "none" / "truth.json"
    mine.write_text("mine")
    for arguments in (
        ["initiator", "read", URL, "--tcp-info", str(mine), "--truth", str(nowhere)],
        ["target", "--truth", str(nowhere)],
        ["link", "a", "b", "--log", str(nowhere)],
    ):
        result = run(*arguments, "--force")
        assert result.exit_code == 2
        assert result.stderr == f"iscsitrace: cannot write {nowhere}: there is no folder {tmp_path / 'none'}\n"
    assert (mine.read_text(), called_with) == ("mine", {})


# --- help


def test_the_help_lists_every_command_in_its_group() -> None:
    text = run("--help").stdout
    places = [text.index(f"\n  {name} ") for name in COMMANDS]
    assert places == sorted(places)
    for title in GROUPS:
        assert f"\n{title}:\n" in text


@pytest.mark.parametrize("name", GROUPS["Make traffic"][1])
def test_the_help_of_a_command_has_every_option_once(name: str) -> None:
    text = run(name, "--help").stdout
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.get_help_record(click.Context(command)):
            assert len(re.findall(rf"^  (-\w, )?{parameter.opts[0]}(?=[ ,/\n])", text, re.MULTILINE)) == 1, (
                parameter.opts
            )
            assert parameter.help


def test_lab_and_analysis_use_the_same_schema() -> None:
    assert traffic.TRUTH_SCHEMA_VERSION == truth_analysis.SCHEMA_VERSION


def test_progress_appears_on_stderr_if_a_run_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = bars.ProgressBar("simulating")
    progress.show(1, 100, "1 packets")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(bars, "_PATIENCE_S", 0)
    assert progress.show(50, 100, "50 packets") is False
    progress.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert "simulating" in err


@pytest.mark.parametrize(("left_s", "words"), [(59.4, "59 s left"), (60, "1 min left"), (620, "10 min left")])
def test_an_experiment_shows_how_long_it_will_take(left_s: float, words: str) -> None:
    shown: list[str] = []
    bar = SimpleNamespace(show=lambda done, count, text: shown.append(text))
    seen = SimpleNamespace(latest=None, left_s=left_s, failed=0, done=3, count=8)
    assert not experiment._Watched(cast(Any, bar))(cast(Any, seen))
    assert shown == [f"3 of 8 points, {words}"]
