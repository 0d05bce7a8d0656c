"""The commands on a trace made by hand: their output, their calls of the core, their exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import COMMANDS, main, options
from iscsitrace.show import line, terminal
from iscsitrace.show.document import table
from iscsitrace.tables import trace as trace_module
from iscsitrace.tables.schema import SCHEMA_VERSION
from tests.support import tables_by_hand as by_hand
from tests.support.closed_pipe import closed_after_a_line

Run = Callable[..., Result]


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = by_hand.core(by_hand.TRACE)
    monkeypatch.setattr(trace_module, "_core", made, raising=False)
    monkeypatch.setattr(trace_module, "_core_missing", None)
    return made


@pytest.fixture
def run(core: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(main, arguments)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_summary_shows_every_part(run: Run) -> None:
    result = run("summary", "a.pcap")
    assert result.exit_code == 0
    assert lines_with(result.output, "a.pcap: pcap, 9 packets, 2.000000 s from 1970-01-01T00:00:00.000000000Z")
    assert lines_with(result.output, "iqn.2026-11.example:host", "iqn.2026-11.example:disk", "normal", "open")
    assert lines_with(result.output, "[fd00::1]:50001", "[fd00::2]:3260", "none/crc32c (login)", "4.000")
    assert lines_with(result.output, "TCP connections that are not iSCSI: 1")
    assert lines_with(result.output, "MaxBurstLength", "262144")
    assert lines_with(result.output, "MaxRecvDataSegmentLength", "initiator 262144, target 8192")
    assert lines_with(result.output, "write", "256K", "1")
    assert lines_with(result.output, "write", "43.000")
    assert lines_with(result.output, "to initiator", "50", "75")
    assert lines_with(result.output, "data loss", "capture_gap", "a larger buffer")
    assert "16776192" not in result.output


def test_summary_verbose_shows_the_offers_of_both_sides(run: Run) -> None:
    assert lines_with(run("summary", "-v", "a.pcap").output, "MaxBurstLength", "16776192", "262144", "negotiated")


def test_plain_output_has_no_escapes(run: Run) -> None:
    assert "\x1b" not in run("summary", "a.pcap").output


def test_names_from_a_capture_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch, core: Any, run: Run) -> None:
    session = {**by_hand.TRACE["sessions"][0], "initiator_name": "iqn\x1b[2J\x07.evil"}
    hostile = by_hand.core({**by_hand.TRACE, "sessions": [session]})
    monkeypatch.setattr(trace_module, "_core", hostile, raising=False)
    output = run("summary", "a.pcap").output
    assert r"iqn\x1b[2J\x07.evil" in output
    assert "\x1b" not in output


def test_summary_json(run: Run) -> None:
    document = json.loads(run("summary", "--json", "a.pcap").output)
    assert document["schema"] == SCHEMA_VERSION
    assert document["tool"]["name"] == "iscsitrace"
    assert document["input"][0]["name"] == "a.pcap"
    assert [session["initiator_name"] for session in document["sessions"]] == ["iqn.2026-11.example:host"]
    assert [row["is_iscsi"] for row in document["connections"]] == [False, True]
    assert document["connections"][0]["session"] is None
    assert document["coverage"][-1]["connection"] is None
    assert document["volumes"][-1]["read_bytes"] == 65_536
    assert document["queue_depth"]["cycles_by_queue_depth"] == {"1": 2, "2": 1}
    assert {row["operation"]: row["latency_ns"]["max"] for row in document["latency"]} == {
        "read": 6_000_000,
        "write": 43_000_000,
        "test_unit_ready": None,
    }
    assert {row["name"]: row["count"] for row in document["counters"]} == {"capture_gap": 2, "not_tcp": 1}


def test_summary_requests_no_large_table(core: Any, run: Run) -> None:
    run("summary", "a.pcap")
    # nine bytes a write
    assert core.calls[0]["tables"] == ["write_starts"]


def test_shared_options_reach_the_core(core: Any, run: Run) -> None:
    result = run(
        "summary", "-n", "-r", "a.pcap", "-f", "port 3260", "-c", "7", "--from", "1s", "--to", "2.5s", "b.pcap"
    )
    assert result.exit_code == 0
    # each alone, side by side and so in either order, to see what they are to each other
    assert sorted(call["sources"] for call in core.calls[:2]) == [["a.pcap"], ["b.pcap"]]
    for call in core.calls:
        assert (call["capture_filter"], call["packet_limit"]) == ("port 3260", 7)
        assert (call["time_from_ns"], call["time_to_ns"], call["time_is_relative"]) == (10**9, 2_500_000_000, True)


def test_absolute_times_reach_the_core(core: Any, run: Run) -> None:
    run("summary", "--from", "1970-01-01T00:00:05Z", "a.pcap")
    assert (core.calls[0]["time_from_ns"], core.calls[0]["time_is_relative"]) == (5 * 10**9, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["summary"], "name a capture"),
        (["summary", "-", "-"], "only once"),
        (["summary", "--from", "1s", "--to", "2026-01-01", "a.pcap"], "both be relative"),
        (["summary", "--from", "2s", "--to", "1s", "a.pcap"], "--from is after --to"),
        (["summary", "-c", "0", "a.pcap"], "0"),
        (["summary", "--from", "soon", "a.pcap"], "epoch seconds"),
        (["cycles", "--slower", "10", "a.pcap"], "is not a time"),
        (["cycles", "--json", "--csv", "a.pcap"], "exclude"),
        (["cycles", "--operation", "raed", "a.pcap"], "operation has no value raed; did you mean read?"),
        (["export", "a.pcap"], "-o"),
        (["export", "-o", "x", "--tables", "frames", "a.pcap"], "no table is called frames"),
        (["export", "-o", "x", "--tables", "", "a.pcap"], "no table"),
        (["check", "--against", "tshark", "a.pcap", "b.pcap"], "one capture file"),
        (["check", "--against", "tshark", "-"], "one capture file"),
        (["check", "--against", "tshark", "-f", "tcp", "a.pcap"], "without -f"),
        (["inspect", "a.pcap"], "one of --cycle and --frame"),
        (["inspect", "--cycle", "1", "--frame", "1", "a.pcap"], "one of --cycle and --frame"),
        (["inspect", "--cycle", "9", "a.pcap"], "no cycle 9; the capture has 3"),
        (["nonsense"], "nonsense"),
    ],
)
def test_invalid_options_are_usage_errors(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not result.stdout


def test_an_unreadable_capture_is_a_one_line_error_with_exit_code_2(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    broken = by_hand.core({}, by_hand.CoreError("a.pcap: not a capture:\nfirst bytes 00 00"))
    monkeypatch.setattr(trace_module, "_core", broken, raising=False)
    result = run("summary", "a.pcap")
    assert result.exit_code == 2
    assert result.stderr == "iscsitrace: a.pcap: not a capture: first bytes 00 00\n"
    assert result.stdout == ""


def test_interrupted(monkeypatch: pytest.MonkeyPatch, core: Any) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(core, "read", interrupt)
    result = CliRunner().invoke(main, ["summary", "a.pcap"])
    assert result.exit_code == 130
    assert result.stderr == "iscsitrace: interrupted\n"


def test_cycles_as_text(run: Run) -> None:
    output = run("cycles", "a.pcap").output
    (read,) = lines_with(output, "read", "64K")
    assert read.split() == "0 0.100000 1 1 read 64 64K 6.000 4.000 - 2.000 - 0.000 4.000 1 8 46 0 good 10 S".split()
    (write,) = lines_with(output, "write", "256K")
    assert (
        write.split()
        == "1 0.107000 1 1 write 128 256K 43.000 - 4.000 9.000 30.000 - - 1 32 182 1 good 22 rexmt".split()
    )
    assert lines_with(output, "test_unit_ready", "incomplete")


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (0x00, "good"),
        (0x02, "check condition"),
        (0x04, "condition met"),
        (0x08, "busy"),
        (0x18, "reservation conflict"),
        (0x28, "task set full"),
        (0x30, "ACA active"),
        (0x40, "task aborted"),
        (0x22, "command terminated"),
        (0x23, "0x23"),
        (None, "-"),
    ],
)
def test_a_status_has_the_name_of_sam_5(
    monkeypatch: pytest.MonkeyPatch, run: Run, status: int | None, word: str
) -> None:
    cycle = {**by_hand.TRACE["cycles"][0], "status": status}
    monkeypatch.setattr(trace_module, "_core", by_hand.core({**by_hand.TRACE, "cycles": [cycle]}), raising=False)
    (line,) = lines_with(run("cycles", "a.pcap").output, "read", "64K")
    assert [cell.strip() for cell in line.split("  ") if cell.strip()][-3:] == [word, "10", "S"]


def test_cycles_of_a_capture_without_tcp_show_no_date(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(trace_module, "_core", by_hand.core({}), raising=False)
    assert "1970" not in run("cycles", "a.pcap").output


def test_cycles_as_csv(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("cycles", "--csv", "--top", "1", "a.pcap").stdout)))
    assert [(row["cycle"], row["service_ns"], row["lun"]) for row in rows] == [("1", "30000000", "1")]


def test_commands_without_a_status_lead(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of three commands has no status: it is the slowest, for it was sent 1 s before its connection's end."""
    connections = [dict(row) for row in by_hand.TRACE["connections"]]
    connections[1]["time_last_ns"] = 1_160 * by_hand.MS
    made = by_hand.core({**by_hand.TRACE, "connections": connections})
    monkeypatch.setattr(trace_module, "_core", made, raising=False)
    (line,) = lines_with(run("cycles", "--top", "1", "a.pcap").stdout, "test_unit_ready")
    assert ">1000.000" in line.split()
    for slower, expected in (("999ms", [2]), ("1s", []), ("10ms", [1, 2])):
        document = json.loads(run("cycles", "--json", "--slower", slower, "a.pcap").stdout)
        assert [cycle["cycle"] for cycle in document["cycles"]] == expected
    document = json.loads(run("cycles", "--top", "9", "--json", "a.pcap").stdout)
    assert [(cycle["cycle"], cycle.get("in_flight_ns")) for cycle in document["cycles"]] == [
        *((2, 1_000 * by_hand.MS), (1, None), (0, None)),
    ]
    table = run("cycles", "--top", "9", "--csv", "a.pcap")
    assert [row["cycle"] for row in csv.DictReader(io.StringIO(table.stdout))] == ["2", "1", "0"]
    assert table.stderr == ""


