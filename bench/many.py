"""Time and peak memory of commands that read very many sessions, and how both grow with their number.

The captures have up to 10,000 sessions of 50 commands, all open at once, 10,000 and 60,000 of one command, and 600,000
SYNs that nobody answers. A host has a hundred sessions; all hosts do the same, a little later each. Elapsed
time, which a busy machine prolongs, and CPU time. Prints, and asserts nothing. ``--figure`` draws the growth.
"""

from __future__ import annotations

import argparse
import random
import re
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path as FilePath

from bench.process import FOLDER, Cost, cost, machine
from tests.support.conversation import Conversation, Session
from tests.support.pdu import Task
from tests.support.transport import ETHERNET, SYN, Packet, Path

PER_HOST = 100
STEP_NS = 1_000_000
"""From one host to the next."""
OPEN_NS = 2_000_000_000
"""From the last status to the logout: longer than all steps together, so that all sessions are open at once."""
GROWTH = (100, 300, 1000, 3000, 10_000)
PASS = """
import sys
import iscsitrace
from iscsitrace import findings
iscsitrace.read(sys.argv[1], tables=findings.NEEDED if sys.argv[2] == "tables" else ())
"""


def _packets_of_a_host(commands: int) -> list[Packet]:
    """A hundred sessions at queue depths 1, 4 and 8, to targets of different service times."""
    conversation = Conversation(Path(one_way_delay_ns=250_000, delayed_ack_ns=1_000_000))
    chance = random.Random(1)
    for number in range(PER_HOST):
        settings = Session(tag_count=2**32, is_immediate_data=number % 2 == 0, service_ns=100_000 * (1 + number % 5))
        tasks = [
            Task("read" if chance.random() < 0.7 else "write", 8 * chance.randrange(1 << 20), 1)
            for _ in range(commands)
        ]
        session = conversation.session(settings).login()
        session.tasks(tasks, queue_depth=(1, 4, 8)[number % 3]).pause(OPEN_NS).logout()
    return conversation.run().packets


def _named(match: re.Match[bytes], host: int) -> bytes:
    """The host in the place of an initiator's number, as long as before."""
    return b"host%d" % host + b"x" * (len(match[0]) - len(b"host%d" % host))


def _frame(packet: Packet, host: int) -> bytes:
    """The packet from, or to, another host."""
    place = 26 if packet.to_target else 30
    frame = packet.data[:place] + bytes([10, 1, host >> 8, host & 255]) + packet.data[place + 4 :]
    return re.sub(rb"initiator:\d+", partial(_named, host=host), frame) if b"InitiatorName" in frame else frame


def sessions(file: FilePath, count: int, commands: int) -> FilePath:
    """A capture of as many sessions, all open at once, made if it does not exist."""
    if file.exists():
        return file
    import numpy as np

    packets = _packets_of_a_host(commands)
    hosts = count // PER_HOST
    times_ns = np.add.outer([packet.time_ns for packet in packets], np.arange(hosts) * STEP_NS)
    order = np.argsort(times_ns, axis=None, kind="stable")
    with file.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, ETHERNET))
        for place, time_ns in zip(order.tolist(), times_ns.ravel()[order].tolist(), strict=True):
            packet = packets[place // hosts]
            frame = _frame(packet, place % hosts)
            out.write(struct.pack("<IIII", *divmod(time_ns // 1000, 1_000_000), len(frame), packet.original_length))
            out.write(frame)
    return file


def syns(file: FilePath, count: int) -> FilePath:
    """A capture of as many SYNs from different ports, 10 µs apart, made if it does not exist."""
    if file.exists():
        return file
    with file.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, ETHERNET))
        for number in range(count):
            host, port = divmod(number, 50_000)
            ip = struct.pack("!BBHHHBBH", 0x45, 0, 40, number & 0xFFFF, 0x4000, 64, 6, 0)
            ends = struct.pack("!IIHH", 0x0A000001 + host, 0xC0000201, 10_000 + port, 3260)
            tcp = struct.pack("!IIBBHHH", number, 0, 0x50, SYN, 65_535, 0, 0)
            out.write(struct.pack("<IIII", *divmod(number * 10, 1_000_000), 54, 54))
            out.write(bytes(12) + b"\x08\x00" + ip + ends + tcp)
    return file


def _measured(file: FilePath, names: tuple[str, ...]) -> dict[str, Cost]:
    cli = [sys.executable, "-m", "iscsitrace"]
    commands = {
        "pass": [sys.executable, "-c", PASS, str(file), "none"],
        "pass with tables": [sys.executable, "-c", PASS, str(file), "tables"],
        "diagnose": [*cli, "diagnose", "--quiet", str(file)],
        "report": [*cli, "report", "--quiet", "--force", "-o", str(file.with_suffix(".html")), str(file)],
    }
    found = {}
    for name in names:
        found[name] = cost(commands[name])
        took = found[name]
        seconds = f"{took.elapsed_s:8.2f} s, CPU time{took.cpu_s:6.2f} s"
        print(f"{file.stem:22}{name:18}{seconds}{took.peak_bytes / 1e6:8.0f} MB", flush=True)
    return found


def _figure(file: FilePath, growth: dict[int, dict[str, Cost]]) -> None:
    """CPU time and memory over the number of sessions, both axes logarithmic: a straight line of slope 1 is linear."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    for place, unit in enumerate(("CPU time, s", "peak memory, MB")):
        axes = figure.add_subplot(1, 2, 1 + place)
        for name in next(iter(growth.values())):
            values = [(each[name].cpu_s, each[name].peak_bytes / 1e6)[place] for each in growth.values()]
            axes.loglog(list(growth), values, marker="o", label=name)
        axes.set(xlabel="sessions of 50 commands, all open at once", ylabel=unit)
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend()
    figure.savefig(file, dpi=120)


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=FilePath, default=FOLDER)
    parser.add_argument("--figure", type=FilePath, help="draw the growth into this file")
    parser.add_argument("--make", action="store_true", help="only make the captures")
    parser.add_argument("--no-report", action="store_true", help="leave the report out")
    arguments = parser.parse_args()
    folder: FilePath = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    growth_files = {count: folder / f"sessions-{count}x50.pcap" for count in GROWTH}
    short, most, unanswered = (
        folder / f"{name}.pcap" for name in ("sessions-10000x1", "sessions-60000x1", "syns-600000")
    )
    if arguments.make:
        for count, file in growth_files.items():
            sessions(file, count, 50)
        sessions(short, 10_000, 1)
        sessions(most, 60_000, 1)
        syns(unanswered, 600_000)
        return
    # in a separate process: the peak memory of a child is at least that of its parent at the start
    subprocess.run([sys.executable, "-m", "bench.many", str(folder), "--make"], check=True)
    print(machine())
    all_names = ("pass", "pass with tables", "diagnose", *(() if arguments.no_report else ("report",)))
    growth = {count: _measured(file, all_names) for count, file in growth_files.items()}
    _measured(short, all_names)
    _measured(most, ("pass with tables", "diagnose"))
    _measured(unanswered, ("pass with tables", "diagnose"))
    if arguments.figure:
        _figure(arguments.figure, growth)


if __name__ == "__main__":
    main()
