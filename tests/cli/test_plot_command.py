"""``iscsitrace plot`` as a whole: files, formats, one-line errors; and the xplot format against tcptrace."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.plots import kinds
from tests.support import xplot_file

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
READ = SAMPLES / "sequential-read-4ms" / "capture.pcapng.gz"
LOSS = SAMPLES / "loss-1-percent" / "capture.pcap.gz"
BOTH_ENDS = (LOSS, SAMPLES / "loss-1-percent" / "target.pcap.gz")
TWO = SAMPLES / "two-connections-one-session" / "capture.pcapng.gz"
MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def plot(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    with contextlib.chdir(folder):
        result = CliRunner().invoke(main, ["plot", *map(str, arguments)])
    return subprocess.CompletedProcess(["plot"], result.exit_code, result.stdout, result.stderr)


def elsewhere(folder: Path, environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, with these variables in its environment."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("kind", kinds.NAMES)
def test_every_kind_draws_a_real_capture(tmp_path: Path, kind: str) -> None:
    is_of_taps = kinds.load(kind).is_of_taps
    result = plot(tmp_path, kind, "-o", "a.png", *(BOTH_ENDS if is_of_taps else (TWO,)))
    assert result.returncode == 0
    # of several captures it states what they are to each other
    assert bool(result.stderr) == is_of_taps
    assert result.stdout.startswith("a.png: ")
    assert (tmp_path / "a.png").read_bytes().startswith(MAGIC["png"])
    assert [each.name for each in tmp_path.iterdir()] == ["a.png"]


DRAW_EACH = """
import sys
from iscsitrace.cli import main
for file in sys.argv[2:]:
    main(["plot", "cycles", "-o", file, sys.argv[1]], standalone_mode=False)
