"""`export --annotate`: comments where tshark finds them, and every packet as it was, from every kind of capture."""

from __future__ import annotations

import gzip
import io
import random
import re
import shutil
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from iscsitrace.show import packet_comments
from tests.support.capture_file import read_records
from tests.support.recordings import captures_folder

SAMPLES = Path(__file__).parents[2] / "samples"
TSHARK, CAPINFOS = (shutil.which(name) or name for name in ("tshark", "capinfos"))
PACKETS = [bytes([number]) * (60 + number) for number in range(9)]
TIMES = [1_700_000_000_000_000_000 + number * 1_234_567_000 for number in range(9)]


def annotate(capture: Path, path: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["export", "--annotate", str(path), *options, str(capture)])


def fields(path: Path, *names: str) -> list[list[str]]:
    """These fields of every frame, as tshark reads them; comments are separated by a bar."""
    words = [TSHARK, "-r", str(path), "-T", "fields", "-E", "aggregator=|", *(f"-e{name}" for name in names)]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [line.split("\t") for line in out.splitlines()]


def comment_of_capture(path: Path) -> str:
    out = subprocess.run([CAPINFOS, "-k", str(path)], check=True, capture_output=True, text=True).stdout
    return " ".join(out.split())


@pytest.mark.parametrize("name", ["loss-1-percent", "medium-error", "black-out-and-relogin"])
def test_the_evidence_has_comments_and_the_capture_a_summary(name: str, tmp_path: Path) -> None:
    (capture,) = (SAMPLES / name).glob("capture.*")
    out = tmp_path / "out.pcapng"
    assert annotate(capture, out).exit_code == 0
    diagnosis = examine(iscsitrace.read(capture, tables=NEEDED).table)
    opinions = (*diagnosis.stories, *diagnosis.sessions.values(), *diagnosis.separate.values())
    # what broke; or what is wrong, and what leads
    broke = [each for told in opinions for each in told.findings if each.rank == "failure" and each.leads]
    slow = [each for told in opinions for each in told.findings if each.is_problem or each.name == told.headline.name]
    findings = broke or slow
    wanted = {frame: {each.name for each in findings if frame in each.frames} for f in findings for frame in f.frames}
    commented = {int(frame): comment for frame, comment in fields(out, "frame.number", "frame.comment") if comment}
    assert commented.keys() == wanted.keys() != set()
    for frame, names in wanted.items():
        said = set(re.findall(r"iscsitrace: (\w+) \(", commented[frame]))
        assert said == names, "and nothing of the findings that diagnose shows only with -v"
    assert diagnosis.headline is not None
    assert " ".join(diagnosis.headline.text.split()) in comment_of_capture(out)


def test_each_frame_that_breaks_a_rule_has_a_comment(tmp_path: Path) -> None:
    capture, out = captures_folder() / "protocol" / "r06_r2t_with_maxcmdsn_0.pcapng", tmp_path / "out.pcapng"
    assert annotate(capture, out).exit_code == 0
    said = {}
    for frame, comment in fields(out, "frame.number", "frame.comment"):
        said[int(frame)] = set(re.findall(r"iscsitrace: rule (\w+) \(", comment))
    # of 24 R2Ts the core lists 16
    wrong = [int(frame) for frame, expected in fields(capture, "frame.number", "iscsi.expcmdsn") if expected == "0"]
    assert [frame for frame in wrong if said[frame] == {"S6"}] == wrong[:16]
    assert said[wrong[-1]] == {"S8"}
    assert not any(found for frame, found in said.items() if frame not in wrong)


@pytest.mark.parametrize("name", ["loss-1-percent", "medium-error", "black-out-and-relogin", "task-abort-storage-hang"])
def test_a_comment_says_what_its_frame_is(name: str, tmp_path: Path) -> None:
    """As tshark has it: a SCSI Command, a status, a retransmission."""
    (capture,) = (SAMPLES / name).glob("capture.*")
    out = tmp_path / "out.pcapng"
    assert annotate(capture, out).exit_code == 0
    shown = ("iscsi.opcode", "tcp.analysis.retransmission", "tcp.analysis.fast_retransmission", "tcp.flags.reset")
    told = 0
    for comment, opcodes, *retransmissions, reset in fields(out, "frame.comment", *shown):
        for count, total, part in re.findall(r", frame (\d+) of (\d+) \((.*?)\): ", comment):
            assert 1 <= int(count) <= int(total)
            told += 1
            codes = {int(code, 0) for code in opcodes.split("|") if code}
            assert "the command of" not in part or 0x01 in codes
            assert "the status of" not in part or codes & {0x21, 0x25}
            assert "task management" not in part or 0x02 in codes
            assert "a retransmission" not in part or any(retransmissions)
            assert "RST" not in part or reset in ("1", "True")
    assert told


