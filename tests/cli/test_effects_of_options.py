"""What a command does with its options before it reads or captures: which part, how much, and where to."""

from __future__ import annotations

import json
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.cli.options import CaptureInput
from iscsitrace.cli.process import wishing
from iscsitrace.cli.read import baselines, plot
from iscsitrace.cli.read.plot import Cycles
from iscsitrace.cli.record import capture
from iscsitrace.cli.record import watch as watch_command
from iscsitrace.cli.record.watch import Listen
from iscsitrace.cli.traffic import experiment, lab
from iscsitrace.cli.units import Moment
from iscsitrace.errors import CaptureUnreadable

SECOND_NS = 10**9


class Told(Exception):
    """Ends a command when it would go on."""


def converted(kind: Any, text: str) -> Any:
    """The value; None where it is refused."""
    try:
        return kind.convert(text, None, None)
    except click.BadParameter:
        return None


def said(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == 2
    return result.output


def input_of(*sources: object, **part: Any) -> CaptureInput:
    nothing: dict[str, Any] = {"capture_filter": None, "packet_limit": None, "time_from": None, "time_to": None}
    return CaptureInput(tuple(map(str, sources)), **nothing | part, is_quiet=True)


@pytest.mark.parametrize("arguments", [["summary", "a.pcap"], ["diff", "a.pcap", "b.pcap"]])
@pytest.mark.parametrize("is_quiet", [True, False])
def test_a_progress_bar_is_shown_unless_it_is_refused(
    arguments: list[str], is_quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def read(self: CaptureInput, *_: Any, **__: Any) -> None:
        seen.append((self.sources, self.is_quiet))
        raise Told

    monkeypatch.setattr(CaptureInput, "read", read)
    CliRunner().invoke(main, [*arguments, *(["--quiet"] if is_quiet else [])])
    assert seen == [(("a.pcap",), is_quiet)]


def test_usage_that_excludes_itself() -> None:
    for arguments, message in (
        ("diff - -", "only once"),
        ("export --sidecar --tables cycles a.pcap", "omit --tables and --format"),
        ("export --sidecar --format csv a.pcap", "omit --tables and --format"),
        ("export --sidecar -c 5 a.pcap", "omit -c"),
        ("cycles --csv --filter a.pcap", "use --json for display filters"),
        ("check --tap target a.pcap", "--tap goes with --truth"),
        ("check --truth t.json --tap target=a.pcap a.pcap", "check compares the captures of one tap: --tap takes its"),
        ("lab up --bypass --log x.json", "--log goes with links"),
        ("lab run read-study -o x --arm missing", "no arm is called 'missing'"),
        ("capture -i lo --json -w -", "omit --json"),
        ("capture -i lo -i eth0 -s advise", "one interface at a time"),
        ("capture -r a.pcap -w b.pcap --learn", "-r takes --trigger"),
        ("capture -r a.pcap -w b.pcap -s 96", "-r takes --trigger"),
        ("capture -r a.pcap -w b.pcap -f tcp", "-r takes --trigger"),
    ):
        assert message in said(*arguments.split()), arguments


# --- a plot


def test_numbers_of_commands_include_both_ends() -> None:
    assert [converted(Cycles(), text) for text in ("12", "12-15", "7-7")] == [range(12, 13), range(12, 16), range(7, 8)]
    assert [converted(Cycles(), text) for text in ("4-3", "x", "1-", "1-x", "-3", "")] == [None] * 6


@pytest.fixture
def tables_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr(CaptureInput, "read", lambda _, tables=(), **__: seen.append(tuple(tables)))
    kind = SimpleNamespace(tables=("senders",), zoomed_tables=("pdus",))
    monkeypatch.setattr("iscsitrace.plots.kinds.load", lambda _: kind)
    return seen


def test_a_plot_of_a_large_input_takes_single_pdus_only_if_it_is_zoomed(
    tables_read: list[tuple[str, ...]], tmp_path: Path
) -> None:
    """Up to 200 MB every PDU is read."""
    file = tmp_path / "a.pcap"
    file.touch()
    whole, moment = input_of(file, "-", tmp_path), Moment(5, is_relative=True)
    for size, zoomed, cycles, has_pdus in (
        (200_000_000, {}, None, True), (200_000_001, {}, None, False), (200_000_001, {}, range(1), True),
        (200_000_001, {"time_from": moment}, None, True), (200_000_001, {"time_to": moment}, None, True),
    ):  # fmt: skip
        with file.open("r+b") as stream:
            stream.truncate(size)
        assert whole.size_bytes == size
        plot._read("ladder", input_of(file, **zoomed), cycles, None)
        assert tables_read[-1] == (("senders", "pdus") if has_pdus else ("senders",))


def test_a_moment_of_a_zoom_counts_from_the_first_packet_or_from_1970() -> None:
    assert plot._absolute(None, 100) is None
    assert plot._absolute(Moment(5, is_relative=True), 100) == 105
    assert plot._absolute(Moment(5, is_relative=False), 100) == 5


# --- a report


def test_a_report_on_a_large_input_reads_no_single_pdus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from iscsitrace.report import captures

    seen = []

    def needed(is_large: bool, has_pictures: bool) -> None:
        seen.append((is_large, has_pictures))
        raise Told

    monkeypatch.setattr(captures, "needed", needed)
    file = tmp_path / "a.pcap"
    for size, options in ((200_000_000, []), (200_000_001, ["--no-plots"]), (0, ["--format", "md"])):
        with file.open("ab") as stream:
            stream.truncate(size)
        CliRunner().invoke(main, ["report", "-o", "-", *options, str(file)])
    assert seen == [(False, True), (True, False), (False, False)]
    experiment = tmp_path / "experiment"
    experiment.mkdir()
    assert "alone, without --session" in said("report", "-o", "-", "--session", "0", experiment)
    assert "alone, without --session" in said("report", "-o", "-", experiment, file)


# --- the throughput of a socket


def test_a_socket_is_a_rate_in_bits_or_a_capture() -> None:
    kind = baselines.RateOrCapture()
    rate, file = kind.convert("8Mbit", None, None), kind.convert("8M.pcap", None, None)
    assert (rate.bytes_per_s, rate.capture) == (1_000_000, None)
    assert (file.bytes_per_s, file.capture) == (None, "8M.pcap")
    assert kind.convert(rate, None, None) is rate
    assert converted(kind, "much-bit") is None
    assert baselines.c_of([], []) is None
    assert baselines.c_of([], [rate]) == 1_000_000
    for both in ([rate, rate], [rate, file]):
        with pytest.raises(click.UsageError, match="one rate, or captures"):
            baselines.c_of([], both)


# --- a capture


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings, and how often an interface would be measured for a snaplen."""
    seen: list[Any] = []

    def tell(*arguments: Any, **_: Any) -> None:
        seen.append(arguments)
        raise Told

    monkeypatch.setattr(capture, "_captured", tell)
    monkeypatch.setattr(capture, "_advise", tell)
    monkeypatch.setattr(capture, "_require_clock", lambda *_: None)
    monkeypatch.setattr(capture, "_require_filter", lambda _: None)

    def ask(*options: str) -> Any:
        result = CliRunner().invoke(main, ["capture", *options])
        assert isinstance(result.exception, Told), result.output
        return seen.pop()

    return ask


def test_what_a_capture_asks_of_an_interface(asked: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "a.pcapng")
    settings, sources, target, earlier, dumpcap = asked("-i", "eth0", "-i", "eth1", "-w", path)
    assert (sources, target, earlier, dumpcap) == ((), Path(path), [], "auto")
    # only a process of its own gives up rights
    assert settings["is_confined"] is False
    assert [each["name"] for each in settings["interfaces"]] == ["eth0", "eth1"]
    assert settings["interfaces"][0] == {
        "name": "eth0", "filter": None, "snaplen": 262_144, "is_promiscuous": False, "buffer_bytes": 64 << 20,
        "time_stamp_type": None,
    }  # fmt: skip
    plain = {"path": path, "is_forced": False, "next_file": None, "keep": {}, "earlier": [], "is_compressed": False}
    assert settings["output"] == plain
    assert settings["stop"] == {}
    # the default is added where libpcap captures
    assert {"trigger", "learn"} & settings.keys() == set()

    def interface(*options: str) -> Any:
        return asked("-i", "eth0", "-w", path, *options)[0]["interfaces"][0]

    assert [interface("-s", text)["snaplen"] for text in ("0", "68", "96", "262144")] == [262_144, 68, 96, 262_144]
    for text in ("67", "262145", "advised"):
        assert "-s takes 68 to 262144 bytes" in said("capture", "-i", "eth0", "-w", path, "-s", text)
    modes = (["--promiscuous"], ["-p"], ["--promiscuous", "-p"])
    assert [interface(*options)["is_promiscuous"] for options in modes] == [True, False, False]
    assert interface("-B", "3")["buffer_bytes"] == 3 << 20
    assert interface("-f", "tcp port 5")["filter"] == "tcp port 5"
    assert interface("--time-stamp-type", "adapter")["time_stamp_type"] == "adapter"


def test_when_a_capture_stops_and_begins_a_file(asked: Any, tmp_path: Path) -> None:
    def settings(*options: str, name: str = "a.pcapng") -> Any:
        return asked("-i", "eth0", "-w", str(tmp_path / name), *options)[0]

    # of two numbers of packets the smaller
    limits = [["-c", "5"], ["-c", "5", "-a", "packets:7"], ["-c", "9", "-a", "packets:7"]]
    assert [settings(*options)["stop"] for options in limits] == [{"packets": count} for count in (5, 5, 7)]
    earlier = tmp_path / "a_00041_20261121190000.pcapng"
    earlier.touch()
    kept = ("-b", "files:3", "-b", "age:2d", "-b", "total:1T", "-b", "free:5")
    ring = settings("-b", "filesize:100", *kept, "--compress", "-a", "files:7", name="a")
    keep = {"files": 3, "age_ns": 2 * 86_400 * SECOND_NS, "bytes": 1 << 40, "free_bytes": 5000}
    assert ring["output"] == {
        "path": str(tmp_path / "a.pcapng"), "is_forced": False, "next_file": {"bytes": 100_000}, "keep": keep,
        "earlier": [str(earlier)], "is_compressed": True,
    }  # fmt: skip
    assert ring["stop"] == {"files": 7}
    assert settings("--learn", "--learn-every", "5s")["learn"] == {"look_ns": 3 * SECOND_NS, "every_ns": 5 * SECOND_NS}
    around = settings("--trigger", "latency>5ms", "--before", "4s", "--after", "3ms", "--trigger-memory", "1M")
    assert around["trigger"] == {
        "condition": "latency>5ms", "before_ns": 4 * SECOND_NS, "after_ns": 3_000_000, "memory_bytes": 1 << 20,
    }  # fmt: skip
    assert around["section"]["comment"] == (
        "kept by the trigger latency>5ms: packets between its windows are left out on purpose"
    )
    assert settings("--capture-comment", "mine")["section"]["comment"] == "mine"
    both = settings("--capture-comment", "mine", "--trigger", "status!=good")["section"]["comment"]
    assert both.startswith("mine\nkept by the trigger status!=good: ")


def test_a_snaplen_is_measured_for_ten_seconds_unless_a_time_is_set(asked: Any) -> None:
    assert asked("-i", "eth0", "-s", "advise")[3] == 10 * SECOND_NS
    interfaces, sources, capture_filter, duration_ns = asked("-i", "eth0", "-s", "advise", "-a", "duration:3")
    assert (sources, capture_filter, duration_ns) == ((), None, 3 * SECOND_NS)
    # it is measured on whole packets
    assert interfaces[0]["snaplen"] == 262_144


def test_a_capture_fails_that_lost_packets_its_interface_or_its_output() -> None:
    def code(dropped: int, reason: str) -> int:
        return capture._exit_code({"progress": {"dropped_count": dropped}, "end": {"reason": reason}})

    assert [code(0, "limit"), code(1, "limit"), code(0, "interface"), code(0, "output")] == [0, 1, 1, 2]


def test_a_mistake_is_marked_where_it_is() -> None:
    assert capture._pointed("tcp prt", 4) == "'tcp >>>prt'"
    assert capture._pointed("tcp", 3) == "'tcp>>>'"


def test_metrics_are_served_at_the_loopback_address_unless_one_is_named() -> None:
    assert converted(Listen(), "9432") == ("127.0.0.1", 9432)
    assert converted(Listen(), "192.0.2.1:80") == ("192.0.2.1", 80)
    assert converted(Listen(), "[::1]:80") == ("::1", 80)
    assert [converted(Listen(), text) for text in ("x", "192.0.2.1", "127.0.0.1:")] == [None] * 3


def test_the_first_signal_is_a_wish_and_the_second_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with wishing() as wish:
        assert not wish.is_there
        signal.raise_signal(signal.SIGTERM)
        assert wish.is_there
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("options", "has_findings"),
    [([], True), (["--no-findings"], False), (["--no-dynamics"], False), (["--no-findings", "--no-dynamics"], False)],
)
def test_a_watch_diagnoses_unless_it_is_told_not_to_or_lacks_the_dynamics(
    options: list[str], has_findings: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watch(live: str, *, has_findings: bool) -> None:
        seen.append((live, has_findings))
        raise Told

    opened = nullcontext(SimpleNamespace(live="live"))
    monkeypatch.setattr("iscsitrace.watch.source.open_source", lambda *_, **__: opened)
    monkeypatch.setattr("iscsitrace.watch.watcher.Watcher", watch)
    CliRunner().invoke(main, ["watch", *options, "eth0"])
    assert seen == [("live", has_findings)]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a watch whose input has this document at its end: its exit code, what it did, and what it printed."""

    def run(*options: str, is_terminal: bool = False, change: str | None = None, lost: int = 0, words: str = "") -> Any:
        done: list[Any] = []
        live = SimpleNamespace(change=change, stop=lambda: done.append("stopped"))
        watched = SimpleNamespace(
            live=live, is_interface=False, close=lambda: done.append("closed"), last_message=lambda: words
        )
        document = {"counters": [{"name": "dropped_by_capture", "count": lost}]}
        watcher = SimpleNamespace(live=live, document=lambda: document)
        monkeypatch.setattr("iscsitrace.watch.source.open_source", lambda *_, **__: nullcontext(watched))
        monkeypatch.setattr("iscsitrace.watch.watcher.Watcher", lambda *_, **__: watcher)
        monkeypatch.setattr("iscsitrace.show.summary.sections_of_totals", lambda _: [])
        monkeypatch.setattr(watch_command._Show, "on_screen", lambda _: done.append("screen"))
        monkeypatch.setattr(
            watch_command._Show, "as_lines", lambda _, is_json: done.append("json" if is_json else "lines")
        )
        stdout = SimpleNamespace(isatty=lambda: is_terminal)
        monkeypatch.setattr(watch_command, "sys", SimpleNamespace(stdout=stdout))
        result = CliRunner().invoke(main, ["watch", *options, "a.pcap"])
        return result.exit_code, done, result.output

    return run


def test_the_screen_is_for_a_terminal_and_lines_for_all_else(watch: Any) -> None:
    assert watch(is_terminal=True) == (0, ["screen", "closed"], "")
    assert watch() == (0, ["lines", "closed"], "")
    assert watch("--plain", is_terminal=True) == (0, ["lines", "closed"], "")
    code, done, output = watch("--json", is_terminal=True)
    assert (code, done, json.loads(output)["counters"][0]["count"]) == (0, ["json", "closed"], 0)
    assert watch("--no-follow") == (0, ["stopped", "lines", "closed"], "")


def test_a_watch_fails_where_packets_were_lost_or_the_file_changed(watch: Any) -> None:
    assert watch(lost=1) == (1, ["lines", "closed"], "")
    assert watch(change="cut short") == (
        1, ["lines", "closed"], "iscsitrace: a.pcap was cut short while it was read: reading stopped\n",
    )  # fmt: skip
    assert watch(words="no permission") == (0, ["lines", "closed"], "no permission\n")


@pytest.mark.parametrize(("code", "expected"), [(3, (3, "no permission\n")), (0, (2, "iscsitrace: no capture\n"))])
def test_a_watch_ends_as_its_capture_does_and_serves_no_more(
    code: int, expected: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def refuse(*_: Any, **__: Any) -> None:
        raise CaptureUnreadable("no capture")

    watched = SimpleNamespace(live=None, is_interface=False, close=lambda: code, last_message=lambda: "no permission")
    server = SimpleNamespace(stop=lambda: done.append("stopped"))
    monkeypatch.setattr("iscsitrace.watch.source.open_source", lambda *_, **__: nullcontext(watched))
    monkeypatch.setattr(watch_command, "_serve", lambda *_: (None, server))
    monkeypatch.setattr(watch_command._Show, "as_lines", refuse)
    result = CliRunner().invoke(main, ["watch", "eth0"])
    assert (result.exit_code, result.output) == expected
    assert done == ["stopped"]


# --- a lab


def test_a_run_is_an_experiment_unless_its_first_word_is_an_operation() -> None:
    for words, is_experiment in (
        ("read-study -o x", True), ("read -o x", False), ("-o x read", False), ("-o x mine.toml", True),
        ("read mine.toml", True), ("socket-write", False), ("", False),
        ("read --settings mine.toml -o x", False), ("read -o x --settings=mine.toml", False),
        ("--settings a.toml b.toml", True),
    ):  # fmt: skip
        assert lab._is_experiment(words.split()) == is_experiment


def test_hosts_to_capture_at() -> None:
    captured = {
        word: lab._captures(capture_at=word, is_bypassed=False)["capture_at"]
        for word in ("both", "initiator", "target", "none")
    }
    assert captured == {"both": ("initiator", "target"), "initiator": ("initiator",), "target": ("target",), "none": ()}


def test_an_experiment_reports_points_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[Any] = []
    bar: Any = SimpleNamespace(show=lambda *arguments: shown.append(arguments), close=lambda: shown.append("closed"))
    watched = experiment._Watched(bar)

    def tell(**columns: Any) -> bool:
        known: dict[str, Any] = {"latest": None, "left_s": None, "failed": 0, "done": 2, "count": 5}
        return watched(SimpleNamespace(**known | columns))  # type: ignore[arg-type]

    assert not tell()
    tell(latest=SimpleNamespace(name="p1", error=None), left_s=90.0, failed=1)
    tell(latest=SimpleNamespace(name="p2", error="no disk"))
    watched.wish.is_there = True
    assert tell()
    watched.close()
    assert shown[0] == (2, 5, "2 of 5 points")
    assert shown[1] == (2, 5, "2 of 5 points, 1 failed, 2 min left")
    assert shown[-1] == "closed"
    assert capsys.readouterr().err == "failed: p2: no disk\n"
