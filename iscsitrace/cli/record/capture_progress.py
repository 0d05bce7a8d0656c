"""Progress of a capture: lines on stderr, and on a terminal a status line. Then its end, or advice on its snaplen."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from iscsitrace.cli.process import StopWish
from iscsitrace.cli.record.service_manager import ServiceManager
from iscsitrace.recording.file_names import numbered
from iscsitrace.recording.silence import Silence, listening
from iscsitrace.show.document import Section
from iscsitrace.show.line import say
from iscsitrace.wording.amounts import count, percent
from iscsitrace.wording.cells import megabytes
from iscsitrace.wording.quantities import SIZES

_DRAWN_EVERY_S = 0.5
_SLOW_LINES_A_SECOND = 5


class CaptureCaller:
    """Called by the core: decides whether to continue, and names files."""

    def __init__(self, path: Path, wish: StopWish, *, is_quiet: bool, earlier_number: int = 0) -> None:
        self._path = path
        self._earlier_number = earlier_number
        self._wish = wish
        self._is_quiet = is_quiet
        self._line = not is_quiet and sys.stderr.isatty()
        self._drawn_s = 0.0
        self._is_drawn = False
        self._second = 0
        self._slow_lines = 0
        self._manager = ServiceManager()
        self._listening = ""
        self._silence: Silence | None = None

    def listen(self, names: Sequence[str], capture_filter: str | None, *, is_learning: bool) -> None:
        """What is captured from interfaces: to be said once they are open, and when nothing arrives."""
        self._listening = listening(names, capture_filter, is_learning=is_learning)
        self._silence = Silence(names, capture_filter, is_learning=is_learning)

    def watch(self, progress_json: str) -> bool:
        """Print the events; return whether to stop."""
        self._manager.alive()
        progress = json.loads(progress_json)
        for event in progress["events"]:
            self._tell(event)
        if self._silence and not self._is_quiet:
            seen = max(progress["seen_count"], progress["written_count"])
            if line := self._silence.line(seen, has_iscsi=seen > 0):
                self.say(line)
        if self._line and time.monotonic() - self._drawn_s >= _DRAWN_EVERY_S:
            self._drawn_s = time.monotonic()
            self._is_drawn = True
            click.echo(f"\r{_status(progress)}\x1b[K", err=True, nl=False)
        return self._wish.is_there

    def next_path(self, number: int) -> str:
        """The name of the next file of a ring: its numbers go on from the last capture's."""
        return str(numbered(self._path, self._earlier_number + number))

    def close(self) -> None:
        """Erase the status line."""
        if self._is_drawn:
            self._is_drawn = False
            click.echo("\r\x1b[K", err=True, nl=False)

    def end(self) -> None:
        """The capture is over."""
        self._manager.stopping()
        self.close()

    def say(self, text: str) -> None:
        """Print one line on stderr."""
        self.close()
        say(f"iscsitrace: {text}", err=True)

    def _tell(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "dropped":
            # printed with -q, too: packets are lost
            self.say(
                f"{event['interface']}: {event['count']} packets dropped, {event['total']} in total (try a larger "
                "buffer: -B, fewer packets: -f, or fewer bytes of each: -s)"
            )
        elif kind == "warning":
            self.say(event["text"])
        elif self._is_quiet:
            return
        elif kind == "file":
            self.say(f"writing {'standard output' if event['path'] == '-' else event['path']}")
            if self._listening:
                self.say(self._listening)
                self._listening = ""
        elif kind == "portals":
            self.say(f"found iSCSI at {', '.join(event['portals'])}; capture filter now: {event['filter']}")
        elif kind == "slow":
            self._tell_slow(event["text"])

    def _tell_slow(self, text: str) -> None:
        """The first few of each second, and the number of the others: a slow target has thousands."""
        second = int(time.monotonic())
        if second != self._second:
            if self._slow_lines > _SLOW_LINES_A_SECOND:
                self.say(f"... and {self._slow_lines - _SLOW_LINES_A_SECOND} more in that second")
            self._second, self._slow_lines = second, 0
        self._slow_lines += 1
        if self._slow_lines <= _SLOW_LINES_A_SECOND:
            self.say(text)


def _status(progress: dict[str, Any]) -> str:
    text = (
        f"{progress['elapsed_ns'] / 1e9:.0f} s  {progress['written_count']} packets  "
        f"{progress['written_bytes'] / SIZES['MB']:.1f} MB  {progress['dropped_count']} dropped"
    )
    found = progress["slow_count"]
    return text + (f"  {count(found, 'command')} met the trigger" if found else "")


_MOST_HEADERS: Final = 0.9
"""Least share of the headers that a shorter snaplen has to keep."""
_USEFUL_SHARE: Final = 0.9
"""A snaplen that keeps a larger share of the bytes saves too little."""


def end_of(outcome: Mapping[str, Any]) -> str:
    """The packets seen, written and dropped, and the commands that met the trigger."""
    progress = outcome["progress"]
    seen = sum(interface["seen_count"] for interface in outcome["interfaces"])
    found, samples = progress["slow_count"], progress["tcp_info_count"]
    return (
        f"{seen} packets seen, {progress['written_count']} written, {progress['dropped_count']} dropped; "
        f"{progress['written_bytes']} bytes in files"
        + (f"; {count(found, 'command')} met the trigger" if found else "")
        + (f"; {count(samples, 'sample')} of TCP_INFO" if samples else "")
    )


def snaplen_advice(name: str, found: Mapping[str, Any], dropped_count: int = 0) -> Section:
    """The snaplen that keeps every PDU header, and its share of the bytes."""
    return Section("", tuple(_advice(name, found, dropped_count)))


def _advice(name: str, found: Mapping[str, Any], dropped_count: int) -> Iterator[str]:
    yield (
        f"{name}: {found['packet_count']} packets, {megabytes(found['byte_count'])} MB, {found['pdu_count']} PDUs "
        f"on {found['connection_count']} iSCSI connections"
    )
    if not found["pdu_count"]:
        yield "no PDU seen, so no advice; measure while there is traffic"
        return
    yield from _doubts(found, dropped_count)
    headers, texts = found["headers_snaplen"], found["texts_snaplen"]
    share = found["headers_kept_bytes"] / found["byte_count"]
    if share > _USEFUL_SHARE:
        yield (
            f"no useful snaplen: a PDU header ends {headers} bytes into its packet, and {headers} bytes of each packet "
            f"are {percent(share)} of all bytes"
        )
        if found["long_packet_count"]:
            yield (
                f"{found['long_packet_count']} packets are longer than any on the wire, up to "
                f"{found['longest_bytes']} bytes: the host captures before it segments (TSO) or after it merges "
                "(GRO), so one packet holds several PDUs"
            )
        yield from _shorter(found)
        return
    yield f"-s {headers} keeps every PDU header: {percent(share)} of the bytes"
    if texts > headers:
        share = found["texts_kept_bytes"] / found["byte_count"]
        yield f"-s {texts} keeps login texts and sense data, too: {percent(share)} of the bytes"
    yield from _shorter(found)
    yield "this holds for the PDU layout seen; another I/O size or target may need more"


def _shorter(found: Mapping[str, Any]) -> Iterator[str]:
    """A much shorter snaplen that keeps most headers: a stream that lost alignment has a few deep ones."""
    for other in found["others"]:
        if other["snaplen"] < found["headers_snaplen"] / 2 and other["headers_share"] >= _MOST_HEADERS:
            yield (
                f"most headers end sooner: -s {other['snaplen']} keeps {percent(other['headers_share'])} of them and "
                f"{percent(other['kept_bytes'] / found['byte_count'])} of the bytes; truncated headers are counted "
                "when the capture is read"
            )
            return


def _doubts(found: Mapping[str, Any], dropped_count: int) -> Iterator[str]:
    if dropped_count:
        yield f"{dropped_count:,} packets were dropped during the measurement: they are not included"
    if found["cut_packet_count"]:
        yield f"{found['cut_packet_count']} packets were already truncated: headers beyond that are not included"
    if found["unexplained_bytes"]:
        yield f"{found['unexplained_bytes']} bytes of the streams were not decoded as PDUs"
