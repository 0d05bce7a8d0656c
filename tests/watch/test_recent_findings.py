"""When the recent past is diagnosed, and since when a finding is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.diagnosis.headline import Headline
from iscsitrace.tables.passes import SECOND_NS, Live
from iscsitrace.watch import findings
from iscsitrace.watch.watcher import Watcher
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation
from tests.support.pdu import Task
from tests.support.tables_by_hand import table
from tests.watch.test_watch import PATIENT


def diagnosis(*names: str, has_mirrors: bool = False) -> Any:
    # the recent past has too few writes for a mirror
    assert not has_mirrors
    found = [
        SimpleNamespace(name=name, severity="warning", share=0.5, cost_in_words="50 %", text="text") for name in names
    ]
    story = SimpleNamespace(story=SimpleNamespace(numbers=(0, 1)), headline=Headline("slow"))
    return SimpleNamespace(sessions={0: SimpleNamespace(findings=found)}, stories=[story], headline=Headline("down"))


def test_the_first_diagnosis_is_due_an_interval_after_the_first_look() -> None:
    own = findings.CurrentFindings(every_ns=5)
    assert [own.is_due(now_ns) for now_ns in (10, 14, 15, 16)] == [False, False, True, True]
    usual = findings.CurrentFindings()
    assert [usual.is_due(now_ns) for now_ns in (0, 5 * 10**9 - 1, 5 * 10**9)] == [False, False, True]


def test_diagnoses_take_a_tenth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for took_ns, wait_ns in ((10, 100), (11, 110), (3, 100)):
        clock = iter((1_000, 1_000 + took_ns))
        monkeypatch.setattr("time.thread_time_ns", lambda clock=clock: next(clock))
        monkeypatch.setattr(
            findings, "examine", lambda table, has_mirrors, start_ns: diagnosis(has_mirrors=has_mirrors)
        )
        own = findings.CurrentFindings(every_ns=100)
        monkeypatch.setattr(findings, "current", lambda recent, now_ns: None)
        own.update(SimpleNamespace(start_ns=0), 0)  # type: ignore[arg-type]
        assert [own.is_due(now_ns) for now_ns in (wait_ns - 1, wait_ns)] == [False, True]


def test_a_finding_is_there_since_the_first_of_consecutive_diagnoses(monkeypatch: pytest.MonkeyPatch) -> None:
    own, since = findings.CurrentFindings(), []
    for now_ns, names in ((1, "a"), (2, "ab"), (3, "b"), (4, "ab")):
        monkeypatch.setattr(
            findings,
            "examine",
            lambda table, has_mirrors, start_ns, names=names: diagnosis(*names, has_mirrors=has_mirrors),
        )
        monkeypatch.setattr(findings, "current", lambda recent, now_ns: None)
        own.update(SimpleNamespace(start_ns=0), now_ns)  # type: ignore[arg-type]
        since.append({found.name: found.since_ns for found in own.current})
    assert since == [{"a": 1}, {"a": 1, "b": 2}, {"b": 2}, {"a": 4, "b": 2}]
    assert (own.headline, own.stories) == (Headline("down"), (((0, 1), Headline("slow")),))
    own.forget()
    assert (own.current, own.headline, own.stories) == ((), None, ())


def test_sessions_that_logged_out_before_the_recent_past_are_left_out() -> None:
    """By session: logged out long ago; a moment ago; long ago, with a command without a status; closed; open."""
    second_ns = 10**9
    ends = zip(("logout", "logout", "logout", "closed", "open"), (29, 30, 29, 29, 29), strict=True)
    sessions = [
        {"session": number, "end": end, "time_last_ns": last_s * second_ns} for number, (end, last_s) in enumerate(ends)
    ]
    connections = [{"connection": 10 + place, "session": number} for place, number in enumerate((0, 0, 1, 2, 3, 4))]
    cycles = [{"session": number, "status": status} for number, status in ((0, 0), (1, 0), (2, None))]
    tables = {
        "sessions": table("sessions", *sessions),
        "connections": table("connections", *connections),
        "cycles": table("cycles", *cycles),
        "senders": table("senders", *({"connection": connection} for connection in (10, 11, 12, 15))),
    }
    recent: Any = SimpleNamespace(table=tables.__getitem__)
    kept = findings.current(recent, 40 * second_ns)
    assert kept("sessions").raw("session").tolist() == [1, 2, 3, 4]
    assert kept("connections").raw("connection").tolist() == [12, 13, 14, 15]
    assert kept("senders").raw("connection").tolist() == [12, 15]
    # other tables count its rows
    assert kept("cycles") is tables["cycles"]
    assert findings.current(recent, 39 * second_ns)("sessions") is tables["sessions"]


def test_sessions_whose_work_went_on_in_another_before_the_recent_past_are_left_out() -> None:
    """By session: replaced long ago, over a login that brought nothing; replaced a moment ago; replaced by a session
    without commands; replaced long ago, and heard of since; replaced long ago, with a command that is not forgotten.
    """
    second_ns = 10**9
    rows = [
        (0, None, 10, 12, 1),
        (1, 0, 13, 14, 0),
        (2, 1, 15, 39, 5),
        (3, None, 10, 25, 1),
        (4, 3, 31, 39, 1),
        (5, None, 10, 12, 1),
        (6, 5, 13, 39, 0),
        (7, None, 10, 35, 1),
        (8, 7, 13, 39, 1),
        (9, None, 10, 12, 1),
        (10, 9, 13, 39, 1),
    ]
    sessions = [
        {
            "session": number,
            "replaces": replaces,
            "end": "open" if last_s == 39 else "reinstated",
            "time_first_ns": first_s * second_ns,
            "time_last_ns": last_s * second_ns,
            "cycle_count": commands,
        }
        for number, replaces, first_s, last_s, commands in rows
    ]
    tables = {
        "sessions": table("sessions", *sessions),
        "connections": table("connections", *({"connection": number, "session": number} for number in range(11))),
        "cycles": table("cycles", {"session": 0, "status": 0}, {"session": 9, "status": None}),
    }
    recent: Any = SimpleNamespace(table=tables.__getitem__)
    kept = findings.current(recent, 40 * second_ns)
    assert kept("sessions").raw("session").tolist() == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert kept("connections").raw("connection").tolist() == [2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_times_count_from_the_first_packet_though_its_session_has_left(tmp_path: Path) -> None:
    """The first session logged out long before the other one has an outage."""
    conversation = Conversation()
    conversation.session().login().read(count=1).logout()
    late = conversation.session().pause(20 * SECOND_NS).login()
    for service_ns in [0] * 10 + [3 * SECOND_NS] + [0] * 12:
        late.tasks([Task("read", service_ns=service_ns)]).pause(SECOND_NS)
    capture = conversation.run()
    file = write_pcapng(tmp_path / "late.pcapng", capture.packets, capture.path.link_type)
    said = CliRunner().invoke(main, ["diagnose", "--json", str(file)])
    whole = json.loads(said.stdout)["headline"]["text"]
    live = Live(file, PATIENT)
    live.stop()
    texts: list[str] = []
    Watcher(live).run(lambda report: texts.append(report.headline.text if report.headline else ""))
    (times,) = re.findall(r"from \d+\.\d\d s to \d+\.\d\d s", whole)
    assert times in " ".join(texts)
    assert times.startswith("from 30")
