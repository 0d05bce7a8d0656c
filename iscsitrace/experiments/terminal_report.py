"""Reports the results of an experiment as tables of text."""

from __future__ import annotations

from pathlib import Path

from iscsitrace.experiments import tables
from iscsitrace.experiments.results import Results
from iscsitrace.outputs.terminal import show_heading, show_line, show_table


def show(found: Results, directory: Path) -> None:
    """Shows every table of the results, and the files in their folder."""
    show_line(f"{found.title}, {found.world} world; source: {found.source}")
    for grid in tables.of(found):
        show_heading(grid.caption)
        show_table(grid.columns, grid.rows)
        for note in grid.notes:
            show_line(note)
    show_heading("Files")
    titles = {name: figure.title for figure in found.figures for name in (figure.file, *figure.others)}
    names = ["results.json", "results.csv", *titles]
    show_table(("file", "content"), [(directory / name, titles.get(name, "every point")) for name in names])
    show_line(f"One page with figures and tables: iscsitrace report {directory}")
