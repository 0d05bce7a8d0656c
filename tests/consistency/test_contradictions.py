"""The comparison sees contradictions: each of these is made in one place alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from iscsitrace.compare import sides
from iscsitrace.findings.finding import Finding
from iscsitrace.report import chapters, sections
from iscsitrace.show import diagnose, summary
from iscsitrace.show.document import Fact
from tests.consistency import places
from tests.consistency.said import Said, contradictions, exact, printed
from tests.consistency.test_consistency import read, sample


@pytest.fixture
def contradicted() -> Any:
    """The definitions that contradict each other in the outputs of a sample."""

    def found(name: str = "sequential-read-4ms") -> set[str]:
        trace = read(sample(name))
        said = contradictions(places.everything(trace, *places.diagnosed(trace)))
        return {each.partition(" of session")[0] for each in said}

    assert found() == set()
    return found


@pytest.fixture
def told_otherwise(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Changes what JSON says of findings: of those of one name, or of all."""
    as_dict = Finding.as_dict

    def change(other: Callable[[dict[str, Any]], dict[str, Any]], name: str = "") -> None:
        def changed(self: Finding) -> dict[str, Any]:
            found = as_dict(self)
            return found | (other(found) if name in ("", self.name) else {})

        monkeypatch.setattr(Finding, "as_dict", changed)

    return change


def test_another_throughput_in_the_report(contradicted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = chapters._facts

    def slower(*arguments: Any) -> Any:
        return [fact._replace(value=fact.value.replace("8.2 MB/s", "4.9 MB/s")) for fact in facts(*arguments)]

    monkeypatch.setattr(chapters, "_facts", slower)
    assert contradicted() == {"throughput, read"}


def test_another_throughput_in_the_summary(contradicted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    totals = summary.totals

    def faster(trace: Any) -> Any:
        found = totals(trace)
        rates = [row | {"read_bytes_per_s": row["read_bytes_per_s"] * 1.02} for row in found["volumes"]]
        return found | {"volumes": rates}

    monkeypatch.setattr(summary, "totals", faster)
    assert contradicted() == {"throughput, read"}


def test_another_rtt_in_the_report(contradicted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chapters, "_path", lambda trace, connections: [Fact("RTT", "8.8 ms")])
    assert contradicted() == {"RTT of the path"}


def test_a_finding_with_a_cost_of_its_own(contradicted: Any, told_otherwise: Any) -> None:
    told_otherwise(lambda found: {"cost_ns": found["cost_ns"] + 1_000}, "queue_depth_low")
    assert contradicted() == {"time: propagation"}


def test_a_finding_with_a_share_of_its_own(contradicted: Any, told_otherwise: Any) -> None:
    told_otherwise(lambda found: {"share": 0.18}, "queue_depth_low")
    assert contradicted() == {"share: propagation"}


def test_a_sentence_with_another_time(contradicted: Any, told_otherwise: Any) -> None:
    """As the receive window's once had: 232 ms in its sentence, 219 ms in the time breakdown."""
    told_otherwise(lambda found: {"text": found["text"].replace("for 219.3 ms", "for 232.0 ms")})
    assert contradicted() == {"time: receive_window"}


def test_other_gains_in_the_report(contradicted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gains = sections._gains

    def larger(asked: Any) -> Any:
        grid: Any = gains(asked)
        return grid._replace(rows=tuple((row[0], "2.7", *row[2:]) for row in grid.rows if row[0] == "no losses"))

    monkeypatch.setattr(sections, "_gains", larger)
    assert contradicted("loss-1-percent") == {"gain, throughput_factor: no losses"}


def test_another_busy_time_in_the_terminal(contradicted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = diagnose.sections

    def later(*arguments: Any) -> Any:
        for section in sections(*arguments):
            yield section._replace(title=section.title.replace("0.537332 s", "0.537288 s"))

    monkeypatch.setattr(diagnose, "sections", later)
    assert contradicted() == {"busy time"}


def test_another_breakdown_in_a_comparison(contradicted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it began with the first read, and the time breakdown with the first command."""
    sides_of = sides.sides_of

    def shorter(source: Any) -> Any:
        return {number: replace(side, jobs_ns=side.jobs_ns - 44_000) for number, side in sides_of(source).items()}

    monkeypatch.setattr(sides, "sides_of", shorter)
    assert contradicted() == {"busy time"}


def test_other_losses_in_another_finding(contradicted: Any, told_otherwise: Any) -> None:
    """32 and 33 losses of one capture."""
    told_otherwise(lambda found: {"text": found["text"].replace("were lost 32 times", "were lost 33 times")})
    assert contradicted("loss-1-percent") == {"losses"}


def test_numbers_are_the_same_but_for_their_rounding() -> None:
    def is_same(one: Said, other: Said) -> bool:
        return not contradictions([one, other])

    def text(digits: str, unit: str) -> Said:
        return printed("x", "session 0", digits, unit, digits)

    def number(value: float, unit: str = "") -> Said:
        (found,) = exact("x", "session 0", value, "JSON", unit)
        return found

    assert is_same(text("219.3", "ms"), number(219_319_261, "ns"))
    assert not is_same(text("219.3", "ms"), number(219_360_000, "ns"))
    assert is_same(text("0.219", "s"), text("219.3", "ms"))
    assert is_same(text("1,234", "bytes"), number(1234))
    assert is_same(text("41", "%"), number(0.405)) and not is_same(text("41", "%"), number(0.404))  # noqa: PT018
    # rounded towards the middle
    assert is_same(text("99.97", "%"), number(0.99979)) and not is_same(text("99.97", "%"), number(0.9999))  # noqa: PT018
    assert not is_same(number(5, "ns"), number(8, "ns"))
    assert list(exact("x", "y", None, "JSON")) == []
