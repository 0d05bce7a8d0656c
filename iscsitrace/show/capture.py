"""The end of a capture, and advice on its snaplen, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from iscsitrace.show.document import Section
from iscsitrace.wording.amounts import count, percent
from iscsitrace.wording.cells import megabytes

_MOST: Final = 0.9
"""Least share of the headers that a shorter snaplen has to keep."""
_USEFUL: Final = 0.9
"""A snaplen that keeps a larger share of the bytes saves too little."""


def end(outcome: Mapping[str, Any]) -> str:
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


def advice(name: str, found: Mapping[str, Any], dropped_count: int = 0) -> Section:
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
    if share > _USEFUL:
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
        if other["snaplen"] < found["headers_snaplen"] / 2 and other["headers_share"] >= _MOST:
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
