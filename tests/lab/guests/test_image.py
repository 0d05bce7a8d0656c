"""The image of the guests is made once, by one process, and again when its recipe changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from iscsitrace.errors import ToolMissing
from iscsitrace.lab.guests import image
from iscsitrace.lab.guests.image import Image


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "iscsitrace" / "guests"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Image]:
    found: list[Image] = []

    def fill(new: Image) -> None:
        found.append(new)
        for file in (new.root, new.kernel, new.modules):
            file.write_bytes(b"1234")

    monkeypatch.setattr(image, "_fill", fill)
    return found


def test_an_image_is_made_once(cache: Path, made: list[Image]) -> None:
    said: list[str] = []
    first = image.made(said.append)
    assert first.is_complete
    assert first.size_bytes == 12
    assert image.made(said.append) == first == image.cached()
    assert len(made) == len(said) == 1
    assert str(first.root.parent) in said[0]
    assert [folder.name for folder in cache.iterdir()] == [first.root.parent.name]


def test_another_recipe_makes_another_image_and_removes_the_old_one(
    cache: Path, made: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = image.made(lambda _: None)
    monkeypatch.setattr(image, "SUITE", "trixie")
    second = image.made(lambda _: None)
    assert second != first
    assert len(made) == 2
    assert list(cache.iterdir()) == [second.root.parent]


def test_an_incomplete_image_is_made_again(cache: Path, made: list[Image]) -> None:
    first = image.made(lambda _: None)
    first.kernel.unlink()
    assert image.made(lambda _: None).is_complete
    assert len(made) == 2


def test_what_a_failed_or_killed_build_leaves_is_removed(
    cache: Path, made: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "building-iscsitrace-1-2-").mkdir(parents=True)

    def fail(_: Image) -> None:
        raise ToolMissing("mmdebstrap failed")

    with monkeypatch.context() as patch:
        patch.setattr(image, "_fill", fail)
        with pytest.raises(ToolMissing):
            image.made(lambda _: None)
    assert list(cache.iterdir()) == []
    assert image.made(lambda _: None).is_complete
