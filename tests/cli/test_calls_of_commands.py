"""What commands hand to the analysis, the plots, the experiments and the capture, with these replaced by hand."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from iscsitrace.cli.options import CaptureInput
from iscsitrace.cli.read import check, inspect
from iscsitrace.cli.record import capture
from iscsitrace.cli.traffic import target
from iscsitrace.errors import InputInvalid, OutputExists
from iscsitrace.plots.marks import Detail
from iscsitrace.plots.view import Zoom
from iscsitrace.tables.trace import TraceTables
from tests.support.tables_by_hand import table


class Told(Exception):
    """Ends a command at a call."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The arguments of a function that a command calls, which then ends."""

    def arguments_of(name: str, command: str) -> Any:
        seen: list[Any] = []

        def tell(*arguments: Any, **options: Any) -> None:
            seen.append((*arguments, options) if options else arguments)
            raise Told

        monkeypatch.setattr(name, tell)
        result = run(*command.split())
        assert isinstance(result.exception, Told), result.output
        return seen[0]

    return arguments_of


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def read_as(trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CaptureInput, "read", lambda *_, **__: trace)


# --- what reads captures


@pytest.mark.parametrize(
    ("options", "slower_ns", "top"),
    [("", None, 20), ("--top 5", None, 5), ("--json", None, None), ("--json --top 5 --slower 3ms", 3_000_000, 5)],
)
def test_twenty_mirrored_writes_are_printed_and_all_in_a_document(
    options: str, slower_ns: int | None, top: int | None, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = {name: table(name) for name in ("connections", "sessions", "cycles")}
    read_as(SimpleNamespace(table=trace.__getitem__), monkeypatch)
    monkeypatch.setattr("iscsitrace.relate.mirrors.account.of_trace", lambda _: [])
    arguments = told("iscsitrace.relate.mirrors.writes.largest_skews", f"mirrors {options} a.pcap")
    assert arguments[-1] == {"slower_ns": slower_ns, "top": top}


def test_a_comparison_is_of_the_sessions_that_are_named(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CaptureInput, "read", lambda self, _: SimpleNamespace(table=self.sources))
    monkeypatch.setattr("iscsitrace.compare.sides.sides_of", lambda source: source)
    name = "iscsitrace.compare.sides.match"
    assert told(name, "diff a.pcap b.pcap") == (("a.pcap",), ("b.pcap",), None, None)
    named = told(name, "diff --session-b 0 --session-a 3 a.pcap -")
    assert named == (("a.pcap",), ("-",), 3, 0)


def test_the_pdus_of_a_command_or_a_frame() -> None:
    """A PDU is shown at its first and at its last frame, not between them."""
    pdus = table(
        "pdus",
        {"cycle": 0, "frame_first": 1, "frame_last": 1},
        {"cycle": 1, "frame_first": 2, "frame_last": 4},
        {"cycle": 1, "frame_first": 4, "frame_last": 5},
    )
    trace: Any = SimpleNamespace(pdus=pdus, cycles=[0, 1])

    def found(cycle: int | None, frame: int | None) -> list[int]:
        return [row["frame_first"] for row in inspect._pdus(trace, cycle, frame)]

    assert [found(number, None) for number in (0, 1)] == [[1], [2, 4]]
    assert [found(None, number) for number in (1, 2, 3, 4, 5)] == [[1], [2], [], [2, 4], [4]]
    with pytest.raises(InputInvalid, match="no cycle 2; the capture has 2, counted from 0"):
        found(2, None)


def test_the_truth_of_a_run_and_its_tap(tmp_path: Path) -> None:
    file = tmp_path / "truth.json"
    for text, message in (("[]", "not the truth file of a run"), ("{", "not JSON"), (None, "No such file")):
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        with pytest.raises(InputInvalid, match=message):
            check._read_truth(file)
    truth = {"captures": {"initiator": "i.pcap", "targets": ["t.pcap", "u.pcap"]}}

    def tap(name: str, truth: dict[str, Any] = truth) -> str | None:
        return check._tap_of(truth, CaptureInput((f"/x/{name}",), None, None, None, None, is_quiet=True))

    assert [tap(name) for name in ("i.pcap", "t.pcap", "u.pcap")] == ["initiator", "target", "target-2"]
    # the truth of one side has no captures
    assert tap("other.pcap", {}) is None
    with pytest.raises(click.UsageError, match="add --tap"):
        tap("other.pcap")


def test_what_a_plot_shows(told: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Times are after the first packet of all captures; a file for xplot has more detail."""
    inputs = [{"name": name, "time_first_ns": time_ns} for name, time_ns in (("a", None), ("b", 70), ("c", 50))]
    trace = type("Told", (), {"inputs": inputs, "start_ns": TraceTables.start_ns})()
    read_as(trace, monkeypatch)
    seen: list[Any] = []

    def drawing(*arguments: Any) -> None:
        seen.append(arguments)
        raise Told

    kind = SimpleNamespace(tables=(), zoomed_tables=(), xplot=True, drawing=drawing)
    monkeypatch.setattr("iscsitrace.plots.kinds.load", lambda _: kind)

    def shown(options: str, name: str = "a.png") -> Any:
        result = run("plot", "sequence", *options.split(), "-o", tmp_path / name, "a.pcap")
        assert isinstance(result.exception, Told), result.output
        return seen.pop()

    assert shown("") == (trace, Zoom(), 50, Detail())
    assert shown("", "a.xpl")[-1] == Detail(limit=200_000, columns=50_000)
    zoom = shown("--session 0 --connection 3 --cycle 4-6 --from 5us --to 6us --direction to_target")[1]
    assert zoom == Zoom(0, 3, range(4, 7), 5_050, 6_050, to_target=True)
    assert shown("--direction to_initiator")[1] == Zoom(to_target=False)
    inputs.clear()
    assert shown("--from 5ns")[1:3] == (Zoom(time_from_ns=5), 0)


# --- an experiment


@pytest.fixture
def lab_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """An experiment of two arms, with what it was carried out with, its exit code and its words."""
    points = [SimpleNamespace(arm=arm) for arm in ("a", "b", "a")]

    def carried_out(options: str, *, done: int = 3, failed: int = 0) -> Any:
        seen: dict[str, Any] = {}
        definition = SimpleNamespace(name="read-study")
        found = SimpleNamespace(
            is_complete=done == len(points), failed=[1] * failed, points=points[:done], point_count=len(points)
        )

        def carry_out(_: Any, points: Any, *__: Any, **how: Any) -> Any:
            seen.update(how, arms=[each.arm for each in points])
            return found

        monkeypatch.setattr("iscsitrace.studies.definition.load", lambda _: definition)
        monkeypatch.setattr(
            "iscsitrace.studies.points.of_experiment",
            lambda _, world, is_reduced: seen.update(world=world) or points,
        )
        monkeypatch.setattr("iscsitrace.studies.experiment.prepare", lambda *_, **how: seen.update(how))
        monkeypatch.setattr("iscsitrace.studies.experiment.carry_out", carry_out)
        monkeypatch.setattr("iscsitrace.studies.tables.show", lambda *_: None)
        monkeypatch.setattr("iscsitrace.studies.results.document", lambda _: {"schema": 1})
        monkeypatch.setattr("os.cpu_count", lambda: 6)
        result = run("lab", "run", "read-study", "-o", tmp_path, *options.split())
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        return seen, result.exit_code, result.output

    return carried_out


def test_how_an_experiment_is_carried_out(lab_run: Any) -> None:
    seen, code, output = lab_run("")
    assert (code, output) == (0, "")
    assert seen == {
        "jobs": 6, "keep": "figures", "is_reduced": False, "world": "simulated", "arms": ["a", "b", "a"],
        "is_forced": False,
    }  # fmt: skip
    seen, _, output = lab_run("--jobs 2 --keep none --reduced --arm a --force --json")
    assert (seen["jobs"], seen["keep"], seen["is_reduced"], seen["is_forced"]) == (2, "none", True, True)
    assert seen["arms"] == ["a", "a"]
    assert json.loads(output) == {"schema": 1}
    # one network namespace after the other
    seen = lab_run("--world real --jobs 5 --arm b --arm a")[0]
    assert (seen["jobs"], seen["world"], seen["arms"]) == (1, "real", ["a", "b", "a"])


def test_an_experiment_that_failed_or_was_stopped(lab_run: Any) -> None:
    assert lab_run("", failed=1)[1:] == (1, "")
    stopped = "stopped: 2 of 3 points are done; run the command again to continue\n"
    assert lab_run("", done=2, failed=1)[1:] == (130, stopped)


# --- traffic


def test_a_world_of_namespaces(told: Any) -> None:
    """A world that is tried out has the options of links and TCP, and no workload."""
    up = "iscsitrace.lab.real.up"
    world, options = told(up, "lab up --one-way-delay 8ms --rate 2Mbit --set mss=900 --set access-rate=3Mbit --seed 5")
    assert options == {"is_bypassed": False}
    (path,) = world["paths"]
    for direction in ("to_target", "to_initiator"):
        assert (path[direction]["delay_ns"], path[direction]["rate_bps"]) == (8_000_000, 2_000_000)
        assert world["access"][direction]["rate_bps"] == 3_000_000
    assert world["initiator_tcp"]["mss"] == world["target_tcp"]["mss"] == 900
    assert len(told(up, "lab up --targets 2 --target-delay 1ms --target-delay 2ms")[0]["paths"]) == 2
    assert told(up, "lab up --bypass --targets 1")[-1] == {"is_bypassed": True}
    for command, message in (
        ("lab up --bypass --rate 1Mbit", "--rate does not work with a bypass"),
        ("lab run read -o x --bypass --set access-rate=1Mbit", "--set access-rate does not work with a bypass"),
        ("lab run socket-read -o x --queue-depth 2", "--queue-depth does not work with a bare socket"),
        ("simulate socket-read -o x --lun 1G", "--lun does not work with a bare socket"),
    ):
        result = run(*command.split())
        assert (result.exit_code, message in result.output) == (2, True), command


def test_a_world_is_shown_until_a_signal_and_its_links_logged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[Any] = []
    place = SimpleNamespace(
        address="10.0.0.1", address_v6="fd00::1", interfaces=[SimpleNamespace(name="tap0")], namespace="here"
    )

    @contextmanager
    def up(settings: Any, *, is_bypassed: bool) -> Iterator[Any]:
        signal.raise_signal(signal.SIGTERM)
        yield SimpleNamespace(hosts={"initiator": place}, access="access", paths="paths")
        shown.append("removed")

    monkeypatch.setattr("iscsitrace.lab.real.up", up)
    monkeypatch.setattr("iscsitrace.lab.real.truth_of_links", lambda access, paths: {"links": [access, paths]})
    monkeypatch.setattr("iscsitrace.show.run_results.show_hosts", shown.append)
    monkeypatch.setattr("iscsitrace.show.run_results.show_all_links", shown.append)
    log = tmp_path / "log.json"
    assert run("lab", "up", "--seed", "3", "--log", log).exit_code == 0
    assert shown == [
        [("initiator", "10.0.0.1", "fd00::1", "tap0", "ip netns exec here")], "removed", {"links": ["access", "paths"]},
    ]  # fmt: skip
    document = json.loads(log.read_text())
    assert (document["links"], len(document["settings"]["paths"])) == (["access", "paths"], 1)


def test_a_run_in_namespaces(told: Any, tmp_path: Path) -> None:
    real = "iscsitrace.lab.real.run"
    settings, directory, _, how = told(
        real, f"lab run read -o {tmp_path} --set ipv6=yes --set snaplen=128 --force --quiet"
    )
    assert (directory, how["is_forced"]) == (tmp_path, True)
    assert (how["programs"].capture_at, how["programs"].is_bypassed) == (("initiator", "target"), False)
    assert (how["programs"].target, how["programs"].initiator) == ("iscsitrace", "iscsitrace")
    assert settings["client"]["workload"]["duration_ns"] == 5 * 10**9
    assert (settings["world"]["is_ipv6"], settings["world"]["snaplen_bytes"]) == (True, 128)
    # real time needs no limit
    assert "limit_ns" not in settings["world"]
    settings, _, _, how = told(real, f"lab run write -o {tmp_path} --bytes 1M --set capture=none --bypass")
    assert (settings["client"]["workload"]["duration_ns"], how["is_forced"]) == (None, False)
    assert (how["programs"].capture_at, how["programs"].is_bypassed) == ((), True)


def test_a_simulation_moves_sixteen_mebibytes_unless_an_end_is_set(told: Any, tmp_path: Path) -> None:
    def simulated(options: str = "") -> tuple[Any, Any, Any]:
        settings = told("iscsitrace.lab.simulation.run", f"simulate read -o {tmp_path} {options}")[0]
        workload = settings["client"]["workload"]
        return workload["total_bytes"], workload["duration_ns"], settings["world"]["limit_ns"]

    usual = simulated()
    assert usual[:2] == (16 << 20, None)
    assert simulated("--bytes 5") == (5, None, usual[2])
    # a long run may take twice its time
    assert simulated("--seconds 1000000") == (None, 10**15, 2 * 10**15)


def test_the_truth_of_a_target_has_no_secrets_and_the_peers_of_short_connections() -> None:
    settings = {"portal": {"chap": {"secret": "x"}, "seed": 1}, "listen": ["127.0.0.1:3260"]}
    closed = [{"connection": 0, "peer": "192.0.2.1:5"}, {"connection": 1, "peer": "[::1]:6"}]
    found = {"connections": closed, "counters": {}, "tasks": []}
    log = "iscsitrace.lab.run_files.target_log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, lambda _: {"log": 1})
        truth = target._truth(settings, found, {0: {"connection": 0, "rtt_ns": 7}})
    assert truth["settings"] == {"portal": {"seed": 1}, "listen": ["127.0.0.1:3260"]}
    assert truth["ends"] == [
        {"connection": 0, "rtt_ns": 7, "peer_address": "192.0.2.1", "peer_port": 5},
        {"connection": 1, "peer_address": "::1", "peer_port": 6},
    ]
    assert truth["log"] == 1
    assert truth["tool"]["name"] == "iscsitrace"


def test_a_target_samples_its_connections_only_for_a_truth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taken: list[Any] = []
    monkeypatch.setattr("iscsitrace.lab.sock_diag.TcpSamples.take", lambda _, descriptors: taken.append(descriptors))
    monkeypatch.setattr("iscsitrace.show.run_results.show_served", lambda _: None)
    stops: list[bool] = []

    def serve(_: Any, ready: Any, watch: Any, *, period_ns: int) -> dict[str, Any]:
        ready(["127.0.0.1:5", "[::1]:6"])
        stops.append(watch({}, [(1, 2, True)]))
        assert period_ns == 50_000_000
        return {"counters": {}, "connections": []}

    monkeypatch.setattr("iscsitrace.lab.traffic.run_target", serve)
    monkeypatch.setattr("iscsitrace.lab.run_files.target_log", lambda _: {})
    shown = run("target", "--name", "iqn.a:b").output
    assert shown == "iscsitrace target: iscsi://127.0.0.1:5/iqn.a:b/0 iscsi://[::1]:6/iqn.a:b/0\n"
    assert (taken, stops) == ([], [False])
    assert run("target", "--truth", tmp_path / "t.json").exit_code == 0
    assert taken == [[(1, 2, True)]]
    assert (tmp_path / "t.json").exists()


# --- a capture


def test_where_packets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def output(path: object, *, is_ring: bool = False, is_forced: bool = False) -> Path:
        return capture._target(str(path), ("eth0",), is_ring=is_ring, is_forced=is_forced)

    monkeypatch.chdir(tmp_path)
    made = capture._target(None, ("eth0", "eth1"), is_ring=False, is_forced=False)
    assert made.name.startswith("iscsitrace_eth0_eth1_2")
    assert output("a") == Path("a")
    # files of a ring have an ending
    assert [output(name, is_ring=True) for name in ("a", "a.cap")] == [Path("a.pcapng"), Path("a.cap")]
    (tmp_path / "there").touch()
    assert output("there", is_forced=True) == Path("there")
    for path in ("there", tmp_path):
        with pytest.raises(OutputExists):
            output(path)
    # a device is written to, not replaced
    assert output("/dev/null") == Path("/dev/null")
    stdout = SimpleNamespace(isatty=lambda: False)
    monkeypatch.setattr(capture, "sys", SimpleNamespace(stdout=stdout))
    assert output("-") == Path("-")
    stdout.isatty = lambda: True
    with pytest.raises(click.UsageError, match="standard output is a terminal"):
        output("-")


def test_a_snaplen_is_measured_on_an_interface_or_in_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def measure(
        interface: dict[str, Any], duration_ns: int, stop: Callable[[None], bool]
    ) -> tuple[dict[str, Any], int]:
        calls.append((interface["name"], duration_ns, stop(None)))
        return {"packet_count": 7}, 2

    def measure_of(sources: tuple[str, ...], capture_filter: str | None, _: Any) -> dict[str, Any]:
        calls.append((sources, capture_filter))
        return {"packet_count": 9}

    def by_itself(how: str, names: list[str], run: Callable[[None], Any]) -> Any:
        calls.append((how, names))
        return run(None)

    monkeypatch.setattr("iscsitrace.recording.capture.advise_snaplen", measure)
    monkeypatch.setattr("iscsitrace.recording.capture.advise_snaplen_of", measure_of)
    monkeypatch.setattr("iscsitrace.recording.interfaces.capture_by", by_itself)
    shown = run("capture", "-i", "eth0", "-s", "advise", "-a", "duration:3", "--json")
    assert json.loads(shown.output) == {"schema": 1, "packet_count": 7, "dropped_count": 2}
    assert calls == [("never", ["eth0"]), ("eth0", 3 * 10**9, False)]
    calls.clear()
    shown = run("capture", "-r", "a.pcap", "-r", "b.pcap", "-s", "advise", "--json")
    assert json.loads(shown.output) == {"schema": 1, "packet_count": 9, "dropped_count": 0}
    assert calls == [(("a.pcap", "b.pcap"), None)]
