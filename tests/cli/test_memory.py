"""``--max-memory``: enough, too little for the pass, too little for what follows it, and too little to begin with."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.cli.options import CaptureInput
from iscsitrace.cli.process import MemoryLimit, resident_bytes
from iscsitrace.errors import MemoryShort

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc are those of Linux")

_SYN = np.dtype(
    [
        *[("s", "<u4"), ("us", "<u4"), ("lengths", "<u4", 2), ("addresses", "S12"), ("ethertype", ">u2")],
        *[("version", "u1"), ("service", "u1"), ("ip_bytes", ">u2"), ("identification", ">u2")],
        *[("flags_ttl_protocol", ">u4"), ("ip_checksum", ">u2"), ("source", ">u4"), ("destination", ">u4")],
        *[("source_port", ">u2"), ("port", ">u2"), ("sequence_number", ">u4"), ("ack_number", ">u4")],
        *[("syn", ">u2"), ("window", ">u2"), ("checksum", ">u2"), ("urgent", ">u2")],
    ]
)
"""A record of a capture."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "iscsitrace", *arguments], check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def syns(tmp_path_factory: pytest.TempPathFactory) -> str:
    """500,000 SYNs, half of them to a portal: the rows of both halves, up to their limits, take more than 128 MiB."""
    file = tmp_path_factory.mktemp("syns") / "syns.pcap"
    number = np.arange(500_000)
    packets = np.zeros(len(number), _SYN)
    columns = {
        "s": number // 10_000,
        "us": number % 10_000 * 100,
        "lengths": 54,
        "ethertype": 0x0800,
        "version": 0x45,
        "ip_bytes": 40,
        "flags_ttl_protocol": 0x4000_4006,
        "source": 0x0A000001 + number // 50_000,
        "destination": 0xC0000201,
        "source_port": 10_000 + number % 50_000,
        "port": np.where(number % 2, 80, 3260),
        "sequence_number": number,
        "syn": 0x5002,
        "window": 65_535,
    }
    for name, values in columns.items():
        packets[name] = values
    file.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1) + packets.tobytes())
    return str(file)


def test_too_little_for_the_pass(syns: str) -> None:
    result = run("summary", "--max-memory", "128M", syns)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("iscsitrace: more than --max-memory 128 MiB is needed after ")
    assert "fleet run" in line


def test_the_memory_of_the_process_itself_stays_within_ten_percent(syns: str) -> None:
    # by 140 MiB all rows are there
    command = [sys.executable, "-m", "iscsitrace", "summary", "--max-memory", "130M", syns]
    own_bytes = [0]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            # absent once the process has ended
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            own_bytes += [int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")]
            time.sleep(0.002)
    assert process.returncode == 2
    assert 130 << 20 < max(own_bytes) <= 1.1 * (130 << 20)


def test_enough(syns: str) -> None:
    result = run("summary", "--max-memory", "2G", syns)
    # handshakes alone: it is read to its end
    assert (result.returncode, len(result.stderr.splitlines())) == (4, 1)
    assert result.stderr.startswith("iscsitrace: no iSCSI in ")


def test_too_little_to_begin_with() -> None:
    result = run("summary", "--max-memory", "10M", "any.pcap")
    assert result.returncode == 2
    assert "10M is less than 128 MiB" in result.stderr


def test_what_follows_the_pass_cannot_use_more() -> None:
    code = """
import numpy
from iscsitrace.cli.process import MemoryLimit, resident_bytes
MemoryLimit(resident_bytes() + (100 << 20)).hold()
numpy.ones(20 << 20, dtype=numpy.uint8)
try:
    numpy.ones(400 << 20, dtype=numpy.uint8)
except MemoryError:
    print("refused")
"""
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown == "refused\n"


def test_a_library_without_room_is_memory_that_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise ImportError("_umath_linalg.so: failed to map segment from shared object")

    monkeypatch.setattr(CaptureInput, "read", refused)
    result = CliRunner().invoke(main, ["summary", "a.pcap"])
    assert result.exit_code == 2
    assert result.stderr == "iscsitrace: not enough memory, or less than --max-memory allows\n"


def test_the_share_of_the_input_is_in_the_line() -> None:
    limit = MemoryLimit(1 << 20)
    with pytest.raises(MemoryShort, match=r"1 MiB is needed after 25% of the input: "):
        limit.check(25, 100)
    with pytest.raises(MemoryShort, match=r"1 MiB is needed: "):
        limit.check(25, None)
    MemoryLimit(resident_bytes() + (1 << 30)).check(25, 100)
