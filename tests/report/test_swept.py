"""The report on a sweep as a document, from points made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from iscsitrace.fit.points import Losses
from iscsitrace.fit.sweep import SweptCapture, sweeps
from iscsitrace.model.uncertainty import Estimate
from iscsitrace.plots import model
from iscsitrace.plots import sweep as sweep_curves
from iscsitrace.report import swept
from iscsitrace.show import markdown, page
from iscsitrace.show.document import Document
from tests.fit.test_sweep import captures, chaotic, point

INPUTS: list[dict[str, Any]] = [
    {"name": f"{number}.pcap", "format": "pcap", "packet_count": 1_234, "time_first_ns": 1_700_000_000_000_000_000}
    for number in range(3)
]


def described(*captured: SweptCapture, missing: tuple[str, ...] = (), has_pictures: bool = False) -> Document:
    return swept.describe(sweeps(captured), missing, INPUTS, has_pictures=has_pictures)


def facts(document: Document) -> dict[str, str]:
    return {fact.name: fact.value for fact in document.opening.facts}


def test_the_result_is_the_span_and_the_error_of_the_model() -> None:
    near, far = point(1.0), point(8.0)
    found = described(*captures(near, point(4.0), far))
    assert found.title == "Throughput over one-way delay"
    assert found.subtitle == "3 captures, each read alone; 3 points"
    rates = [each.throughput_bytes_per_s / 1e6 for each in (far, near)]
    span = f"{rates[0]:.1f} to {rates[1]:.1f} MB/s"
    assert found.opening.headline.startswith(f"Reads, 3 points at 3 one-way delays: {span}. Model: median error 0")
    idle = [100 * (each.idle_fraction or 0) for each in (near, far)]
    assert facts(found)["reads"] == span
    assert facts(found)["idle"] == f"{idle[0]:.0f} to {idle[1]:.0f} %"
    assert facts(found)["k"] == "2.00"
    assert [section.title for section in found.sections] == ["Points", "Model", "How this was made"]
    assert found.sections[-1].lines[0] == "0.pcap: pcap, 1,234 packets, - s from 2023-11-14T22:13:20.000000000Z"


def test_one_idle_share_is_no_range() -> None:
    found = described(*captures(point(1.0), point(1.0)))
    assert facts(found)["idle"] == f"{100 * (point(1.0).idle_fraction or 0):.0f} %"


def test_residuals_are_shown_on_a_scale_of_at_least_a_percent() -> None:
    (sweep,) = sweeps(captures(point(1.0), point(4.0), point(8.0)))
    (plot,) = sweep_curves.plots(sweep)
    figure = Figure()
    model.draw(figure, plot)
    low, high = figure.axes[1].get_ylim()
    assert low <= -1
    assert high >= 1


def test_a_poor_fit_has_no_parameter_in_the_report() -> None:
    sweep = chaotic()
    found = swept.describe([sweep], (), INPUTS, has_pictures=False)
    assert "k" not in facts(found)
    assert "Model" not in [section.title for section in found.sections]
    assert "does not describe these captures" in found.opening.headline


def test_what_has_no_point_is_said() -> None:
    found = described(*captures(point(1.0)), missing=("a.pcap, session 1: no reads or writes of data",))
    (model,) = (section for section in found.sections if section.title == "Model")
    assert "Not determined: not fitted: a.pcap, session 1: no reads or writes of data." in model.lines
    empty = described(SweptCapture("a.pcap", (), {}), missing=("a.pcap: no iSCSI session",))
    assert empty.opening.headline == "No session has steady reads or writes, so there is no point."
    # both renderings take it
    assert "no iSCSI session" in page.render(empty, "1.2.3")
    assert "no iSCSI session" in markdown.render(empty)


def test_losses_have_a_section_of_models() -> None:
    lossy = replace(point(4.0).setting, loss=0.01)
    folds = ((0.01, 1e6), (0.02, 1e6), (0.01, 1.2e6))
    losses = Losses(lossy, None, 32, 3_200, 12, Estimate(1e6, 0.9e6, 1.2e6, "packets"), folds)
    found = described(*captures(point(4.0, losses=losses), point(8.0)))
    (section,) = (each for each in found.sections if each.identity == "losses")
    assert [row[0] for row in section.grids[0].rows] == ["4.0 ms, 64 KiB"]


def test_each_plot_is_a_picture() -> None:
    reads = [point(1.0), point(8.0)]
    writes = [replace(each, setting=replace(each.setting, operation="write")) for each in reads]
    found = described(*captures(*reads, *writes), has_pictures=True)
    assert [picture.name for picture in found.sections[0].pictures] == ["Reads", "Writes"]
    assert all("<svg" in picture.svg and "measured" in picture.svg for picture in found.sections[0].pictures)
