"""A run of ``iscsitrace simulate`` for each rule of RFC 7143 and side that our programs break, and its legal neighbour.

``seen`` is a display filter of tshark: the broken field on the wire, at frames that the near miss does not have. It is
empty where a rule is broken by what is not sent, by the order of PDUs, or in a PDU that tshark does not take for iSCSI.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from iscsitrace.cli import main

_PATH = "--one-way-delay 1ms --rate 200Mbit"
_READ = f"read --block-size 32K --bytes 512K {_PATH}"
_WRITE = f"write --block-size 32K --bytes 512K {_PATH}"
_ASKED = f"{_WRITE} --key InitialR2T=Yes --key ImmediateData=No"
_SHORT = "MaxRecvDataSegmentLength=8192"
_SHORT_READ = f"{_READ} --key {_SHORT}"
_SHORT_ASKED = f"{_ASKED} --set target-key={_SHORT}"
_BURSTS = "--key MaxBurstLength=8192 --key FirstBurstLength=8192"
_EQUAL = "--key MaxBurstLength=65536 --key FirstBurstLength=65536"
_QUIET = "--think-time 6s --bytes 128K"
_PAUSES = "--think-time 1500ms"
_LONG_READ = _READ.replace("512K", "2M")
_SLOW = "--service-delay 20ms"
_NEW_CONNECTION = "--fault rst,at=70s"
"""A login that ends a wait for ever."""
_DIGESTS = "--key HeaderDigest=CRC32C --key DataDigest=CRC32C"
_NEVER = "nth=100000"
_KEYS_OF_ANY_ORDER = ("DataPDUInOrder=No", "DataSequenceInOrder=No")
_ANY_ORDER = " ".join(f"--key {key} --set target-key={key}" for key in _KEYS_OF_ANY_ORDER)


@dataclass(frozen=True)
class Conversation:
    """A run that breaks a rule, and one that comes near."""

    rule: str
    side: str
    options: str
    """Of the run without the fault."""
    fault: str = ""
    """Details of the fault, like ``nth=12``."""
    near: str | None = None
    """Options of the near miss; None for the same as of the run, without the fault."""
    seen: str = ""

    @property
    def breaking(self) -> str:
        """Options of the run that breaks the rule."""
        details = f",{self.fault}" if self.fault else ""
        return f"{self.options} --fault {self.rule},on={self.side}{details}"

    @property
    def legal(self) -> str:
        """Options of the near miss."""
        return self.options if self.near is None else self.near

    def __str__(self) -> str:
        return f"{self.rule}-{self.side}"


def _i(rule: str, options: str, fault: str = "", near: str | None = None, seen: str = "") -> Conversation:
    return Conversation(rule, "initiator", options, fault, near, seen)


def _t(rule: str, options: str, fault: str = "", near: str | None = None, seen: str = "") -> Conversation:
    return Conversation(rule, "target", options, fault, near, seen)


def _exchanged(options: str, details: str) -> str:
    """Out of order, where no order is agreed."""
    return f"{options} {_ANY_ORDER} --fault {details}"


CONVERSATIONS = (
    # command and status numbers
    _i("S1", f"{_WRITE} --queue-depth 4 {_NEW_CONNECTION}", "nth=16", f"{_WRITE} {_QUIET}"),
    _i("S2", f"{_READ} --queue-depth 4", "nth=16", f"{_READ} --fault busy,nth=16"),
    _i("S3", f"{_READ} --set command-window=2 --queue-depth 4"),
    _i("S4", f"{_READ} {_QUIET} {_NEW_CONNECTION}", "", f"{_READ} {_QUIET}"),
    _t("S5", _READ, "nth=16"),
    _t("S6", _READ, "nth=16"),
    _t("S7", _READ, "nth=16", f"{_READ} --set command-window=1", "iscsi.maxcmdsn + 1 < iscsi.expcmdsn"),
    _t("S8", f"{_LONG_READ} --set command-window=4 {_NEW_CONNECTION}", "nth=20", f"{_READ} --set command-window=1"),
    _t("S9", _WRITE, "nth=16", f"{_WRITE} {_QUIET}"),
    _t("S10", _WRITE, "nth=16", f"{_WRITE} {_QUIET}"),
    _t("S11", _ASKED, "nth=5"),
    _i("S12", _WRITE, "nth=20"),
    # no queue is as deep as the statuses that it does not acknowledge
    _i("S13", f"read --block-size 512 --bytes 2400K --queue-depth 64 {_PATH}", "nth=16", f"{_READ} --queue-depth 16"),
    _t("S14", _SHORT_READ, "nth=20"),
    _i("S15", _SHORT_ASKED, "nth=10"),
    _t("S16", f"{_ASKED} {_BURSTS}", "nth=8", seen="iscsi.r2tsn == 4"),
    _t("S17", f"{_READ} --set status=apart", "nth=12", seen="iscsi.opcode == 0x21 && iscsi.expdatasn == 2"),
    # tasks
    _i("T1", f"{_READ} --queue-depth 4 {_SLOW}", "nth=8"),
    _t("T2", _WRITE, "nth=16", f"{_READ} --queue-depth 8 --random", "iscsi.initiatortasktag >= 0x40000000"),
    _t("T3", _WRITE, "nth=16"),
    _t("T4", _ASKED, "nth=3", seen="iscsi.opcode == 0x31 && iscsi.targettransfertag == 0xffffffff"),
    _i("T5", _ASKED, "nth=3", seen="iscsi.opcode == 0x05 && iscsi.targettransfertag >= 0x40000000"),
    _i("T6", _ASKED, "nth=3"),
    _t("T7", _ASKED, "nth=3"),
    _i("T8", f"{_ASKED} --connections 2", "nth=3"),
    _t("T8", f"{_WRITE} --connections 2", "nth=12"),
    # data
    _i(
        "D1",
        _ASKED,
        "nth=3",
        f"{_WRITE} --key InitialR2T=No --key ImmediateData=No",
        "iscsi.opcode == 0x01 && iscsi.datasegmentlength > 0",
    ),
    _i(
        "D2", f"{_WRITE} --key InitialR2T=Yes --set target-key={_SHORT}", "nth=3", f"{_WRITE} --set target-key={_SHORT}"
    ),
    _i(
        "D3",
        f"{_WRITE} --key FirstBurstLength=8192",
        "nth=3",
        seen="iscsi.opcode == 0x01 && iscsi.datasegmentlength > 8192",
    ),
    _i("D4", _SHORT_ASKED, "nth=3"),
    _t("D5", f"{_ASKED} {_BURSTS}", seen="iscsi.desireddatalength > 8192"),
    _t("D6", _ASKED, "nth=3", seen="iscsi.desireddatalength > 32768"),
    _t(
        "D7",
        f"{_WRITE} --key InitialR2T=Yes --key FirstBurstLength=8192",
        "nth=3",
        seen="iscsi.desireddatalength == 32768",
    ),
    _t(
        "D8",
        f"{_ASKED} {_BURSTS}",
        "",
        f"{_ASKED} {_BURSTS} --key MaxOutstandingR2T=2 --set target-key=MaxOutstandingR2T=2",
    ),
    _i("D9", _SHORT_ASKED, "nth=3"),
    _i("D10", _SHORT_ASKED, "nth=3", _exchanged(_SHORT_ASKED, "D10,on=initiator,nth=3")),
    _t("D10", _SHORT_READ, "nth=12", _exchanged(_SHORT_READ, "D10,nth=12")),
    _t("D11", f"{_ASKED} {_BURSTS}", "", f"{_ASKED} {_BURSTS} {_ANY_ORDER} --set r2t-order=reverse"),
    _i(
        "D11",
        f"{_ASKED} {_BURSTS} --key MaxOutstandingR2T=4 --set target-key=MaxOutstandingR2T=4",
        "nth=3",
        _exchanged(
            f"{_ASKED} {_BURSTS} --key MaxOutstandingR2T=4 --set target-key=MaxOutstandingR2T=4",
            "D11,on=initiator,nth=3",
        ),
    ),
    _t("D12", f"{_SHORT_READ} {_ANY_ORDER}", "nth=12"),
    _t("D13", _READ, "nth=3", seen="iscsi.datasegmentlength + iscsi.bufferOffset > 32768"),
    _t("D14", f"{_SHORT_READ} --key MaxBurstLength=16384 --key FirstBurstLength=8192", "nth=3"),
    _t("D15", _READ, "nth=12", seen="iscsi.scsidata.S == 1 && iscsi.scsidata.F == 0"),
    _i("D16", _SHORT_ASKED, "nth=3", seen="iscsi.opcode == 0x05 && iscsi.datasegmentlength > 8192"),
    _t("D16", _SHORT_READ, "nth=12", seen="iscsi.opcode == 0x25 && iscsi.datasegmentlength > 8192"),
    _t("D17", _READ, "nth=3"),
    _t("D18", _ASKED, "nth=3", _WRITE),
    _t("D19", _READ, "nth=16", seen="iscsi.scsidata.O == 1 && iscsi.scsidata.readresidualcount == 512"),
    _t("D20", _READ, "nth=16", seen="iscsi.scsidata.U == 1 && iscsi.scsidata.readresidualcount == 0"),
    _i("D21", f"{_WRITE} --key DataDigest=CRC32C --set errors-allowed=99", "every=1"),
    _t(
        "D21",
        f"{_READ} {_DIGESTS} --sessions 4",
        "every=1",
        f"{_READ} {_DIGESTS} --fault bad-data-digest,nth=16",
    ),
    # management
    # other PDUs show that the ping arrived
    _i("M1", f"{_READ} {_PAUSES}", "", f"{_READ} {_PAUSES} --fault M1,{_NEVER}"),
    _t("M2", f"{_READ} {_QUIET}"),
    _t("M3", f"{_READ} --set errors-allowed=9 --fault delayed-status,nth=16,by=30.01s"),
    _t("M5", _READ),
    _i("M6", f"{_READ} --think-time 1s", "", f"{_READ} --think-time 1s --fault M6,{_NEVER}"),
    _t("M7", _READ, "nth=16", seen="iscsi.opcode == 0x3f"),
    _i("M8", _READ, "nth=16", seen="iscsi.opcode == 0x10"),
    _i("M9", _READ, seen="iscsi.opcode == 0x01 && iscsi.initiatortasktag == 0x40000000"),
    _t("M10", f"{_READ} --think-time 2s --set errors-allowed=9 --fault delayed-status,nth=12,by=60s"),
    # login and text
    _i("L1", _READ),
    _t("L1", _READ, seen="iscsi.opcode == 0x23 && iscsi.login.csg == 0 && iscsi.login.nsg == 3"),
    _t("L2", _READ, seen='iscsi.opcode == 0x23 && iscsi.keyvalue == "HeaderDigest=CRC32C"'),
    _i("L3", _READ, seen='iscsi.keyvalue == "MaxBurstLength=511"'),
    _t("L3", _READ, seen='iscsi.keyvalue == "MaxBurstLength=16777215"'),
    _i("L4", _READ),
    _t("L4", _READ),
    # the old session goes on during the login
    _i("L5", f"{_READ.replace(' --bytes 512K', '')} --seconds 3 --queue-depth 4", "", f"{_READ} --sessions 2"),
    _i("L6", f"{_READ} --fault unreachable-portal", seen="iscsi.opcode == 0x04 && iscsi.text.C == 1"),
    _t(
        "L6",
        f"{_READ} --fault unreachable-portal",
        seen="iscsi.opcode == 0x24 && iscsi.targettransfertag != 0xffffffff",
    ),
    # one burst holds a command of 32 KiB; the near misses have equal values
    _i("L7", f"{_READ} {_EQUAL}", seen='iscsi.keyvalue == "FirstBurstLength=65537"'),
    _t("L7", f"{_READ} {_EQUAL}", seen='iscsi.keyvalue == "MaxBurstLength=32768"'),
)
"""Every rule of each side that can break it."""


def made(options: str, folder: Path) -> Path:
    """The folder of a run of ``iscsitrace simulate``; a login that fails leaves its captures, too."""
    result = CliRunner().invoke(main, ["simulate", *options.split(), "-o", str(folder)])
    assert (folder / "truth.json").exists(), result.output
    return folder
