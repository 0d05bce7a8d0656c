"""``iscsitrace docs``, and what else names a page: each page and name that is printed exists in the package."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.errors import InputInvalid
from iscsitrace.show import explain, pages
from tools import docs

PACKAGE = docs.ROOT / "iscsitrace"
DEVELOPERS = {"architecture", "how-to-add", "testing", "reproduction", "samples"}
# a section is a number, or words up to the end of the quotation
DOCS = re.compile(r"iscsitrace docs ([a-z][a-z-]*)(?: (\d+|[a-z]+(?=[`).])|\"[^\"]+\"))?")
EXPLAIN = re.compile(r"iscsitrace explain ([a-z_0-9.]+|[A-Z]\d+)")
FILES = re.compile(r"\b(?:docs|samples|tools|tests|bench|core)/[\w.-]+|\b[\w-]+\.md\b")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["docs", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def printed() -> Iterator[tuple[str, str]]:
    """The file and text of everything that the package may print: strings, the help of commands, templates."""
    for path in PACKAGE.rglob("*"):
        name = str(path.relative_to(PACKAGE))
        if path.suffix in (".html", ".toml", ".js"):
            yield name, path.read_text()
        if path.suffix != ".py":
            continue
        tree = ast.parse(path.read_text())
        unseen = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        for each in ast.walk(tree):
            is_seen = id(each) not in unseen or name.startswith("cli/") or name == "api.py"
            if is_seen and isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield name, " ".join(each.value.split())


@cache
def texts() -> tuple[tuple[str, str], ...]:
    return tuple(printed())


def test_the_samples_of_the_tutorial_are_written_into_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    assert run("--samples", str(folder)) == ""
    named = set(re.findall(r"samples/([\w./-]+\.gz)", pages.page("tutorial")))
    assert named
    assert all((folder / name).read_bytes() == (docs.ROOT / "samples" / name).read_bytes() for name in named)
    for there, words in ((folder, "exists; nothing was written"), (Path("/proc/samples"), "cannot write")):
        result = CliRunner().invoke(main, ["docs", "--samples", str(there)])
        assert result.exit_code == 2
        assert words in result.output


def test_pages_of_the_package_are_those_of_the_command() -> None:
    (excluded,) = tomllib.loads((docs.ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["exclude"]
    assert set(re.findall(r"[a-z-]+", excluded["path"].partition("{")[2].partition("}")[0])) == DEVELOPERS
    assert {path.stem for path in (docs.ROOT / "docs").glob("*.md")} == {*pages.NAMES} | DEVELOPERS
    listed = [line.split()[0] for line in run().splitlines()[1:]]
    assert listed == list(pages.NAMES)


def test_a_page_and_a_section() -> None:
    # without the comments for those who edit a page
    whole = (docs.ROOT / "docs" / "capture.md").read_text()
    assert run("capture") == re.sub(r"<!--.*?-->\n*", "", whole, flags=re.DOTALL)
    assert all("<!--" not in pages.page(name) for name in pages.NAMES)
    section = run("capture", "permission")
    assert section.startswith("## Permission\n")
    assert "\n## " not in section
    # a heading of a lower level belongs to it; a comment of a program is no heading
    assert "\n### Outages\n" in run("method", "4")
    assert "\n## The dataset\n" in run("fleet")
    assert "# on each host" in run("fleet", "from twenty")


def test_names_that_do_not_exist() -> None:
    with pytest.raises(InputInvalid, match="there is no page 'methd'; pages like it: method"):
        pages.page("methd")
    with pytest.raises(InputInvalid, match=r"no section of capture begins with 'none'; its sections: .*Permission"):
        pages.page("capture", "none")


def test_links_in_a_terminal() -> None:
    text = "[method.md](method.md#a), [the rules](conformance.md), [RFC](https://x.org), ![A plot](images/a.png)"
    shown = "`iscsitrace docs method`, the rules (`iscsitrace docs conformance`), RFC, *(picture: A plot)*"
    assert pages._LINK.sub(pages._named, text) == shown


def test_a_terminal_without_rich_has_no_addresses_of_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(click, "echo_via_pager", shown.append)
    pages.show(pages.page("index"))
    (text,) = shown
    assert "*(picture: The live view)*" in text
    assert "![" not in text


def test_every_page_that_is_named_exists() -> None:
    named = [(file, *match.groups()) for file, text in texts() for match in DOCS.finditer(text)]
    assert len(named) > 20
    for file, name, section in named:
        assert pages.page(name, (section or "").strip('"')), (file, name, section)


def test_every_name_to_explain_exists() -> None:
    named = [(file, match[1]) for file, text in texts() for match in EXPLAIN.finditer(text)]
    assert named
    for file, name in named:
        assert explain.page(name.rstrip("."), PROBLEMS), file


def test_no_file_of_the_source_tree_is_named() -> None:
    # a TOML file has comments for people who edit it
    found = [(file, match[0]) for file, text in texts() for match in FILES.finditer(re.sub(r"(?m)^#.*$", "", text))]
    assert [each for each in found if each[0] != "show/pages.py"] == []


def test_the_man_page_is_valid() -> None:
    page = (docs.ROOT / docs.MAN_PAGE).read_text()
    for command in docs.commands():
        assert f'.SS "iscsitrace {command.name} ' in page
    # roff takes a line that begins so for a request: ours are these
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".BR", ".nf", ".fi"}
    assert "\b" not in page
