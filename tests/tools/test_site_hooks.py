"""The site: links lead from the place that a file has in the repository to the one that it has there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import Browser, required
from tools import site_hooks

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT = """[...document.querySelectorAll("pre .prose")].filter(
    (line) => line.getBoundingClientRect().right > line.closest("pre").getBoundingClientRect().right).length"""
CASES = [
    ("docs/watch.md", "[a](method.md#x)", "[a](method.md#x)"),
    ("docs/watch.md", "[a](../README.md#install)", "[a](start.md#install)"),
    ("docs/watch.md", "[a](../plugins/grafana/README.md)", "[a](plugins/grafana/README.md)"),
    ("README.md", "![a](docs/images/report.png)", "![a](images/report.png)"),
    ("README.md", "[a](docs/capture.md#filters)", "[a](capture.md#filters)"),
    ("plugins/grafana/README.md", "[a](../../docs/watch.md)", "[a](../../watch.md)"),
    (
        "docs/watch.md",
        "[a](https://example.org/docs/a.md), [b](#below)",
        "[a](https://example.org/docs/a.md), [b](#below)",
    ),
    ("README.md", "`[a](docs/a.md)`", "`[a](docs/a.md)`"),
]


@pytest.mark.parametrize(("path", "text", "expected"), CASES)
def test_links_of_the_site(path: str, text: str, expected: str) -> None:
    assert site_hooks.in_site(text, path) == expected


def test_sentences_of_printed_output_wrap_and_columns_do_not() -> None:
    assert site_hooks.with_prose('<span class="go">  1. Use fewer bursts.</span>').startswith(
        '<span class="go prose">  1.'
    )
    columns = '<span class="go">cycle  LUN</span>'
    assert site_hooks.with_prose(columns) == columns


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=site_hooks.ROOT,
        check=True,
    )
    return folder


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"(?:https?:)?//|<link[^>]*\shref=\"(?:https?:)?//")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40  # the pages of docs/, and those of samples/ and plugins/
    assert [page.name for page in pages if loads.search(page.read_text())] == []
    assert [
        sheet.name for sheet in site.rglob("*.css") if re.search(r"url\((?:https?:)?//|@import", sheet.read_text())
    ] == []
    # the theme loads Mermaid from a server for such a block
    assert not any('class="mermaid"' in page.read_text() for page in pages)


def test_lists_and_tables_are_not_left_as_text(site: Path) -> None:
    # MkDocs needs what a forge does not: a blank line before a list, four spaces before what is in an item
    left = re.compile(r"^\s*(?:[-*] |\d+\. |\|.*\|)|\*\*|```", re.MULTILINE)
    for path in site.rglob("*.html"):
        code = re.compile(r"<(pre|code)\b.*?</\1>", re.DOTALL)
        for paragraph in re.findall(r"<p>(.*?)</p>", code.sub("", path.read_text()), re.DOTALL):
            assert not left.search(paragraph), f"{path.name}: {paragraph}"


@pytest.mark.parametrize("width", [1400, 400])
def test_pages_in_a_browser(site: Path, tmp_path: Path, width: int) -> None:
    with Browser(required(), tmp_path) as browser:
        browser.resize(width)
        for name in ("index", "tutorial", "two-taps", "diagnosis"):
            browser.open(site / f"{name}.html")
            # wide blocks and tables scroll, the page does not
            assert browser.evaluate(OVERFLOW) <= 0, name
            # sentences wrap
            assert browser.evaluate(CUT) == 0, name
        assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []


def test_a_dead_anchor_fails(tmp_path: Path) -> None:
    settings = (site_hooks.ROOT / "mkdocs.yml").read_text()
    validation = settings[settings.index("validation:") : settings.index("nav:\n")]
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text(f"site_name: a\ntheme: {{name: material, font: false}}\n{validation}")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    for link, code in (("#here", 0), ("#nowhere", 1), ("other.md", 1)):
        (tmp_path / "docs" / "index.md").write_text(f"# Here\n\n[a]({link})\n")
        result = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == code, result.stderr
