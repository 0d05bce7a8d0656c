"""``iscsitrace link``: an emulated link between two TAP devices, in real time."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import click

from iscsitrace.cli.process import StopWish, wishing
from iscsitrace.cli.traffic.run_options import LINK
from iscsitrace.cli.traffic.settings_command import SettingsCommand
from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab.settings import structs
from iscsitrace.show import run_results
from iscsitrace.show.document import Section
from iscsitrace.show.terminal import show, show_line

_NAMESPACES = Path("/run/netns")
_PERIOD_NS = 50_000_000
_WAIT_S = 0.1


@click.command(
    cls=SettingsCommand,
    sections=(LINK,),
    shown=(
        *("rate", "one-way-delay", "queue", "loss", "burst-loss", "jitter", "jitter-reorders", "reorder"),
        "overhead",
    ),
    epilog="Example:  iscsitrace link initiator:tap0 target:tap0 --rate 100Mbit --one-way-delay 4ms --queue 100",
)
@click.argument("initiator_tap", metavar="INITIATOR_TAP")
@click.argument("target_tap", metavar="TARGET_TAP")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random choices.")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), help="Duration. Until Ctrl-C or SIGTERM if not set."
)
@click.option(
    "--log",
    "log_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write what it carried and dropped, as JSON.",
)
@click.option("--log-packets", "is_logging_packets", is_flag=True, help="Add every packet to that file. Takes memory.")
@click.option("--force", "is_forced", is_flag=True, help="Overwrite that file if it exists.")
def command(
    initiator_tap: str,
    target_tap: str,
    seed: int,
    seconds: float | None,
    log_path: Path | None,
    is_logging_packets: bool,
    is_forced: bool,
    **values: Any,
) -> None:
    """Emulate a link between two TAP devices, [NAMESPACE:]DEVICE each: rate, delay, queue, loss, reordering.

    A missing device is created, and removed at the end. Prints one line when the link is ready, and its packet counts
    at the end. Needs root. Runs with real-time priority where that is allowed.
    """
    from iscsitrace.lab import run_files

    if log_path:
        run_files.require_new([log_path], is_forced=is_forced)
    settings: dict[str, Any] = {
        "initiator": _tap(initiator_tap),
        "target": _tap(target_tap),
        "link": structs.link_of_both(LINK.take(values)) | {"seed": seed, "is_logging_packets": is_logging_packets},
    }
    for tap in (settings["initiator"], settings["target"]):
        namespace = tap["namespace"]
        if namespace and not Path(namespace).exists():
            raise TrafficImpossible(f"there is no network namespace {Path(namespace).name}")
    name = f"{initiator_tap} to {target_tap}"
    with wishing() as wish:
        end_s = None if seconds is None else time.monotonic() + seconds
        run = _LinkThread(name, settings, wish, end_s)
        log = run.wait()
    run_files.pack_busy_times(log["link"])
    if log_path:
        run_files.write_truth(log_path, run_files.envelope("link") | {"settings": settings} | log)
    show([Section("", (run_results.links([(name, log["link"])]), run_results.lateness([(name, log)])))])
    if log["failure"]:
        raise TrafficImpossible(f"the link ended: {log['failure']}")


def _tap(text: str) -> dict[str, str | None]:
    namespace, colon, name = text.rpartition(":")
    return {"name": name, "namespace": str(_NAMESPACES / namespace) if colon else None}


class _LinkThread:
    """The link in a second thread. The main thread stays free for signals."""

    def __init__(self, name: str, settings: dict[str, Any], wish: StopWish, end_s: float | None) -> None:
        self._name = name
        self._settings = settings
        self._wish = wish
        self._end_s = end_s
        self._log: dict[str, Any] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="link", daemon=True)

    def wait(self) -> dict[str, Any]:
        self._thread.start()
        try:
            while self._thread.is_alive():
                self._thread.join(_WAIT_S)
        except BaseException:
            self._wish.is_there = True
            raise
        if self._error is not None:
            raise self._error
        assert self._log is not None  # noqa: S101 -- it ended without an error
        return self._log

    def _work(self) -> None:
        from iscsitrace.lab import link_process, traffic

        # without the priority, other programs can delay frames
        link_process.raise_priority()
        try:
            self._log = traffic.run_link(self._settings, self._ready, self._is_over, period_ns=_PERIOD_NS)
        except TrafficImpossible as error:
            hint = "" if os.geteuid() == 0 else "; a link needs root"
            self._error = TrafficImpossible(f"{error}{hint}")
        except BaseException as error:
            self._error = error

    def _ready(self) -> None:
        show_line(f"iscsitrace link: {self._name}")

    def _is_over(self) -> bool:
        return self._wish.is_there or (self._end_s is not None and time.monotonic() >= self._end_s)
