"""``diagnose`` on tables made by hand: its output, its document, its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from iscsitrace.cli.read.diagnose import command
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.tables import trace as trace_module
from iscsitrace.tables.schema import CATEGORIES, SCHEMA_VERSION
from tests.support import tables_by_hand as by_hand
from tests.support.histories import Told
from tests.support.story import SENDER, Story
from tests.support.tables_by_hand import MS

Diagnose = Callable[..., Result]


def sick() -> Story:
    """Reads one at a time over 8 ms each way, one of them aborted."""
    abort = {"function": 1, "function_text": "ABORT TASK", "request_frame": 50, "referenced_cycle": 0}
    return Story().tasks(10, ("propagation", 16 * MS), ("transfer", 4_500_000)).add("task_management", **abort)


def well() -> Story:
    return Story().tasks(10, ("transfer", 4 * MS))


@pytest.fixture
def diagnose(monkeypatch: pytest.MonkeyPatch) -> Diagnose:
    def run(story: Story | Told, *arguments: str) -> Result:
        story.source()
        monkeypatch.setattr(trace_module, "_core", by_hand.core(story.rows), raising=False)
        monkeypatch.setattr(trace_module, "_core_missing", None)
        return CliRunner().invoke(main, ["diagnose", *arguments, "a.pcap"], catch_exceptions=False)

    return run


def test_the_headline_comes_first_then_what_to_do_then_where_the_time_went(diagnose: Diagnose) -> None:
    result = diagnose(sick())
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("a.pcap: pcap, 9 packets")
    assert lines[1:] == [
        "",
        "The initiator aborted commands: 1 ABORT TASK.",
        "",
        "What to do",
        f"  1. {PROBLEMS['task_aborts'].advice[0].text}",
        f"  2. {PROBLEMS['task_aborts'].advice[1].text}",
        "",
        # 160 and 45 ms
        "I/O time 0.205000 s: network RTT 78 %, transfer 22 %",
        "see frame.number in {11, 50}",
        "also found (-v): queue_depth_low (78 %), block_size_small (78 %)",
    ]
    assert "\x1b" not in result.stdout


def test_details_stand_behind_an_option(diagnose: Diagnose) -> None:
    lines = diagnose(sick(), "-v").stdout.splitlines()
    place = lines.index("Time breakdown of session 0: 0.205000 s of I/O time")
    assert [line.split() for line in lines[place + 1 : place + 4]] == [
        ["part", "ms", "%"],
        ["transfer", "45.000", "22"],
        ["network", "RTT", "160.000", "78"],
    ]
    place = lines.index("Findings of session 0, in percent of the I/O time")
    assert lines[place + 1] == "task_aborts (error): The initiator aborted commands: 1 ABORT TASK."
    assert lines[place + 2] == f"    - {PROBLEMS['task_aborts'].advice[0].text}"
    assert lines[place + 4] == "    frame.number in {11, 50}"
    assert lines[place + 5].startswith("queue_depth_low (info, 78 %): The initiator issues one 128 KiB read at a time")


def test_one_line_of_each_session(diagnose: Diagnose) -> None:
    told = several()
    told.rows["sessions"][1]["initiator_name"] = "iqn.lost"
    lines = diagnose(told, "--short").stdout.splitlines()
    rows = [re.split(r"  +", line.strip()) for line in lines if line.strip().startswith(("session ", "session  "))]
    assert rows[0] == ["session", "verdict", "finding", "lost s", "headline"]
    assert [row[0] for row in rows[1:]] == ["session 0", "session 1", "session 2"]
    # the headline of the story that the session is of has what broke
    assert [row[1] for row in rows[1:]] == ["healthy", "problem", "healthy"]
    assert rows[2][2] == "connection_lost"


def test_what_happened_to_two_sessions_is_told_once() -> None:
    (capture,) = (Path(__file__).parents[2] / "samples" / "black-out-and-relogin").glob("capture.*")
    result = CliRunner().invoke(main, ["diagnose", "--short", str(capture)], catch_exceptions=False)
    first, second = result.stdout.splitlines()[-2:]
    assert first.startswith("session 0  problem  io_outage  ")
    assert " Session 0 had no I/O for " in first
    assert re.fullmatch(r"session 1  problem  io_outage  +\d+\.\d+  as session 0", second)


def test_a_healthy_session_has_the_parts_of_its_time_once(diagnose: Diagnose) -> None:
    story = Story().tasks(10, ("transfer", 30 * MS), ("target_service", 9 * MS))
    assert "slow_target (info, 23 %)" in diagnose(story, "-v").stdout
    output = diagnose(story).stdout
    assert "is healthy." in output
    assert "target service 23 %" in output
    assert "also found" not in output


def test_no_more_than_three_pieces_of_advice(diagnose: Diagnose) -> None:
    """What broke has as many; the first is the most likely."""
    told = several()
    told.rows["sessions"][1]["initiator_name"] = "iqn.lost"
    told.rows["sessions"][2]["initiator_name"] = "iqn.slow"
    output = diagnose(told).stdout
    steps = [line for line in output.splitlines() if re.match(r"  \d\. ", line)]
    assert len(steps) == 3
    assert steps[0] == f"  1. {PROBLEMS['connection_lost'].advice[0].text}"


def test_advice_says_what_it_touches(diagnose: Diagnose) -> None:
    story = Story().tasks(10, ("transfer", 40 * MS), ("receive_window", 60 * MS)).add("senders", **SENDER)
    touched = {"rmem_max": "affects every new connection of the host", "window_size": "takes effect at the next login"}
    for arguments in ((), ("-v",)):
        lines = diagnose(story, *arguments).stdout.splitlines()
        for setting, words in touched.items():
            # the gain may follow
            assert any(setting in line and f" ({words}" in line for line in lines), lines


def test_idle_gaps_are_reported(diagnose: Diagnose) -> None:
    story = sick()
    for _ in range(8):
        story.pause(MS).task(("transfer", MS))
    lines = diagnose(story.pause(1_000 * MS).task(("transfer", MS)), "-v").stdout.splitlines()
    # 205 ms of the sick session, eight pauses and nine commands more
    place = lines.index("Time breakdown of session 0: 0.222000 s of I/O time")
    assert lines[place + 1] == "excluded: idle gaps between bursts of I/O 1.000000 s"
    assert ["initiator", "idle", "8.000", "4"] in [line.split() for line in lines]


def test_a_healthy_session_has_nothing_to_do(diagnose: Diagnose) -> None:
    output = diagnose(well()).stdout
    assert output.splitlines()[1:] == [
        "",
        "Session 0 is healthy. The largest part of the I/O time is data transfer (100 %).",
        "",
        "I/O time 0.040000 s: transfer 100 %",
    ]
    # the only connection of a session is in its session
    assert "connection" not in diagnose(well(), "-v").stdout


def test_connections_are_shown_if_a_session_has_several(diagnose: Diagnose) -> None:
    story = well()
    story.rows["connections"].append(story.connection | {"connection": 4})
    output = diagnose(story).stdout
    assert "connection 3: I/O time 0.040000 s: transfer 100 %" in output
    assert "Connection 4: no SCSI commands." in output


def several() -> Told:
    """Two healthy sessions of one and two seconds, and between them one that was lost for a second."""
    told = Told()
    for number, (first, last, end) in enumerate(((0, 1, "logout"), (2, 4, "reset"), (6, 8, "logout"))):
        more = {"rst_to_initiator_ns": last} if end == "reset" else {}
        told.session(first, last, end=end, isid=f"8{number}", **more)
        for place in range(20):
            step = (last - first) / 25
            told.read(number, first + 0.1 + place * step, first + 0.1 + (place + 1) * step)
    told.read(1, 3.9, None)
    return told


def test_of_many_sessions_the_worst_is_shown_in_full_and_the_others_by_headline(diagnose: Diagnose) -> None:
    result = diagnose(several(), "--top", "1")
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines if "I/O time " in line and "%" in line.partition(": ")[2][:40]] == [
        "I/O time 1.600000 s"
    ]
    place = lines.index("2 sessions less severe, by headline")
    assert [line.split("  ") for line in lines[place + 1 : place + 2]] == [
        ["--top COUNT shows more of them in full, --session NUMBER shows one."]
    ]
    assert lines[place + 2].split() == ["sessions", "headline", "limiter", "lost", "s", "I/O", "s", "worst"]
    # 0.8 s of the one, 1.6 s of the other
    (row,) = (line.split() for line in lines[place + 3 : place + 4])
    assert (row[0], row[-2], row[-1]) == ("2", "2.400000", "2")
    assert "queue_depth_low" not in lines[2], "the first headline is of what broke"


def test_all_sessions_are_shown_in_order_where_they_are_few(diagnose: Diagnose) -> None:
    for arguments in ((), ("--top", "3")):
        lines = diagnose(several(), *arguments).stdout.splitlines()
        shown = [line.split(":")[0] for line in lines if "I/O time " in line and line.startswith("session")]
        assert shown == ["session 0", "sessions 1 and 2"], "the last took the place of the one that was lost"
        assert not any("less severe" in line for line in lines)


def test_headlines_that_differ_by_their_numbers_alone_are_one(diagnose: Diagnose) -> None:
    told = several()
    # of too few commands
    told.session(10, 12, end="logout", isid="83")
    for place in range(4):
        told.read(3, 10 + place * 0.5, 10 + (place + 1) * 0.5)
    lines = diagnose(told).stdout.splitlines()
    most = diagnose(told, "--top", "3").stdout.splitlines()
    headlines = lines[2 : lines.index("", 2)]
    assert [headline.count("ession") for headline in headlines] == [1, 1, 1]
    assert "Session 0 " in headlines[0]
    assert headlines[1] == "    Same verdict for 2 more sessions: 1 2."
    assert "Session 3" in headlines[2]
    # sessions of one story have one breakdown; of the sessions shown of many, those alike, too
    assert [sum(": I/O time " in line for line in lines) for lines in (lines, most)] == [3, 2]


def test_sessions_are_chosen_by_number(diagnose: Diagnose) -> None:
    lines = diagnose(several(), "--session", "2", "--session", "0", "--top", "1").stdout.splitlines()
    shown = [line.split(":")[0] for line in lines if ": I/O time " in line]
    assert shown == ["session 2", "session 0"]
    assert not any("lost its connection" in line or "less severe" in line for line in lines)
    unknown = diagnose(several(), "--session", "7")
    assert unknown.exit_code == 2
    assert "there is no session 7; there are 0, 1, 2" in unknown.stderr


def test_the_document_has_all_sessions(diagnose: Diagnose) -> None:
    whole, some = (json.loads(diagnose(several(), "--json", *more).stdout) for more in ((), ("--top", "1")))
    assert len(whole["sessions"]) == 3
    assert whole["sessions"] == some["sessions"]


def test_verdicts_by_initiator_instead_of_sessions_in_full(diagnose: Diagnose) -> None:
    told = several()
    told.rows["sessions"][1]["initiator_name"] = "iqn.lost"
    lines = diagnose(told, "--by", "initiator", "--by", "hour").stdout.splitlines()
    assert "lost its connection" in lines[2], "the headline of the capture comes first"
    place = lines.index("Sessions by initiator")
    assert lines[place + 1].split("  ")[0] == "initiator"
    assert [line.split()[0] for line in lines[place + 2 : place + 4]] == ["iqn.lost", "iqn.i"]
    # two seconds of the other sessions, 0.8 s and 1.6 s of it busy
    assert lines[place + 3].split()[1] == "2"
    assert lines[place + 3].split()[-3:] == ["2.400000", "session", "2"]
    assert lines.index("Sessions by hour (UTC)") > place
    assert not any(line.startswith(("Time breakdown", "Findings")) for line in lines)


def test_top_and_session_cut_the_groups(diagnose: Diagnose) -> None:
    told = several()
    told.rows["sessions"][1]["initiator_name"] = "iqn.lost"
    lines = diagnose(told, "--by", "initiator", "--top", "1").stdout.splitlines()
    place = lines.index("Sessions by initiator")
    assert lines[place + 2].startswith("iqn.lost")
    assert lines[place + 3] == "1 more row is not shown."
    lines = diagnose(told, "--by", "initiator", "--session", "2").stdout.splitlines()
    place = lines.index("Sessions by initiator")
    assert [line.split()[:2] for line in lines[place + 2 :]] == [["iqn.i", "1"]]
    assert not any("lost its connection" in line for line in lines)
    assert diagnose(told, "--by", "lun", "--session", "7").exit_code == 2


def test_the_document_has_the_groups_that_were_asked_for(diagnose: Diagnose) -> None:
    told = several()
    told.rows["sessions"][1]["initiator_name"] = "iqn.lost"
    document = json.loads(diagnose(told, "--json", "--by", "initiator", "--by", "lun", "--top", "1").stdout)
    assert {name: [each["label"] for each in groups] for name, groups in document["by"].items()} == {
        "initiator": ["iqn.lost", "iqn.i"],
        "lun": ["LUN 0 of iqn.t"],
    }
    assert document["by"]["initiator"][0]["worst"] == "session 1"
    assert "by" not in json.loads(diagnose(told, "--json").stdout)


def test_details_of_the_sessions_that_are_shown(diagnose: Diagnose) -> None:
    output = diagnose(several(), "-v", "--top", "1").stdout
    assert "Time breakdown of session 1" in output
    assert "Time breakdown of session 0" not in output


def test_packets_missing_from_the_capture_are_reported(diagnose: Diagnose) -> None:
    gap = {"name": "capture_gap", "severity": "data_loss", "count": 2, "meaning": "holes", "advice": "a larger buffer"}
    assert "a larger buffer" in diagnose(well().add("counters", **gap)).stdout
    assert "Capture health" not in diagnose(well()).stdout


def test_the_document(diagnose: Diagnose) -> None:
    result = diagnose(sick(), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert list(document) == [
        *("schema", "tool", "input", "options", "packet_count", "tcp_packet_count", "sessions", "connections"),
        *(
            "mirrors",
            "jobs",
            "stories",
            "volumes",
            "headline",
            "time_breakdown",
            "budget",
            "counters",
            "fail_on",
            "failed",
        ),
    ]
    assert document["schema"] == SCHEMA_VERSION
    (session,), (connection,) = document["sessions"], document["connections"]
    for row in (session, connection):
        assert tuple(row["budget"]) == CATEGORIES["budget_part"]
        assert row["budget"]["propagation"] == 160 * MS
        assert (row["idle_fraction"], row["limiter"]) == (pytest.approx(160 / 205), "propagation")
        assert row["verdict"] == row["headline"]["verdict"] == "problem"
        assert row["headline"]["text"] == "The initiator aborted commands: 1 ABORT TASK."
        assert row["headline"]["advice"] == PROBLEMS["task_aborts"].advice[0].text
        assert [each["name"] for each in row["findings"]][:2] == ["task_aborts", "queue_depth_low"]
        for finding in row["findings"]:
            assert {"name", "severity", "share", "frames", "advice", "gain"} <= set(finding)
    assert document["budget"] == session["budget"]
    assert connection["target_port"] == 0
    assert (document["fail_on"], document["failed"]) == ([], [])


def test_connections_that_are_not_iscsi_have_no_diagnosis(diagnose: Diagnose) -> None:
    story = well()
    story.rows["connections"].append({"connection": 9})
    (_, other) = json.loads(diagnose(story, "--json").stdout)["connections"]
    assert "budget" not in other


@pytest.mark.parametrize(
    ("story", "fail_on", "failed"),
    [
        (sick, (), []),
        (sick, ("task_aborts",), ["task_aborts"]),
        (sick, ("loss",), []),
        (sick, ("loss", "queue_depth_low"), ["queue_depth_low"]),
        # a limit is no problem
        (sick, ("any",), ["task_aborts"]),
        (sick, ("any", "queue_depth_low"), ["queue_depth_low", "task_aborts"]),
        (well, ("any",), []),
    ],
)
def test_exit_codes(
    diagnose: Diagnose, story: Callable[[], Story], fail_on: tuple[str, ...], failed: list[str]
) -> None:
    options = [word for name in fail_on for word in ("--fail-on", name)]
    for more in ((), ("--json",)):
        result = diagnose(story(), *options, *more)
        assert result.exit_code == (1 if failed else 0)
    assert json.loads(result.stdout)["failed"] == failed


def test_an_unknown_finding_is_a_usage_error(diagnose: Diagnose) -> None:
    result = diagnose(well(), "--fail-on", "slow")
    assert result.exit_code == 2
    assert "'slow' is neither any nor a finding; names like it: slow_" in result.stderr
    assert "`iscsitrace docs diagnosis` lists all" in result.stderr


def test_the_help_points_to_the_names_and_imports_no_analysis() -> None:
    probe = (
        "import sys, atexit\n"
        "heavy = {'numpy', 'iscsitrace._core', 'iscsitrace.diagnosis.registry'}\n"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules))))\n"
        "sys.argv = ['iscsitrace', 'diagnose', '--help']\n"
        "from iscsitrace.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("[]\n")
    assert "explain NAME" in " ".join(result.stdout.split())


def test_a_shell_completes_the_names() -> None:
    (option,) = [each for each in command.params if each.name == "fail_on"]
    found = [each.value for each in option.shell_complete(click.Context(command), "rec")]
    assert found == ["receive_window_small", "receiver_stalled"]
    assert "any" in [each.value for each in option.shell_complete(click.Context(command), "")]


def test_nothing_to_diagnose(diagnose: Diagnose) -> None:
    story = well()
    for rows in story.rows.values():
        rows.clear()
    result = diagnose(story, "--fail-on", "any")
    assert (result.exit_code, result.stdout.splitlines()[1]) == (4, "no iSCSI session was found")
    empty: dict[str, Any] = json.loads(diagnose(story, "--json").stdout)
    assert (empty["sessions"], empty["connections"]) == ([], [])
    assert set(empty["budget"].values()) == {0}


def test_what_sessions_of_one_story_share_is_shown_once(diagnose: Diagnose) -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.session(4.0, 20, replaces=0)
    told.reads(1, 4.2, 20)
    headline = diagnose(told).stdout.splitlines()[2]
    assert headline.startswith("Session 0 lost its connection for ")
    assert diagnose(told).stdout.count(headline) == 1
    assert diagnose(told, "-v").stdout.count("connection_lost (error") == 1


def test_an_outage_has_one_share_of_the_time_of_its_sessions(diagnose: Diagnose) -> None:
    """Six seconds of reads, and 4 s in which the path was down."""
    told = Told()
    told.session(0, 7.0, end="reset", rst_to_initiator_ns=7.0)
    told.reads(0, 0.0, 600)
    told.time(0, 3.0, 7.0, "outage")
    told.session(7.0, 20, replaces=0)
    told.reads(1, 7.0, 600)
    document = json.loads(diagnose(told, "--json").stdout)
    (story,) = document["stories"]
    assert (story["jobs_ns"], story["shares"]["outage"]) == (10_000 * MS, 0.4)
    # up to the first status after it
    assert [each["share"] for each in story["findings"] if each["name"] == "io_outage"] == [pytest.approx(0.4005)]
    for options in ((), ("-v",)):
        output = diagnose(told, *options).stdout
        assert options or "sessions 0 and 1: I/O time 10.000000 s: network RTT 60 %, outage 40 %" in output
        assert not options or "Time breakdown of sessions 0 and 1: 10.000000 s of I/O time" in output
    alone = diagnose(told, "--session", "0").stdout
    assert "I/O time 7.000000 s: outage 57 %, network RTT 43 %" in alone


def test_details_change_neither_the_first_headline_nor_what_to_do(diagnose: Diagnose) -> None:
    """A session that was lost, and one whose connection alone is limited by round trips."""
    told = Told()
    told.session(0, 4.0, end="reset", rst_to_initiator_ns=4.0)
    told.reads(0, 0.0, 600)
    told.read(0, 3.5, None)
    told.session(7.0, 20, replaces=0, rtt_to_target_min_ns=0.05)
    for place in range(100):
        told.read(1, 7.1 + place * 0.05, 7.15 + place * 0.05)
    brief, detailed = (diagnose(told, *options).stdout.splitlines() for options in ((), ("-v",)))
    steps = [
        lines[lines.index("What to do") : lines.index("", lines.index("What to do"))] for lines in (brief, detailed)
    ]
    assert steps[0] == steps[1]
    assert brief[:3] == detailed[:3]
    # and every headline that is shown without it
    assert {*brief[: brief.index("What to do")]} <= {*detailed}


def test_a_failure_that_sessions_share_is_lost_once_among_those_not_shown(diagnose: Diagnose) -> None:
    told = Told()
    told.session(0, 0.5, end="reinstated", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.read(0, 0.3, None)
    told.session(4.0, 20, replaces=0)
    told.read(1, 4.1, 4.2)
    told.reads(1, 4.2, 20)
    # of another initiator, with a longer failure
    told.session(0, 0.5, end="reinstated", rst_to_initiator_ns=0.5, initiator_name="iqn.j")
    told.read(2, 0.3, None)
    told.session(9.0, 20, replaces=2, initiator_name="iqn.j")
    told.read(3, 9.1, 9.2)
    told.reads(3, 9.2, 20)
    lines = diagnose(told, "--top", "2").stdout.splitlines()
    place = lines.index("2 sessions less severe, by headline")
    (row,) = (line.split() for line in lines[place + 3 : place + 4])
    # sessions 0 and 1: from 0.5 to 4.2 s
    assert row[:2] == ["2", "connection_lost"]
    assert row[-3] == "3.700000"


def test_a_portal_without_a_session_is_shown_first(diagnose: Diagnose) -> None:
    told = Told()
    told.session(0, 20)
    told.reads(0, 0.0, 20)
    told.connection(2.0, 5.0, syn_ns=2.0, initiator_address="10.0.0.9")
    lines = diagnose(told, "-v").stdout.splitlines()
    assert lines[2].startswith("Initiator 10.0.0.9 cannot reach the portal 10.0.0.2:3260")
    assert "Findings of 10.0.0.9 to 10.0.0.2 port 3260" in lines
    assert any(
        line.startswith("portal_unreachable (error, 3.0 s lost): Initiator 10.0.0.9 cannot reach") for line in lines
    )


def test_after_an_outage_healthy_io_has_no_advice() -> None:
    """What limits I/O when all is well again is told, but nothing is to be done about it now."""
    sample = str(Path(__file__).parents[2] / "samples/black-out-and-relogin/capture.pcapng.gz")
    for arguments in (["diagnose", "-v"], ["report", "--no-plots", "--format", "md", "-o", "-"]):
        text = CliRunner().invoke(main, [*arguments, sample]).stdout.replace("\\", "")
        assert "replacement_timeout" in text
        assert "The initiator issues one 16 KiB read at a time" in text
        for advice in (*PROBLEMS["queue_depth_low"].advice, *PROBLEMS["initiator_think_time"].advice):
            assert advice.text.replace("\\", "") not in text
    # without an outage it has
    healthy = str(Path(__file__).parents[2] / "samples/sequential-read-16ms/capture.pcapng.gz")
    assert PROBLEMS["queue_depth_low"].advice[0].text in CliRunner().invoke(main, ["diagnose", "-v", healthy]).stdout
