"""docs/plots.md: every kind has an image made by its command; tools.plots checks the images."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest
from PIL import Image

from iscsitrace.plots import kinds
from tools import plots

IMAGES = re.findall(r"!\[[^\]]+\]\((images/[a-z-]+\.png)\)", plots.PAGE.read_text())


def test_every_kind_has_a_section_with_its_command_and_image() -> None:
    sections = re.findall(r"^## (.*)$", plots.PAGE.read_text(), re.MULTILINE)
    # a kind may have several images, one after another
    assert [kind for kind, _ in groupby(words[2] for words in plots.commands())] == sections
    assert [str(plots.output(words).relative_to(plots.PAGE.parent)) for words in plots.commands()] == IMAGES
    assert sorted(sections) == list(kinds.NAMES)


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_small(name: str) -> None:
    path = plots.PAGE.parent / name
    assert path.stat().st_size < plots.MOST_BYTES
    with Image.open(path) as image:
        assert image.format == "PNG"


def test_an_image_of_something_else_is_out_of_date(tmp_path: Path) -> None:
    one, other = (Image.new("RGB", (40, 20), color) for color in ("white", "black"))
    one.save(tmp_path / "a.png")
    assert plots.is_same(tmp_path / "a.png", one)
    assert not plots.is_same(tmp_path / "a.png", other)
    assert not plots.is_same(tmp_path / "a.png", one.resize((20, 20)))
    assert not plots.is_same(tmp_path / "b.png", one)


def test_a_failing_command_is_reported() -> None:
    with pytest.raises(RuntimeError, match="cannot read"):
        plots.draw(["iscsitrace", "plot", "cycles", "-o", "a.png", "missing.pcap"], plots.ROOT)
