"""Times a fleet run over 10 GB in 200 captures of four taps against one pass over each tap, and prints the ratios.

Two taps have random 4 KiB I/O, the worst for tables: 750 rows for each MB. Two have sequential reads of 256 KiB and
more. One pass is ``read`` of each tap in one file, with the same tables, which stay in memory; a fleet run also writes
the dataset. So does a pass with ``export``: Parquet files of the tables that a fleet run has by default. The bare pass
has the tables that are always there, without ``pdus``. With ``--findings`` both have the tables of a diagnosis too, and
make findings, events and the time breakdown of them. Workers run already, or start with the run. GB are those of plain
captures. Peak memory is the resident memory of the largest worker, with what it maps of captures.

Wall time is that of the machine as it is; CPU time is that of all workers, beside it that of the busiest of them, which
bounds the wall time of a machine with nothing else to do. The page cache is warm, each line the best of three. Traffic
is made once: 10 GB, 5 GB of whole taps, and compressed captures; with `--tap-bytes` less, in another folder. A bench,
not a test: it always exits with code 0.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

from bench.generate import RECORD_BYTES, random_io, sequential_reads, write
from bench.process import FOLDER, machine, used
from iscsitrace.findings import NEEDED
from iscsitrace.fleet.captures import Tap
from iscsitrace.fleet.local_pool import LocalPool
from iscsitrace.fleet.run import TABLES, run
from iscsitrace.tables.schema import DEFAULT_TABLES
from tests.support.conversation import Capture

KINDS: dict[str, Callable[[], Capture]] = {"random": random_io, "sequential": sequential_reads}
TAPS = {"a": "random", "b": "sequential", "c": "random", "d": "sequential"}
TAP_BYTES = 2_500_000_000
PIECES = 50
FILE_HEADER_BYTES = 24
REPEATS = 3

# the same tables as files, as without a fleet: a capture at a time
EXPORT = """
import json, sys, tempfile, time
import pyarrow.parquet
import iscsitrace
from iscsitrace.show.export import export
from iscsitrace.tables.schema import DEFAULT_TABLES
started, used = time.perf_counter(), time.process_time()
for file in sys.argv[1:]:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        export(iscsitrace.read(file, tables=TABLES), folder, "parquet", DEFAULT_TABLES)
print(json.dumps([time.perf_counter() - started, time.process_time() - used]))
"""

READ = """
import json, sys, time
import numpy as np
import iscsitrace
from iscsitrace.fleet import periods
from iscsitrace.tables.passes import Period
from iscsitrace.tables.schema import DATASET_TABLES
started, used = time.perf_counter(), time.process_time()
for file in sys.argv[1:]:
    trace = iscsitrace.read(file, tables=TABLES)
    if "budget" in TABLES:
        [last_ns] = [each["time_last_ns"] for each in trace.inputs]
        numbers = np.arange(len(trace.cycles), dtype=np.uint32)
        periods.tables_of(Period(np.iinfo(np.int64).min, last_ns, trace, numbers), DATASET_TABLES)
print(json.dumps([time.perf_counter() - started, time.process_time() - used]))
"""

# a pass over compressed pieces: decompression is what counts, and one file of several has several headers
READ_PIECES = """
import json, sys, time
from pathlib import Path
from iscsitrace.tables.passes import RingPass
started, used = time.perf_counter(), time.process_time()
for folder in sys.argv[1:]:
    ring = RingPass()
    for path in sorted(Path(folder).iterdir()):
        ring.read(path)
    ring.finish()
