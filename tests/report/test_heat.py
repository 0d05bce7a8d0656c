"""The heat map of a report: colors by latency, outages, words for each cell, and when there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.report import heat
from iscsitrace.show.document import HeatMap
from tests.relate.test_volumes import Host
from tests.report.test_volume_heat import three_luns
from tests.support.histories import at


def drawn(host: Host) -> HeatMap | None:
    source = host.source()
    trace: Any = SimpleNamespace(table=source, start_ns=at(0.0))
    for section in heat.of_trace(trace, host.diagnosis()):
        (found,) = section.blocks
        assert isinstance(found, HeatMap)
        return found
    return None


def test_each_volume_is_a_row_with_its_outage_and_words_for_each_cell() -> None:
    found = drawn(three_luns())
    assert found is not None
    assert [(row.label, row.host, row.outage) for row in found.rows] == [
        ("LUN 2 of iqn.t", "iqn.i", "2.000000"),
        ("LUN 1 of iqn.t", "iqn.i", "-"),
        ("LUN 0 of iqn.t", "iqn.i", "-"),
    ]
    assert all(len(row.cells) == heat.BINS for row in found.rows)
    out, slow, fast = found.rows
    width_s = 10.0 / heat.BINS
    at_seven = int(7.0 / width_s)
    assert out.cells[at_seven].kind == "out"
    assert out.cells[at_seven].text.endswith(": out for 208.3 ms")
    assert slow.cells[0].kind == ""
    assert slow.cells[0].text.endswith(": no command")
    assert fast.cells[0].text == "0.00 s to 0.21 s: 3 commands, mean latency 1.0 ms"
    assert found.times[0] == "0.00 s"


def test_the_colors_are_those_of_the_legend_and_ascend_with_latency() -> None:
    found = drawn(three_luns())
    assert found is not None
    used = {cell.kind for row in found.rows for cell in row.cells}
    assert used <= {kind for kind, _ in found.legend}
    _, slow, fast = found.rows
    at_six = int(6.0 / (10.0 / heat.BINS))
    kinds = [next(cell.kind for cell in row.cells[at_six:] if cell.kind) for row in (fast, slow)]
    assert kinds == sorted(kinds)
    assert kinds[0] != kinds[1]
    latencies = [kind for kind, _ in found.legend if kind.startswith("h")]
    assert latencies == sorted(set(latencies))
    assert latencies[-1] == f"h{heat.STEPS}"


@pytest.mark.parametrize(
    ("latencies_ns", "expected"),
    [
        ([], []),
        ([3_000_000.0], []),
        ([900_000.0, 1_000_000.0], [1_000_000]),
        ([1_000_000.0, 9_000_000.0], [2_000_000, 5_000_000]),
        # 1, 2, 5 ... from 1 ms to 10 s are 13 bounds: every third from the top stays
        ([999_999.0, 1e10], [1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000]),
    ],
)
def test_bounds_are_round_and_few(latencies_ns: list[float], expected: list[int]) -> None:
    assert heat._bounds(latencies_ns) == expected


def test_one_volume_has_no_heat_map() -> None:
    host = Host()
    host.session(0, 20)
    host.reads(0, 1.0, 40)
    assert drawn(host) is None
