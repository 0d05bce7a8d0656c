"""``iscsitrace capture``: capture iSCSI from interfaces into pcapng files."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import click

from iscsitrace.cli import process
from iscsitrace.cli.options import as_json
from iscsitrace.cli.output import quiet
from iscsitrace.cli.process import wishing
from iscsitrace.cli.record.capture_limits import STOPS, Limit, gathered, retention
from iscsitrace.cli.units import Duration, Size
from iscsitrace.errors import CaptureRefused, InputInvalid, OutputExists
from iscsitrace.recording.file_names import made_up, number_of, of_ring
from iscsitrace.show import files as output_file
from iscsitrace.show.terminal import show, show_json
from iscsitrace.wording.quantities import SIZES, TIMES, parse_quantity

SCHEMA_VERSION = 1
_SNAPLEN_MAX = 262_144
_SNAPLEN_MIN = 68
_ADVISE = "advise"
_ADVISED_FOR_NS = 10 * TIMES["s"]
_CLOCKS = ("host", "adapter", "adapter_unsynced")
EXIT_LOSS = 1


@click.command(epilog="Example:  iscsitrace capture -i eth0 -w storage.pcapng -b filesize:100M -b files:10")
@click.option("-i", "interfaces", metavar="IFACE", multiple=True, help="Interface; repeatable. See interfaces.")
@click.option("-r", "sources", metavar="FILE", multiple=True, help="Read captures in place of an interface.")
@click.option(
    "-w", "path", metavar="FILE", help="File, FIFO, or - for standard output (a new file name in this folder)."
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite files that exist.")
@click.option("-f", "capture_filter", metavar="FILTER", help="libpcap filter (TCP ports 3260 and 860, tagged or not).")
@click.option(
    "--learn/--no-learn",
    "is_learning",
    default=None,
    help="Find iSCSI on other ports by content, repeatedly (unless -f, -r or dumpcap is used).",
)
@click.option("--learn-every", type=Duration(), default="30s", show_default=True, help="Interval of --learn.")
@click.option(
    "-s",
    "snaplen",
    metavar="BYTES|advise",
    help="Bytes kept of each packet (all); advise measures how many are needed.",
)
@click.option(
    "-B", "buffer_mib", type=click.IntRange(1, 2047), default=64, show_default=True, help="Kernel buffer, MiB."
)
@click.option(
    "-b",
    "ring",
    type=Limit(),
    multiple=True,
    help="Start the next file after duration:S, filesize:KB or packets:N. Remove the oldest files to keep files:N, "
    "age:S, total:KB, or KB of the file system free:KB.",
)
@click.option("--compress", "is_compressed", is_flag=True, help="With -b: compress finished files with zstd.")
@click.option(
    "-a", "stops", type=Limit(*STOPS), multiple=True, help="Stop after duration:S, filesize:KB, packets:N or files:N."
)
@click.option("-c", "packet_limit", type=click.IntRange(min=1), metavar="COUNT", help="Stop after COUNT packets.")
@click.option(
    "--trigger",
    metavar="CONDITION",
    help="Keep only the time around such commands, like 'latency>50ms or status!=good'.",
)
@click.option("--before", type=Duration(), default="2s", show_default=True, help="Time kept before such a command.")
@click.option("--after", type=Duration(), default="1s", show_default=True, help="Time kept after its end.")
@click.option(
    "--trigger-memory",
    type=Size(),
    default="256M",
    show_default=True,
    help="Memory for packets that a trigger may keep.",
)
@click.option(
    "--tcp-info",
    "tcp_info_every",
    type=Duration(),
    metavar="INTERVAL",
    help="Sample the kernel's TCP_INFO of the captured connections' sockets on this host, like 50ms.",
)
@click.option("--promiscuous", "is_promiscuous", is_flag=True, help="Capture packets to other hosts, too.")
@click.option("-p", "is_not_promiscuous", is_flag=True, help="Accepted for compatibility with tshark: the default.")
@click.option("--time-stamp-type", type=click.Choice(_CLOCKS), help="Clock of the time stamps (host).")
@click.option(
    "--dumpcap",
    "dumpcap",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Capture through dumpcap; auto: where only dumpcap has the permission.",
)
@click.option("--capture-comment", "comment", metavar="TEXT", default="", help="Comment in the files.")
@quiet("Print only drops and errors.")
@as_json
def command(
    interfaces: tuple[str, ...],
    sources: tuple[str, ...],
    path: str | None,
    is_forced: bool,
    capture_filter: str | None,
    is_learning: bool | None,
    learn_every: int,
    snaplen: str | None,
    buffer_mib: int,
    ring: tuple[tuple[str, int], ...],
    is_compressed: bool,
    stops: tuple[tuple[str, int], ...],
    packet_limit: int | None,
    trigger: str | None,
    before: int,
    after: int,
    trigger_memory: int,
    tcp_info_every: int | None,
    is_promiscuous: bool,
    is_not_promiscuous: bool,
    time_stamp_type: str | None,
    dumpcap: str,
    comment: str,
    is_quiet: bool,
    is_json: bool,
) -> None:
    """Capture iSCSI into pcapng files until Ctrl-C, SIGTERM or a limit. The last line counts packets seen, written and
    dropped; exit code 1 when packets were dropped.

    TCP ports 3260 and 860 are captured from the start; other ports once iSCSI is found there, because a file has
    nothing but iSCSI. The first line names what is captured. A second one says why, if nothing is seen in 5 s.

    Only their owner may read the files, also while they grow. Several -i write into the same file. -b names files as
    dumpcap does: NAME_00001_20261121190000.pcapng. Files of earlier captures of the same NAME belong to the ring.

    A trigger combines latency>TIME, no_progress>TIME, status=NAME, status!=NAME, operation=NAME and operation!=NAME
    with and, or. The file then begins with the handshakes and logins of its connections. A hang is written within a
    second of its limit, without a packet, and also if the capture ends in it. With -r a trigger is applied to captures.

    --tcp-info samples the sockets whose packets the capture filter matches: cwnd, ssthresh, RTT, retransmissions, and
    the time limited by the receive window or send buffer, as this host's kernel has them. Each sample is a frame of the
    file.
    """
    if bool(interfaces) == bool(sources):
        raise click.UsageError("name an interface with -i (iscsitrace interfaces lists them), or captures with -r")
    if tcp_info_every is not None and (sources or time_stamp_type == "adapter_unsynced"):
        raise click.UsageError("--tcp-info samples this host, on its clock: omit -r and adapter_unsynced")
    if is_learning and capture_filter is not None:
        raise click.UsageError("--learn makes its own capture filter: omit -f")
    _require_clock(interfaces, time_stamp_type)
    _require_filter(capture_filter)
    _require_trigger(trigger)
    interface_settings = [
        {
            "name": name,
            "filter": capture_filter,
            "snaplen": _SNAPLEN_MAX if snaplen is None or snaplen == _ADVISE else _snaplen(snaplen),
            "is_promiscuous": is_promiscuous and not is_not_promiscuous,
            "buffer_bytes": buffer_mib * SIZES["M"],
            "time_stamp_type": time_stamp_type,
        }
        for name in interfaces
    ]
    stop = gathered(stops)
    if snaplen == _ADVISE:
        _advise(interface_settings, sources, capture_filter, stop.get("duration_ns", _ADVISED_FOR_NS), is_json=is_json)
        return
    if packet_limit is not None:
        stop["packets"] = min(packet_limit, stop.get("packets", packet_limit))
    next_file = gathered(ring)
    keep = retention(next_file)
    if is_compressed and not next_file:
        raise click.UsageError("--compress takes finished files: add -b filesize, duration or packets")
    target = _target(path, interfaces, is_ring=bool(next_file), is_forced=is_forced, sources=sources)
    if sources and (is_learning or capture_filter is not None or snaplen is not None or "duration_ns" in stop):
        raise click.UsageError("-r takes --trigger, -b, -c and -w; select packets with -f when the file is read")
    if is_json and str(target) == "-":
        raise click.UsageError("the packets go to standard output: omit --json")
    earlier = of_ring(target) if next_file else []
    settings: dict[str, Any] = {
        "interfaces": interface_settings,
        "output": {
            "path": str(target),
            "is_forced": is_forced,
            "next_file": next_file or None,
            "keep": keep,
            # captures that are read stay as they are
            "earlier": [] if sources else [str(each) for each in earlier],
            "is_compressed": is_compressed,
        },
        "is_confined": process.is_own_process(),
        "stop": stop,
        "section": _section(comment, trigger),
    }
    if trigger is not None:
        memory = {"before_ns": before, "after_ns": after, "memory_bytes": trigger_memory}
        settings["trigger"] = {"condition": trigger, **memory}
    if tcp_info_every is not None:
        settings["tcp_info_every_ns"] = tcp_info_every
    learn = {"learn": {"look_ns": 3 * TIMES["s"], "every_ns": learn_every}}
    # dumpcap cannot look for portals: it refuses where that was asked for
    settings |= learn if is_learning else {}
    unless_dumpcap = learn if is_learning is None and capture_filter is None else {}
    outcome = _captured(settings, sources, target, earlier, dumpcap, is_quiet=is_quiet, unless_dumpcap=unless_dumpcap)
    if is_json:
        show_json({"schema": SCHEMA_VERSION, **outcome})
    click.get_current_context().exit(_exit_code(outcome))


def _captured(
    settings: dict[str, Any],
    sources: tuple[str, ...],
    target: Path,
    earlier: list[Path],
    dumpcap: str,
    *,
    is_quiet: bool,
    unless_dumpcap: dict[str, Any],
) -> dict[str, Any]:
    from iscsitrace.cli.record.capture_progress import CaptureCaller
    from iscsitrace.recording import capture
    from iscsitrace.recording.interfaces import capture_by

    with wishing() as wish:
        caller = CaptureCaller(target, wish, is_quiet=is_quiet, earlier_number=number_of(earlier[-1]) if earlier else 0)
        try:
            if sources:
                process.confine([] if str(target) == "-" else [target.parent])
                outcome = capture.replay(sources, settings, caller)
            else:
                names = [interface["name"] for interface in settings["interfaces"]]

                def run(helper: str | None) -> dict[str, Any]:
                    chosen = {**settings, "helper": helper, **(unless_dumpcap if helper is None else {})}
                    caller.listen(names, settings["interfaces"][0]["filter"], is_learning="learn" in chosen)
                    return capture.run(chosen, caller)

                outcome = capture_by(dumpcap, names, run)
        finally:
            caller.end()
        _show_end(outcome, caller, is_quiet=is_quiet)
    return outcome


def _show_end(outcome: dict[str, Any], caller: Any, *, is_quiet: bool) -> None:
    end = outcome["end"]
    if end["reason"] in ("interface", "output"):
        caller.say(f"the capture ended: {end['message']}")
    if not is_quiet:
        from iscsitrace.cli.record.capture_progress import end_of

        caller.say(end_of(outcome))


def _exit_code(outcome: dict[str, Any]) -> int:
    reason = outcome["end"]["reason"]
    if reason == "output":
        return CaptureRefused.exit_code
    return EXIT_LOSS if outcome["progress"]["dropped_count"] > 0 or reason == "interface" else 0


def _advise(
    interfaces: list[dict[str, Any]],
    sources: tuple[str, ...],
    capture_filter: str | None,
    duration_ns: int,
    *,
    is_json: bool,
) -> None:
    from iscsitrace.recording import capture
    from iscsitrace.recording.interfaces import capture_by

    if sources:
        process.confine([])
        advice, dropped = capture.advise_snaplen_of(sources, capture_filter, lambda _: None), 0
    else:
        if len(interfaces) > 1:
            raise click.UsageError("-s advise measures one interface at a time")
        with wishing() as wish:

            def measure(_: str | None) -> dict[str, Any]:
                found, lost = capture.advise_snaplen(interfaces[0], duration_ns, lambda _: wish.is_there)
                return {"advice": found, "dropped": lost}

            measured = capture_by("never", [interfaces[0]["name"]], measure)
            advice, dropped = measured["advice"], measured["dropped"]
    if is_json:
        show_json({"schema": SCHEMA_VERSION, **advice, "dropped_count": dropped})
    else:
        from iscsitrace.cli.record.capture_progress import snaplen_advice

        show([snaplen_advice(", ".join(sources) or interfaces[0]["name"], advice, dropped)])


def _require_clock(interfaces: tuple[str, ...], clock: str | None) -> None:
    """InputInvalid for a clock that an interface does not have: libpcap would use the host's without a warning."""
    if clock is None:
        return
    from iscsitrace.recording.interfaces import time_stamp_types

    for name in interfaces:
        if clock not in (clocks := time_stamp_types(name)):
            raise InputInvalid(f"{name} has no time stamps of type {clock}; it has {', '.join(clocks)}")


