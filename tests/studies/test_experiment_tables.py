"""The printed tables of an experiment, for results with a distinct number in every cell."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from iscsitrace.studies import tables
from iscsitrace.studies.from_truth import StreamTruth
from iscsitrace.studies.quantities import PointResult
from iscsitrace.studies.results import (
    ArmFit,
    Beside,
    FigureFile,
    JudgedCheck,
    JudgedClaim,
    PlaceEvidence,
    Results,
)
from tests.support.printed import check_table, table

GRID = {"link.one-way-delay": "8ms", "workload.queue-depth": "4"}
WHERE = {"arm": "arm", "one-way-delay": lambda row: "8ms", "queue-depth": lambda row: "4"}


def point(repeat: int, megabytes_per_s: float, **more: Any) -> PointResult:
    """One of two repeats: the second has another limiter nowhere, and means of even numbers everywhere."""
    sign = 1 - 2 * repeat
    values: dict[str, Any] = {
        "steady_throughput_bytes_per_s": megabytes_per_s * 1e6,
        "throughput_bytes_per_s": 1.0,
        "period_ns": 21e6 + sign * 1e6,
        "efficiency": 0.31 + sign * 0.01,
        "cpu_s_per_gigabyte": 4.5,
        "target_cpu_s_per_gigabyte": 5.5,
        "idle_fraction": 0.62,
        "limiter": "propagation",
        "parts_ns": dict.fromkeys(("initiator_think", "initiator_service"), 0.0)
        | {"transfer": 2e6, "propagation": 7e6, "target_service": 1e6, "unknown": 1e4},
        "k": 2.25,
        "connections": 6 + sign * 2,
        "converged_s": 7.25,
        "goodput_lost": 0.081,
        "latency_cv": 0.092,
        "connection_spread": 0.113,
        "cwnd_spread": 0.124,
        "model": {"throughput_bytes_per_s": 11e6, "period_ns": 23e6, "idle_fraction": 0.64, "k": 2.5},
        "streams": (StreamTruth(0, 0, 1, 1.0, 1.0), StreamTruth(0, 1, 1, 1.0, 1.0), StreamTruth(0, 2, 1, 1.0, 1.0)),
        "jain": 0.875,
        "spread_s": 13.5,
        "spread_ratio": 1.75,
        "retransmission_rate": 0.0012,
        "utilisation": 0.42,
        "timeout_count": 3,
    }
    return PointResult(f"a{repeat}", "held", GRID, {"link.rate": 200_000_000}, repeat, "", **values | more)


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": value * 0.9, "high": value * 1.2}


FIT = {
    "k": estimate(2.0),
    "s_ns": estimate(1.5e6),
    "c_bytes_per_s": estimate(40e6),
    "residuals": [{"residual": 0.02}, {"residual": -0.03}],
}
SHARES = {"propagation": 70.0, "transfer": 20.0, "target_service": 9.6, "unknown": 0.4}
MEANS = {"throughput": 12.25, "period": 21.5, "idle_fraction": 62.5, "retransmission_rate": 0.125}
MISSED = JudgedClaim(
    "far",
    "it is slow",
    "not reproduced",
    "too fast",
    (
        JudgedCheck("throughput", "MB/s", "held", "", 12.5, 1, 9, False, run_count=5, interval=(12.25, 12.75)),
        JudgedCheck("scatter", "%", "held", "", 2.5, 1, 9, True, run_count=5, interval=(1.5, 7.25)),
        JudgedCheck("k", "times", "a", "b", 1.5, 2, 3, False),
    ),
    (PlaceEvidence("held at 8ms", "propagation", SHARES, MEANS),),
)
FOUND = Results(
    "small", "A small one", "a paper", "", "simulated", True, 5,
    (
        point(0, 12.0), point(1, 8.0), replace(point(2, 1.0), error="broken"),
        *(PointResult(f"b{repeat}", "big", GRID, {}, repeat, "", error="too big") for repeat in range(2)),
    ),
    fits=(ArmFit("held", {"workload.queue-depth": "4"}, FIT),),
    beside=(
        Beside(
            "throughput", "MB/s", "Table 1", "held", {"link.rate": "1Gbit"}, "link.one-way-delay", "8ms", 9.75, 10.0,
            spread=None, run_count=4, interval=(9.5, 10.5), verdict="undecided", why="few repeats",
        ),
    ),
    figures=(FigureFile("f", "How fast", "f.svg", ("f.pdf", "f.csv")),),
    claims=(MISSED,),
    tables=("efficiency", "budget"),
)  # fmt: skip


@pytest.fixture(scope="module")
def shown() -> str:
    with redirect_stdout(io.StringIO()) as output:
        tables.show(FOUND, Path("folder"))
    return output.getvalue()


def test_measured_and_model(shown: str) -> None:
    """The mean of 12 and 8 MB/s, the model's 11 MB/s, and the difference.

    The standard error of 12 and 8 is 2, and Student's t with one degree of freedom 12.7062.
    """
    columns: dict[str, Any] = {
        **WHERE, "MB/s": lambda row: "10.000", "95 % ±": lambda row: "25.412", "model": lambda row: "11.000",
        "difference %": lambda row: "10.0",
        # a line of 200 Mbit/s carries 25 MB/s x 1448 / 1514
        "idle %": lambda row: "58.2", "model idle %": lambda row: "54.0", "k": lambda row: "2.25",
        "limiter": lambda row: "propagation", "runs": lambda row: "2/3",
    }  # fmt: skip
    rows = table(shown, *columns)
    assert rows[0] == ("held", "8ms", "4", *(columns[name]({}) for name in list(columns)[3:]))
    # of an arm that failed nothing is known
    assert rows[1] == ("big", "8ms", "4", "-", "-", "-", "-", "-", "-", "-", "-", "0/2")
    assert len(rows) == 2


def test_searches_and_streams(shown: str) -> None:
    heads = ("arm", "one-way-delay", "queue-depth")
    columns: tuple[str, ...] = (
        *heads,
        "MB/s",
        "found",
        "after s",
        "lost %",
        "latency cv %",
        "MB/s over connections cv %",
        "cwnd cv %",
    )
    (row, _) = table(shown, *columns)
    assert row == ("held", "8ms", "4", "10.000", "6", "7.2", "8.1", "9.2", "11.3", "12.4")
    columns = (
        *(
            *heads,
            "streams",
            "line %",
            "scatter %",
            "Jain",
            "first to last s",
            "last / first",
            "retransmitted %",
            "timeouts",
        ),
    )
    (row,) = table(shown, *columns)
    # the standard deviation of 12 and 8 is the root of 8, of 10
    assert row == (
        "held",
        "8ms",
        "4",
        "3",
        "42.0",
        f"{100 * 8**0.5 / 10:.1f}",
        "0.875",
        "13.5",
        "1.75",
        "0.1200",
        "3.0",
    )


def test_efficiency_and_budget(shown: str) -> None:
    heads = ("arm", "one-way-delay", "queue-depth")
    (row,) = table(shown, *heads, "efficiency %", "s/GB", "target s/GB")
    assert row == ("held", "8ms", "4", "31.0", "4.50", "5.50")
    (row,) = table(shown, *heads, "period ms", "transfer", "propagation", "target service", "largest")
    # of 10.01 ms: what is less than half a percent everywhere is left out
    assert row == ("held", "8ms", "4", "21.000", "20.0", "69.9", "10.0", "propagation")


def test_published_figures_fits_and_missing_points(shown: str) -> None:
    columns = {
        "quantity": "quantity", "arm": "arm", "at": lambda row: "8ms, rate 1Gbit", "published": "published",
        "measured": lambda row: "10.000 ± 0.500 (n = 4)", "unit": "unit", "result": "verdict", "source": "source",
        "why": "why",
    }  # fmt: skip
    check_table(shown, columns, [vars(FOUND.beside[0]) | {"published": Decimal("9.75")}])
    (row,) = table(shown, "arm", "settings", "k", "s ms", "C MB/s", "largest residual %")
    ends = ("2.00 (1.80 .. 2.40)", "1.500 (1.350 .. 1.800)", "40.00 (36.00 .. 48.00)")
    assert row == ("held", "queue-depth 4", *ends, "3.0")
    assert table(shown, "point", "why") == [("a2", "broken"), ("b0", "too big"), ("b1", "too big")]
    files = [
        ("folder/results.json", "every point"),
        ("folder/results.csv", "every point"),
        *((f"folder/f.{ending}", "How fast") for ending in ("svg", "pdf", "csv")),
    ]
    assert table(shown, "file", "content") == files


def test_claims_and_their_evidence(shown: str) -> None:
    (row,) = table(shown, "claim", "text", "result", "measured (expected)", "why")
    checks = (
        "12.50 ± 0.25 (n = 5) MB/s (1 to 9): held; 2.50 (1.50 .. 7.25, n = 5) % (1 to 9): held; "
        "1.50 times (2 to 3): a, over b"
    )
    assert row == ("far", "it is slow", "not reproduced", checks, "too fast")
    heads = ("claim", "at", "MB/s", "period ms", "idle %", "retransmitted %", "limiter", "time breakdown")
    (row,) = table(shown, *heads)
    parts = "propagation 70 %, transfer 20 %, target service 10 %"
    assert row == ("far", "held at 8ms", "12.250", "21.500", "62.5", "0.1250", "propagation", parts)
