"""Tables to Parquet after each capture of a ring: the rows of one pass, whole or not at all, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from pyarrow import parquet

import iscsitrace
from iscsitrace.errors import CaptureUnreadable, InputInvalid, OutputExists
from iscsitrace.show.export import BOUNDED, export, export_bounded
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.transport import ETHERNET


def ring(folder: Path, borders: int, count: int = 60) -> list[str]:
    """A session with reads and writes and two connections' digests, in that many parts."""
    conversation = Conversation()
    conversation.session(Session(header_digest=True)).login().read(count=count).write(count=count).nop().logout()
    conversation.session().login().read(count=count).logout()
    packets = conversation.run().packets
    edges = [len(packets) * part // borders for part in range(borders + 1)]
    folder.mkdir()
    return [
        str(write_pcapng(folder / f"{first:06}.pcapng", packets[first:end], ETHERNET)) for first, end in pairwise(edges)
    ]


@pytest.mark.parametrize("borders", [1, 7])
def test_the_rows_are_those_of_the_export_of_all(tmp_path: Path, borders: int) -> None:
    files = ring(tmp_path / "ring", borders)
    counts = export_bounded(files, tmp_path / "bounded", BOUNDED)
    whole = export(iscsitrace.read(*files, tables=["pdus"]), tmp_path / "whole", "parquet", BOUNDED)
    for path in whole:
        expected, found = parquet.read_table(path), parquet.read_table(tmp_path / "bounded" / path.name)
        assert found.schema.equals(expected.schema), path.name
        assert found.schema.metadata[b"iscsitrace.table"] == path.stem.encode()
        assert counts[tmp_path / "bounded" / path.name] == len(expected)
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist())), path.name
    assert len(whole) == len(BOUNDED)
    assert counts[tmp_path / "bounded" / "cycles.parquet"] == 180


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    files = ring(tmp_path / "ring", 3)

    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        export_bounded(files, tmp_path / "out", ["cycles"], watch=stop)
    assert not (tmp_path / "out").exists()


def test_what_is_refused(tmp_path: Path) -> None:
    files = ring(tmp_path / "ring", 1)
    with pytest.raises(InputInvalid, match="segments cannot leave memory before the end"):
        export_bounded(files, tmp_path / "out", ["cycles", "segments"])
    export_bounded(files, tmp_path / "out", ["cycles"])
    with pytest.raises(OutputExists):
        export_bounded(files, tmp_path / "out", ["cycles"])
    (tmp_path / "none.pcap").write_bytes(b"")
    with pytest.raises(CaptureUnreadable):
        export_bounded([str(tmp_path / "none.pcap")], tmp_path / "other", ["cycles"])
    # one beside others is counted
    export_bounded([str(tmp_path / "none.pcap"), *files], tmp_path / "other", ["counters"])
    names = parquet.read_table(tmp_path / "other" / "counters.parquet")["name"].to_pylist()
    assert any("source" in name or "empty" in name or "unreadable" in name for name in names), names


def test_the_command_keeps_within_its_memory(tmp_path: Path) -> None:
    files = ring(tmp_path / "ring", 4)
    command = [sys.executable, "-m", "iscsitrace", "export", "--format", "parquet", "--max-memory", "1G"]
    more = ["--tables", "cycles,pdus", "-o", str(tmp_path / "out"), *files]
    shown = subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines()[0] == f"{tmp_path / 'out' / 'cycles.parquet'}: 180 rows"
    limited = subprocess.run([*command, "-f", "tcp", *more], check=False, capture_output=True, text=True)
    assert limited.returncode == 2
    assert "reads whole captures" in limited.stderr