def _require_filter(expression: str | None) -> None:
    """InputInvalid, with the place, for a filter that libpcap rejects."""
    if expression is None:
        return
    from iscsitrace.recording import capture
    from iscsitrace.recording.capture import place_of_problem

    if (message := capture.filter_problem(expression)) is None:
        return
    place = place_of_problem(expression, message, capture.filter_problem)
    where = "" if place is None else f", at character {place + 1} {_pointed(expression, place)}"
    raise InputInvalid(f"capture filter: {message}{where}")


def _require_trigger(condition: str | None) -> None:
    """InputInvalid, with the place, for an invalid condition."""
    if condition is None:
        return
    from iscsitrace.recording import capture

    if (problem := capture.trigger_problem(condition)) is not None:
        place, message = problem
        raise InputInvalid(f"trigger: {message}, at character {place + 1} {_pointed(condition, place)}")


def _pointed(text: str, place: int) -> str:
    """The text with a mark at the mistake."""
    return f"'{text[:place]}>>>{text[place:]}'" if place < len(text) else f"'{text}>>>'"


def _snaplen(text: str) -> int:
    found = parse_quantity(text, SIZES)
    if found is None or not _SNAPLEN_MIN <= (found or _SNAPLEN_MAX) <= _SNAPLEN_MAX:
        raise click.UsageError(f"-s takes {_SNAPLEN_MIN} to {_SNAPLEN_MAX} bytes, 0 for all, or {_ADVISE}")
    return found or _SNAPLEN_MAX


