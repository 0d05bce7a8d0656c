"""Traces and tables in a notebook: what they show, what they select, and that results are those of the commands."""

from __future__ import annotations

import base64
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid, OutputExists
from iscsitrace.tables.schema import ON_REQUEST
from tests.support import hand_timed as by_hand
from tests.support.hand_timed import READ, TEST_UNIT_READY, Wire, command, data_in, response
from tools import notebook
from tools.docs import ROOT

SAMPLE = ROOT / "samples" / "write-r2t-rounds" / "capture.pcapng.gz"
HOSTILE = "<script>alert(1)</script>"


class Page(HTMLParser):
    """The cells and the text of a page, and the names of its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.names: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip("\n")


@pytest.fixture
def reads(tmp_path: Path) -> Path:
    """Twelve reads of LUN 0 and 1 in turn, of 1 to 12 ms, and a command without data."""
    wire = Wire()
    for number in range(12):
        start_ms = number * 100
        wire.send(start_ms, command(number, READ, cmd_sn=number + 1, read=512, lun=number % 2))
        wire.receive(start_ms + number + 1, data_in(number, 0, 0, 512, stat_sn=number + 1))
    wire.send(1300, command(12, TEST_UNIT_READY, cmd_sn=13)).receive(1301, response(12, 13))
    return by_hand.capture(tmp_path, wire)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def same(shown: dict[str, Any], document: dict[str, Any], *besides: str) -> bool:
    """Whether they are equal but for the tables that were requested, in the options, and what only the command has."""
    omitted = ("options", *besides)
    found = json.loads(json.dumps(shown))
    return {name: value for name, value in found.items() if name != "options"} == {
        name: value for name, value in document.items() if name not in omitted
    }


def test_a_trace_says_what_is_in_it(reads: Path) -> None:
    trace = iscsitrace.read(reads)
    assert repr(trace) == (
        f"<Trace {reads}: 26 packets, 1.3 s, 1 session, 1 iSCSI connection, 13 commands, 100 % decoded>"
    )
    page = Page(trace._repr_html_())
    assert [
        "cycles",
        "13",
        "one SCSI command on the wire, from its SCSI Command PDU to its status, in order of issue",
    ] in (page.rows)
    assert "segments" in page.text.partition("On request")[2].partition("\n")[0]


def test_masks_select_rows(reads: Path) -> None:
    commands = iscsitrace.read(reads).cycles
    assert commands[commands["lun"] == 1]["cycle"].tolist() == [1, 3, 5, 7, 9, 11]
    assert commands[commands["latency_ns"] > 10_000_000]["cycle"].tolist() == [10, 11]
    assert commands[:2]["cycle"].tolist() == [0, 1]
    assert commands[[5, -1]]["cycle"].tolist() == [5, 12]
    assert len(commands[np.zeros(13, dtype=bool)]) == 0
    with pytest.raises(IndexError):
        commands[[13]]
    with pytest.raises(KeyError):
        commands["latency"]


def test_a_null_meets_no_condition(reads: Path) -> None:
    """The command without data has no first data frame: the stored null value would be below any number."""
    commands = iscsitrace.read(reads).cycles
    with_data = list(range(12))
    assert commands["data_first_frame"][12] is np.ma.masked
    assert commands[commands["data_first_frame"] < 1000]["cycle"].tolist() == with_data
    assert commands[commands["data_first_frame"] >= 0]["cycle"].tolist() == with_data


def test_a_preview_has_the_first_and_last_rows(reads: Path) -> None:
    commands = iscsitrace.read(reads).cycles
    page = Page(commands._repr_html_())
    head, *rows = page.rows
    assert head == commands.keys()
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "4", "…", "8", "9", "10", "11", "12"]
    assert "cycles: 13 rows" in page.text
    assert [row[0] for row in Page(commands[:10]._repr_html_()).rows[1:]] == [str(number) for number in range(10)]
    assert len(Page(commands[:0]._repr_html_()).rows) == 1


def test_names_of_a_capture_are_text(tmp_path: Path) -> None:
    wire = Wire()
    keys = {"InitiatorName": f"iqn.2026-11.example:{HOSTILE}", "TargetName": "iqn.2026-11.example:t"}
    wire.send(0, by_hand.login_request(keys | {"SessionType": "Normal"})).receive(1, by_hand.login_response({}))
    trace = iscsitrace.read(by_hand.capture(tmp_path, wire))
    for shown in (trace, trace.sessions, trace.parameters, trace.diagnose()):
        page = Page(shown._repr_html_())
        assert "script" not in page.names
    assert HOSTILE in Page(trace._repr_html_()).text


def test_a_diagnosis_is_that_of_the_command() -> None:
    trace = iscsitrace.read(SAMPLE)
    shown = trace.diagnose()
    assert repr(shown).split() == printed("diagnose", str(SAMPLE)).split()
    document = json.loads(printed("diagnose", "--json", str(SAMPLE)))
    assert same(shown.as_dict(), document, "fail_on", "failed")
    assert {"queue_depth_low", "r2t_rounds"} <= shown.found
    page = Page(shown._repr_html_())
    assert "I/O time 1.043206 s: network RTT 70 %" in page.text


def test_a_fit_is_that_of_the_command() -> None:
    shown = iscsitrace.read(SAMPLE).fit("write")
    assert repr(shown).split() == printed("model", "fit", "--operation", "write", str(SAMPLE)).split()
    document = json.loads(printed("model", "fit", "--json", "--operation", "write", str(SAMPLE)))
    assert same(shown.as_dict(), document)
    with pytest.raises(InputInvalid, match="nothing to fit"):
        iscsitrace.read(SAMPLE, packet_limit=20).fit()


def test_a_plot_is_that_of_the_command(tmp_path: Path) -> None:
    by_command = tmp_path / "command.png"
    printed("plot", "latency", "-o", str(by_command), str(SAMPLE))
    drawn = iscsitrace.read(SAMPLE).plot("latency")
    assert drawn._repr_png_() == by_command.read_bytes()
    drawn.save(tmp_path / "saved.svg")
    assert b"<svg" in (tmp_path / "saved.svg").read_bytes()
    with pytest.raises(OutputExists):
        drawn.save(tmp_path / "saved.svg")
    with pytest.raises(InputInvalid, match="no known format"):
        drawn.save(tmp_path / "saved.gif")
    with pytest.raises(InputInvalid, match="unknown plot pie"):
        iscsitrace.read(SAMPLE).plot("pie")


def test_lacking_tables_are_read_again_with_the_same_options() -> None:
    trace = iscsitrace.read(SAMPLE, packet_limit=500)
    assert trace.lacking(["cycles", "budget", "events"])
    fuller = trace.with_tables(["budget"])
    assert fuller.packet_count == trace.packet_count == 500
    assert len(fuller.budget)
    assert fuller.with_tables(["budget", "pdus"]) is fuller
    assert trace.with_tables(["cycles"]) is trace
    every = trace.with_tables(ON_REQUEST)
    assert every.lacking(ON_REQUEST) == []


def test_bytes_are_read_again_and_a_file_object_is_not() -> None:
    content = SAMPLE.read_bytes()
    assert iscsitrace.read(content).diagnose().found == iscsitrace.read(SAMPLE).diagnose().found
    stream = iscsitrace.read(io.BytesIO(content))
    with pytest.raises(InputInvalid, match=r"filled only on request: read\(..., tables="):
        stream.diagnose()
    lacking = stream.lacking(["budget", "senders"])
    assert len(iscsitrace.read(io.BytesIO(content), tables=lacking).budget)


def test_the_notebook_shows_what_its_cells_show() -> None:
    before = json.loads(notebook.NOTEBOOK.read_text())
    after = notebook.executed(before)
    assert notebook.differing(before, after) == []
    code = [cell for cell in after["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert all(cell["outputs"] for cell in code)
    # the comparison can fail
    code[-1]["source"] = ["1 + 1"]
    assert notebook.differing(before, notebook.executed(after)) == [len(before["cells"])]


def test_another_picture_is_something_else() -> None:
    before = json.loads(notebook.NOTEBOOK.read_text())
    after = json.loads(notebook.NOTEBOOK.read_text())
    data = [
        (number, output["data"])
        for number, cell in enumerate(after["cells"], 1)
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]
    assert data
    blank = io.BytesIO()
    Image.new("RGB", (100, 100)).save(blank, "PNG")
    for _, each in data:
        each["image/png"] = base64.b64encode(blank.getvalue()).decode()
    assert notebook.differing(before, after) == [number for number, _ in data]