def test_commands_of_unknown_latency_have_no_rank(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text reports that one has no rank, a document does not."""
    said = "commands of unknown latency (packets missing from the capture): 1; --incomplete lists them\n"
    rows = [*by_hand.TRACE["cycles"][:2], {**by_hand.TRACE["cycles"][2], "has_capture_gap": True}]
    for arguments in ([], ["--json"], ["--csv"]):
        monkeypatch.setattr(trace_module, "_core", by_hand.core({**by_hand.TRACE, "cycles": rows}), raising=False)
        found = run("cycles", "--top", "9", *arguments, "a.pcap")
        assert not lines_with(found.stdout, "test_unit_ready")
        assert (found.stderr if arguments else found.stdout).endswith(said)


@pytest.mark.parametrize("arguments", [["--top", "1", "--operation", "read"], ["--operation", "test_unit_ready"]])
def test_ranks_are_not_mentioned_if_all_have_one_or_none_is_requested(run: Run, arguments: list[str]) -> None:
    assert "unknown latency" not in run("cycles", *arguments, "a.pcap").output


def test_cycles_as_json_with_display_filters(run: Run) -> None:
    document = json.loads(run("cycles", "--json", "--filter", "--slower", "10ms", "a.pcap").output)
    assert document["schema"] == SCHEMA_VERSION
    (cycle,) = document["cycles"]
    assert (cycle["cycle"], cycle["grant_ns"], cycle["request_ns"]) == (1, 4_000_000, None)
    assert cycle["display_filter"].startswith("tcp.stream==1 && (iscsi.initiatortasktag==0x00000011 || ")


def test_cycles_as_json_may_be_empty(run: Run) -> None:
    assert json.loads(run("cycles", "--json", "--lun", "99", "a.pcap").output)["cycles"] == []


def test_cycles_as_text_with_display_filters(run: Run) -> None:
    output = run("cycles", "--filter", "--operation", "read", "a.pcap").output
    assert "cycle 0: tcp.stream==1 && iscsi.initiatortasktag==0x00000010 && frame.number>=10" in output


def test_export_reads_only_what_it_writes(tmp_path: Path, core: Any, run: Run) -> None:
    result = run("export", "-o", str(tmp_path), "--tables", "connections,counters", "a.pcap")
    assert result.exit_code == 0
    assert core.calls[0]["tables"] == []
    assert {path.name for path in tmp_path.iterdir()} == {"connections.csv", "counters.csv"}
    assert lines_with(result.output, "connections.csv: 2 rows")


def test_export_reads_what_the_idle_time_of_commands_is_made_of(tmp_path: Path, core: Any, run: Run) -> None:
    result = run("export", "-o", str(tmp_path), "--tables", "cycles,counters", "a.pcap")
    assert result.exit_code == 0
    assert "budget" in core.calls[0]["tables"]
    assert {path.name for path in tmp_path.iterdir()} == {"cycles.csv", "counters.csv"}
    assert lines_with(result.output, "cycles.csv: 3 rows")


def test_export_refuses_existing_files_before_it_reads(tmp_path: Path, core: Any, run: Run) -> None:
    (tmp_path / "pdus.csv").write_text("mine")
    result = run("export", "-o", str(tmp_path), "a.pcap")
    assert result.exit_code == 2
    assert "pdus.csv exists" in result.stderr
    assert not core.calls
    assert run("export", "-o", str(tmp_path), "--force", "a.pcap").exit_code == 0


# no user, not even root, can create a file or a folder in /proc
@pytest.mark.parametrize(
    ("directory", "message"),
    [
        ("/proc", "cannot write /proc/connections.csv: "),
        ("/proc/tables", "cannot write to /proc/tables: "),
        ("", "has no name"),
        ("n" * 300, "cannot write to n"),
    ],
)
def test_export_checks_that_it_can_write_before_it_reads(core: Any, run: Run, directory: str, message: str) -> None:
    result = run("export", "-o", directory, "a.pcap")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not core.calls


@pytest.mark.parametrize(
    ("severities", "fail_on", "exit_code"),
    [
        (["data_loss"], None, 1),
        (["error"], None, 1),
        (["warning", "info"], None, 0),
        (["warning"], "warning", 1),
        (["info"], "warning", 0),
        (["data_loss", "error"], "never", 0),
    ],
)
def test_check_exit_codes(
    monkeypatch: pytest.MonkeyPatch, run: Run, severities: list[str], fail_on: str | None, exit_code: int
) -> None:
    counters = [{"name": severity, "severity": severity, "count": 1} for severity in severities]
    monkeypatch.setattr(trace_module, "_core", by_hand.core({"counters": counters}), raising=False)
    assert run("check", *(["--fail-on", fail_on] if fail_on else []), "a.pcap").exit_code == exit_code


def test_check_json_has_the_findings(run: Run) -> None:
    result = run("check", "--json", "a.pcap")
    document = json.loads(result.output)
    assert (result.exit_code, document["findings"]) == (1, ["capture_gap"])
    assert document["coverage"][1]["captured_bytes_share"] == 0.75


@pytest.mark.parametrize("arguments", [["check", "--against", "tshark"], ["inspect", "--cycle", "1"]])
def test_a_missing_tshark_is_a_one_line_error_with_its_package(
    monkeypatch: pytest.MonkeyPatch, core: Any, run: Run, arguments: list[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run(*arguments, "a.pcap")
    assert result.exit_code == 2
    assert re.fullmatch(r"iscsitrace: tshark is not installed: .*apt install tshark.*\n", result.stderr)
    assert not core.calls


def test_a_missing_pyshark_is_a_one_line_error_with_its_package(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setitem(sys.modules, "pyshark", None)
    result = run("inspect", "--cycle", "1", "a.pcap")
    assert (result.exit_code, result.stderr) == (
        2,
        "iscsitrace: inspect needs pyshark: pip install 'iscsitrace[wireshark]'\n",
    )


def test_progress_appears_on_stderr_if_reading_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = options.reading_progress()
    bar.draw(1, 100)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(line, "_PATIENCE_S", 0)
    bar.draw(50, 100)
    bar.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err
    assert "50.0/100" in err
    # it is gone at the end
    assert err.endswith("\r")
    assert not err.rsplit("\r", 2)[1].strip()
    options.reading_progress().close()


def test_without_a_terminal_there_is_no_progress(core: Any, run: Run) -> None:
    run("summary", "a.pcap")
    assert core.calls[0]["progress"] is None


def test_every_command_has_help_with_an_example(run: Run) -> None:
    for name in COMMANDS:
        assert f"Example:  iscsitrace {name}" in run(name, "--help").output


def test_help_imports_click_and_no_command() -> None:
    # few imports make it quick; a time limit would depend on the machine and its load
    probe = (
        "import sys, atexit\n"
        "before = set(sys.modules)\n"
        "atexit.register(lambda: print(*sorted(set(sys.modules) - before)))\n"
        "sys.argv = ['iscsitrace', '--help']\n"
        "from iscsitrace.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    imported = result.stdout.splitlines()[-1].split()
    assert {name for name in imported if name.startswith("iscsitrace")} == {
        *("iscsitrace", "iscsitrace.cli", "iscsitrace.errors")
    }
    packages = {name.partition(".")[0] for name in imported}
    assert packages - sys.stdlib_module_names == {"iscsitrace", "click"}


def test_help_of_a_command_imports_neither_numpy_nor_the_core() -> None:
    probe = (
        "import sys\n"
        "from iscsitrace.cli import COMMANDS, main\n"
        "for name in COMMANDS:\n"
        "    main([name, '--help'], standalone_mode=False)\n"
        "print(name, *sorted({'numpy', 'iscsitrace._core'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == list(COMMANDS)[-1]


def test_what_few_runs_need_is_loaded_only_then() -> None:
    probe = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sorted(sys.modules)))\n"
        "sys.argv = ['iscsitrace', {words}, 'samples/sequential-read-4ms/capture.pcapng.gz']\n"
        "from iscsitrace.cli import main; main()"
    )

    def loaded(*words: str) -> set[str]:
        program = [sys.executable, "-c", probe.format(words=", ".join(map(repr, words)))]
        result = subprocess.run(program, capture_output=True, text=True, check=True)
        return set(result.stdout.splitlines()[-1].split())

    few = {"iscsitrace.relate.loads", "iscsitrace.taps.reading"}
    assert not few & loaded("summary")
    assert loaded("summary", "--by", "lun") & few == {"iscsitrace.relate.loads"}
    assert "iscsitrace.taps.reading" not in loaded("diagnose")


def program(*arguments: str, cycle_factor: int = 1) -> list[str]:
    """A command as a separate process."""
    text = (
        "from iscsitrace.tables import trace\n"
        "from tests.support import tables_by_hand as by_hand\n"
        f"tables = by_hand.TRACE | {{'cycles': by_hand.TRACE['cycles'] * {cycle_factor}}}\n"
        "trace._core = by_hand.core(tables); trace._core_missing = None\n"
        "from iscsitrace.cli import main\n"
        f"main({list(arguments)})"
    )
    return [sys.executable, "-c", text]


@pytest.mark.parametrize(
    "arguments", [["cycles", "a.pcap"], ["cycles", "--csv", "a.pcap"], ["check", "--json", "a.pcap"], ["--help"]]
)
@pytest.mark.parametrize(
    ("redirection", "reason"), [(">/dev/full", "No space left on device"), (">&-", "closed")], ids=["full", "closed"]
)
def test_unwritable_output_is_a_one_line_error(arguments: list[str], redirection: str, reason: str) -> None:
    command = ["bash", "-c", f'exec "$@" {redirection}', "bash", *program(*arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, f"iscsitrace: standard output: {reason}\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["cycles", "a.pcap"], 0), (["cycles", "--csv", "a.pcap"], 0), (["nothing"], 2), (["-h"], 0)],
)
def test_a_closed_standard_error_changes_nothing(arguments: list[str], code: int) -> None:
    """And no file that is opened gets its number: what a library prints there would go into it."""
    command = ["bash", "-c", 'exec "$@" 2>&-', "bash", *program(*arguments)]
    closed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    usual = subprocess.run(program(*arguments), capture_output=True, text=True, check=False)
    assert (closed.returncode, closed.stdout) == (code, usual.stdout)


def test_a_character_missing_in_the_encoding(monkeypatch: pytest.MonkeyPatch, core: Any) -> None:
    session = {
        **by_hand.TRACE["sessions"][0],
        "initiator_name": "iqn.\N{CJK UNIFIED IDEOGRAPH-65E5}\N{LATIN SMALL LETTER E WITH ACUTE}",
    }
    monkeypatch.setattr(trace_module, "_core", by_hand.core({**by_hand.TRACE, "sessions": [session]}), raising=False)
    result = CliRunner(charset="latin-1").invoke(main, ["summary", "a.pcap"])
    assert result.exit_code == 0
    assert "iqn.\\u65e5\N{LATIN SMALL LETTER E WITH ACUTE}" in result.output


def test_a_closed_output_pipe_is_no_error() -> None:
    command = program("cycles", "--csv", "a.pcap", cycle_factor=1_000)
    assert closed_after_a_line(command) == (0, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["lab", "--help"], ["lab", "run", "--help"]])
def test_a_closed_output_pipe_of_help_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(program(*arguments), stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize(("columns", "is_drawn"), [(60, False), (200, True)])
def test_a_number_is_never_wrapped(
    columns: int, is_drawn: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that is too wide for the terminal is not folded; only sentences are."""
    number, sentence = "123456789.012", "a sentence that is much longer than the column it stands in " * 4
    grid = table(("first", "second", "third", "meaning"), [(number, number, number, sentence)])
    widths = terminal._folded_widths(grid, grid.rows, columns)
    assert (widths is not None) is is_drawn
    if widths is not None:
        terminal._show_aligned(grid, grid.rows, widths)
        out = capsys.readouterr().out
        assert out.count(number) == 3
        assert max(map(len, out.splitlines())) <= columns
        assert " ".join(out.split()).count("longer than the column") >= 1


def test_a_folded_table_fits_and_loses_no_word() -> None:
    sentence = "one two three four five six seven eight nine ten eleven twelve"
    grid = table(("key", "meaning", "advice"), [("a", sentence, sentence), ("b", "short", "")])
    for columns in (60, 80, 120, 200):
        widths = terminal._folded_widths(grid, grid.rows, columns)
        assert widths is not None
        assert sum(widths) + 2 * terminal._COLUMN_GAP <= columns
        words = [word for width in widths[1:] for line in terminal._folded(sentence, width) for word in line.split()]
        assert words == 2 * sentence.split()
