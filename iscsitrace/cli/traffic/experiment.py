"""``iscsitrace lab list`` and ``iscsitrace lab run NAME``: experiments as data, in either world."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iscsitrace.cli.output import quiet
from iscsitrace.cli.process import StopWish, wishing
from iscsitrace.show.line import ProgressBar, say
from iscsitrace.show.terminal import show_json, show_table

if TYPE_CHECKING:
    from iscsitrace.studies.experiment import Progress

_WORLDS = ("simulated", "real", "guests")
_KEPT = ("figures", "captures", "none")
_EXIT_FAILED = 1
_EXIT_INTERRUPTED = 130
_MINUTE_S = 60


@click.command("list", epilog="Example:  iscsitrace lab list")
@click.option("--json", "is_json", is_flag=True, help="One JSON document with a schema number.")
def list_command(is_json: bool) -> None:
    """List the experiments that come with iscsitrace; `lab run NAME` runs one."""
    import iscsitrace
    from iscsitrace.studies import definition, points, results

    found = [definition.load(name) for name in definition.names()]
    rows = [
        {
            "name": each.name,
            "title": each.title,
            "source": each.source,
            "points": len(points.of_experiment(each, "simulated")),
            "real_points": len(points.of_experiment(each, "real")) if each.real.is_possible else None,
            "real_note": each.real.note,
            "arms": [arm.name for arm in each.arms],
            "figures": [figure.title for figure in each.figures],
        }
        for each in found
    ]
    if is_json:
        tool = {"name": "iscsitrace", "version": iscsitrace.__version__}
        show_json({"schema": results.RESULTS_SCHEMA, "tool": tool, "experiments": rows})
        return
    headings = ("name", "points", "real world", "title")
    show_table(headings, [(row["name"], row["points"], row["real_points"], row["title"]) for row in rows])


@click.command(epilog="Example:  iscsitrace lab run read-study -o read-study")
@click.argument("name", metavar="NAME")
@click.option(
    "-o",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    required=True,
    help="Folder for the results. It is created if missing; an interrupted run in it is continued.",
)
@click.option(
    "--world",
    type=click.Choice(_WORLDS),
    default=_WORLDS[0],
    show_default=True,
    help="Virtual time, the kernel's TCP in network namespaces (root), or open-iscsi and LIO in guests (root).",
)
@click.option(
    "--keep",
    type=click.Choice(_KEPT),
    default=_KEPT[0],
    show_default=True,
    help="Captures and truths to keep: those that figures are drawn from, all (captures), or none.",
)
@click.option(
    "--reduced",
    "is_reduced",
    is_flag=True,
    help="Use the reduced scale of the real world in virtual time, too: to compare the two worlds.",
)
@click.option("--arm", "arms", multiple=True, metavar="ARM", help="Only this arm. Repeatable.")
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    help="Points that run at the same time in the simulated world (one per processor).",
)
@click.option("--force", "is_forced", is_flag=True, help="Start over: run finished points again.")
@click.option("--json", "is_json", is_flag=True, help="One JSON document with a schema number: results.json.")
@quiet("Show no progress bar.")
def command(
    name: str,
    directory: Path,
    world: str,
    keep: str,
    is_reduced: bool,
    arms: tuple[str, ...],
    jobs: int | None,
    is_forced: bool,
    is_json: bool,
    is_quiet: bool,
) -> None:
    """Run an experiment: NAME of `lab list`, or your own FILE.toml (see `iscsitrace docs lab "a definition"`).

    Writes results.json, results.csv and the figures: the measurements at every point, beside the model's predictions
    and published values. Each point has a folder below DIR/points. Ctrl-C stops; the same command continues. When a
    point fails, it is reported, the rest continues, and the exit code is 1.
    """
    from iscsitrace.studies import experiment, results, tables
    from iscsitrace.studies.definition import load
    from iscsitrace.studies.points import of_experiment

    definition = load(name)
    points = of_experiment(definition, world, is_reduced=is_reduced)
    known = list(dict.fromkeys(point.arm for point in points))
    for arm in arms:
        if arm not in known:
            raise click.UsageError(f"no arm is called {arm!r}; there are {', '.join(known)}")
    points = [point for point in points if not arms or point.arm in arms]
    experiment.prepare(definition, points, directory, is_forced=is_forced)
    watched = _Watched(ProgressBar(definition.name, is_wanted=not is_quiet))
    count = jobs or os.cpu_count() or 1
    try:
        with wishing() as wish:
            watched.wish = wish
            found = experiment.carry_out(
                definition,
                points,
                directory,
                watched,
                jobs=count if world == "simulated" else 1,
                keep=keep,
                is_reduced=is_reduced,
            )
    finally:
        watched.close()
    if is_json:
        show_json(results.document(found))
    else:
        tables.show(found, directory)
    if not found.is_complete:
        say(
            f"stopped: {len(found.points)} of {found.point_count} points are done; run the command again to continue",
            err=True,
        )
        click.get_current_context().exit(_EXIT_INTERRUPTED)
    if found.failed:
        click.get_current_context().exit(_EXIT_FAILED)


class _Watched:
    """Shows the progress of an experiment on stderr, and reports a request to stop."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self.wish = StopWish()

    def __call__(self, seen: Progress) -> bool:
        if seen.latest is not None and seen.latest.error is not None:
            say(f"failed: {seen.latest.name}: {seen.latest.error}", err=True)
        left = "" if seen.left_s is None else f", {_minutes(seen.left_s)} left"
        failed = f", {seen.failed} failed" if seen.failed else ""
        self._bar.show(seen.done, seen.count, f"{seen.done} of {seen.count} points{failed}{left}")
        return self.wish.is_there

    def close(self) -> None:
        """Removes the progress bar."""
        self._bar.close()


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _MINUTE_S else f"{seconds / _MINUTE_S:.0f} min"
