"""Output of a live view: the board at every width, the screen with its keys, snapshots, Prometheus, plain lines."""

from __future__ import annotations

import asyncio
import json
import stat
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.cells import cell_len

from iscsitrace.measure.budget import PARTS, Budget
from iscsitrace.tables.passes import SECOND_NS, Live
from iscsitrace.watch.board import SORTS, Choice, bar, legend, render, sorted_lines
from iscsitrace.watch.exposition import Exposition, serve
from iscsitrace.watch.screen import WatchScreen, save
from iscsitrace.watch.watcher import Report, Watcher
from iscsitrace.wording import parts
from tests.watch.test_watch import PATIENT, SAMPLES


def sample(name: str) -> Path:
    return next(path for path in SAMPLES if path.parent.name == name)


def opened(name: str) -> Watcher:
    live = Live(sample(name), replace(PATIENT, interval_ns=SECOND_NS // 4))
    live.stop()
    watcher = Watcher(live)
    watcher.findings.every_ns = SECOND_NS // 2
    return watcher


@pytest.fixture(scope="module")
def watched() -> tuple[Watcher, list[Report]]:
    watcher = opened("loss-1-percent")
    reports: list[Report] = []
    watcher.run(reports.append)
    return watcher, reports


def busiest(reports: list[Report]) -> Report:
    return max(reports, key=lambda report: report.whole.task_count)


@pytest.mark.parametrize("width", [40, 80, 100, 200])
@pytest.mark.parametrize("height", [5, 24, 50])
def test_the_board_fits(watched: tuple[Watcher, list[Report]], width: int, height: int) -> None:
    for report in watched[1]:
        lines = render(report, Choice(source="capture.pcapng"), width, height)
        assert 0 < len(lines) <= height
        assert all(cell_len(line.plain) <= width for line in lines)


def test_eighty_columns_show_the_main_figures(watched: tuple[Watcher, list[Report]]) -> None:
    report = busiest(watched[1])
    shown = "\n".join(line.plain for line in render(report, Choice(source="eth0"), 80, 24))
    for word in ("eth0", "MB/s", "IOPS", "p50", "p99", "QD", "idle", "limiter", "RTT", "owin", "I/O sizes", "lag"):
        assert word in shown, word


def test_the_bar_needs_no_colour() -> None:
    letters = [part.letter for part in parts.PARTS]
    assert len(set(letters)) == len(letters)
    budget = Budget({**dict.fromkeys(PARTS, 0), "transfer": 750, "propagation": 240, "loss_recovery": 10})
    assert bar(budget, 100).plain == "T" * 75 + "P" * 24 + "L"
    for width in range(1, 90):
        assert len(bar(budget, width).plain) == width
    words = "".join(line.plain for line in legend(budget, 60))
    assert "transfer 75 %" in words
    assert "loss recovery 1 %" in words


def test_the_screen_updates_and_handles_keys(tmp_path: Path) -> None:
    watcher = opened("two-connections-one-session")
    screen = WatchScreen(watcher, "capture.pcapng", folder=tmp_path)

    async def drive() -> None:
        async with screen.run_test(size=(80, 24)) as pilot:
            while not screen.choice.is_over:
                await pilot.pause(0.01)
            assert screen.shown is not None
            assert screen.choice.session is None
            await pilot.press("enter")
            assert screen.choice.session == 0
            assert len(sorted_lines(screen.shown, screen.choice)) == 2
            await pilot.press("down")
            assert screen.choice.row == 1
            await pilot.press("down")
            assert screen.choice.row == 1
            await pilot.press("s")
            assert screen.choice.sort == SORTS[1]
            await pilot.press("S", "S")
            assert screen.choice.sort == SORTS[-1]
            await pilot.press("escape")
            assert screen.choice.session is None
            await pilot.press("w", "w")
            await pilot.press("question_mark")
            await pilot.pause()
            assert len(screen.screen_stack) == 2
            await pilot.press("escape")
            assert len(screen.screen_stack) == 1
            await pilot.press("p")
            assert screen.choice.is_paused
            shown = screen.export_screenshot().replace("&#160;", " ")
            assert "session (by retransm" in shown
            assert "&gt; 0 " in shown
            await pilot.press("q")

    try:
        asyncio.run(drive())
    finally:
        screen.close()
    assert screen.problem is None
    written = sorted(tmp_path.iterdir())
    assert len(written) == 4
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in written)
    document = json.loads(written[0].read_text())
    assert document["kind"] == "interval"


def test_a_snapshot_never_overwrites(watched: tuple[Watcher, list[Report]], tmp_path: Path) -> None:
    report = watched[1][0]
    first = save(report, Choice(source="a"), tmp_path)
    before = first[0].read_bytes(), first[1].read_bytes()
    second = save(report, Choice(source="b"), tmp_path)
    assert set(first).isdisjoint(second)
    assert before == (first[0].read_bytes(), first[1].read_bytes())


def test_prometheus_is_served(watched: tuple[Watcher, list[Report]]) -> None:
    watcher, reports = watched
    exposition = Exposition()
    server = serve(exposition, "127.0.0.1", 0)
    try:
        exposition.update(reports[0], watcher)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    finally:
        server.stop()
    assert families["iscsitrace_packets"].samples[0].value == reports[0].packet_count


def test_a_hostile_name_cannot_control_the_terminal(watched: tuple[Watcher, list[Report]]) -> None:
    report = busiest(watched[1])
    line = report.sessions[0]
    hostile: dict[str, Any] = line.names | {"target_name": "iqn\x1b[2J\n:evil"}
    shown = render(replace(report, sessions=[replace(line, names=hostile)]), Choice(source="a"), 80, 24)
    assert all("\x1b" not in text.plain and "\n" not in text.plain for text in shown)
