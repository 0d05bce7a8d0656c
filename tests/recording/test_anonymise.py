"""Captures without names: equal tables but for names, and nothing of the original left."""

from __future__ import annotations

import ipaddress
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import iscsitrace
from iscsitrace import Trace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.errors import InputInvalid
from iscsitrace.recording.capture import KEY_BYTES, anonymise, key_of
from iscsitrace.tables.schema import DERIVED_TABLES, TABLES
from iscsitrace.tables.table import Table
from tests.support.capture_file import block, read_records, write_pcapng
from tests.support.conversation import Conversation
from tests.support.recordings import recorded_captures
from tests.support.transport import Path as Link

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*/*.pcap*"))
EVERY = (*TABLES, *DERIVED_TABLES)
KEY = bytes(range(KEY_BYTES))

NAMES = {
    ("connections", "initiator_address"),
    ("connections", "target_address"),
    ("events", "text"),
    ("icmp_errors", "reporter_address"),
    ("logical_units", "designator"),
    ("logical_units", "product"),
    ("logical_units", "revision"),
    ("logical_units", "unit_serial_number"),
    ("logical_units", "vendor"),
    ("parameters", "effective_initiator"),
    ("parameters", "effective_target"),
    ("parameters", "initiator_value"),
    ("parameters", "target_value"),
    ("parameters", "key"),
    ("sessions", "initiator_alias"),
    ("sessions", "initiator_name"),
    ("sessions", "isid"),
    ("sessions", "target_alias"),
    ("sessions", "target_name"),
    ("texts", "request_text"),
    ("texts", "response_text"),
    ("write_starts", "crc32c"),
}
"""Columns that may change, each value always to the same one."""
ABOUT_THE_FILE = {"block_unknown", "record_cut_short", "record_invalid", "compression_cut_short"}
"""Counters of damage that another file does not have."""


def _anonymised(captures: Iterable[Path], folder: Path, **options: Any) -> Path:
    path = folder / "anonymised.pcapng"
    path.touch()
    anonymise([str(capture) for capture in captures], path, KEY, **options)
    return path


def _about_packets(table: Table) -> Table:
    """The rows but for counters of damage to the file itself."""
    if table.name != "counters":
        return table
    return table.select(~np.isin(table["name"].astype(str), list(ABOUT_THE_FILE)))


def _is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two columns have the same values and nulls."""
    is_null = np.ma.getmaskarray(one)
    values, new_values = (np.ma.getdata(each)[~is_null] for each in (one, other))
    has_same_nulls = np.array_equal(is_null, np.ma.getmaskarray(other))
    return has_same_nulls and np.array_equal(values, new_values, equal_nan=values.dtype.kind == "f")


def _assert_equal_but_for_names(before: Trace, after: Trace) -> None:
    meanings: dict[Any, Any] = {}
    for name in EVERY:
        one, other = (_about_packets(trace.table(name)) for trace in (before, after))
        assert len(one) == len(other), name
        for column in one:
            if (name, column) not in NAMES:
                assert one[column].dtype == other[column].dtype, f"{name}.{column}"
                assert _is_same(one[column], other[column]), f"{name}.{column}"
                continue
            kind = (name, column) if column in {"text", "crc32c"} else ""
            sizes = one["bytes"].tolist() if name == "write_starts" else [None] * len(one)
            values, new_values = ([row[column] for row in each.rows((column,))] for each in (one, other))
            for value, new, of in zip(values, new_values, sizes, strict=True):
                meaning = meanings.setdefault((kind, value, of), new)
                assert meaning == new, f"{name}.{column}: {value!r} became {new!r}, and {meaning!r} before"
    # different names stay different
    by_kind: dict[Any, set[Any]] = defaultdict(set)
    for (kind, value, _), new in meanings.items():
        assert new not in by_kind[kind] or value in {None, ""}, f"{value!r} became {new!r}, as another did"
        by_kind[kind].add(new)


def _assert_same_diagnosis(before: Trace, after: Trace) -> None:
    def told(trace: Trace) -> list[Any]:
        diagnosis = examine(trace.table)
        return [
            [(finding.name, finding.cost_ns, finding.frames) for finding in each.findings]
            for each in (*diagnosis.sessions.values(), *diagnosis.connections.values(), *diagnosis.stories)
        ]

    assert told(before) == told(after)


_BLOCK_BYTES = 1 << 20


def _runs(data: bytes) -> Iterator[Any]:
    """Every run of 8 bytes, as a number, in order; runs of zeros are left out. All at once take a gigabyte."""
    array = np.frombuffer(data, dtype=np.uint8)
    yield np.empty(0, dtype=np.uint64)
    for start in range(0, len(array) - 7, _BLOCK_BYTES):
        block = array[start : start + _BLOCK_BYTES + 7]
        runs = np.lib.stride_tricks.sliding_window_view(block, 8).copy().view(np.uint64)[:, 0]
        yield runs[runs != 0]


def _left(data: bytes, written: bytes) -> Any:
    """The runs of some data that were written; most are known by a part of their hash not to be, without sorting."""
    known = _distinct(np.concatenate([_distinct(runs) for runs in _runs(written)]))
    is_known = np.zeros(1 << 22, dtype=bool)
    is_known[_mark(known)] = True
    return _common(_distinct(np.concatenate([runs[is_known[_mark(runs)]] for runs in _runs(data)])), known)


def _mark(runs: Any) -> Any:
    return runs * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(42)


def _distinct(runs: Any) -> Any:
    """Each once and in order: numpy.unique takes ten times as long for as many equal numbers."""
    runs = np.sort(runs)
    return runs[np.diff(runs, prepend=np.uint64(0)) != 0]


def _data_of(trace: Trace, capture: Path) -> bytes:
    """The data of reads, writes and pings, as far as it was captured, each PDU apart."""
    records, _ = read_records(capture)
    streams: dict[tuple[int, bool], bytearray] = defaultdict(bytearray)
    for row in trace.segments.rows():
        record = records[row["frame"] - 1]
        cut = record.original_length - len(record.data)
        captured = max(row["payload_bytes"] - cut, 0)
        offset = row["stream_offset_bytes"]
        if captured and offset >= 0:
            stream = streams[row["connection"], row["to_target"]]
            stream.extend(bytes(max(offset + captured - len(stream), 0)))
            stream[offset : offset + captured] = record.data[len(record.data) - captured :]
    operations = [row["operation"] for row in trace.cycles.rows()]
    parts = []
    for row in trace.pdus.rows():
        is_data = row["cycle"] is not None and operations[row["cycle"]] in {"read", "write"}
        if row["opcode"] in {0x00, 0x20} or (is_data and row["opcode"] in {0x01, 0x05, 0x25}):
            length = row["data_segment_length"] or 0
            start = row["stream_offset_bytes"] + 48
            # a header digest before it belongs to no data
            parts.append(streams[row["connection"], row["to_target"]][start + 4 : start + length])
    return b"".join(part.ljust(len(part) + 8, b"\0") for part in parts)


def _various(runs: Any) -> Any:
    """The runs with at least four different bytes: others come about by chance."""
    parts = np.sort(runs[:, None].view(np.uint8).reshape(len(runs), 8), axis=1)
    return runs[(np.diff(parts.astype(np.int16), axis=1) != 0).sum(axis=1) >= 3]


def _common(runs: Any, others: Any) -> Any:
    """Those of the runs that are among the others."""
    places = np.minimum(np.searchsorted(others, runs), len(others) - 1)
    return runs[others[places] == runs]


def _originals(trace: Trace) -> set[str]:
    """Names and addresses of a capture, those too short to be found by chance left out."""
    found: set[str] = set()
    for table, columns in (
        ("sessions", ("initiator_name", "target_name", "initiator_alias", "target_alias")),
        ("connections", ("initiator_address", "target_address")),
        ("logical_units", ("unit_serial_number", "designator", "vendor", "product")),
    ):
        for row in trace.table(table).rows():
            found |= {str(row[column]) for column in columns if row[column]}
    for row in trace.table("texts").rows():
        pairs = (row["response_text"] or "").split()
        found |= {pair.partition("=")[2] for pair in pairs if pair.startswith("Target")}
    return {name for name in found if len(name) >= 4}


def _assert_nothing_is_left(before: Trace, capture: Path, written: bytes) -> None:
    for name in _originals(before):
        kinds = [name.encode()]
        bare = name.partition(".")[2] if name.startswith(("naa.", "eui.", "t10.")) else ""
        if bare:
            kinds.append(bare.encode())
        if len(bare) % 2 == 0 and bare and all(digit in "0123456789abcdef" for digit in bare):
            kinds.append(bytes.fromhex(bare))
        for kind in kinds:
            assert kind not in written, name
    ends = {(row["initiator_address"], row["target_address"]) for row in before.connections.rows()}
    for pair in ends:
        one, other = (ipaddress.ip_address(address).packed for address in pair)
        if pair[0] != pair[1]:
            assert one + other not in written
            assert other + one not in written
    assert not len(_various(_left(_data_of(before, capture), written)))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.parent.name)
def test_the_tables_of_a_sample_are_equal_but_for_names(sample: Path, tmp_path: Path) -> None:
    path = _anonymised([sample], tmp_path)
    before, after = (iscsitrace.read(str(each), tables=EVERY) for each in (sample, path))
    _assert_equal_but_for_names(before, after)
    _assert_same_diagnosis(before, after)
    _assert_nothing_is_left(before, sample, path.read_bytes())


RECORDED = recorded_captures()[::2]
"""Of most runs that were captured at both ends: one end."""


@pytest.mark.parametrize("capture", RECORDED, ids=lambda capture: capture.name)
def test_the_tables_of_a_recorded_capture_are_equal_but_for_names(capture: Path, tmp_path: Path) -> None:
    path = _anonymised([capture], tmp_path)
    before, after = (iscsitrace.read(str(each), tables=EVERY) for each in (capture, path))
    _assert_equal_but_for_names(before, after)
    _assert_nothing_is_left(before, capture, path.read_bytes())


def test_a_key_file_is_made_once_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "key"
    key = key_of(file)
    assert len(key) == KEY_BYTES
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key_of(file) == key
    file.chmod(0o640)
    with pytest.raises(InputInvalid, match="other users"):
        key_of(file)
    file.chmod(0o600)
    file.write_text("ab\n")
    with pytest.raises(InputInvalid, match="no key"):
        key_of(file)


@pytest.mark.parametrize(("word", "kept"), [("cubic", "cubic"), ("acme-secret-project", None)])
def test_only_common_names_of_congestion_control_stay(word: str, kept: str | None, tmp_path: Path) -> None:
    """A sample has it as a word, which any module of a kernel can choose."""
    conversation = Conversation(Link(initiator_address="192.0.2.1", target_address="192.0.2.2"))
    conversation.session().login().read(count=4).logout()
    capture = conversation.run()
    plain = write_pcapng(tmp_path / "plain.pcapng", capture.packets, capture.path.link_type)
    row = next(iter(iscsitrace.read(plain).connections.rows()))
    ends = f"192.0.2.2:{row['target_port']} 192.0.2.1:{row['initiator_port']}"
    entry = (
        f"__REALTIME_TIMESTAMP={row['time_first_ns'] // 1000 + 10}\nSYSLOG_IDENTIFIER=iscsitrace-tcp-info\n"
        f"MESSAGE=ESTAB 0 0 {ends} {word} rtt:1/1 mss:1448 cwnd:10\n"
    )
    source = tmp_path / "source.pcapng"
    source.write_bytes(plain.read_bytes() + block(9, entry.encode()))
    assert iscsitrace.read(source, tables=["tcp_info"]).tcp_info["congestion_control"].tolist() == [word]
    written = _anonymised([source], tmp_path)
    assert iscsitrace.read(written, tables=["tcp_info"]).tcp_info["congestion_control"].tolist() == [kept]
    assert b"acme" not in written.read_bytes()
