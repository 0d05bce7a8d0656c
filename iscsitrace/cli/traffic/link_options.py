"""The options that say what a link does to packets: for both directions, and for each that is different."""

from __future__ import annotations

from typing import Any

import click

from iscsitrace.cli.read.sections import Section, option
from iscsitrace.cli.units import Duration, Quantity, Rate, Share, Size

DIRECTIONS = ("to_target", "to_initiator")


class Queue(Quantity):
    """Packets (``100``), bytes (``64K``, ``3000B``) or ``none``, to settings of a queue."""

    name = "LENGTH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int | None]:
        """Both limits; fails as a size does."""
        if isinstance(value, dict):
            return value
        if value == "none":
            return {"queue_packets": None, "queue_bytes": None}
        if value.isascii() and value.isdigit():
            return {"queue_packets": int(value), "queue_bytes": None}
        return {"queue_packets": None, "queue_bytes": Size().convert(value, param, ctx)}


class BurstLoss(Quantity):
    """``ENTER,LEAVE[,BAD[,GOOD]]``, the probabilities of Gilbert and Elliott's two states."""

    name = "SHARES"
    _NAMES = ("enter", "leave", "loss_in_bad", "loss_in_good")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, float]:
        """The probabilities that are named; fails with a line that says how to write them."""
        if isinstance(value, dict):
            return value
        parts = value.split(",")
        if not 2 <= len(parts) <= len(self._NAMES):
            self.fail(f"{value!r}: write the shares ENTER,LEAVE[,BAD[,GOOD]], like 0.01%,25%", param, ctx)
        shares = [Share().convert(part, param, ctx) for part in parts]
        return {f"{name}_probability": share for name, share in zip(self._NAMES, shares, strict=False)}


class Reordering(Quantity):
    """``SHARE,TIME``: which share of the packets is held back, and for how long."""

    name = "SHARE,TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Both; fails with a line that says how to write them."""
        if isinstance(value, dict):
            return value
        share, comma, time = value.partition(",")
        if not comma:
            self.fail(f"{value!r}: write a share and a time, like 1%,2ms", param, ctx)
        return {
            "reorder_probability": Share().convert(share, param, ctx),
            "reorder_by_ns": Duration().convert(time, param, ctx),
        }


# option, type, name of the setting (none: the type gives several settings), help
_PARTS: tuple[tuple[str, Quantity, str | None, str], ...] = (
    ("rate", Rate(), "rate_bps", "Rate of the line, like 320Mbit; without one packets take no time."),
    ("one-way-delay", Duration(), "delay_ns", "What every packet takes."),
    (
        "queue",
        Queue(),
        None,
        "What may wait for the line: packets (100), bytes (64K) or none; 1000 packets if not set.",
    ),
    ("loss", Share(), "loss_probability", "Share of packets lost at random: 0.1%, 0.001 or 1/65536."),
    ("burst-loss", BurstLoss(), "burst_loss", "Loss in bursts (Gilbert-Elliott): ENTER,LEAVE[,BAD[,GOOD]]."),
    ("jitter", Duration(), "jitter_ns", "What a packet takes beyond the delay at most, uniformly; order is kept."),
    ("reorder", Reordering(), None, "Share of packets held back, and for how long, like 1%,2ms."),
    (
        "overhead",
        Size(),
        "overhead_bytes",
        "Bytes that a packet takes on the line beyond its frame: 24 as on Ethernet.",
    ),
)


def _link(**values: Any) -> dict[str, Any]:
    directions: dict[str, dict[str, Any]] = {direction: {} for direction in DIRECTIONS}
    for part, _, setting, _ in _PARTS:
        for direction, settings in directions.items():
            value = values[f"{direction}_{_name(part)}"]
            value = values[_name(part)] if value is None else value
            if value is not None:
                settings.update(value if setting is None else {setting: value})
    if values["is_jitter_reordering"]:
        for settings in directions.values():
            settings["is_jitter_reordering"] = True
    return directions


def _name(part: str) -> str:
    return part.replace("-", "_")


LINK = Section(
    "Link",
    _link,
    *(option(f"--{part}", type=kind, help=text) for part, kind, _, text in _PARTS),
    option("--jitter-reorders", "is_jitter_reordering", is_flag=True, help="Jitter lets packets overtake each other."),
    *(
        option(f"--{direction.replace('_', '-')}-{part}", type=kind, help=f"Only {direction.replace('_', ' the ')}.")
        for direction in DIRECTIONS
        for part, kind, _, _ in _PARTS
    ),
)
"""Settings of both directions; ``seed`` is the command's."""
