"""Predicted gains of more connections, compared with runs that have them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from iscsitrace.fit.situation import Measured, measure
from iscsitrace.measure import grouping
from iscsitrace.model.transfer import commands_per_ns
from tests.support.runs import Runs

# one connection and one task, or 16 tasks that a window holds up; a second or more each
CASES = {
    "service": "read --block-size 64K --one-way-delay 4ms --rate 100Mbit --service-delay 30ms-40ms --bytes 24M",
    "delay": "read --block-size 64K --one-way-delay 8ms --rate 320Mbit --bytes 32M",
    "window": "read --block-size 256K --one-way-delay 5ms --rate 400Mbit --set receive-buffer=64K --queue-depth 16 "
    "--bytes 48M",
    "write": "write --block-size 64K --one-way-delay 8ms --rate 320Mbit --bytes 64M",
    "loss": "read --block-size 256K --one-way-delay 5ms --rate 100Mbit --loss 0.1% --bytes 32M",
}
NUMBERS = (2, 4, 8, 16)
WITHOUT_LOSS, WITH_LOSS = 0.05, 0.15


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def measured(capture: Path) -> Measured:
    sessions = grouping.sessions_of(iscsitrace.read(capture, tables=NEEDED).table)
    (session,) = sessions.values()
    found = measure(session)
    assert found is not None
    return found


@pytest.mark.parametrize(("case", "number"), list(product(CASES, NUMBERS)))
def test_more_connections_gain_the_predicted_factor(runs: Runs, case: str, number: int) -> None:
    options = CASES[case]
    one = measured(runs(options).capture()).situation
    depth = max(number, one.setting.queue_depth)
    found = runs(f"{options} --connections {number} --queue-depth {depth} --set no-capture=yes").throughput
    gain = one.with_connections(number).throughput() / one.throughput()
    limit = WITH_LOSS if case == "loss" else WITHOUT_LOSS
    assert gain == pytest.approx(found / runs(options).throughput, rel=limit)


def test_the_advice_shows_the_gain_of_more_connections(runs: Runs) -> None:
    run = runs(CASES["window"])
    (session,) = examine(iscsitrace.read(run.capture(), tables=NEEDED).table).sessions.values()
    (finding,) = (each for each in session.findings if each.name == "receive_window_small")
    said = [gain for gain in finding.gains if "connections" in gain.change]
    assert said
    for gain in said:
        assert "connections" in gain.advice.text
        number = int(gain.change.split()[0])
        assert 1.1 < gain.throughput_factor <= number * 1.01


def test_random_overlaps_cost_most_if_commands_just_fill_the_line() -> None:
    period, line = 48.0, 5.5
    alone = 1 / period
    rates = [commands_per_ns(count, period, line) for count in range(1, 40)]
    assert rates[0] == pytest.approx(alone)
    assert rates == sorted(rates)
    assert max(rates) <= 1 / line
    assert rates[-1] == pytest.approx(1 / line, rel=0.01)
    lost = [1 - rate / min(count * alone, 1 / line) for count, rate in enumerate(rates, 1)]
    # 48 / 5.5 tasks fill it
    assert lost.index(max(lost)) + 1 in (8, 9)
    assert commands_per_ns(3, 10.0, 0.0) == pytest.approx(0.3)
