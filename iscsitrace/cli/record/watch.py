"""``iscsitrace watch``: live traffic."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.process import is_own_process, wishing
from iscsitrace.cli.record.capture_limits import Limit
from iscsitrace.cli.record.service_manager import ServiceManager
from iscsitrace.cli.units import Duration, Quantity
from iscsitrace.errors import CaptureUnreadable
from iscsitrace.show.line import say
from iscsitrace.show.terminal import show, show_json_line, show_line
from iscsitrace.wording.quantities import TIMES, parse_endpoint

if TYPE_CHECKING:
    from iscsitrace.recording.silence import Silence
    from iscsitrace.watch.exposition import Exposition
    from iscsitrace.watch.server import MetricsServer
    from iscsitrace.watch.source import Watched
    from iscsitrace.watch.watcher import Report, Watcher

EXIT_LOSS = 1
_SECOND_NS = 10**9
_INTERVAL_MIN_NS = 10 * 10**6


class Listen(Quantity):
    """An address and port to serve at; a port alone is on 127.0.0.1."""

    name = "ADDRESS:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Fails with a line that says how to write one."""
        if isinstance(value, tuple):
            return value
        found = parse_endpoint(value if ":" in value else f"127.0.0.1:{value}")
        if found is None or found[1] is None:
            self.fail(f"{value!r} is not a port or an address and port, like 9432 or 127.0.0.1:9432", param, ctx)
        return str(found[0]), found[1]


@click.command(epilog="Example:  iscsitrace watch --interval 5s --json capture.pcapng")
@click.argument("source", metavar="INPUT")
@click.option(
    "-f", "capture_filter", metavar="FILTER", help="Read only packets that match this capture filter (tcpdump syntax)."
)
@click.option(
    "-s", "snaplen", type=click.IntRange(min=1), metavar="BYTES", help="Interface: bytes kept of each packet."
)
@click.option("-B", "buffer_mib", type=click.IntRange(min=1), metavar="MIB", help="Interface: kernel buffer.")
@click.option("-c", "packet_limit", type=click.IntRange(min=1), metavar="COUNT", help="Stop after COUNT packets.")
@click.option(
    "-a",
    "stop_at",
    type=Limit("duration", "packets"),
    multiple=True,
    help="Stop after duration:SECONDS or packets:COUNT; repeatable.",
)
@click.option("--interval", type=Duration(), default="1s", show_default=True, help="Time between updates.")
@click.option("--no-follow", is_flag=True, help="Stop at the end of the file instead of waiting for more.")
@click.option("--json", "is_json", is_flag=True, help="Print one line of JSON per interval, and one with the totals.")
@click.option("--plain", is_flag=True, help="Print lines of text per interval, on a terminal too.")
@click.option(
    "--prometheus",
    type=Listen(),
    metavar="[ADDRESS:]PORT",
    help="Serve metrics at http://ADDRESS:PORT/metrics (127.0.0.1).",
)
@click.option(
    "--web-config",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="TLS and passwords for --prometheus, in the format of Prometheus exporters.",
)
@click.option("--no-findings", is_flag=True, help="Do not diagnose.")
@click.option("--no-dynamics", is_flag=True, help="Omit time breakdown, RTT, owin and causes: a third of the work.")
def command(
    source: str,
    capture_filter: str | None,
    snaplen: int | None,
    buffer_mib: int | None,
    packet_limit: int | None,
    stop_at: tuple[tuple[str, int], ...],
    interval: int,
    no_follow: bool,
    is_json: bool,
    plain: bool,
    prometheus: tuple[str, int] | None,
    web_config: str | None,
    no_findings: bool,
    no_dynamics: bool,
) -> None:
    """Show throughput, latencies, queue depth, time breakdown, RTT, losses and findings live.

    INPUT is an interface, a file that grows (the next files of a ring buffer follow), the name of a ring as -w of
    capture has it, or - for standard input. On a
    terminal, keys sort, pause, select a connection and save a snapshot (? lists them). A pipe gets lines or JSON.

    The totals at the end equal those of summary for the same packets. Ctrl-C stops the capture and prints the totals.
    Exit code 1 when packets were lost: dropped by the capture, or left out because the view could not keep up.
    """
    from iscsitrace.recording.silence import Silence, listening
    from iscsitrace.tables.passes import Settings
    from iscsitrace.watch.source import open_source
    from iscsitrace.watch.watcher import Watcher

    if interval < _INTERVAL_MIN_NS:
        raise click.UsageError("--interval must be at least 10ms")
    duration_s = min((amount / TIMES["s"] for name, amount in stop_at if name == "duration_ns"), default=None)
    limits = [amount for name, amount in stop_at if name == "packets"]
    packet_limit = min([*limits, *([packet_limit] if packet_limit else [])], default=None)
    settings = Settings(
        interval_ns=interval,
        keep_ns=max(10 * _SECOND_NS, 2 * interval),
        capture_filter=capture_filter,
        packet_limit=packet_limit,
        has_dynamics=not no_dynamics,
    )
    capture_options = [
        *(["-s", str(snaplen)] if snaplen else []),
        *(["-B", str(buffer_mib)] if buffer_mib else []),
    ]
    is_learning = capture_filter is None and not _is_by_dumpcap(source)
    manager = ServiceManager()
    confine = _confining([] if prometheus is None else [prometheus[1]])
    with open_source(source, settings, capture_options=capture_options, confine=confine) as watched:
        watcher = Watcher(watched.live, has_findings=not (no_findings or no_dynamics))
        exposition, server = _serve(prometheus, web_config)
        names = [source] if watched.is_interface else []
        silence = Silence(names, capture_filter, is_learning=is_learning)
        heading = listening(names, capture_filter, is_learning=is_learning) if names else source
        view = _Show(watcher, watched, heading, exposition, manager, duration_s, silence)
        try:
            if no_follow:
                watched.live.stop()
            if sys.stdout.isatty() and not is_json and not plain:
                view.on_screen()
            else:
                view.as_lines(is_json=is_json)
        except CaptureUnreadable:
            _refuse_as(watched)
            raise
        finally:
            manager.stopping()
            if server is not None:
                server.stop()
        watched.close()
        words = watched.last_message()
    document = watcher.document()
    for line in words.splitlines():
        say(line, err=True)
    if is_json:
        show_json_line(document)
    else:
        from iscsitrace.show.summary import sections_of_totals

        show(sections_of_totals(document))
    if watcher.live.change:
        say(f"iscsitrace: {source} was {watcher.live.change} while it was read: reading stopped", err=True)
    if _has_lost(document) or watcher.live.change:
        raise click.exceptions.Exit(EXIT_LOSS)


