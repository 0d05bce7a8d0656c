"""``iscsitrace model predict``: tables, JSON and charts, from options and from a fit."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from matplotlib.collections import PolyCollection
from matplotlib.container import ErrorbarContainer

from iscsitrace.cli import main
from iscsitrace.fit.points import fitted_from_document
from iscsitrace.model.setting import Setting
from iscsitrace.model.uncertainty import Estimate
from iscsitrace.model.what_if import ask
from iscsitrace.plots import model, style
from iscsitrace.plots.model_curves import Curve, MeasuredMarks, ModelCurves, axis_of, of_answers

MS = 1_000_000
READ = Setting("read", 65_536, 4.0 * MS, 40e6, service_ns=1.0 * MS)


def predict(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["model", "predict", *arguments])


def answered(*arguments: str) -> list[dict[str, Any]]:
    result = predict(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    predictions: list[dict[str, Any]] = json.loads(result.stdout)["predictions"]
    return predictions


def fit_document(**values: Any) -> dict[str, Any]:
    def estimate(value: float, off: float = 0.0) -> dict[str, Any]:
        return Estimate(value, value - off, value + off, "fit").as_dict()

    return {
        "schema": 1,
        "k": estimate(2.0),
        "d_ns": estimate(4.0 * MS),
        "s_ns": estimate(1.0 * MS, 0.5 * MS),
        "c_bytes_per_s": estimate(40e6),
        "k_of_legs": 2.0,
        "setting": asdict(READ),
        "residuals": [{"point": "wan", "residual": 0.0}],
    } | values


FIT = fitted_from_document(fit_document())


@pytest.fixture
def fit_file(tmp_path: Path) -> str:
    path = tmp_path / "fit.json"
    path.write_text(json.dumps(fit_document()))
    return str(path)


def test_every_combination_is_a_row_in_the_order_of_the_options() -> None:
    found = answered("read", "--block-size", "64K,128K", "--one-way-delay", "1ms,8ms", "--socket", "320Mbit")
    assert [list(each["values"].values())[:2] for each in found] == [
        [block, delay] for block in (65_536, 131_072) for delay in (1 * MS, 8 * MS)
    ]
    # 40 MB/s of stream: 64 KiB in eight data PDUs of 8 KiB, RFC 7143's default, with 48 bytes each
    assert found[0]["period_ns"] == pytest.approx(2 * MS + (65_536 + 8 * 48) / 40e6 * 1e9)
    assert (found[0]["k"], found[0]["bound"], found[0]["gain"]) == (2, "cycle", None)
    assert found[0]["setting"]["block_bytes"] == 65_536


def test_the_rate_of_a_line_counts_frames() -> None:
    # a segment in a frame of 1514 bytes; a block so large that nothing else matters
    (found,) = answered(
        *("read", "--one-way-delay", "0ms", "--rate", "8Mbit", "--block-size", "1448000", "--data-segment", "16777215")
    )
    assert found["transfer_ns"] == pytest.approx(1_448_048 / 1_448 * 1_514 * 1_000)
    assert found["idle_fraction"] == pytest.approx(0, abs=1e-9)


def test_every_option_sets_the_setting() -> None:
    (found,) = answered(
        *("write", "--one-way-delay", "2ms", "--target-delay", "1ms,3ms", "--socket", "8Mbit", "--loss", "0.1%"),
        *("--queue-depth", "2", "--connections", "3", "--service-time", "5us", "--initial-r2t", "no"),
        *("--immediate-data", "no", "--first-burst", "32K", "--max-burst", "96K", "--outstanding-r2t", "4"),
        *("--data-segment", "16K", "--window", "1M", "--start-window", "14480", "--segment-size", "1000"),
        *("--congestion-control", "reno", "--status-held", "yes", "--ack-delay", "40ms"),
        *("--service-spread", "2us", "--part-size", "32K", "--command-window", "5", "--system-call-size", "60K"),
    )
    assert found["setting"] == {
        "operation": "write",
        # a call of one command
        "block_bytes": 61_440,
        "delay_ns": 2 * MS,
        "c_bytes_per_s": 1e6,
        "data_pdu_bytes": 16_384,
        "service_ns": 5_000,
        "service_spread_ns": 2_000,
        "queue_depth": 2,
        "connections": 3,
        "is_status_held": True,
        "part_bytes": 32_768,
        "ack_delay_ns": 40 * MS,
        "solicitation": {
            "is_initial_r2t": False,
            "is_immediate_data": False,
            "first_burst_bytes": 32_768,
            "max_burst_bytes": 98_304,
            "max_outstanding_r2t": 4,
            "max_recv_data_segment_bytes": 16_384,
        },
        # what no option says
        "call_bytes": None,
        "window_bytes": 1 << 20,
        "start_window_bytes": 14_480,
        "segment_bytes": 1_000,
        "loss": 0.001,
        "congestion_control": "reno",
        "target_delays_ns": [1 * MS, 3 * MS],
    }


def test_the_table_has_the_varying_values_and_a_line_for_the_others() -> None:
    result = predict("read", "--one-way-delay", "1ms,8ms", "--rate", "320Mbit", "--queue-depth", "1,8")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "line rate 320 Mbit/s" in lines
    (heading,) = [line for line in lines if "MB/s" in line]
    assert heading.split("  ")[0] == "one-way delay"
    assert [line.split("  ")[0] for line in lines if line.startswith(("1 ms", "8 ms"))] == [
        "1 ms",
        "1 ms",
        "8 ms",
        "8 ms",
    ]
    assert "gain" not in result.stdout


def test_a_what_if_starts_from_the_fit_and_shows_its_interval(fit_file: str) -> None:
    (same,) = answered("--fit", fit_file)
    now = READ.block_bytes / (9 * MS + READ.block_bytes / 40e6 * 1e9) * 1e9
    assert (same["throughput_bytes_per_s"], same["gain"]) == (pytest.approx(now), pytest.approx(0))
    assert same["throughput_low_bytes_per_s"] < now < same["throughput_high_bytes_per_s"]
    queued, served = (
        answered("--fit", fit_file, "--queue-depth", "2"),
        answered("--fit", fit_file, "--service-time", "0s"),
    )
    assert queued[0]["gain"] == pytest.approx(1, rel=0.01)
    # what was set is in no doubt
    assert served[0]["throughput_low_bytes_per_s"] == served[0]["throughput_high_bytes_per_s"]
    result = predict("--fit", fit_file, "--queue-depth", "1,2")
    assert "gain %" in result.stdout
    assert "95 % confidence" in result.stdout
    assert "wider" not in result.stdout


def test_what_widens_an_interval_is_printed_once(tmp_path: Path) -> None:
    """Fitted at 64 KiB, one command in flight: two larger sizes have one doubt in common."""
    place = {"point": "wan", "residual": 0.0, "block_bytes": 65_536, "delay_ns": {"value": 4.0 * MS}, "queue_depth": 1,
             "is_status_held": False, "is_status_apart": False, "period_ns": 10.6 * MS, "bound": "cycle"}  # fmt: skip
    path = tmp_path / "fit.json"
    of_packets = Estimate(40e6, 40e6, 40e6, "packets").as_dict()
    path.write_text(json.dumps(fit_document(residuals=[place], c_bytes_per_s=of_packets)))
    doubt = "I/O size outside the fitted range: the hosts' time may grow with the I/O size"
    lines = predict("--fit", str(path), "--block-size", "64K,128K,1M").stdout.splitlines()
    assert lines.count(f"- {doubt}") == 1
    assert lines[lines.index(f"- {doubt}") - 1] == "Intervals that are wider than at the fitted settings"
    answers = answered("--fit", str(path), "--block-size", "64K,128K,1M")
    assert [answer["doubts"] for answer in answers] == [[], [doubt], [doubt]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "read or write"),
        ("read", "--one-way-delay"),
        ("read --one-way-delay 1", "is not a time"),
        ("read --one-way-delay 1ms --rate 1Mbit --socket 1Mbit", "use one of them"),
        ("read --one-way-delay 1ms --window 0", "window_bytes is 0"),
        ("read --one-way-delay 1ms --status-held maybe", "neither yes nor no"),
        ("read --one-way-delay 0ms", "has no duration"),
        ("read --one-way-delay 1ms -o chart.gif", ".png, .svg or .pdf"),
        ("read --one-way-delay 1ms -o chart.png", "several values"),
        ("read --one-way-delay 1ms --target-delay 1ms,2ms", "mirrored write"),
        ("read --one-way-delay 1ms,2ms --queue-depth 1,2,3,4,5,6,7,8,9 -o chart.png", "lines for a chart: 9"),
    ],
)
def test_invalid_options_are_one_line_errors(arguments: str, message: str) -> None:
    result = predict(*arguments.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"k": 2}', "\x00"])
def test_an_invalid_fit_is_a_one_line_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "fit.json").write_text(text)
    result = predict("--fit", str(tmp_path / "fit.json"))
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "fit.json" in result.stderr


# --- charts


def test_a_chart_is_not_overwritten_and_always_the_same(tmp_path: Path) -> None:
    path = tmp_path / "wan.svg"
    arguments = ["read", "--one-way-delay", "1ms,8ms", "--rate", "320Mbit", "--block-size", "64K,1M", "-o", str(path)]
    assert predict(*arguments).exit_code == 0
    first = path.read_bytes()
    refused = predict(*arguments)
    assert (refused.exit_code, path.read_bytes()) == (2, first)
    assert predict(*arguments, "--force").exit_code == 0
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == ["wan.svg"]


def test_a_chart_has_a_line_a_band_and_a_label_for_each_setting() -> None:
    lists = {"delay_ns": (8.0 * MS, 1.0 * MS), "block_bytes": (65_536, 1 << 20), "queue_depth": (2,)}
    answers = ask(READ, lists, FIT)
    curves = of_answers(answers, lists)
    with style.applied():
        figure = style.new_figure()
        model.draw(figure, curves)
        model.write_notes(figure, curves)
        (axes,) = figure.axes
        lines = {str(line.get_label()): line for line in axes.get_lines()}
        assert list(lines) == ["I/O size 64K", "I/O size 1M"]
        assert axes.get_xlabel() == "one-way delay, ms"
        assert axes.get_ylabel() == "throughput, MB/s"
        # along the axis from the near to the far, whatever the order of the values
        assert list(np.asarray(lines["I/O size 64K"].get_xdata())) == [1, 8]
        expected = [answers[place].prediction.throughput_bytes_per_s / 1e6 for place in (2, 0)]
        assert list(np.asarray(lines["I/O size 64K"].get_ydata())) == pytest.approx(expected)
        bands = [each for each in axes.collections if isinstance(each, PolyCollection)]
        heights = np.asarray(bands[0].get_paths()[0].vertices)[:, 1]
        low, high = answers[0].low_bytes_per_s, answers[2].high_bytes_per_s
        assert (heights.min(), heights.max()) == (pytest.approx((low or 0) / 1e6), pytest.approx((high or 0) / 1e6))
        assert len({(str(line.get_color()), line.get_linestyle()) for line in lines.values()}) == 2
        assert "queue depth 2" in figure.get_supxlabel()
        style.write(figure, io.BytesIO(), "png")


def test_measured_points_are_drawn_with_their_error() -> None:
    axis = axis_of("block_bytes", (65_536, 1 << 20))
    assert (axis.ticks, axis.is_logarithmic) == (("64K", "1M"), True)
    marks = MeasuredMarks(
        np.array([65_536, 1 << 20]), np.array([11e6, 24e6]), np.array([10e6, np.nan]), np.array([13e6, np.nan]),
        np.array([10e6, np.nan]),
    )  # fmt: skip
    curve = Curve("8 ms", np.array([10e6, 20e6]), marks=marks)
    with style.applied():
        figure = style.new_figure()
        model.draw(figure, ModelCurves(axis, (curve,)))
        rates, residuals = figure.axes
        assert rates.get_legend_handles_labels()[1] == ["8 ms, model", "8 ms, measured"]
        (bars,) = (each for each in rates.containers if isinstance(each, ErrorbarContainer))
        segments = bars.lines[2][0].get_segments()
        # from 10 to 13 MB/s; where the interval is unknown the bar has no length
        assert [sorted(end[1] for end in each) for each in segments] == [[10, 13], [24, 24]]
        off = np.asarray(residuals.get_lines()[-1].get_ydata())
        assert off[0] == pytest.approx(10)
        assert np.isnan(off[1])
        assert "%" in residuals.get_ylabel()


def test_points_outside_the_model_are_crossed_and_explained() -> None:
    lists = {"loss": (0.0001, 0.02)}
    curves = of_answers(ask(replace(READ, queue_depth=16), lists), lists)
    with style.applied():
        figure = style.new_figure()
        model.draw(figure, curves)
        crosses = [line for line in figure.axes[0].get_lines() if line.get_marker() == "x"]
        assert [list(np.asarray(each.get_xdata())) for each in crosses] == [[2.0]]
    assert any("timeouts" in note for note in model.notes(curves))
