"""A capture full of characters that control a terminal: no command lets one through to a terminal or a text that is
read in one.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import GROUPS, main
from iscsitrace.fleet.captures import Tap
from iscsitrace.fleet.run import run as fleet_run
from tests.support.capture_file import block, write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.invariants import harmful
from tests.support.scan import Said, scan
from tests.support.transport import Path as Link
from tests.watch.test_meters import served

EVIL = "a\x1b]0;x\x07\x1b[31m\x85\x9b2J\u202e\u2066\u200b\u200f\u2028\u2029\ufeff\u00ad\x7f\r\x08z"
"""C0, C1, DEL, changes of direction, invisible characters and separators of lines."""
SILENT = {
    "capture",
    "interfaces",
    "initiator",
    "target",
    "link",
    "simulate",
    "lab",
    "wireshark",
    "explain",
    "docs",
    "inspect",
}
"""Commands that read no capture, make traffic, capture live, or need tshark: tests of their own."""
SHOWN = (
    *("summary", "summary -v", "summary --by initiator", "summary --by lun", "summary --by target", "events"),
    "events --csv",
    *("diagnose", "diagnose -v", "conformance", "diff CAPTURE", "cycles"),
    *("mirrors", "model fit", "check", "watch --no-follow --plain", "report --format md -o -"),
    *("export -o OUTPUT", "export --csv-safe -o OUTPUT", "export --sidecar -o OUTPUT", "anonymise -o OUTPUT.pcapng"),
    *("report -o OUTPUT.html", "plot cycles -o OUTPUT.svg", "export --format perfetto -o OUTPUT.trace"),
)
TEXT_FILES = {".md", ".html", ".svg", ".iscsitrace"}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every text that a capture can bring, in the wire's and the file's own fields."""
    conversation = Conversation(Link(one_way_delay_ns=1_000_000))
    names = ("InitiatorName", "TargetName", "InitiatorAlias", "TargetAlias", "TargetAddress", "X-com.evil")
    disk = bytes([0, 0, 6, 2, 31, 0x10, 0, 2]) + b"EV\x1b[2J\x9bDI\x1bc\x9b\x07K\x7f\x85        1.\x1b "
    tasks = [Said(command=bytes([0x12, 0, 0, 0, 255]), answer=disk), *scan(serial=EVIL)[1:]]
    session = conversation.session(Session()).login(texts=dict.fromkeys(names, EVIL) | {EVIL: EVIL})
    session.tasks(tasks).read(count=8).write(count=4).logout()
    made = write_pcapng(
        tmp_path_factory.mktemp("hostile") / "a\u202e\x1b[2Jb.pcapng", conversation.run().packets, link_type=1
    )
    content = made.read_bytes()
    section = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _options(1, 2, 3, 4))
    described = struct.pack("<HHI", 1, 0, 262_144) + struct.pack("<HHB3x", 9, 1, 9) + _options(1, 2, 3, 11, 12, 15)
    packets = content[28 + struct.unpack_from("<I", content, 32)[0] :]
    made.write_bytes(section + block(1, described) + packets)
    return made


def _options(*codes: int) -> bytes:
    """Options of pcapng with this text: comment, and names of hardware, system, application, interface and filter."""
    text = EVIL.encode()
    padded = text + bytes(-len(text) % 4)
    return b"".join(struct.pack("<HH", code, len(text)) + padded for code in codes) + bytes(4)


def run(words: str, capture: Path, folder: Path) -> Result:
    arguments = [word.replace("OUTPUT", str(folder / "output")) for word in words.split()]
    arguments = [str(capture) if word == "CAPTURE" else word for word in arguments]
    return CliRunner().invoke(main, [*arguments, str(capture)], catch_exceptions=False)


@pytest.mark.parametrize("words", SHOWN)
def test_no_text_of_a_capture_controls_a_terminal(words: str, capture: Path, tmp_path: Path) -> None:
    result = run(words, capture, tmp_path)
    assert result.exit_code in (0, 1), result.output
    assert harmful(result.stdout + result.stderr) == ""
    for file in tmp_path.rglob("*"):
        if file.suffix in TEXT_FILES:
            assert harmful(file.read_text(encoding="utf-8").replace("\t", " ")) == "", file.name


def test_every_reading_command_is_among_them() -> None:
    reading = {*GROUPS["Read captures"][1], *GROUPS["Watch a network"][1]}
    assert {words.split()[0] for words in SHOWN} | SILENT | {"plot", "fleet"} >= reading


@pytest.fixture(scope="module")
def dataset(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("fleet") / "data"
    fleet_run(found, [Tap("a", (str(capture),))], worker_count=1)
    return found


@pytest.mark.parametrize(
    "words",
    [
        *(f"top DATASET --by {by}" for by in ("initiator", "target", "lun", "session")),
        "report DATASET -o OUTPUT.html",
        *(f"sql DATASET --format {form}" for form in ("table", "csv", "json")),
    ],
)
def test_no_text_of_a_dataset_controls_a_terminal(words: str, dataset: Path, tmp_path: Path) -> None:
    arguments = [
        word.replace("DATASET", str(dataset)).replace("OUTPUT", str(tmp_path / "output")) for word in words.split()
    ]
    query = ['SELECT *, initiator_name AS "a\x1b" FROM sessions'] if arguments[0] == "sql" else []
    result = CliRunner().invoke(main, ["fleet", *arguments, *query], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert harmful(result.stdout + result.stderr) == ""
    for file in tmp_path.iterdir():
        assert harmful(file.read_text(encoding="utf-8")) == ""


def test_no_label_of_a_metric_controls_a_terminal(capture: Path) -> None:
    labels = [value for _, own in served(capture)[-1] for _, value in own]
    assert any("\\x1b" in label for label in labels)
    assert harmful("".join(labels)) == ""


def test_an_error_about_a_file_controls_no_terminal(capture: Path, tmp_path: Path) -> None:
    wrong = tmp_path / capture.name
    wrong.write_bytes(b"no capture at all")
    result = CliRunner().invoke(main, ["summary", str(wrong)])
    assert result.exit_code == 2
    assert harmful(result.stderr) == ""


def test_a_notebook_shows_no_character_that_is_not_seen(capture: Path) -> None:
    trace = iscsitrace.read(capture)
    shown = [trace._repr_html_(), trace.sessions._repr_html_(), trace.logical_units._repr_html_()]
    assert harmful("".join([*shown, repr(trace), trace.diagnose()._repr_html_()])) == ""


def test_lines_are_printed_in_one_place() -> None:
    """A line that is printed elsewhere has no text of a capture: it is JSON, or a line of the program's own."""
    package = Path(iscsitrace.__file__).parent
    found = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if "click.echo(" in file.read_text(encoding="utf-8")
    }
    assert found == {
        "show/line.py", "show/pages.py", "show/terminal.py",
        "cli/read/cycles.py", "cli/read/events.py",
        "cli/record/capture_progress.py", "cli/traffic/settings_command.py", "cli/traffic/target_options.py",
    }  # fmt: skip
