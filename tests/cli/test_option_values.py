"""What values of options become, at both sides of each limit; and when a command stops."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.cli.options import CaptureInput
from iscsitrace.cli.process import StopWish
from iscsitrace.cli.read.model import _check_size
from iscsitrace.cli.read.model_options import Several, Truth
from iscsitrace.cli.record.capture_limits import Limit, gathered
from iscsitrace.cli.record.capture_progress import CaptureCaller, _status
from iscsitrace.cli.record.service_manager import ServiceManager
from iscsitrace.cli.record.watch import _has_lost, _Show
from iscsitrace.cli.traffic.chap_options import Credentials
from iscsitrace.cli.traffic.experiment import _minutes
from iscsitrace.cli.traffic.link import _LinkThread, _tap
from iscsitrace.cli.traffic.run_options import CountOrSearch, Digests, lasting
from iscsitrace.cli.traffic.target_options import FaultOption, LogicalUnit
from iscsitrace.cli.units import Moment
from iscsitrace.lab import fault_catalogue as catalogue
from iscsitrace.lab.settings.table import MOST_CONNECTIONS

SECOND_NS = 10**9


def converted(kind: Any, text: str) -> Any:
    """The value; None where it is refused."""
    try:
        return kind.convert(text, None, None)
    except click.BadParameter:
        return None


# --- a target


@pytest.mark.parametrize(
    ("text", "sense"),
    [
        ("3/11/00", [3, 0x11, 0]), ("ff/0A/1", [255, 10, 1]), ("3/11", None), ("3/11/00/1", None), ("100/1/1", None),
        ("/1/1", None), ("g/1/1", None), ("", None),
    ],
)  # fmt: skip
def test_sense_is_three_bytes_in_hexadecimal(text: str, sense: list[int] | None) -> None:
    found = converted(FaultOption(), f"check-condition,sense={text}")
    assert found == (sense and {"fault": "check_condition", "sense": sense})


@pytest.mark.parametrize(
    ("detail", "rule"),
    [
        ("nth=1", {"nth": 1, "is_repeated": False}), ("every=3", {"nth": 3, "is_repeated": True}), ("nth=0", None),
        ("by=0s", {"by_ns": 0}), ("by=20ms", {"by_ns": 20_000_000}), ("by=20", None), ("reason=0", {"reason": 0}),
        ("reason=99", {"reason": 99}), ("reason=100", None), ("operation=read", {"operation": "read"}),
        ("operation=verify", None), ("other=1", None), ("nth", None),
    ],
)  # fmt: skip
def test_details_of_a_fault(detail: str, rule: dict[str, Any] | None) -> None:
    assert converted(FaultOption(), f"busy,{detail}") == (rule and {"fault": "busy"} | rule)


def test_logical_units_and_credentials() -> None:
    assert converted(LogicalUnit(), "1T") == {"medium": "sparse", "size_bytes": 1 << 40}
    assert converted(LogicalUnit(), "ram:2TB") == {"medium": "ram", "size_bytes": 2 * 10**12}
    assert converted(LogicalUnit(), "null:64M") == {"medium": "null_zeros", "size_bytes": 64 << 20}
    assert [converted(LogicalUnit(), text) for text in ("disk:1G", "ram:", "ram:much")] == [None] * 3
    assert converted(Credentials(), "joe%a%b") == {"name": "joe", "secret": "a%b"}
    assert [converted(Credentials(), text) for text in ("", "joe%", "%secret")] == [None] * 3
    # from elsewhere
    assert converted(Credentials(), "joe") == {"name": "joe", "secret": ""}


# --- a workload


def test_connections_are_a_number_or_a_rule() -> None:
    one = {"workload.connections": 1}
    assert converted(CountOrSearch(), "1") == one
    assert converted(CountOrSearch(), str(MOST_CONNECTIONS)) == {"workload.connections": MOST_CONNECTIONS}
    assert converted(CountOrSearch(), "auto:golden") == one | {"workload.connections-rule": "golden"}
    assert converted(CountOrSearch(), "auto") == one | {"workload.connections-rule": "model"}
    assert [converted(CountOrSearch(), text) for text in ("0", str(MOST_CONNECTIONS + 1), "auto:x", "")] == [None] * 4
    assert converted(Digests(), "CRC32C,none") == ["CRC32C", "None"]
    assert converted(Digests(), "crc32c,md5") is None


def test_a_workload_without_an_end_lasts_five_seconds_and_as_long_after_its_faults() -> None:
    # from 1 s to 13 s
    outage = [catalogue.parse("black-out,at=1s,for=12s")]
    assert lasting({}) == {"duration_ns": 5 * SECOND_NS}
    assert lasting({}, outage) == {"duration_ns": 18 * SECOND_NS}
    for end in ({"total_bytes": 0}, {"total_bytes": 9}, {"duration_ns": 1}):
        assert lasting(dict(end), outage) == end


# --- a model


def test_truths_and_lists() -> None:
    assert [converted(Truth(), text) for text in ("yes", "NO", "true")] == [True, False, None]
    assert converted(Several(click.IntRange(min=1)), "1, 2,3") == (1, 2, 3)
    assert converted(Several(click.IntRange(min=1)), "1,0") is None
    for option in ("--queue-depth", "--connections", "--outstanding-r2t"):
        result = CliRunner().invoke(main, ["model", "predict", "read", "--one-way-delay", "1ms", option, "1,0"])
        assert (result.exit_code, "0 is not in the range x>=1" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("counts", "has_chart", "problem"),
    [
        ((100, 100, 1), False, None),
        ((10_001,), False, "too many combinations: 10001, the limit is 10000"),
        ((73, 137), False, "too many combinations: 10001, the limit is 10000"),
        ((1, 1), True, "a chart needs an option with several values"),
        ((1, 1), False, None),
        ((2, 1), True, None),
        ((1_000, 8), True, None),
        ((1_000, 3, 3), True, "too many lines for a chart: 9, the limit is 8"),
        ((2, 9), False, None),
    ],
)
def test_how_many_predictions_there_may_be(counts: tuple[int, ...], has_chart: bool, problem: str | None) -> None:
    lists = {str(place): (0,) * count for place, count in enumerate(counts)}
    if problem is None:
        _check_size(lists, has_chart=has_chart)
    else:
        with pytest.raises(click.UsageError, match=f"^{problem}$"):
            _check_size(lists, has_chart=has_chart)


# --- captures to read


def test_a_time_range_may_be_one_moment_but_not_end_before_it_begins() -> None:
    def said(*arguments: str) -> str:
        return CliRunner().invoke(main, ["summary", *arguments, "/nowhere.pcap"]).output

    assert "--from is after --to" in said("--from", "2s", "--to", "1999ms")
    assert "--from" not in said("--from", "2s", "--to", "2s")
    assert "must both be relative" in said("--from", "2s", "--to", "2026-11-20")
    assert "must both be relative" not in said("--from", "2s")


def test_tshark_reads_one_whole_file() -> None:
    def problem(*sources: str, **part: Any) -> str | None:
        known: dict[str, Any] = {"capture_filter": None, "packet_limit": None, "time_from": None, "time_to": None}
        try:
            CaptureInput(sources, **known | part, is_quiet=True).require_whole_file("check")
        except click.UsageError as error:
            return error.message
        return None

    assert problem("a.pcap") is None
    assert problem("a.pcap", packet_limit=5) is None
    for sources in (("a.pcap", "b.pcap"), ("-",)):
        assert str(problem(*sources)).startswith("check takes one capture file")
    moment = Moment(0, is_relative=True)
    for part in ({"capture_filter": "tcp"}, {"time_from": moment}, {"time_to": moment}):
        assert str(problem("a.pcap", **part)).startswith("check reads the file as tshark does")


# --- captures to write


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("duration:5", ("duration_ns", 5 * SECOND_NS)), ("duration:5ms", ("duration_ns", 5_000_000)),
        ("filesize:100", ("bytes", 100_000)), ("filesize:1M", ("bytes", 1 << 20)), ("files:1", ("files", 1)),
        ("packets: 7 ", ("packets", 7)), ("packets:0", None), ("duration:0", None), ("files:x", None), ("5", None),
    ],
)  # fmt: skip
def test_limits_are_in_the_units_of_dumpcap(text: str, limit: tuple[str, int] | None) -> None:
    assert converted(Limit(), text) == limit


def test_a_limit_is_given_once() -> None:
    assert converted(Limit("packets"), "files:1") is None
    assert gathered((("files", 1), ("bytes", 2))) == {"files": 1, "bytes": 2}
    with pytest.raises(click.UsageError, match="given twice"):
        gathered((("files", 1), ("files", 2)))


def test_of_slow_commands_five_a_second_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    caller = CaptureCaller(Path("a.pcapng"), StopWish(), is_quiet=False)
    for second, count in ((10.9, 5), (11.0, 7), (12.5, 1)):
        monkeypatch.setattr(time, "monotonic", lambda second=second: second)
        for number in range(count):
            event = f'{{"kind": "slow", "text": "{int(second)}.{number}"}}'
            assert not caller.watch(f'{{"events": [{event}]}}')
    said = [line.removeprefix("iscsitrace: ") for line in capsys.readouterr().err.splitlines()]
    ten, eleven = ([f"{second}.{number}" for number in range(5)] for second in (10, 11))
    assert said == [*ten, *eleven, "... and 2 more in that second", "12.0"]


def test_the_status_of_a_capture() -> None:
    progress = {"elapsed_ns": 9_500_000_001, "written_count": 7, "written_bytes": 1_260_000, "dropped_count": 2}
    assert _status(progress | {"slow_count": 0}) == "10 s  7 packets  1.3 MB  2 dropped"
    assert _status(progress | {"slow_count": 3}) == "10 s  7 packets  1.3 MB  2 dropped  3 commands met the trigger"


# --- what ends a command


def test_the_time_that_is_left() -> None:
    assert [_minutes(seconds) for seconds in (0.4, 59, 60, 149, 151)] == ["0 s", "59 s", "1 min", "2 min", "3 min"]


def test_a_link_ends_at_its_time_or_at_a_signal() -> None:
    wish = StopWish()
    runs = [_LinkThread("link", {}, wish, end_s) for end_s in (None, time.monotonic() + 1_000, time.monotonic() - 1)]
    assert [run._is_over() for run in runs] == [False, False, True]
    wish.is_there = True
    assert [run._is_over() for run in runs] == [True, True, True]
    assert _tap("tap0") == {"name": "tap0", "namespace": None}
    assert _tap("here:tap0") == {"name": "tap0", "namespace": "/run/netns/here"}


class Three:
    """A watcher whose input ends after three steps without a report."""

    def __init__(self) -> None:
        self.left = 3

    def step(self) -> None:
        self.left -= 1

    @property
    def is_over(self) -> bool:
        return self.left == 0


def test_a_watch_stops_its_input_once() -> None:
    """After its time; what is there until the end of the input is still shown."""
    for duration_s, stops in ((0.0, 1), (None, 0), (1_000.0, 0)):
        stopped: list[bool] = []
        watched: Any = SimpleNamespace(stop=lambda stopped=stopped: stopped.append(True), is_open_interface=False)
        watcher: Any = Three()
        _Show(watcher, watched, "a.pcap", None, ServiceManager(), duration_s).as_lines(is_json=False)
        assert (watcher.left, len(stopped)) == (0, stops)


class Told(Exception):
    """Ends a command when reading would begin."""


def test_what_a_watch_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any]] = []

    def tell(source: str, settings: Any, *, capture_options: Any, **_: Any) -> None:
        seen.append((settings, capture_options))
        raise Told

    monkeypatch.setattr("iscsitrace.watch.source.open_source", tell)

    def asked(*options: str) -> tuple[Any, Any]:
        result = CliRunner().invoke(main, ["watch", *options, "eth0"])
        assert isinstance(result.exception, Told), result.output
        return seen[-1]

    settings, capture_options = asked()
    assert (settings.interval_ns, settings.keep_ns, settings.packet_limit) == (SECOND_NS, 10 * SECOND_NS, None)
    assert (settings.has_dynamics, capture_options) == (True, [])
    settings, capture_options = asked("--interval", "6s", "-s", "256", "-B", "8", "--no-dynamics")
    assert (settings.interval_ns, settings.keep_ns, settings.has_dynamics) == (6 * SECOND_NS, 12 * SECOND_NS, False)
    assert capture_options == ["-s", "256", "-B", "8"]
    # of several limits the least
    limits = [asked(*options)[0].packet_limit for options in (
        ("-c", "5"), ("-a", "packets:7"), ("-c", "5", "-a", "packets:7"), ("-c", "9", "-a", "packets:7"),
    )]  # fmt: skip
    assert limits == [5, 7, 5, 7]
    assert asked("--interval", "10ms")[0].interval_ns == 10_000_000
    refused = CliRunner().invoke(main, ["watch", "--interval", "9ms", "eth0"])
    assert (refused.exit_code, "--interval must be at least 10ms" in refused.output) == (2, True)


def test_lost_packets_are_those_dropped_or_left_out() -> None:
    for name, count, is_lost in (
        ("dropped_by_capture", 1, True), ("packets_left_out", 1, True), ("dropped_by_capture", 0, False),
        ("capture_gap", 1, False),
    ):  # fmt: skip
        assert _has_lost({"counters": [{"name": name, "count": count}]}) == is_lost


def test_what_a_capture_says_while_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """What is lost is said with -q, too."""
    events = [
        {"kind": "file", "path": "a.pcapng"}, {"kind": "file", "path": "-"}, {"kind": "warning", "text": "odd\x1b"},
        {"kind": "portals", "portals": ["a:1", "b:2"], "filter": "tcp"},
        {"kind": "dropped", "interface": "eth0", "count": 3, "total": 9}, {"kind": "other"},
    ]  # fmt: skip
    wish = StopWish()
    wish.is_there = True
    dropped = (
        "iscsitrace: eth0: 3 packets dropped, 9 in total "
        "(try a larger buffer: -B, fewer packets: -f, or fewer bytes of each: -s)"
    )
    expected = {
        False: [
            "iscsitrace: writing a.pcapng", "iscsitrace: writing standard output", "iscsitrace: odd\\x1b",
            "iscsitrace: found iSCSI at a:1, b:2; capture filter now: tcp", dropped,
        ],
        True: ["iscsitrace: odd\\x1b", dropped],
    }  # fmt: skip
    for is_quiet, lines in expected.items():
        caller = CaptureCaller(Path("a.pcapng"), wish, is_quiet=is_quiet)
        assert caller.watch(json.dumps({"events": events}))
        assert capsys.readouterr().err.splitlines() == lines


def test_the_status_line_is_drawn_twice_a_second_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    amounts = {"elapsed_ns": SECOND_NS, "written_count": 7, "written_bytes": 0, "dropped_count": 0, "slow_count": 0}
    progress = json.dumps({"events": [], **amounts})
    drawn = "\r1 s  7 packets  0.0 MB  0 dropped\x1b[K"
    caller = CaptureCaller(Path("a.pcapng"), StopWish(), is_quiet=False)
    for now_s, is_drawn in ((100.0, True), (100.4, False), (100.5, True)):
        monkeypatch.setattr(time, "monotonic", lambda now_s=now_s: now_s)
        assert not caller.watch(progress)
        assert capsys.readouterr().err == drawn * is_drawn
    # it is erased once, before a line
    caller.say("end")
    caller.close()
    assert capsys.readouterr().err == "\r\x1b[Kiscsitrace: end\n"
    CaptureCaller(Path("a.pcapng"), StopWish(), is_quiet=True).watch(progress)
    assert capsys.readouterr().err == ""
