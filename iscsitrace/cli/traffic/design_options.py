"""The options of our initiator's design: who drives it, and how it receives; in real time alone."""

from __future__ import annotations

import click

from iscsitrace.cli.read.sections import option

DESIGN = (
    option(
        "--driver",
        type=click.Choice(("events", "threads")),
        default="events",
        show_default=True,
        help="One thread that waits for whatever comes, or for each connection one that receives and one that sends.",
    ),
    option(
        "--receive",
        type=click.Choice(("copy", "discard")),
        default="copy",
        show_default=True,
        help="Copy all data, or have the kernel discard those of reads that are not verified.",
    ),
)
"""Of commands that run it."""