def _is_by_dumpcap(source: str) -> bool:
    """Whether dumpcap captures on an interface, for lack of permission; it cannot look for portals."""
    if Path(source).exists() or source == "-":
        return False
    from iscsitrace.recording.interfaces import interfaces_found

    return any(each.is_by_dumpcap for each in interfaces_found() if each.name == source)


def _confining(ports: list[int]) -> Callable[[Sequence[int]], None]:
    """Gives up what a watch does not need; snapshots go to the current folder, and keys come from the terminal."""

    def confine(children: Sequence[int]) -> None:
        from iscsitrace.recording import capture

        if problems := capture.confine([Path(), Path("/dev/tty")], ports, children):
            say(f"iscsitrace: watch runs with more rights than it needs: {'; '.join(problems)}", err=True)

    return confine if is_own_process() else lambda _: None


def _serve(listen: tuple[str, int] | None, web_config: str | None) -> tuple[Exposition | None, MetricsServer | None]:
    if listen is None:
        if web_config is not None:
            raise click.UsageError("--web-config needs --prometheus")
        return None, None
    from iscsitrace.watch.exposition import Exposition, serve
    from iscsitrace.watch.server import OPEN, read_access

    access = OPEN if web_config is None else read_access(Path(web_config))
    exposition = Exposition()
    server = serve(exposition, *listen, access)
    scheme = "http" if access.tls is None else "https"
    say(f"iscsitrace: serving {scheme}://{listen[0]}:{server.port}/metrics", err=True)
    return exposition, server


def _refuse_as(watched: Watched) -> None:
    """Exit as the capture process did, with its message, where it captured nothing."""
    code = watched.close()
    if code:
        for line in watched.last_message().splitlines():
            say(line, err=True)
        raise click.exceptions.Exit(code) from None


class _Show:
    """Shows reports until the input ends, or a signal, a key or -a ends it."""

    def __init__(
        self,
        watcher: Watcher,
        watched: Watched,
        heading: str,
        exposition: Exposition | None,
        manager: ServiceManager,
        duration_s: float | None,
        silence: Silence | None = None,
    ) -> None:
        self._silence = silence
        self._has_told = False
        self._watcher = watcher
        self._watched = watched
        self._heading = heading
        self._exposition = exposition
        self._manager = manager
        self._duration_s = duration_s

    def as_lines(self, *, is_json: bool) -> None:
        """One report after the other."""
        from iscsitrace.watch.board import lines_of

        until = None if self._duration_s is None else time.monotonic() + self._duration_s
        is_stopping = False
        with wishing() as wish:
            while not self._watcher.is_over:
                report = self._watcher.step()
                self._manager.alive()
                self._tell_input(report)
                if report:
                    if self._exposition:
                        self._exposition.update(report, self._watcher)
                    if is_json:
                        show_json_line(report.as_dict())
                    else:
                        for line in lines_of(report):
                            show_line(line)
                    sys.stdout.flush()
                if not is_stopping and (wish.is_there or (until is not None and time.monotonic() >= until)):
                    is_stopping = True
                    self._watched.stop()

    def _tell_input(self, report: Report | None) -> None:
        """What is captured, and why nothing is seen, each once. Without packets there is no report."""
        if not self._has_told and self._watched.is_open_interface:
            self._has_told = True
            say(f"iscsitrace: {self._heading}", err=True)
        has_iscsi = bool(report.connections) if report else None
        line = self._silence and self._silence.line(self._watcher.packet_count, has_iscsi=has_iscsi)
        if line:
            say(f"iscsitrace: {line}", err=True)

    def on_screen(self) -> None:
        """The whole terminal."""
        from iscsitrace.watch.screen import WatchScreen

        if self._heading == "-":
            # the pipe has another descriptor by now: keys come from the terminal
            try:
                os.dup2(os.open("/dev/tty", os.O_RDWR), sys.stdin.fileno())
            except OSError:
                self.as_lines(is_json=False)
                return
        screen = WatchScreen(
            self._watcher, self._heading, exposition=self._exposition, until_s=self._duration_s, silence=self._silence
        )
        try:
            screen.run()
        finally:
            screen.close()
        if screen.problem:
            raise screen.problem
        self._watched.stop()
        self._watcher.run(lambda report: None)


def _has_lost(document: dict[str, Any]) -> bool:
    lost = {"dropped_by_capture", "packets_left_out"}
    return any(row["name"] in lost and row["count"] for row in document["counters"])
