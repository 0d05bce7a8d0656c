"""``-Y`` of `cycles` and `events`: the same rows as short forms, together with them, and refused before reading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main

SAMPLE = Path(__file__).parents[2] / "samples" / "loss-1-percent" / "capture.pcap.gz"


def rows(command: str, *options: str) -> list[int]:
    result = CliRunner().invoke(main, [command, "--json", *options, str(SAMPLE)])
    assert result.exit_code == 0, result.output
    return [row[command.removesuffix("s")] for row in json.loads(result.stdout)[command]]


@pytest.mark.parametrize(
    ("command", "short", "filter_text"),
    [
        ("cycles", ("--slower", "50ms"), "latency > 50ms"),
        ("cycles", ("--operation", "read", "--operation", "inquiry"), "operation in {read, inquiry}"),
        ("cycles", ("--block-size", "512K", "--lun", "0"), "bytes == 512K && lun == 0"),
        ("cycles", ("--session", "0", "--connection", "0"), "session == 0 && tcp.stream == 0"),
        ("cycles", ("--incomplete",), "!is_complete"),
        ("events", ("--severity", "warning"), "severity >= warning"),
        ("events", ("--kind", "login", "--kind", "logout"), "kind in {login, logout}"),
        ("events", ("--session", "0", "--lun", "0"), "session == 0 and lun == 0"),
    ],
)
def test_a_short_form_selects_the_rows_of_its_filter(command: str, short: tuple[str, ...], filter_text: str) -> None:
    assert rows(command, *short) == rows(command, "-Y", filter_text)


def test_short_forms_and_the_filter_must_all_hold() -> None:
    slow, reads = set(rows("cycles", "--slower", "50ms")), set(rows("cycles", "--operation", "read"))
    both = rows("cycles", "-Y", "operation == write || operation == read", "--slower", "50ms")
    assert set(both) == slow & reads
    assert both


def test_a_wrong_filter_is_refused_before_the_capture_is_read() -> None:
    for command in ("cycles", "events"):
        result = CliRunner().invoke(main, [command, "-Y", "sesion == 0", "missing.pcap"])
        assert (result.exit_code, result.stdout) == (2, "")
        line = f"iscsitrace: filter 'sesion == 0': {command} has no column sesion; did you mean session?\n"
        assert result.stderr == line
