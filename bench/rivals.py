"""Models of TCP under losses against the simulated world: 40 settings, the error of each model.

Every model gets the settings of the world: RTT, loss rate, window, line, I/O size, commands in flight. Prints, and
asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from dataclasses import replace

from bench.model import MS, PLAIN, outcome
from bench.process import machine
from iscsitrace.fit.rivalry import RIVALS
from iscsitrace.model.prediction import grid
from iscsitrace.model.setting import Setting

_KIB = 1 << 10
_FAR = (4 * MS, 16 * MS)
_CONTROLS = ("reno", "cubic")


def settings() -> Iterator[tuple[str, Setting]]:
    """16 settings with deep queues, 8 with a small window besides, 16 with one command at a time."""
    deep = replace(PLAIN, block_bytes=256 * _KIB, queue_depth=8)
    for setting in grid(deep, delay_ns=_FAR, loss=(1e-3, 1e-4), congestion_control=_CONTROLS, connections=(1, 4)):
        yield "8 in flight", setting
        if setting.connections == 1:
            yield "8 in flight, window 64K", replace(setting, window_bytes=64 * _KIB)
    for setting in grid(
        PLAIN, delay_ns=_FAR, loss=(3e-3, 1e-3), congestion_control=_CONTROLS, block_bytes=(128 * _KIB, 1024 * _KIB)
    ):
        yield "one at a time", setting


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(prog="bench.rivals", description=__doc__.splitlines()[0])
    parser.add_argument("--kind", default="", help="run only kinds whose names contain this text")
    arguments = parser.parse_args()
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}; measured in MB/s, models' error in %")
    heads = "".join(f"{rival.name:>15}" for rival in RIVALS)
    print(f"{'kind':26}{'I/O':>6}{'ms':>4}{'loss':>8} {'control':6}{'conn.':>6}{'MB/s':>9}{heads}")
    errors: dict[str, list[list[float]]] = {}
    for kind, setting in settings():
        if arguments.kind not in kind:
            continue
        measured = outcome(kind, setting).measured_bytes_per_s
        found = [100 * (rival.bytes_per_s(setting) / measured - 1) for rival in RIVALS]
        errors.setdefault(kind, []).append(found)
        cells = "".join(f"{error:+15.1f}" for error in found)
        print(
            f"{kind:26}{setting.block_bytes // _KIB:5}K{setting.delay_ns / MS:4.0f}{setting.loss:8.4f} "
            f"{setting.congestion_control:6}{setting.connections:6}{measured / 1e6:9.3f}{cells}",
            flush=True,
        )
    for kind, rows in [*errors.items(), ("all", [row for each in errors.values() for row in each])]:
        columns = [[abs(error) for error in column] for column in zip(*rows, strict=True)]
        cells = "".join(f"{statistics.median(column):8.1f}{max(column):7.1f}" for column in columns)
        print(f"{kind:26}{len(rows):5} settings, median and worst{'':7}{cells}")


if __name__ == "__main__":
    main()
