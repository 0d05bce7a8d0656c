"""Hooks of MkDocs: the site also has the pages outside docs/ that its pages link to, and their links lead there.

docs/ is the root of the site. `README.md` is `start.md` there, since MkDocs takes a README for the page of its folder.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "CITATION.cff")
_FOLDERS = ("plugins", "samples")
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_PRINTED = re.compile(r'<span class="go">( *\S+(?: \S+)*)</span>')
_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def site_path(path: str) -> str:
    """Where the site has a file of the repository."""
    return "start.md" if path == "README.md" else path.removeprefix("docs/")


def in_site(text: str, path: str) -> str:
    """The text of the page at a path of the repository, with the links that it has in the site."""

    def moved(link: re.Match[str]) -> str:
        target = site_path(posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1])))
        return posixpath.relpath(target, posixpath.dirname(site_path(path)) or ".")

    parts = _CODE.split(text)
    return "".join(part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts))


def with_prose(html: str) -> str:
    """Marks the sentences of console output, which wrap; lines with columns, two spaces apart, do not."""
    return _PRINTED.sub(r'<span class="go prose">\1</span>', html)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files outside docs/."""
    names = [
        *_OUTSIDE,
        *(str(each.relative_to(ROOT)) for name in _FOLDERS for each in (ROOT / name).rglob("README.md")),
    ]
    for name in names:
        files.append(File.generated(config, site_path(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads the links of a page to the files of the site."""
    path = Path(page.file.abs_src_path or "").relative_to(ROOT)
    return in_site(markdown, path.as_posix())


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks what wraps."""
    return with_prose(html)
