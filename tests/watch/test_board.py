"""The board on reports made by hand: which lines, columns and warnings there are, at both sides of each limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iscsitrace.diagnosis.headline import Headline
from iscsitrace.measure.budget import PARTS, Budget
from iscsitrace.tables.passes import SECOND_NS, Pace
from iscsitrace.watch.board import BAD, Choice, bar, legend, lines_of, render, sorted_lines
from iscsitrace.watch.figures import NO_LOAD, Hang, Transport, WatchLine
from iscsitrace.watch.findings import SessionFinding
from iscsitrace.watch.watcher import Report
from iscsitrace.wording.parts import BY_NAME

NO_LATENCY = {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}
PROMPT = Pace(0, 0, is_reduced=False, is_leaving_out=False, left_out_packets=0)


def session(number: int, **columns: Any) -> WatchLine:
    names = {"session_type": "normal", "initiator_name": "host", "target_name": f"disk{number}"}
    return WatchLine(
        "session", number, **{"load": NO_LOAD, "budget": None, "open_task_count": 0, "names": names} | columns
    )


def report(*sessions: WatchLine, **columns: Any) -> Report:
    known: dict[str, Any] = {
        "from_ns": 0, "to_ns": SECOND_NS, "packet_count": 9, "new_packets": 9, "whole": NO_LOAD,
        "whole_total_latency_ns": NO_LATENCY, "sessions": list(sessions), "connections": [], "findings": (),
        "headline": None, "stories": (), "counters": [], "pace": PROMPT, "late_count": 0, "dropped": None,
    }  # fmt: skip
    return Report(**known | columns)


def shown(of: Report | None, width: int = 130, height: int = 60, **choices: Any) -> list[str]:
    return [line.plain.rstrip() for line in render(of, Choice(source="eth0", **choices), width, height)]


def rows(lines: list[str]) -> list[str]:
    """The table below its heading."""
    start = next(place for place, line in enumerate(lines) if "MB/s R" in line)
    return lines[start + 1 : lines.index("", start)]


def test_before_the_first_report_it_waits() -> None:
    assert shown(None, quiet_s=7.4) == ["eth0: waiting for packets (7 s)"]


def test_without_a_session_it_says_so() -> None:
    lines = shown(report())
    assert lines[0] == "eth0  live  00:00:01Z  1 s  9 packets  lag 0.0 s"
    assert "no iSCSI session yet" in lines


def test_a_line_of_a_session_has_what_is_known() -> None:
    start = "  session 0: read 0.0 MB/s, write 0.0 MB/s, 0.0 IOPS, p50 - ms, max - ms (n 0)"
    assert lines_of(report(session(0))) == [
        "00:00:01Z all: read 0.0 MB/s, write 0.0 MB/s, 0.0 IOPS, p50 - ms, max - ms (n 0), 9 packets", start,
    ]  # fmt: skip
    full = session(0, load=replace(NO_LOAD, queue_depth_max=4), budget=budget(transfer=25, propagation=75))
    assert lines_of(report(full, dropped=2))[1:] == [
        "  the capture dropped 2 packets so far", f"{start}, QD 4, idle 75 % of 100 ns busy (network RTT)",
    ]  # fmt: skip
    assert lines_of(report(session(0, budget=budget(transfer=25))))[1] == f"{start}, idle 0 % of 25 ns busy (transfer)"


def test_a_line_shows_the_age_of_a_command_that_saw_no_end_in_the_interval() -> None:
    interval_ns = report().to_ns - report().from_ns
    for oldest_ns, is_shown in ((interval_ns - 1, False), (interval_ns, True)):
        (line,) = lines_of(report(session(0, hang=Hang(oldest_ns=oldest_ns))))[1:]
        assert line.endswith(", oldest command in flight for 1.0 s") == is_shown


def test_the_maximum_stands_for_a_p99_of_too_few_commands() -> None:
    few = {"n": 99, "p50": 1_500_000, "p95": 20_000_000, "p99": None, "max": 40_000_000}
    for latency, shown_tail in (
        (few, "max 40.0 ms (n 99)"),
        (few | {"n": 100, "p99": 30_000_000}, "p99 30.0 ms (n 100)"),
    ):
        load = replace(NO_LOAD, latency_ns=latency)
        one = report(session(0, load=load), whole=load, whole_total_latency_ns=latency)
        said = f"p50 1.500 ms, {shown_tail}"
        assert all(said in line for line in lines_of(one))
        assert any(line.endswith(said) for line in shown(one))
    assert "since the start  p50 1.500  p95 20.0  p99 30.0  max 40.0 ms (n 100)" in shown(one)


def test_sessions_to_the_same_target_are_told_apart() -> None:
    def named(number: int, initiator: str | None, target: str | None) -> WatchLine:
        names = {"session_type": "normal", "initiator_name": initiator, "target_name": target}
        return session(number, names=names, connections=(number,))

    def connection(number: int) -> WatchLine:
        names = {"session": number, "initiator": f"10.0.0.{number}:99", "target": "10.0.1.1:3260"}
        return WatchLine("connection", number, NO_LOAD, None, 0, names=names)

    one_target = [named(0, "iqn.2026-01.a:host-0", "disk"), named(1, "iqn.2026-01.a:host-1", "disk")]
    paths = [named(2, "host-2", "lun"), named(3, "host-2", "lun")]
    alone, unknown = named(4, "host-0", "tape"), named(5, None, None)
    sessions = [*one_target, *paths, alone, unknown]
    of = report(*sessions, connections=[connection(number) for number in range(6)])
    wide = [row[:45].rstrip() for row in rows(shown(of, width=140))]
    assert wide == [
        "> 0 iqn.2026-01.a:host-0 > disk",
        "  1 iqn.2026-01.a:host-1 > disk",
        # two paths between the same names
        "  2 10.0.0.2:99 > 10.0.1.1:3260",
        "  3 10.0.0.3:99 > 10.0.1.1:3260",
        "  4 tape",
        "  5 login not captured",
    ]
    narrow = [row[:24].rstrip() for row in rows(shown(of, width=80))]
    assert len({name[4:] for name in narrow}) == len(sessions)
    assert narrow[:2] == ["> 0 …-01.a:host-0 > disk", "  1 …-01.a:host-1 > disk"]
    plain = [line.partition(": read")[0] for line in lines_of(of)[1:]]
    assert plain[1] == "  session 1 (iqn.2026-01.a:host-1 > disk)"
    assert plain[3] == "  session 3 (10.0.0.3:99 > 10.0.1.1:3260)"
    # one alone needs no name
    assert lines_of(report(one_target[0]))[1].startswith("  session 0: read")


# --- the table


def test_the_table_at_full_width() -> None:
    load = replace(
        NO_LOAD, task_count=50, read_bytes=25_000_000, write_bytes=3_000_000, length_ns=2 * SECOND_NS,
        latency_ns={"n": 120, "p50": 1_500_000, "p95": 20_000_000, "p99": 30_000_000, "max": 40_000_000},
        queue_depth_mean=2.26, queue_depth_max=4, block_sizes=[{"bytes": 65_536, "task_count": 50}],
    )  # fmt: skip
    lines = shown(report(session(0, load=load, open_task_count=3)))
    assert (
        "session (by number)                 "
        + ("  MB/s R  MB/s W    IOPS  p50 ms     p95     p99     max   QD idle%  rtx  RTT ms   owin    I/O")
        in lines
    )
    assert rows(lines) == [
        "> 0 disk0                           "
        "    12.5     1.5    25.0   1.500    20.0    30.0    40.0    4     -    -       -      -    64K"
    ]
    assert "session 0  idle - %  limiter -  in flight 3  QD mean 2.3" in lines
    assert "RTT - ms (min -)  owin -  I/O sizes 64K x50" in lines


@pytest.mark.parametrize(
    ("least", "heading"), [(92, "    p95 "), (100, "    max "), (108, " RTT ms"), (115, "   owin"), (122, "    I/O")]
)
def test_a_column_needs_its_width(least: int, heading: str) -> None:
    def head(width: int) -> str:
        return next(line for line in shown(report(session(0)), width) if "MB/s R" in line)

    assert heading in head(least)
    assert heading not in head(least - 1)


def test_a_long_name_keeps_its_end() -> None:
    """All columns take 94 of 130, mark and number 4: 32 are left."""
    for name, cell in (("a" * 32, "a" * 32), ("ab" + "c" * 31, "…" + "c" * 31)):
        names = {"initiator_name": None, "target_name": name}
        assert rows(shown(report(session(0, names=names))))[0].startswith(f"> 0 {cell}  ")


def test_a_session_without_a_login_is_named_so() -> None:
    for target, initiator, name in (
        ("disk", "host", "disk"),
        (None, "host", "host"),
        (None, None, "login not captured"),
    ):
        names = {"initiator_name": initiator, "target_name": target}
        assert rows(shown(report(session(0, names=names))))[0].startswith(f"> 0 {name} ")


def test_the_rows_follow_the_selected_one() -> None:
    """Of 20 lines the head takes 3, the detail 3, and two blank lines part them; one is left over: 10 rows."""
    ten, eleven = (report(*(session(number) for number in range(count))) for count in (10, 11))
    assert [line[:5] for line in rows(shown(ten, height=20))] == ["> 0 d"] + [
        f"  {number} d" for number in range(1, 10)
    ]
    assert rows(shown(eleven, height=20))[8:] == [rows(shown(ten, height=20))[8], "   ... 2 more"]
    last = rows(shown(eleven, height=20, row=10))
    assert [line[:3] for line in last] == [f"  {number}" for number in range(1, 10)] + [">10"]
    # with a row that is gone the last one is selected
    assert rows(shown(eleven, height=20, row=99)) == last
    assert rows(shown(ten, height=20, row=99))[-1].startswith("> 9 ")
    assert "session 9  idle - %  limiter -  in flight 0  QD mean -" in shown(ten, height=20, row=99)


def test_what_is_below_gets_half_the_height_at_most() -> None:
    counters = [
        {"name": f"odd{place}", "severity": "warning", "count": 2, "new": 0, "meaning": "odd"} for place in range(20)
    ]
    many = report(*(session(number) for number in range(9)), counters=counters)
    # 20 less 4 above and 10 below and 2: the heading and 3 rows; the last says how many are hidden
    assert rows(shown(many, height=20))[2:] == ["   ... 7 more"]
    # at least the heading and 2 rows
    assert rows(shown(many, height=14))[1:] == ["   ... 8 more"]


def test_the_selected_row_is_bold_and_one_that_is_closed_dim() -> None:
    of = report(session(0), session(1), session(2, is_open=False))
    styles = {
        line.plain[:3]: {str(span.style) for span in line.spans}
        for line in render(of, Choice(source="eth0", row=1), 130, 60)
        if "disk" in line.plain
    }
    assert styles == {"  0": set(), "> 1": {"bold"}, "  2": {"dim"}}


def test_the_length_of_an_interval() -> None:
    later = report(from_ns=SECOND_NS, to_ns=3 * SECOND_NS + SECOND_NS // 2)
    assert shown(later)[0] == "eth0  live  00:00:03Z  2.5 s  9 packets  lag 0.0 s"


# --- warnings


def test_what_the_view_cannot_keep_up_with() -> None:
    def head(**pace: Any) -> list[str]:
        return shown(report(session(0), pace=replace(PROMPT, **pace)))[3:4]

    assert head() == [""]
    assert head(is_reduced=True) == ["! cannot keep up: no time breakdown, RTT and owin for now"]
    assert head(left_out_packets=5) == ["! cannot keep up: skipped packets, 5 so far"]
    assert head(is_leaving_out=True) == ["! cannot keep up: is skipping packets, 0 so far"]


def test_a_lag_of_more_than_a_second_is_bad() -> None:
    for lag_ns, is_bad in ((10**9, False), (10**9 + 1, True)):
        late = report(session(0), pace=replace(PROMPT, lag_ns=lag_ns))
        head = render(late, Choice(source="eth0"), 130, 20)[0]
        assert any(span.style == BAD for span in head.spans) == is_bad
        assert len(lines_of(late)) == 2 + is_bad
    assert "  cannot keep up: lag 0.0 s, 5 packets skipped so far" in lines_of(
        report(pace=replace(PROMPT, left_out_packets=5))
    )


def test_silence_is_said_after_three_seconds() -> None:
    for quiet_s, is_over, is_said in ((3.0, False, False), (3.1, False, True), (3.1, True, False)):
        said = "no packets for 3 s" in shown(report(session(0)), quiet_s=quiet_s, is_over=is_over)
        assert said == is_said


def test_the_state_of_the_view() -> None:
    states = [({}, "live"), ({"is_paused": True}, "PAUSED"), ({"is_paused": True, "is_over": True}, "ended")]
    for choices, state in states:
        assert shown(report(), **choices)[0].startswith(f"eth0  {state}  00:00:01Z")


def test_counters_that_are_worse_than_info() -> None:
    counter = {"name": "gap", "severity": "data_loss", "count": 7, "new": 2, "meaning": "holes"}
    quiet = counter | {"name": "other", "severity": "info"}
    old = counter | {"name": "old", "new": 0}
    odd = report(session(0), counters=[counter, quiet, old])
    assert shown(odd)[-3:] == ["problems of the capture", "data_loss: gap 7 (+2): holes", "data_loss: old 7: holes"]
    assert lines_of(odd)[2:] == ["  data_loss: gap +2: holes"]
    assert "problems of the capture" not in shown(report(session(0), counters=[quiet]))


def test_findings_stand_below_the_headline_and_that_of_the_selected_sessions_story() -> None:
    first, second = Headline("first", name="io_outage", severity="error"), Headline("second")
    found = SessionFinding(1, "small_blocks", "warning", 0.4, "40 %", "text", int(str(SECOND_NS)))
    old = replace(found, name="old", share=None, cost="", since_ns=SECOND_NS - 1)
    both = report(
        session(0), session(1), findings=(found, old), headline=first, stories=(((0,), first), ((1, 2), second))
    )
    below = ["session 1: small_blocks (warning, 40 %): text", "session 1: old (warning): text"]
    assert shown(both)[-4:] == ["recent findings", "first", *below]
    assert shown(both, row=1)[-5:-2] == ["recent findings", "first", "second"]
    # lines have what is new
    assert lines_of(both)[3:] == [f"  {below[0]}"]


def test_a_long_sentence_is_folded_and_indented() -> None:
    of = report(session(0), headline=Headline("word " * 9 + "end"))
    assert shown(of, 20)[-4:] == ["recent findings", "word word word word", "  word word word", "  word word end"]


# --- hangs


def test_sessions_without_progress_for_a_second_are_in_the_head_the_longest_first() -> None:
    lengths = [SECOND_NS - 1, SECOND_NS, 4_300_000_000, 2 * SECOND_NS, 3 * SECOND_NS]
    sessions = [session(number, hang=Hang(length, length), open_task_count=2) for number, length in enumerate(lengths)]
    lines = [line for line in shown(report(*sessions)) if line.startswith("!")]
    assert lines == [
        "! session 2: no progress for 4.3 s, 2 commands in flight, the oldest for 4.3 s",
        "! session 4: no progress for 3.0 s, 2 commands in flight, the oldest for 3.0 s",
        "! session 3: no progress for 2.0 s, 2 commands in flight, the oldest for 2.0 s",
        "! 1 more session without progress",
    ]
    plain = [line for line in lines_of(report(*sessions)) if "no progress" in line]
    assert [line.split(":")[0] for line in plain] == [f"  session {number}" for number in (1, 2, 3, 4)]
    # a path checker that waits is no hang; the detail tells its age
    waiting = report(session(0, hang=Hang(12 * SECOND_NS, 0), open_task_count=1))
    assert not [line for line in shown(waiting) if line.startswith("!")]
    assert "  in flight 1 (oldest 12.0 s)" in "\n".join(shown(waiting))


# --- the time breakdown


def budget(**parts_ns: int) -> Budget:
    return Budget({**dict.fromkeys(PARTS, 0), **parts_ns})


def test_cells_left_over_go_to_the_largest_remainders() -> None:
    """Of 10 cells 4.4, 2.8 and 2.8: 4, 2 and 2, and one each for the two remainders of 0.8."""
    three = budget(transfer=44, propagation=28, loss_recovery=28)
    assert bar(three, 10).plain == "TTTTPPPLLL"
    # letters in white on what is dark
    letters = [str(span.style) for span in bar(three, 10).spans]
    assert letters == [
        f"{'white' if BY_NAME[part].is_dark else 'black'} on {BY_NAME[part].color}"
        for part in ("transfer", "propagation", "loss_recovery")
    ]
    assert bar(budget(), 12).plain == bar(None, 12).plain == "no time brea"


def test_the_legend_breaks_where_the_next_part_does_not_fit() -> None:
    """A letter and ` transfer 25 %  ` are 17 cells, a letter and ` network RTT 75 %  ` 20; the largest is first."""
    two = budget(transfer=25, propagation=75)
    assert [line.plain for line in legend(two, 37)] == ["P network RTT 75 %  T transfer 25 %  "]
    assert [line.plain for line in legend(two, 36)] == ["P network RTT 75 %  ", "T transfer 25 %  "]
    assert [line.plain for line in legend(two, 5)] == ["P network RTT 75 %  ", "T transfer 25 %  "]
    assert legend(budget(), 37) == legend(None, 37) == []


# --- what several connections add up to


def transport(**columns: Any) -> Transport:
    known: dict[str, Any] = {
        "owin_peak_bytes": {"to_target": 0, "to_initiator": 0}, "owin_bytes": {}, "rwnd_bytes": {},
        "rtt_smoothed_ns": None, "rtt_min_ns": None, "retransmitted_total": 0,
        "retransmissions": {"fast_retransmit": 0, "timeout": 0, "tail_probe": 0, "unknown_retransmit": 0},
    }  # fmt: skip
    return Transport(**known | columns)


def test_round_trips_windows_and_retransmissions_of_two_connections() -> None:
    again = {"fast_retransmit": 2, "timeout": 0, "tail_probe": 0, "unknown_retransmit": 1, "spurious": 9}
    one = transport(
        owin_peak_bytes={"to_target": 10 << 10, "to_initiator": 1 << 10}, rtt_smoothed_ns=5_000_000,
        rtt_min_ns=4_000_000, retransmissions=again, retransmitted_total=8,
    )  # fmt: skip
    other = transport(
        owin_peak_bytes={"to_target": 2 << 10, "to_initiator": 20 << 10}, rtt_smoothed_ns=6_000_000,
        rtt_min_ns=3_000_000, retransmissions=again, retransmitted_total=7,
    )  # fmt: skip
    line = session(0, transports={4: one, 5: other, 6: transport()})
    assert (line.retransmitted, line.rtt_smoothed_ns, line.owin_peak_bytes) == (6, 6_000_000, 21 << 10)
    lines = shown(report(line))
    assert "RTT 6.000 ms (min 3.000)  owin 21K  I/O sizes -" in lines
    assert "retransmissions: fast retransmit 4  unknown retransmit 2  (15 so far)" in lines
    assert lines_of(report(line))[1] == (
        "  session 0: read 0.0 MB/s, write 0.0 MB/s, 0.0 IOPS, p50 - ms, max - ms (n 0), RTT 6.000 ms, owin 21K, "
        "6 retransmissions"
    )
    quiet = session(0, transports={4: transport(retransmitted_total=8)})
    assert "retransmissions: 0  (8 so far)" in shown(report(quiet))
    assert not [text for text in shown(report(session(0, transports={4: transport()}))) if "retrans" in text]


@pytest.mark.parametrize("sort", ["p99", "queue depth", "idle"])
def test_what_is_unknown_is_sorted_as_nothing(sort: str) -> None:
    """Behind one nanosecond or one command, and level with none: then the numbers decide."""

    def line(number: int, amount: int | None) -> WatchLine:
        parts = budget() if amount is None else budget(transfer=1, propagation=amount)
        load = replace(NO_LOAD, latency_ns=NO_LATENCY | {"p99": amount}, queue_depth_max=amount)
        return session(number, load=load, budget=parts)

    lines = [line(0, None), line(1, 0), session(2), line(3, 1), line(4, 2)]
    assert [each.number for each in sorted_lines(report(*lines), Choice(sort=sort))] == [4, 3, 0, 1, 2]
