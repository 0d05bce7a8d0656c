"""Every path in the pages for developers exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/architecture.md", "docs/how-to-add.md", "CONTRIBUTING.md", "docs/testing.md")
_TOP = "core|iscsitrace|tests|tools|docs|plugins|bench|samples"
_PATH = re.compile(rf"(?<![\w/.-])(?:{_TOP})/[\w./*-]*\w/?")
# names that stand for any name
_PLACEHOLDERS = re.compile(r"NAME|FAMILY|FILE")
# where a page names a file below a package, such as `relate/mirrors`
_BASES = ("iscsitrace", "core/trace/src", "core/capture/src", "core/lab/src", "core/wire/src")
_BELOW = re.compile(r"`([a-z_]+(?:/[a-z_*]+)+(?:\.\w+)?)`")


def exists(path: str) -> bool:
    return any(ROOT.glob(path.rstrip("/"))) or any(ROOT.glob(f"{path}.py")) or any(ROOT.glob(f"{path}.rs"))


def missing(text: str) -> list[str]:
    """The paths in a text that are not in the tree."""
    named = [path for path in _PATH.findall(text) if not _PLACEHOLDERS.search(path)]
    below = [path for path in _BELOW.findall(text) if not re.match(rf"(?:{_TOP}|build)/", path)]
    wrong = [path for path in named if not exists(path)]
    return wrong + [path for path in below if not any(exists(f"{base}/{path}") for base in _BASES)]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page: str) -> None:
    assert missing((ROOT / page).read_text()) == []


def test_a_wrong_path_is_found() -> None:
    text = "see core/trace/src/none.rs, `tests/support/story.py`, `relate/none` and `relate/mirrors`"
    assert missing(text) == ["core/trace/src/none.rs", "relate/none"]
