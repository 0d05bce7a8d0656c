"""``capture -s advise``: how many bytes of a packet keep every PDU header, measured."""

from __future__ import annotations

from typing import Any

from iscsitrace.cli.output import show_line
from iscsitrace.wording.amounts import percent as share_of
from iscsitrace.wording.cells import megabytes

_MOST = 0.9
_WORTH_IT = 0.9
"""A cut that leaves more of the bytes than this saves nothing worth a loss."""


def show_advice(name: str, advice: dict[str, Any], dropped_count: int = 0) -> None:
    """The advice as text."""
    show_line(
        f"{name}: {advice['packet_count']} packets, {megabytes(advice['byte_count'])} MB, {advice['pdu_count']} PDUs "
        f"on {advice['connection_count']} iSCSI connections"
    )
    if not advice["pdu_count"]:
        show_line("no PDU seen: nothing to advise; measure while there is traffic")
        return
    _show_doubts(advice, dropped_count)
    headers, texts = advice["headers_snaplen"], advice["texts_snaplen"]
    share = advice["headers_kept_bytes"] / advice["byte_count"]
    if share > _WORTH_IT:
        show_line(
            f"no useful cut: a PDU header ends {headers} bytes into its packet, and so many bytes of each packet are "
            f"{share_of(share)} of all"
        )
        if advice["long_packet_count"]:
            show_line(
                f"{advice['long_packet_count']} packets are longer than any on the wire, up to "
                f"{advice['longest_bytes']} bytes: the host captures before it cuts segments (TSO) or after it joins "
                "them (GRO), so that one holds several PDUs"
            )
        _show_shorter(advice)
        return
    show_line(f"-s {headers} keeps every PDU header: {share_of(share)} of the bytes")
    if texts > headers:
        share = advice["texts_kept_bytes"] / advice["byte_count"]
        show_line(f"-s {texts} keeps login texts and sense data, too: {share_of(share)} of the bytes")
    _show_shorter(advice)
    show_line("this holds for the PDU layout seen; another block size or target may need more")


def _show_shorter(advice: dict[str, Any]) -> None:
    """A shorter one that keeps most headers, where a few lie deep: a stream that once lost its step."""
    for other in advice["others"]:
        if other["snaplen"] < advice["headers_snaplen"] / 2 and other["headers_share"] >= _MOST:
            share = other["kept_bytes"] / advice["byte_count"]
            show_line(
                f"most headers end sooner: -s {other['snaplen']} keeps {share_of(other['headers_share'])} of them and "
                f"{share_of(share)} of the bytes; what it loses is counted when the capture is read"
            )
            return


def _show_doubts(advice: dict[str, Any], dropped_count: int) -> None:
    if dropped_count:
        show_line(f"{dropped_count} packets were dropped meanwhile: what they held is not measured")
    if advice["cut_packet_count"]:
        show_line(f"{advice['cut_packet_count']} packets were cut already: headers beyond that are not measured")
    if advice["unexplained_bytes"]:
        show_line(f"{advice['unexplained_bytes']} bytes of the streams belong to no PDU that was found")