"""


def test_two_runs_write_the_same_bytes_in_any_environment(tmp_path: Path) -> None:
    """Nor does the order matter in which one process draws them."""
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nsvg.hashsalt: other\n")
    endings = list(MAGIC)
    for number, zone in enumerate(("UTC", "Asia/Tokyo")):
        surroundings = {"TZ": zone, "PYTHONHASHSEED": str(number), "SOURCE_DATE_EPOCH": str(number)}
        files = [f"{number}.{ending}" for ending in endings]
        elsewhere(tmp_path, surroundings, "-c", DRAW_EACH, READ, *files).check_returncode()
        endings.reverse()
    for ending, magic in MAGIC.items():
        first, second = ((tmp_path / f"{number}.{ending}").read_bytes() for number in range(2))
        assert first == second
        assert first.startswith(magic)


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("mine")
    result = plot(tmp_path, "cycles", "-o", "a.png", READ)
    assert (result.returncode, result.stderr) == (
        2,
        "iscsitrace: a.png exists; nothing was written (--force overwrites)\n",
    )
    assert (tmp_path / "a.png").read_text() == "mine"
    assert plot(tmp_path, "cycles", "-o", "a.png", "--force", READ).returncode == 0
    assert (tmp_path / "a.png").read_bytes().startswith(MAGIC["png"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cycles", READ], "name a file with -o, or use --show"),
        (["cycles", "-o", "a.png", "--show", READ], "name a file with -o, or use --show"),
        (["cycles", "-o", "a.jpg", READ], "end it with .png, .svg, .pdf or .xpl"),
        (["cycles", "-o", "a", READ], "end it with .png, .svg, .pdf or .xpl"),
        (["cycles", "-o", "a.xpl", READ], "xplot draws sequence, window, not cycles"),
        (["cycles", "-o", "no/folder/a.png", READ], "cannot write no/folder/a.png"),
        (["cycles", "-o", "x" * 300 + ".png", READ], "File name too long"),
        (["pie", "-o", "a.png", READ], "pie"),
        (["cycles", "--top", "3", "-o", "a.png", READ], "--top is for rtt, streams, time_breakdown"),
        (["streams", "--by", "lun", "-o", "a.png", READ], "--by is for latency, time_breakdown"),
        (["cycles", "--width", "2", "-o", "a.png", READ], "3<=x<=30"),
        (["cycles", "--dpi", "1000", "-o", "a.png", READ], "30<=x<=600"),
        (["streams", "--top", "9", "-o", "a.png", READ], "1<=x<=8"),
        (["cycles", "-o", "a.png"], "name a capture"),
        (["cycles", "-o", "a.png", "missing.pcap"], "missing.pcap"),
        (
            ["ladder", "--cycle", "46", "-o", "a.png", READ],
            "there is no cycle 46; the capture has 46 commands, counted from 0",
        ),
        (["ladder", "--cycle", "4-2", "-o", "a.png", READ], "write 12, or 12-15"),
        (["sequence", "--connection", "7", "-o", "a.png", READ], "there is no iSCSI connection 7; there are 0"),
        (["latency", "--session", "7", "-o", "a.png", READ], "there is no session 7; there are 0"),
        (
            ["sequence", "--from", "100s", "--to", "101s", "-o", "a.png", READ],
            "connection 0 has no packets in the view",
        ),
        (["cycles", "--from", "100s", "-o", "a.png", READ], "nothing to draw"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(tmp_path: Path, arguments: list[object], message: str) -> None:
    assert_is_refused(plot(tmp_path, *arguments), message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["streams", "time_breakdown"])
def test_top_limits_what_is_drawn_each_for_itself(tmp_path: Path, kind: str) -> None:
    def drawn(name: str, *options: str) -> str:
        assert plot(tmp_path, kind, "-o", name, *options, TWO).returncode == 0
        return (tmp_path / name).read_text()

    note = {
        "streams": "1 of 2 connections with data are drawn",
        "time_breakdown": "totals of 1 of 3 sessions and connections",
    }
    assert note[kind] in drawn("few.svg", "--top", "1")
    assert note[kind] not in drawn("all.svg")


def test_a_picture_has_the_size_that_is_asked_for(tmp_path: Path) -> None:
    size = ("--width", "8", "--height", "5")
    assert plot(tmp_path, "cycles", *size, "--dpi", "50", "-o", "a.png", READ).returncode == 0
    # width and height in the header of a PNG
    header = (tmp_path / "a.png").read_bytes()[16:24]
    assert struct.unpack(">II", header) == (400, 250)
    assert plot(tmp_path, "cycles", *size, "-o", "a.svg", READ).returncode == 0
    assert 'width="576pt" height="360pt"' in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("kind", ["latency", "time_breakdown"])
@pytest.mark.parametrize(("by", "label"), [("lun", "LUN 0"), ("operation", "write"), ("session", "session 0")])
def test_commands_are_told_apart_by_what_is_asked_for(tmp_path: Path, kind: str, by: str, label: str) -> None:
    result = plot(tmp_path, kind, "--by", by, "-o", "a.svg", TWO)
    assert result.returncode == 0
    assert label in (tmp_path / "a.svg").read_text()
    word = "LUN" if by == "lun" else by
    assert result.stdout.endswith(f", by {word}\n") or (kind, by) == ("latency", "operation")


def test_where_no_window_can_be_opened(tmp_path: Path) -> None:
    headless = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "MPLBACKEND": ""}
    assert_is_refused(
        elsewhere(tmp_path, headless, "-m", "iscsitrace", "plot", "cycles", "--show", READ),
        "no window can be opened here",
    )


def assert_is_refused(result: subprocess.CompletedProcess[str], message: str) -> None:
    assert result.returncode == 2
    assert message in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_capture_without_iscsi_has_nothing_to_draw(tmp_path: Path) -> None:
    shutil.copy(READ, tmp_path / "a.pcapng.gz")
    for kind in kinds.NAMES:
        result = plot(tmp_path, kind, "-f", "port 1", "-o", "a.png", "a.pcapng.gz")
        assert (result.returncode, result.stderr) == (
            2,
            "iscsitrace: nothing to draw: the capture has no iSCSI connection\n",
        )


def test_matplotlib_is_not_imported_before_a_plot_is_drawn(tmp_path: Path) -> None:
    modules = "iscsitrace.cli.read.plot, iscsitrace.plots.view"
    program = f"import sys, {modules}; print('matplotlib' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_help_lists_every_kind_and_imports_neither_numpy_nor_matplotlib(tmp_path: Path) -> None:
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print({'numpy', 'matplotlib'} & set(sys.modules)))\n"
        "from iscsitrace.cli import main; main(['plot', '--help'])"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "set()"
    assert " [OPTIONS] KIND CAPTURE...\n" in result.stdout
    section = result.stdout.partition("Kinds:\n")[2].partition("Options:\n")[0]
    assert tuple(re.findall(r"^  (\w+)  +\S", section, re.MULTILINE)) == kinds.NAMES


def test_zooming_shows_less_and_keeps_the_connection(tmp_path: Path) -> None:
    """The login is still read, so that the connection is known and its stream starts at its SYN."""
    assert plot(tmp_path, "sequence", "--from", "3.7s", "--to", "3.8s", "-o", "part.xpl", READ).returncode == 0
    assert plot(tmp_path, "sequence", "-o", "whole.xpl", READ).returncode == 0
    part, whole = (xplot_file.parse((tmp_path / f"{name}.xpl").read_text()) for name in ("part", "whole"))
    start = Decimal(int(datetime(2026, 11, 20, 11, 13, 9, tzinfo=UTC).timestamp())) + Decimal("0.573643")
    expected = [
        at for at in whole.of("uarrow", "white") if Decimal("3.7") <= at[0] - start <= Decimal("3.8")
    ]  # fmt: skip
    assert len(expected) > 100
    assert part.of("uarrow", "white") == expected


@pytest.fixture(scope="module")
def tcptrace(tmp_path_factory: pytest.TempPathFactory) -> xplot_file.XplotFile:
    """tcptrace's time-sequence graph of the data to the initiator, relative to its first sequence number."""
    folder = tmp_path_factory.mktemp("tcptrace")
    program = shutil.which("tcptrace")
    assert program, "tcptrace is missing: tools/setup installs it"
    subprocess.run([program, "-n", "-S", "-zy", str(LOSS)], cwd=folder, capture_output=True, check=True)
    return xplot_file.parse((folder / "b2a_tsg.xpl").read_text())