@pytest.mark.parametrize("name", sorted(folder.name for folder in SAMPLES.iterdir() if folder.is_dir()))
def test_every_packet_of_a_sample_stays_as_it_was(name: str, tmp_path: Path) -> None:
    (capture,) = (SAMPLES / name).glob("capture.*")
    out = tmp_path / "out.pcapng"
    assert annotate(capture, out).exit_code == 0
    assert read_records(out) == read_records(capture)
    before, after = (iscsitrace.read(each) for each in (capture, out))
    assert list(before.cycles.rows()) == list(after.cycles.rows())
    for one, other in zip(before.inputs[0]["interfaces"], after.inputs[0]["interfaces"], strict=True):
        assert {**one, "name": None} == {**other, "name": None}


def pcap(order: str, magic: int, unit_ns: int, extra: bytes = b"") -> bytes:
    out = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65_535, 1)
    for data, time_ns in zip(PACKETS, TIMES, strict=True):
        seconds, rest_ns = divmod(time_ns, 10**9)
        out += struct.pack(f"{order}IIII", seconds, rest_ns // unit_ns, len(data), len(data) + 7) + extra + data
    return out


def pcapng(order: str, kind: int = 6, options: bytes = b"") -> bytes:
    """A section with its length, two interfaces, packets in turn, a statistics block and a custom one between them."""

    def made(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        length = struct.pack(f"{order}I", len(body) + 12)
        return struct.pack(f"{order}I", kind) + length + body + length

    blocks = b"".join(made(1, struct.pack(f"{order}HHIHHB3xHH", 1, 0, 0, 9, 1, digits, 0, 0)) for digits in (9, 6))
    for number, (data, time_ns) in enumerate(zip(PACKETS, TIMES, strict=True)):
        time = time_ns // (1, 1000)[number % 2]
        place = struct.pack(f"{order}I" if kind == 6 else f"{order}HH", number % 2, *(() if kind == 6 else (0,)))
        head = place + struct.pack(f"{order}IIII", time >> 32, time & 0xFFFFFFFF, len(data), len(data) + 7)
        blocks += made(kind, head + data + bytes(-len(data) % 4) + options)
        if number == 4:
            blocks += made(0xBAD, struct.pack(f"{order}I", 32_473) + b"private")
    section = struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, len(blocks))
    return made(0x0A0D0D0A, section) + blocks


OLD = struct.pack("<HH", 1, 3) + b"old\0" + struct.pack("<HHI", 2, 4, 0) + bytes(4)
FORMATS = {
    "pcap": pcap("<", 0xA1B2C3D4, 1000), "pcap, big-endian": pcap(">", 0xA1B2C3D4, 1000),
    "pcap, nanoseconds": pcap("<", 0xA1B23C4D, 1), "pcap, Kuznetzov": pcap("<", 0xA1B2CD34, 1000, bytes(8)),
    "pcapng": pcapng("<"), "pcapng, big-endian": pcapng(">"), "pcapng, old blocks": pcapng("<", 2),
    "pcapng, with comments": pcapng("<", 6, OLD), "pcapng, two sections": pcapng("<") + pcapng(">"),
}  # fmt: skip


def copied(content: bytes, comments: dict[int, list[str]], tmp_path: Path, summary: str = "whole") -> tuple[int, Path]:
    (tmp_path / "in").write_bytes(content)
    out = io.BytesIO()
    count = packet_comments.copy(tmp_path / "in", out, comments, summary, "test")
    (tmp_path / "out").write_bytes(out.getvalue())
    return count, tmp_path / "out"


@pytest.mark.parametrize("name", FORMATS)
def test_comments_are_where_tshark_finds_them(name: str, tmp_path: Path) -> None:
    content = FORMATS[name]
    total = 18 if "two sections" in name else 9
    comments = {2: ["second, with ä"], 6: ["sixth", "again"], 7: ["x" * 70_000]}
    # Wireshark numbers a custom block, which is no packet
    count, out = copied(content, comments, tmp_path)
    assert count == total
    names: tuple[str, ...] = ("frame.time_epoch", "frame.len", "frame.cap_len", "frame.protocols")
    # a pcap has no interfaces
    names += ("frame.interface_id",) if "pcapng" in name else ()
    before, after = (fields(each, *names, "frame.number", "frame.comment") for each in (tmp_path / "in", out))
    assert [row[:-2] for row in after] == [row[:-2] for row in before]
    shown = {int(number): comment for *_, number, comment in after if comment}
    old = {int(number): comment for *_, number, comment in before if comment}
    assert shown.keys() == old.keys() | {frame for frame in comments if frame in shown} >= {2, 7}
    assert shown[2].split("|")[0] == "second, with ä"
    assert shown[2].split("|")[1:] == ([old[2]] if 2 in old else [])
    assert len(shown[7].split("|")[0]) == 65_535
    if "pcapng" not in name:
        assert shown[6] == "sixth|again"
    assert "whole" in comment_of_capture(out)
    # without comments a pcapng stays as it is, but for the length of its section
    if "pcapng" in name:
        _, same = copied(content, {}, tmp_path, summary="")
        assert len(same.read_bytes()) == len(content)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4"])
def test_compressed_captures(compression: str, tmp_path: Path) -> None:
    content = FORMATS["pcapng"]
    if compression == "gzip":
        compressed = gzip.compress(content)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        sink = pyarrow.BufferOutputStream()
        with pyarrow.CompressedOutputStream(sink, compression) as stream:
            stream.write(content)
        compressed = sink.getvalue().to_pybytes()
    count, out = copied(compressed, {2: ["b"]}, tmp_path)
    assert (count, [comment for (comment,) in fields(out, "frame.comment")][1]) == (9, "b")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(8))