def _target(
    path: str | None, interfaces: tuple[str, ...], *, is_ring: bool, is_forced: bool, sources: tuple[str, ...] = ()
) -> Path:
    """The output; errors come before anything is opened."""
    if path is None:
        if not interfaces:
            raise click.UsageError("name a file with -w")
        return made_up(interfaces)
    target = Path(path)
    if path == "-":
        if is_ring:
            raise click.UsageError("-b needs files: name one with -w")
        if sys.stdout.isatty():
            raise click.UsageError("standard output is a terminal: redirect it to a pipe or a file")
        return target
    if is_ring:
        if not target.parent.is_dir():
            raise InputInvalid(f"cannot write {path}: {target.parent} is not a folder")
        return target if target.suffix else target.with_name(f"{target.name}.pcapng")
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise OutputExists(f"{path} is a folder; nothing was written")
        return target
    output_file.check(target, is_forced=is_forced, inputs=sources)
    return target


def _section(comment: str, trigger: str | None) -> dict[str, str]:
    """Metadata of the files."""
    from iscsitrace import __version__

    if trigger is not None:
        kept = f"kept by the trigger {trigger}: packets between its windows are left out on purpose"
        comment = f"{comment}\n{kept}" if comment else kept
    return {
        "hardware": _processor(),
        "operating_system": f"{platform.system()} {platform.release()}",
        "application": f"iscsitrace {__version__}",
        "comment": comment,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.machine()