print(json.dumps([time.perf_counter() - started, time.process_time() - used]))
"""


@dataclass(frozen=True, order=True)
class Measured:
    """Wall time, CPU time of all workers and of the busiest, and the peak memory of the largest."""

    wall_s: float
    cpu_s: float
    busiest_s: float
    peak_bytes: int


Measure = Callable[[Path, Sequence[str], int, str], Measured]


def make(folder: Path, tap_bytes: int, *, has_gzip: bool) -> None:
    """The whole taps, their pieces, and these compressed; what is there is kept."""
    (folder / "whole").mkdir(parents=True, exist_ok=True)
    for kind, build in KINDS.items():
        whole, pieces = folder / "whole" / f"{kind}.pcap", folder / "kinds" / kind
        if not whole.exists():
            write(whole, build(), tap_bytes)
        if not pieces.exists():
            cut(whole, pieces)
        packed = folder / "kinds" / f"{kind}-gzip"
        if has_gzip and not packed.exists():
            packed.mkdir()
            with ProcessPoolExecutor() as pool:
                list(pool.map(compress, sorted(pieces.iterdir()), repeat(packed)))
    for tap, kind in TAPS.items():
        for end in ("", "-gzip") if has_gzip else ("",):
            if not (folder / f"taps{end}" / tap).exists():
                shutil.copytree(folder / "kinds" / f"{kind}{end}", folder / f"taps{end}" / tap)


def cut(whole: Path, folder: Path) -> None:
    """A capture as pieces of about the same size, each with whole packets."""
    folder.mkdir(parents=True)
    content = whole.read_bytes()
    at = begin = FILE_HEADER_BYTES
    piece_bytes, number = len(content) // PIECES + 1, 1
    while at < len(content):
        at += RECORD_BYTES + struct.unpack_from("<I", content, at + 8)[0]
        if at - begin >= piece_bytes or at == len(content):
            path = folder / f"ring_{number:05}_20231114000000.pcap"
            path.write_bytes(content[:FILE_HEADER_BYTES] + content[begin:at])
            begin, number = at, number + 1


def compress(path: Path, folder: Path) -> None:
    """One piece, as fast as gzip can."""
    (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))


def one_pass(code: str, paths: Sequence[Path], tables: Sequence[str] = ("pdus",)) -> Measured:
    """One pass over each of these taps."""
    found = []
    for _ in range(REPEATS):
        command = [sys.executable, "-c", f"TABLES = {tuple(tables)!r}\n{code}", *map(str, paths)]
        wall_s, cpu_s = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        found.append(Measured(wall_s, cpu_s, cpu_s, 0))
    return min(found)


def _used(pool: LocalPool, worker_count: int) -> dict[int, tuple[float, int]]:
    """CPU time and peak memory of each worker by its process."""
    found: dict[int, tuple[float, int]] = {}
    while len(found) < worker_count:
        # one for each worker: a worker that has just started is not ready for its own
        for number in range(worker_count):
            pool.submit(str(number), used)
        answers: list[tuple[int, float, int]] = []
        while len(answers) < worker_count:
            answers += [each for _, each in pool.finished(1)]
        found |= {pid: (cpu_s, peak_bytes) for pid, cpu_s, peak_bytes in answers}
    return found


def running(
    folder: Path, taps: Sequence[str], worker_count: int, source: str, tables: Sequence[str] = DEFAULT_TABLES
) -> Measured:
    """A fleet run on workers that run already and have read one capture."""
    found = []
    dataset = folder / "dataset"
    with LocalPool(worker_count) as pool:
        first = sorted((folder / source / taps[0]).iterdir())[0]
        for number in range(REPEATS + 1):
            shutil.rmtree(dataset, ignore_errors=True)
            before = _used(pool, worker_count)
            started = time.perf_counter()
            if number == 0:
                warming = [Tap(f"t{each}", (str(first),)) for each in range(2 * worker_count)]
                run(dataset, warming, executor=pool, tables=tables)
                continue
            run(dataset, [Tap(tap, (str(folder / source / tap),)) for tap in taps], executor=pool, tables=tables)
            wall_s = time.perf_counter() - started
            after = _used(pool, worker_count)
            cpu_s = [after[worker][0] - before[worker][0] for worker in after]
            found.append(Measured(wall_s, sum(cpu_s), max(cpu_s), max(peak for _, peak in after.values())))
    shutil.rmtree(dataset)
    return min(found)


def started(
    folder: Path, taps: Sequence[str], worker_count: int, source: str, tables: Sequence[str] = DEFAULT_TABLES
) -> Measured:
    """The command, with the start of its workers; its CPU time has theirs."""
    found = []
    for _ in range(REPEATS):
        shutil.rmtree(folder / "dataset", ignore_errors=True)
        command = ["iscsitrace", "fleet", "run", *(f"{tap}={folder / source / tap}" for tap in taps)]
        began = time.perf_counter()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", *command, "-o", str(folder / "dataset"), "--workers", str(worker_count), "-q"),
                *("--tables", ",".join(tables)),
            ]
        )
        _, _, usage = os.wait4(process.pid, 0)
        cpu_s = usage.ru_utime + usage.ru_stime
        found.append(Measured(time.perf_counter() - began, cpu_s, cpu_s, usage.ru_maxrss * 1024))
    shutil.rmtree(folder / "dataset")
    return min(found)


def show(name: str, each: Measured, total_bytes: int, note: str = "") -> None:
    """One line."""
    print(
        f"{name:52}{each.wall_s:8.2f}{each.cpu_s:8.2f}{each.busiest_s:9.2f}{total_bytes / 1e9 / each.wall_s:7.2f}"
        f"{each.peak_bytes / 1e6:9.0f}  {note}",
        flush=True,
    )


def ratio(before: Measured, after: Measured) -> str:
    """How much faster, by wall time and by CPU time of the busiest worker."""
    return f"{before.wall_s / after.wall_s:.2f} (CPU {before.busiest_s / after.busiest_s:.2f})"


def compare(
    folder: Path,
    name: str,
    taps: Sequence[str],
    measure: Measure,
    source: str = "taps",
    tables: Sequence[str] = ("pdus",),
) -> None:
    """One pass over these taps against runs with one worker and with two."""
    wholes = [folder / "whole" / f"{TAPS[tap]}.pcap" for tap in taps]
    total = sum(path.stat().st_size for path in wholes)
    if source == "taps":
        bare = one_pass(READ, wholes, ())
        show(f"{name}: bare pass", bare, total)
        whole = one_pass(READ, wholes, tables)
    else:
        whole = one_pass(READ_PIECES, [folder / source / tap for tap in taps])
        bare = whole
    show(f"{name}: one pass, in memory", whole, total)
    one = measure(folder, taps, 1, source)
    note = "" if bare is whole else f", {ratio(bare, one)} of the bare pass"
    if source == "taps" and tuple(tables) == ("pdus",):
        exported = one_pass(EXPORT, wholes)
        show(f"{name}: one pass and export", exported, total)
        note += f", {ratio(exported, one)} of that with export"
    show(f"{name}: 1 worker", one, total, f"{ratio(whole, one)} of the pass{note}")
    if len(taps) > 1:
        two = measure(folder, taps, 2, source)
        show(f"{name}: 2 workers", two, total, f"{ratio(one, two)} of 1 worker")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER / "fleet")
    parser.add_argument("--tap-bytes", type=int, default=TAP_BYTES, help="bytes of each of the four taps")
    parser.add_argument("--findings", action="store_true", help="with findings too")
    parser.add_argument("--gzip", action="store_true", help="compressed captures too")
    arguments = parser.parse_args()
    folder = arguments.folder
    make(folder, arguments.tap_bytes, has_gzip=arguments.gzip)
    print(f"{machine()}, load {os.getloadavg()[0]:.1f}\n")
    print(f"{'':52}{'wall s':>8}{'CPU s':>8}{'busiest':>9}{'GB/s':>7}{'peak MB':>9}  speed")
    compare(folder, "4 taps", list(TAPS), running)
    compare(folder, "4 taps, with the start", list(TAPS), started)
    if arguments.findings:
        compare(folder, "4 taps, with findings", list(TAPS), partial(running, tables=TABLES), tables=("pdus", *NEEDED))
    for tap, kind in list(TAPS.items())[:2]:
        compare(folder, f"1 tap, {kind}", [tap], running)
    if arguments.gzip:
        compare(folder, "4 taps, gzip", list(TAPS), running, "taps-gzip")


if __name__ == "__main__":
    main()
