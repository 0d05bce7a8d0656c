"""Sessions of one line are added up before anyone is blamed: in the diagnosis, and in the live view."""

from __future__ import annotations

from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from iscsitrace.tables.passes import SECOND_NS
from tests.support.runs import Runs
from tests.watch.test_watch_figures import watched

RUN = "read --sessions 3 --one-way-delay 1ms --block-size 64K --seconds 3 --seed 7 --rate"


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize(
    ("options", "limiter"),
    [
        ("40Mbit --queue-depth 8", "line_shared"),
        ("400Mbit --queue-depth 2", "line_shared"),
        # near miss: the line has room, and the target serves one command after another
        ("400Mbit --queue-depth 2 --service-delay 6ms --set serial=yes", "slow_target"),
    ],
)
def test_a_line_that_sessions_fill_together_is_not_the_target_s_fault(
    options: str, limiter: str, tap: str, tmp_path: Path
) -> None:
    capture = Runs(tmp_path)(f"{RUN} {options}").capture(tap)
    diagnosis = examine(iscsitrace.read(capture, tables=NEEDED).table)
    others = {"line_shared", "slow_target"} - {limiter}
    for session in (0, 1, 2):
        names = [finding.name for finding in diagnosis.sessions[session].findings]
        assert limiter in names
        assert not others & set(names)
    _, reports = watched(capture, SECOND_NS)
    # the bar of each interval, too: the time in the line's queue is the line's
    share = "transfer" if limiter == "line_shared" else "target_service"
    limiters = [line.budget.limiter for report in reports for line in report.sessions if line.budget]
    assert len(limiters) >= 6
    assert set(limiters) == {share}
    seen = [{(found.session, found.name) for found in report.findings} for report in reports if report.findings]
    assert seen
    for found in seen:
        assert {(session, limiter) for session in (0, 1, 2)} <= found
        assert not others & {name for _, name in found}
