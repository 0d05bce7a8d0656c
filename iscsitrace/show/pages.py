"""The pages of the docs that are in the package, or a section of one: drawn on a terminal, else as they are."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import click

from iscsitrace.errors import InputInvalid, OutputExists

FOLDER: Final = Path(__file__).parents[1] / "pages"
"""In the source tree a link to docs/, which has the pages for developers as well; a wheel has those of ``NAMES``."""
SAMPLES: Final = Path(__file__).parents[1] / "samples"
"""The sample captures; in the source tree a link."""
NAMES: Final = (
    *("index", "tutorial", "capture", "two-taps", "watch", "report", "diff", "fleet", "plugins", "notebooks"),
    *(
        "operations",
        "anonymise",
        "cli",
        "diagnosis",
        "conformance",
        "tables",
        "counters",
        "filters",
        "json",
        "plots",
        "glossary",
    ),
    *("method", "lab", "faults", "guests"),
)
"""The pages for users, in the order of the site."""
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]*)\)")
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
"""Of those who edit a page."""
_WIDTH = 120
"""Columns of text on a wider terminal."""


def write_samples(folder: Path) -> None:
    """Writes the sample captures into a new folder.

    OutputExists if it exists; InputInvalid if it cannot be written.
    """
    try:
        shutil.copytree(SAMPLES, folder)
    except FileExistsError as error:
        raise OutputExists(f"{folder} exists; nothing was written") from error
    except OSError as error:
        raise InputInvalid(f"cannot write {folder}: {error.strerror or 'not every file was written'}") from error


def titles() -> Iterator[tuple[str, str]]:
    """Each page's name and title."""
    for name in NAMES:
        with (FOLDER / f"{name}.md").open(encoding="utf-8") as file:
            yield name, file.readline().removeprefix("# ").strip()


def page(name: str, section: str = "") -> str:
    """The Markdown of a page, or of its first section whose title begins with a text, in any case.

    InputInvalid for a name or section that does not exist, with what is like it.
    """
    name = name.removeprefix("docs/").removesuffix(".md")
    if name not in NAMES:
        near = get_close_matches(name, NAMES, n=3, cutoff=0.5)
        raise InputInvalid(
            f"there is no page {name!r}"
            + (f"; pages like it: {', '.join(near)}" if near else "; `iscsitrace docs` lists them")
        )
    text = _COMMENT.sub("", (FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    return _section(text, name, section) if section else text


def terms() -> dict[str, str]:
    """The terms of the glossary, each with its meaning."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page("glossary"), re.MULTILINE)
    return {each: meaning.replace("`", "") for names, meaning in rows[1:] for each in names.split(", ")}


def _section(text: str, name: str, wanted: str) -> str:
    """A heading, and all below it up to the next one of its level."""
    lines = text.splitlines()
    heads = list(_headings(lines))
    for number, (at, level, title) in enumerate(heads):
        if title.lower().startswith(wanted.lower()):
            end = next((begin for begin, other, _ in heads[number + 1 :] if other <= level), len(lines))
            return "\n".join(lines[at:end]).rstrip() + "\n"
    listed = ", ".join(title for _, level, title in heads if level == min(2, len(heads)))
    raise InputInvalid(f"no section of {name} begins with {wanted!r}; its sections: {listed}")


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """The line, level and title of each heading; a comment of a program is none."""
    is_code = False
    for at, line in enumerate(lines):
        is_code ^= line.lstrip().startswith("```")
        if (found := re.match(r"(#+) (.*)", line)) and not is_code:
            yield at, len(found[1]), found[2]


def show(text: str) -> None:
    """A page: on a terminal in a pager, drawn by Rich where it is installed; elsewhere as it is."""
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    text = _LINK.sub(_named, text)
    try:
        from rich.console import Console
        from rich.markdown import Markdown
    except ImportError:
        click.echo_via_pager(text)
        return
    console = Console()
    console.width = min(console.width, _WIDTH)
    with console.capture() as drawn:
        console.print(Markdown(text))
    click.echo_via_pager(drawn.get())


def _named(link: re.Match[str]) -> str:
    """A link as a terminal can follow it: another page by its command."""
    text, target = link.groups()
    if link[0].startswith("!"):
        return f"*(picture: {text})*"
    name = target.partition("#")[0].removesuffix(".md")
    if name not in NAMES:
        return text
    return f"`iscsitrace docs {name}`" if text.endswith(".md") else f"{text} (`iscsitrace docs {name}`)"
