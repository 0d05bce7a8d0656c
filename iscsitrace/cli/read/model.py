"""``iscsitrace model``: the model of throughput; ``fit`` finds its parameters, ``predict`` evaluates it, and ``plan``
inverts it.
"""

from __future__ import annotations

import click

from iscsitrace.cli.read import model_fit, model_plan, model_predict


@click.group(epilog="Example:  iscsitrace model predict read --one-way-delay 1ms,8ms --rate 320Mbit --queue-depth 1,8")
def command() -> None:
    """Fit, evaluate or invert the model: period = k * d + s + B / C.

    A cycle takes k one-way delays d, the service time s, and the time of its I/O size B on a line of rate C.
    """


command.add_command(model_fit.command, "fit")
command.add_command(model_predict.command, "predict")
command.add_command(model_plan.command, "plan")