def bars(file: xplot_file.XplotFile, first: int) -> set[tuple[Decimal, ...]]:
    """Time, first and last place of each segment; tcptrace counts the SYN as a byte."""
    upright = [at for color in ("white", "red") for at in file.of("line", color) if at[0] == at[2]]
    return {(at[0], at[1] - first, at[3] - first) for at in upright}


def letters(file: xplot_file.XplotFile, first: int) -> set[tuple[Decimal, ...]]:
    """Positions of packets marked as retransmitted or late.

    At a tap beside the receiver, tcptrace calls a packet out of order if its first copy was lost before the tap.
    """
    return {(at[0], at[1] - first) for letter in "RO" for at in file.of("atext", text=letter)}


def test_the_xplot_file_equals_tcptraces(tmp_path: Path, tcptrace: xplot_file.XplotFile) -> None:
    assert plot(tmp_path, "sequence", "--direction", "to_initiator", "-o", "a.xpl", LOSS).returncode == 0
    ours = xplot_file.parse((tmp_path / "a.xpl").read_text())
    assert ours.types == ("timeval", "double")
    assert "10.77.0.2:3260" in ours.names["title"]
    assert len(bars(tcptrace, 1)) > 4000
    assert bars(ours, 0) == bars(tcptrace, 1)
    assert len(letters(tcptrace, 1)) > 30
    assert letters(ours, 0) == letters(tcptrace, 1)


def test_a_kind_by_its_old_name_is_drawn_with_a_note(tmp_path: Path) -> None:
    drawn = [tmp_path / "new.svg", tmp_path / "old.svg"]
    results = [
        CliRunner().invoke(main, ["plot", name, "-o", str(path), str(READ)])
        for name, path in zip(("time_breakdown", "budget"), drawn, strict=True)
    ]
    assert [each.exit_code for each in results] == [0, 0]
    assert results[1].stderr == "iscsitrace: plot budget is now plot time_breakdown\n"
    assert drawn[0].read_bytes() == drawn[1].read_bytes()
