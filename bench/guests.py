"""Runs scenarios of guests, and prints for each what its captures show by tshark, and what `diagnose` says.

``python -m bench.guests [NAME ...] -o DIR``: all scenarios without names; ``--read`` reads the captures of an earlier
run instead. Needs root. Prints, and asserts nothing; `tests/lab/guests` does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.scenarios import Scenario, scenarios
from iscsitrace.errors import IscsitraceError
from iscsitrace.lab.run_files import INITIATOR, TRUTH, capture_name
from iscsitrace.wording import scsi_names

TABLE = "scenarios.md"
_FIELDS = (
    *(
        "frame.time_epoch",
        "iscsi.opcode",
        "iscsi.scsiresponse.status",
        "iscsi.login.status",
        "tcp.flags.reset",
        "tcp.flags.syn",
    ),
    *(
        "scsi.sns.key",
        "scsi.sns.ascascq",
        "tcp.analysis.retransmission",
        "tcp.analysis.lost_segment",
        "tcp.analysis.zero_window",
    ),
)
# RFC 7143 11.2.1.2, in the order of a table
_PDUS = {
    0x01: "command",
    0x21: "response",
    0x25: "Data-In",
    0x05: "Data-Out",
    0x31: "R2T",
    0x00: "NOP-Out",
    0x20: "NOP-In",
    0x02: "task management",
    0x22: "task management response",
    0x03: "login",
    0x06: "logout",
    0x32: "async message",
    0x3F: "reject",
}
_FROM_TARGET = 0x20


@dataclass(frozen=True)
class Wire:
    """What a capture shows, by tshark alone."""

    pdus: Counter[int]
    statuses: Counter[int]
    senses: Counter[str]
    """Sense key, and additional sense code with its qualifier: ``5/2000``."""
    login_statuses: Counter[int]
    counts: dict[str, int]
    """SYNs, RSTs, retransmissions, lost segments and zero windows: packets."""
    silence_s: float
    """The longest time between two packets with PDUs of targets, since the first I/O."""

    def text(self) -> str:
        """In a cell of the table."""
        parts = [f"{count} {_PDUS[opcode]}" for opcode, count in _ordered(self.pdus, _PDUS)]
        parts += [f"{count} status {_status(code)}" for code, count in self.statuses.items() if code]
        parts += [f"{count} sense {sense}" for sense, count in self.senses.items()]
        parts += [f"{count} login status 0x{code:04x}" for code, count in self.login_statuses.items() if code]
        parts += [f"{count} {name}" for name, count in self.counts.items() if count]
        return f"{', '.join(parts)}; longest silence {self.silence_s:.1f} s"


def _status(code: int) -> str:
    return scsi_names.name(scsi_names.statuses(), code)


def _ordered(counts: Counter[int], names: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The counts of PDUs that the table names, in its order; of a response only where there may be none."""
    return ((opcode, counts[opcode]) for opcode in names if opcode in counts)


def wire(capture: Path, *, since_s: float = 0.0) -> Wire:
    """Reads a capture by tshark; its longest silence is one that begins later than a time since 1970."""
    wanted = [word for name in _FIELDS for word in ("-e", name)]
    command = ["tshark", "-n", "-r", str(capture), "-T", "fields", "-E", "occurrence=a", *wanted]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    pdus, statuses, logins = Counter[int](), Counter[int](), Counter[int]()
    senses, marks = Counter[str](), Counter[str]()
    answered = []
    for line in output.splitlines():
        at, opcodes, status, login, reset, syn, key, code, again, lost, zero = line.split("\t")
        own = [int(word, 0) for word in opcodes.split(",") if word]
        pdus.update(own)
        statuses.update(int(word, 0) for word in status.split(",") if word)
        logins.update(int(word, 0) for word in login.split(",") if word)
        if key and code:
            senses[f"{int(key, 0):x}/{int(code, 0):04x}"] += 1
        for name, word in (
            ("RST", reset),
            ("SYN", syn),
            ("retransmission", again),
            ("gap", lost),
            ("zero window", zero),
        ):
            marks[name] += word in {"1", "True"}
        if any(opcode >= _FROM_TARGET for opcode in own) and float(at) >= since_s:
            answered.append(float(at))
    pauses = [later - earlier for earlier, later in itertools.pairwise(answered)]
    return Wire(pdus, statuses, senses, logins, dict(marks), max(pauses, default=0.0))


def first_io_s(folder: Path) -> float:
    """When the first I/O of a run completed, since 1970 on the initiator's clock; 0 without I/O."""
    completed_ms = json.loads((folder / TRUTH).read_text())["commands"]["completed_ms"]
    return completed_ms[0] / 1000 if completed_ms else 0.0


def diagnosis(capture: Path) -> str:
    """The first line of `diagnose` that is about a session with I/O, or its first line."""
    command = [sys.executable, "-m", "iscsitrace", "diagnose", str(capture)]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    lines = [line for line in finished.stdout.splitlines()[1:] if line.strip()]
    told = [line for line in lines if "no SCSI commands" not in line]
    return (told or lines or [finished.stderr.strip()])[0]


def row(scenario: Scenario, folder: Path) -> str:
    """The row of a scenario in the table."""
    capture = folder / capture_name(INITIATOR)
    what = ", ".join((scenario.target, *scenario.faults))
    cells = (
        scenario.name,
        f"{scenario.meaning} ({what})",
        wire(capture, since_s=first_io_s(folder)).text(),
        diagnosis(capture),
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def main() -> int:
    """Runs the scenarios that are named; returns the exit code."""
    known = scenarios()
    parser = argparse.ArgumentParser(prog="python -m bench.guests", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--read", action="store_true", help="read the captures of an earlier run")
    options = parser.parse_args()
    if unknown := set(options.names) - set(known):
        parser.error(f"no scenario is named {', '.join(sorted(unknown))}")
    lines = ["| scenario | what was done | what the wire shows by tshark | diagnose |", "|---|---|---|---|"]
    failed = []
    for name in options.names or known:
        folder = options.output / name
        started = time.monotonic()
        try:
            if not options.read:
                folder.mkdir(parents=True, exist_ok=True)
                known[name].run(folder, lambda _: None)
            lines.append(row(known[name], folder))
        except (IscsitraceError, subprocess.CalledProcessError) as error:
            failed.append(name)
            lines.append(f"| {name} | {known[name].meaning} | not run: {error} | |")
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        print(lines[-1], flush=True)
        (options.output / TABLE).write_text("\n".join(lines) + "\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
