"""An experiment from its definition to its folder: points, results beside the model and published values, figures.

Finished points are kept, and an earlier run that stopped is continued. In the simulated world several points run at
once, each in its own process. In real time, in namespaces or guests, they run one after the other, because they share
the machine. A point that fails keeps its error, and the rest continues. Nothing is printed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from iscsitrace.errors import InputInvalid, IscsitraceError, OutputExists
from iscsitrace.fit import regression
from iscsitrace.fit.points import Point
from iscsitrace.lab import real, run_files, simulation
from iscsitrace.lab.guests import world
from iscsitrace.lab.namespaces import require_root
from iscsitrace.lab.settings import structs as settings
from iscsitrace.lab.settings.kinds import Value
from iscsitrace.studies import expected, figures, measured, repeats, results, verdicts
from iscsitrace.studies.definition import ENDING, GUESTS, Definition
from iscsitrace.studies.points import DesignPoint
from iscsitrace.studies.quantities import PointResult
from iscsitrace.studies.results import POINTS, RESULT, ArmFit, Results
from iscsitrace.wording import amounts

_LOOK_S: Final = 0.2


@dataclass(frozen=True)
class Progress:
    """The progress of an experiment."""

    done: int
    """Points that finished or failed, in earlier runs too."""
    count: int
    failed: int
    left_s: float | None
    """Estimated from the pace so far; None before the first point."""
    latest: PointResult | None = None
    """The point that just finished."""


Watch = Callable[[Progress], bool]
"""Gets the progress, several times a second; returns True to end the run. Points in progress are then lost."""


class _Stopped(Exception):
    """The run is to end."""


def run(
    points: Sequence[DesignPoint], directory: Path, watch: Watch, *, jobs: int = 1, kept: Callable[[DesignPoint], bool]
) -> list[PointResult]:
    """The results of all points that ran, now or earlier, in their order.

    ``kept`` selects the points whose captures are kept. A point with a result does not run again, unless it failed, its
    settings changed, or its captures are to be kept and are missing.
    """
    found: dict[str, PointResult] = {}
    waiting = []
    for point in points:
        earlier = _earlier(point, directory, kept(point))
        if earlier is None:
            waiting.append(point)
        else:
            found[point.name] = earlier
    earlier_count, started_s = len(found), time.monotonic()

    def progress(latest: PointResult | None = None) -> Progress:
        done, failed = len(found), sum(each.error is not None for each in found.values())
        pace_s = (time.monotonic() - started_s) / (done - earlier_count) if done > earlier_count else None
        return Progress(done, len(points), failed, None if pace_s is None else pace_s * (len(points) - done), latest)

    watch(progress())
    perform = _in_processes if jobs > 1 and len(waiting) > 1 else _one_by_one
    with suppress(_Stopped):
        for result in perform(waiting, directory, lambda: watch(progress()), jobs, kept):
            found[result.name] = result
            watch(progress(result))
    return [found[point.name] for point in points if point.name in found]


def perform(point: DesignPoint, directory: Path, has_ended: Callable[[], bool], *, is_kept: bool) -> PointResult:
    """Runs one point and measures it, in an empty folder. Raises _Stopped when ``has_ended`` returns True."""
    folder = directory / POINTS / point.name
    shutil.rmtree(folder, ignore_errors=True)
    about = PointResult(
        name=point.name,
        arm=point.arm,
        grid={name: each.text for name, each in point.grid.items()},
        values=point.values,
        repeat=point.repeat,
        digest=point.digest,
    )
    try:
        result = _measured(point, about, folder, has_ended)
    except _Stopped:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except (IscsitraceError, OSError, ValueError, ArithmeticError, LookupError) as error:
        if has_ended():
            shutil.rmtree(folder, ignore_errors=True)
            raise _Stopped from error
        line = " ".join(str(error).split())
        result = replace(about, error=line if isinstance(error, IscsitraceError) else repr(error))
    if not is_kept or result.error is not None:
        for file in (*_captures(point, folder), folder / run_files.TRUTH):
            file.unlink(missing_ok=True)
    else:
        result = replace(result, captures=tuple(file.name for file in _captures(point, folder) if file.exists()))
    folder.mkdir(parents=True, exist_ok=True)
    results.write_json(folder / RESULT, results.point_document(result))
    return result


def _captures(point: DesignPoint, folder: Path) -> list[Path]:
    """The capture at the initiator and those at the targets, as far as they are taken."""
    hosts = run_files.hosts(len(settings.target_delays(point.values)), point.capture_at)
    return [folder / run_files.capture_name(host) for host in hosts]


def _measured(point: DesignPoint, about: PointResult, folder: Path, has_ended: Callable[[], bool]) -> PointResult:
    if point.world == GUESTS:
        own = world.target_program(point.programs, point.run_settings)
        in_guests = world.GuestPrograms(own, point.capture_at)
        truth = world.run(point.run_settings, folder, lambda _: has_ended(), lambda _: None, programs=in_guests)
    elif point.world == "real":
        programs = real.Programs(capture_at=point.capture_at, **point.programs)
        truth = real.run(point.run_settings, folder, lambda _: has_ended(), programs=programs)
    else:
        truth = simulation.run(point.run_settings, folder, lambda *_: has_ended(), capture_at=point.capture_at)
    if has_ended():
        raise _Stopped
    outcome = truth["results"]
    if outcome.get("error_count"):
        raise InputInvalid(f"{outcome['error_count']} commands failed: {(outcome['errors'] or ['?'])[0]}")
    dropped = truth.get("capture_dropped_counts", [0])[0] or 0
    if dropped:
        raise InputInvalid(f"the capture lost {dropped} packets: the machine was too busy")
    capture = truth["captures"]["initiator"]
    found = measured.of_run(truth, capture and folder / capture, point.values, point.warm_up)
    surroundings = expected.SIMULATED if point.world == "simulated" else _surroundings(truth, point, found)
    # the rate of a veth pair is unknown
    is_known = point.world == "simulated" or not point.programs.get("is_bypassed")
    is_modelled = is_known and point.is_modelled
    prediction = expected.of_point(point.values, _parameters(outcome), surroundings) if is_modelled else None
    captured_bytes = found.pop("byte_count", 0)
    rates = costs_of_run(truth, point.values, found["steady_throughput_bytes_per_s"], captured_bytes)
    return replace(about, **found, **rates, model=None if prediction is None else prediction.as_dict())


def _surroundings(truth: dict[str, Any], point: DesignPoint, found: dict[str, Any]) -> expected.Environment:
    """Host time and delays from the capture, and the largest window that the sender's kernel saw.

    The host time of a mirror is not used: in the capture it includes the wait of one mirror side for the other.
    """
    is_read = str(point.values.get("workload.operation", "read")).endswith("read")
    ends = [end for ends in truth["target_ends"] for end in ends] if is_read else truth["initiator_ends"]
    windows = [window for end in ends for window in end["windows"]["snd_wnd_bytes"] or () if window is not None]
    hosts_ns = 0.0 if settings.copy_count(point.values) > 1 else found.get("s_ns") or 0.0
    return expected.Environment(hosts_ns, max(windows, default=None), found.get("k"), has_host_delays=False)


def _parameters(outcome: dict[str, Any]) -> dict[str, Any] | None:
    """The negotiated parameters."""
    return next((found for each in outcome.get("connections", ()) if (found := each.get("parameters"))), None)


def _earlier(point: DesignPoint, directory: Path, is_kept: bool) -> PointResult | None:
    folder = directory / POINTS / point.name
    result = results.read_point(folder / RESULT)
    if result is None or result.error is not None or result.digest != point.digest:
        return None
    has_captures = bool(result.captures) and all((folder / name).exists() for name in result.captures)
    if is_kept and point.capture_at and not has_captures:
        return None
    return result


_Kept = Callable[[DesignPoint], bool]


def _one_by_one(
    points: Sequence[DesignPoint], directory: Path, has_ended: Callable[[], bool], jobs: int, kept: _Kept
) -> Iterator[PointResult]:
    for point in points:
        if has_ended():
            raise _Stopped
        yield perform(point, directory, has_ended, is_kept=kept(point))


_is_over: Any = None
"""In a process of the pool: the flag to stop. Without a lock, which a killed process would never release."""


def _begin(is_over: Any) -> None:
    global _is_over  # noqa: PLW0603 -- the pool passes it to its processes in no other way
    _is_over = is_over
    # the main process handles Ctrl-C
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _task(point: DesignPoint, directory: Path, is_kept: bool) -> PointResult | None:
    try:
        return perform(point, directory, lambda: bool(_is_over.value), is_kept=is_kept)
    except _Stopped:
        return None


def _in_processes(
    points: Sequence[DesignPoint], directory: Path, has_ended: Callable[[], bool], jobs: int, kept: _Kept
) -> Iterator[PointResult]:
    # its processes import nothing from the current folder
    os.environ["PYTHONSAFEPATH"] = "1"
    # not fork: the core and NumPy have threads
    context = multiprocessing.get_context("spawn")
    is_over = context.RawValue("b", 0)
    with ProcessPoolExecutor(min(jobs, len(points)), context, initializer=_begin, initargs=(is_over,)) as pool:
        try:
            waiting: set[Future[PointResult | None]] = {
                pool.submit(_task, point, directory, kept(point)) for point in points
            }
            while waiting:
                done, waiting = wait(waiting, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    if result is not None:
                        yield result
                if has_ended():
                    raise _Stopped
        except BrokenProcessPool as error:
            # timeout(1) and the like signal all processes: then this one is to stop, too
            time.sleep(_LOOK_S)
            if has_ended():
                raise _Stopped from error
            raise InputInvalid("a process that ran a point was killed; run the command again to continue") from error
        finally:
            is_over.value = 1
            pool.shutdown(wait=True, cancel_futures=True)


_BITS: Final = 8


def costs_of_run(
    truth: dict[str, Any], values: dict[str, Value], throughput_bytes_per_s: float | None, captured_bytes: int
) -> dict[str, Any]:
    """The fields of a `PointResult` about cost. A foreign initiator reports no byte count; its capture shows it."""
    outcome = truth["results"]
    byte_count = outcome.get("bytes", captured_bytes)
    of_targets = [log["cpu"] for log in truth.get("target_logs", ()) if log]
    together = {name: sum(each[name] for each in of_targets) for name in of_targets[0]} if of_targets else None
    return {
        "efficiency": efficiency(values, throughput_bytes_per_s),
        "cpu_s_per_gigabyte": amounts.seconds_per_gigabyte(outcome.get("cpu"), byte_count),
        "target_cpu_s_per_gigabyte": amounts.seconds_per_gigabyte(together, byte_count),
    }


def efficiency(values: dict[str, Value], throughput_bytes_per_s: float | None) -> float | None:
    """Application throughput / rate of the line in the direction of the data; None without a rate."""
    is_read = str(values.get("workload.operation", "read")).endswith("read")
    rate = settings.link_of(values, "to-initiator" if is_read else "to-target").get("rate_bps")
    return None if not rate or throughput_bytes_per_s is None else throughput_bytes_per_s * _BITS / float(rate)


def prepare(definition: Definition, points: Sequence[DesignPoint], directory: Path, *, is_forced: bool) -> None:
    """Creates the folder, or reuses one in which the same experiment was started; ``is_forced`` starts over. A copy of
    the definition is kept in it, so that the folder is complete.

    OutputExists for a folder with other files; RootNeeded for a world in real time.
    """
    world = points[0].world
    if world != "simulated":
        require_root()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_empty = not any(directory.iterdir())
    except OSError as error:
        raise InputInvalid(f"cannot create {directory}: {error.strerror or error}") from error
    folder = directory / results.POINTS
    if not (is_empty or folder.is_dir() or (directory / results.JSON).is_file()):
        raise OutputExists(f"{directory} has other files in it; use an empty folder")
    if is_forced:
        shutil.rmtree(folder, ignore_errors=True)
        (directory / results.JSON).unlink(missing_ok=True)
    elif (directory / results.JSON).is_file():
        earlier = results.load(directory)
        if (earlier.name, earlier.world) != (definition.name, world):
            raise OutputExists(
                f"{directory} has {earlier.name} in the {earlier.world} world; use another folder, or --force"
            )
    results.write_text(directory / f"{definition.name}{ENDING}", definition.text)


def carry_out(
    definition: Definition,
    points: Sequence[DesignPoint],
    directory: Path,
    watch: Watch,
    *,
    jobs: int,
    keep: str,
    is_reduced: bool = False,
) -> Results:
    """Runs the remaining points and writes ``results.json``, ``results.csv`` and the figures; the results so far."""
    drawn_from = figures.needed(definition, points)
    kept: dict[str, Callable[[DesignPoint], bool]] = {
        "figures": lambda point: point.name in drawn_from,
        "captures": lambda _: True,
        "none": lambda _: False,
    }
    found = run(points, directory, watch, jobs=jobs, kept=kept[keep])
    made = _results(definition, points, found, directory, is_reduced=is_reduced)
    results.write(directory, made)
    return made


def _results(
    definition: Definition,
    points: Sequence[DesignPoint],
    found: Sequence[PointResult],
    directory: Path,
    *,
    is_reduced: bool,
) -> Results:
    rows = repeats.rows(found)
    return Results(
        is_reduced=is_reduced,
        versions=results.versions(points[0].world),
        seeds=results.seeds(points),
        name=definition.name,
        title=definition.title,
        source=definition.source,
        about=definition.about,
        world=points[0].world,
        is_complete=len(found) == len(points),
        point_count=len(points),
        points=tuple(found),
        fits=tuple(_fits(points, found)),
        beside=tuple(verdicts.beside(definition, rows, points[0].world)),
        figures=tuple(figures.draw(definition, points, found, directory)),
        claims=tuple(verdicts.judge(definition.claims, rows, points[0].world)),
        tables=definition.tables,
    )


_DELAY: Final = "link.one-way-delay"
_LEAST_DELAYS: Final = 2


def _fits(points: Sequence[DesignPoint], results: Sequence[PointResult]) -> Iterator[ArmFit]:
    """A fit for each arm, and for each place of the rest of its grid, where at least two delays were measured."""
    by_name = {result.name: result for result in results}
    groups: dict[tuple[str, ...], tuple[dict[str, str], list[Point]]] = {}
    for point in points:
        where = {name: each.text for name, each in point.grid.items() if name != _DELAY}
        _, found = groups.setdefault((point.arm, *where.values()), (where, []))
        result = by_name.get(point.name)
        # without a delay, k cannot be determined
        found += result.steady if result and point.values.get(_DELAY) else ()
    for (arm, *_), (where, found) in groups.items():
        if len({each.setting.delay_ns for each in found}) < _LEAST_DELAYS:
            continue
        try:
            # through JSON, so that it equals what is read back
            yield ArmFit(arm, where, json.loads(json.dumps(regression.fit(found).as_dict())))
        except InputInvalid:
            continue