def test_damage_ends_the_copy_and_nothing_else(name: str, seed: int, tmp_path: Path) -> None:
    """A cut or changed file: a prefix of its packets is copied, or one line says why not."""
    chance = random.Random(seed)  # noqa: S311
    content = bytearray(FORMATS[name])
    if seed % 2:
        del content[chance.randrange(4, len(content)) :]
    else:
        content[chance.randrange(4, len(content))] ^= 1 << chance.randrange(8)
    with suppress(iscsitrace.errors.InputInvalid):
        count, out = copied(bytes(content), {2: ["b"]}, tmp_path)
        assert 0 <= count <= 18
        assert out.stat().st_size <= len(content) * 2


def test_packets_are_byte_for_byte_those_of_the_capture(tmp_path: Path) -> None:
    for name in ("pcap", "pcap, nanoseconds"):
        count, out = copied(FORMATS[name], {1: ["a"], 9: ["z"]}, tmp_path)
        assert count == 9
        before, after = (read_records(each)[0] for each in (tmp_path / "in", out))
        assert [(one.data, one.time_ns, one.original_length) for one in before] == [
            (one.data, one.time_ns, one.original_length) for one in after
        ]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("-o", "x"), "--annotate names its file"),
        (("--format", "csv"), "--annotate names its file"),
        (("--sidecar",), "--annotate names its file"),
        ((str(SAMPLES / "medium-error" / "capture.pcapng.gz"),), "file: run it for each tap in turn"),
    ],
)
def test_what_goes_with_it(options: tuple[str, ...], line: str, tmp_path: Path) -> None:
    capture = SAMPLES / "loss-1-percent" / "capture.pcap.gz"
    result = annotate(capture, tmp_path / "out.pcapng", *options)
    assert (result.exit_code, line in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    copy, out = tmp_path / "a.pcap.gz", tmp_path / "out.pcapng"
    shutil.copy(SAMPLES / "loss-1-percent" / "capture.pcap.gz", copy)
    out.write_text("kept")
    refused: list[Any] = [annotate(copy, out), annotate(copy, copy, "--force")]
    assert [each.exit_code for each in refused] == [2, 2]
    assert out.read_text() == "kept"
    assert annotate(copy, out, "--force").exit_code == 0
