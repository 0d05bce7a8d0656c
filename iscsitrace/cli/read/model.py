"""``iscsitrace model``: what the period of a cycle is made of; ``fit`` finds it, ``predict`` says what would be."""

from __future__ import annotations

import click

from iscsitrace.cli.read import model_fit, model_predict


@click.group(epilog="Example:  iscsitrace model predict read --one-way-delay 1ms,8ms --rate 320Mbit --queue-depth 1,8")
def command() -> None:
    """period = k * d + s + B / C: a cycle pays the one-way delay k times, service once, and its block on the line."""


command.add_command(model_fit.command, "fit")
command.add_command(model_predict.command, "predict")
