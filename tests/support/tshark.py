"""tshark's command statistics and PDU counts for a file.

A missing tshark is an error of the test run, never a reason to skip: the comparison is the test.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_FRAMES = Path(__file__).with_name("tshark_frames.lua")
REASSEMBLE = ("-o", "tcp.reassemble_out_of_order:TRUE")
ISCSI_PORT = ("-d", "tcp.port==3260,iscsi")
"""Built conversations are from port 40000, which Wireshark 4.4 takes for SAP where it does not see the login."""


@dataclass(frozen=True)
class ResponseTimes:
    """A line of `-z scsi,srt,0`."""

    task_count: int
    sum_ns: int


@cache
def version() -> tuple[int, ...]:
    """Like (4, 0, 17)."""
    command = ["tshark", "--version"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    numbers = re.findall(r"\d+\.\d+\.\d+", said)[0]
    return tuple(int(number) for number in numbers.split("."))


def run(file: Path, *options: str) -> str:
    """The standard output of `tshark -n -r file options`."""
    command = ["tshark", "-n", "-r", str(file), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def response_times(file: Path, *options: str) -> dict[str, ResponseTimes]:
    """Tasks by command name (`Read(10)`), as `tshark -q -z scsi,srt,0` counts and times them (in microseconds)."""
    found = {}
    for line in run(file, "-q", "-z", "scsi,srt,0", *options).splitlines():
        words = line.split()
        if len(words) >= 7 and words[0].isdigit():
            name = " ".join(words[1:-5])
            found[name] = ResponseTimes(int(words[-5]), round(float(words[-1]) * 1e9))
    return found


def pdu_counts(file: Path, *options: str) -> Counter[int]:
    """iSCSI PDUs by opcode."""
    output = run(file, "-Y", "iscsi.opcode", "-T", "fields", "-e", "iscsi.opcode", "-E", "occurrence=a", *options)
    return Counter(int(word, 0) for line in output.splitlines() for word in line.replace(",", " ").split())


PACKET_FIELDS = (
    *("frame.number", "frame.time_epoch", "tcp.stream", "ip.src", "ipv6.src", "tcp.srcport", "tcp.dstport"),
    *("iscsi.opcode", "iscsi.login.status", "iscsi.login.T", "iscsi.login.nsg", "iscsi.scsiresponse.status"),
    *("tcp.flags", "tcp.seq_raw", "tcp.len", "ip.flags.df", "tcp.analysis.retransmission"),
    *("scsi.inquiry.vendor_id", "scsi.inquiry.product_id", "scsi.inquiry.product_rev"),
    "scsi.inquiry.evpd.product_serial_number",
    # of an NAA 6 designator: tshark 4.0 misreads the bits between the two
    *("scsi.naa.ieee_company_id", "scsi.naa.vendor_specific.extension"),
)
"""What tests of recorded captures ask of each packet."""


class Packets:
    """The TCP packets of captures. tshark reads each once: the folder is shared by the workers of a test run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._latest: tuple[Path, list[dict[str, str]]] | None = None

    def __call__(self, file: Path) -> list[dict[str, str]]:
        """Each packet by `PACKET_FIELDS`; several values of a field have `|` between them."""
        if self._latest is None or self._latest[0] != file:
            kept = self._folder / f"{file.parent.name}.{file.name}"
            if not kept.exists():
                options = [word for name in PACKET_FIELDS for word in ("-e", name)]
                wanted = ("-Y", "tcp && !icmp && !icmpv6", "-T", "fields", "-E", "aggregator=|")
                own = kept.with_name(f"{kept.name}.{os.getpid()}")
                own.write_text(run(file, *wanted, *options, *REASSEMBLE))
                own.replace(kept)
            lines = kept.read_text().split("\n")[:-1]
            self._latest = file, [dict(zip(PACKET_FIELDS, line.split("\t"), strict=True)) for line in lines]
        return self._latest[1]


class _Dissectors:
    """sharkd: the dissectors of tshark in a process that stays. To load them takes a fifth of a second."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        command = ["sharkd", "-"]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self._file_count = 0

    def load(self, file: Path) -> None:
        """Reads a file, in place of the one before."""
        self._file_count += 1
        self._ask("load", file=str(file.absolute()))

    def found(self, display_filter: str) -> list[int]:
        """The frames of the file that match."""
        # what a filter found is kept, even for the next file; the column takes less than the default ones
        own = f"({display_filter}) && frame.number != {-self._file_count % (1 << 32)}"
        return [row["num"] for row in self._ask("frames", filter=own, column0="frame.number:1")]

    def _ask(self, method: str, **parameters: str) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())["result"]

    def end(self) -> None:
        """Ends the process."""
        self._process.communicate()


@cache
def _dissectors() -> _Dissectors:
    started = _Dissectors()
    atexit.register(started.end)
    return started


def frame_numbers(file: Path, display_filter: str, *options: str) -> list[int]:
    """The frames that match a display filter."""
    return frames_of(file, [display_filter], *options)[display_filter]


def frames_of(file: Path, display_filters: Iterable[str], *options: str) -> dict[str, list[int]]:
    """The same of several filters. Options are for tshark itself."""
    if not options:
        _dissectors().load(file)
        return {each: _dissectors().found(each) for each in display_filters}
    found: dict[str, list[int]] = {each: [] for each in display_filters}
    arguments = [word for each in found for word in ("-X", f"lua_script1:{each}")]
    output = run(file, "-q", "-X", f"lua_script:{_FRAMES}", *arguments, *options)
    for number, frame in (line.split() for line in output.splitlines()):
        list(found.values())[int(number) - 1].append(int(frame))
    return found
