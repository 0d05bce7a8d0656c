"""The text of a fit: the row of the window waits, which few fits have."""

from __future__ import annotations

from dataclasses import replace

from iscsitrace.fit.points import Fit
from iscsitrace.model.setting import Setting
from iscsitrace.model.uncertainty import Estimate
from iscsitrace.show.model_fit import sections
from tests.support.tables_by_hand import MS

exact = Estimate.exact
FIT = Fit(
    k=exact(2.0, "packets"), d_ns=exact(4.0 * MS, "packets"), s_ns=exact(MS, "fit"), c_bytes_per_s=None,
    ack_delay_ns=None,
    stall_share=exact(1.0, "assumed"), correlations={}, scatter=0.173, k_of_legs=2.0, legs=(),
    setting=Setting("read", 65_536, 4.0 * MS), points=(), models=(), residuals=(), cycles_used=9,
    cycles_left_out={}, undetermined=(),
)  # fmt: skip


def rows(found: Fit) -> list[list[str]]:
    """The cells of the parameters."""
    every = [grid for section in sections([], found, ()) for grid in section.grids]
    (grid,) = [each for each in every if each.caption.startswith("period = ")]
    return [list(row) for row in grid.rows]


def test_the_share_of_the_window_waits_is_a_row_where_it_was_fitted() -> None:
    assert [row[0] for row in rows(FIT)] == ["k", "d", "s"]
    found = rows(replace(FIT, stall_share=Estimate(0.824, 0.516, 1.0, "fit")))
    assert [found[3][0], *found[3][2:]] == ["stalls", "82", "52", "100", "%", "differences between points"]


def test_the_scatter_of_runs_is_a_share() -> None:
    lines = [line for section in sections([], FIT, ()) for line in section.lines]
    assert "scatter of the period from run to run: 17 %" in lines
