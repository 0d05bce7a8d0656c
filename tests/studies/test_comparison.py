"""Rows beside each other: idle fractions against a socket, and published values where they are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.plots.experiment import Chart
from iscsitrace.studies import charts, definition, repeats
from iscsitrace.studies.definition import LineFigure
from iscsitrace.studies.quantities import PointResult

MS_NS = 1_000_000


def point(
    arm: str, operation: str, delay_ms: float, megabytes_per_s: float, repeat: int = 1, **more: object
) -> PointResult:
    values = {"workload.operation": operation, "link.one-way-delay": int(delay_ms * MS_NS), "tcp.window": 1 << 20}
    return PointResult(
        f"{arm} {delay_ms} {repeat}", arm, {"link.one-way-delay": f"{delay_ms:g}ms"}, values | more, repeat, "",
        steady_throughput_bytes_per_s=megabytes_per_s * 1e6,
    )  # fmt: skip


def idle(*points: PointResult) -> dict[str, float]:
    found = repeats.rows(points)
    return {row.arm: row.means["idle_of_socket"] for row in found if "idle_of_socket" in row.means}


def test_idle_is_what_a_socket_carries_more_at_the_same_delay() -> None:
    near, far = point("socket", "socket_read", 1, 40), point("socket", "socket_read", 16, 20)
    assert idle(near, far, point("held", "read", 16, 2)) == {"held": pytest.approx(90)}
    assert idle(near, far, point("held", "read", 1, 20)) == {"held": pytest.approx(50)}


def test_the_share_of_a_socket_is_what_the_idle_fraction_leaves() -> None:
    rows = repeats.rows([point("socket", "socket_read", 1, 40), point("held", "read", 1, 22)])
    assert rows[1].means["of_socket"] == pytest.approx(55)
    assert rows[1].means["idle_of_socket"] == pytest.approx(45)
    assert "of_socket" not in rows[0].means


@pytest.mark.parametrize(
    "other",
    [
        point("held", "write", 1, 20),
        point("held", "read", 2, 20),
        point("held", "read", 1, 20, **{"tcp.window": 1 << 16}),
        point("held", "read", 1, 20, **{"initiator.tcp.delayed-ack": False}),
    ],
)
def test_a_socket_of_another_direction_link_or_tcp_does_not_count(other: PointResult) -> None:
    assert idle(point("socket", "socket_read", 1, 40), other) == {}


def test_the_interval_of_an_idle_fraction_is_that_of_the_throughput_turned_round() -> None:
    points = [point("held", "read", 1, rate, repeat) for repeat, rate in enumerate((9.0, 10.0, 11.0), 1)]
    rows = repeats.rows([point("socket", "socket_read", 1, 40), *points])
    low, high = rows[1].estimates["idle_of_socket"].interval or (0, 0)
    # the standard error is 1 MB/s / root 3, Student's t 4.3027
    half = 100 * 4.3027 / 3**0.5 / 40
    assert (low, high) == (pytest.approx(75 - half, rel=1e-3), pytest.approx(75 + half, rel=1e-3))


STUDY = """
title = "small"
source = "a test"

[workload]
operation = "read"
calls = 8

[grid.link]
one-way-delay = ["5ms", "10ms"]
loss = ["0%", "1%"]

[[figures]]
name = "all"
kind = "lines"
title = "Throughput of small reads over the RTT, by loss"
x = "link.one-way-delay"
y = "throughput"
lines = "link.loss"
as-rtt = true

[[published]]
quantity = "throughput"
where.link.loss = "1%"
x = "link.one-way-delay"
values = [["5ms", 2], ["10ms", 1]]
"""


def drawn(folder: Path, study: str) -> Chart:
    """The figure of a study whose points all have 1 MB/s."""
    (folder / "small.toml").write_text(study)
    found = definition.load(folder / "small.toml")
    (figure,) = found.figures
    assert isinstance(figure, LineFigure)
    points = [
        PointResult(
            f"{delay} {loss}", "all", {"link.one-way-delay": f"{delay}ms", "link.loss": f"{loss}%"},
            {"workload.operation": "read", "link.one-way-delay": delay * MS_NS, "link.loss": loss / 100}, 1, "",
            steady_throughput_bytes_per_s=1e6,
        )
        for delay in (5, 10)
        for loss in (0, 1)
    ]  # fmt: skip
    return charts.of_lines(figure, found, repeats.rows(points))


def test_published_values_are_drawn_on_the_line_of_their_settings(tmp_path: Path) -> None:
    chart = drawn(tmp_path, STUDY)
    assert {line.name: line.printed for line in chart.lines} == {"loss 0%": (None, None), "loss 1%": (2, 1)}
    # twice the delay
    assert ([text for _, text in chart.ticks], chart.x_label) == (["10", "20"], "RTT, ms")


def test_printed_and_computed_values_have_marks_of_their_own(tmp_path: Path) -> None:
    computed = STUDY + "computed = true\n"
    more = STUDY[STUDY.index("[[published]]") :].replace("1%", "0%")
    printed, other = "Stars: printed in the study.", "Pentagons: computed from what the study prints."
    for study, words, absent in (
        (STUDY, (printed,), (other,)),
        (computed, (other,), (printed,)),
        (computed + more, (printed, other), ()),
    ):
        caption = charts.caption(drawn(tmp_path, study))
        assert all(each in caption for each in words)
        assert not any(each in caption for each in absent)
    chart = drawn(tmp_path, computed + more)
    assert {line.name: (line.printed, line.computed) for line in chart.lines} == {
        "loss 0%": ((2, 1), (None, None)),
        "loss 1%": ((None, None), (2, 1)),
    }
    header, *rows = charts.of_chart(chart)
    assert [row[header.index("computed")] for row in rows] == [None, None, 2, 1]


def test_a_value_whose_place_is_not_printed_has_no_star(tmp_path: Path) -> None:
    chart = drawn(tmp_path, STUDY + "placed = false\n")
    levels = {line.name: line.levels for line in chart.lines}
    assert levels == {"loss 0%": (), "loss 1%": (1, 2)}
    assert not chart.has("printed")
    assert "Dashed: printed in the study, without a place: 1, 2." in charts.caption(chart)
    assert "Stars" not in charts.caption(chart)
    assert not drawn(tmp_path, STUDY).has("levels")


def test_a_printed_range_is_named_in_the_caption(tmp_path: Path) -> None:
    chart = drawn(tmp_path, STUDY.replace("as-rtt = true", "as-rtt = true\nprinted-range = [0.5, 2]"))
    assert chart.printed_range == (0.5, 2)
    assert "Band: printed in the study, 0.5 to 2." in charts.caption(chart)
    assert "Band" not in charts.caption(drawn(tmp_path, STUDY))
    with pytest.raises(InputInvalid, match=r"printed-range: expected .* - at `\$.figures\[0\]`"):
        drawn(tmp_path, STUDY.replace("as-rtt = true", "printed-range = [2, 0.5]"))
