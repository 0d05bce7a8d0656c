"""Updates the images of docs/plots.md: runs each command of the page and stores its image.

``python -m tools.plots`` writes the images. ``--check`` only lists images that are out of date, and kinds of plots
without a command on the page (exit code 1). Images are reduced to a palette, to keep them small. They are compared by
pixels, not by bytes, which differ between versions of the libraries that write them.
"""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from click.testing import CliRunner
from PIL import Image

from iscsitrace import cli
from iscsitrace.plots import kinds

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "plots.md"
COLORS = 128
MOST_BYTES = 100_000
TOLERANCE = 4.0
"""Largest root mean square difference of two images that count as equal; pixels are 0 to 255."""


def commands() -> list[list[str]]:
    """Every plot command of the page, as words."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("iscsitrace plot ")]
    return [shlex.split(line) for line in lines]


def output(command: list[str]) -> Path:
    """The image file of a command."""
    return ROOT / command[command.index("-o") + 1]


def draw(command: list[str], folder: Path) -> Image.Image:
    """The current image of a command."""
    path = folder / output(command).name
    words = [str(path) if word == command[command.index("-o") + 1] else word for word in command]
    with chdir(ROOT):
        result = CliRunner().invoke(cli.main, words[1:], catch_exceptions=False)
    if result.exit_code:
        raise RuntimeError(f"{shlex.join(command)}: exit code {result.exit_code}: {result.stderr}")
    with Image.open(path) as image:
        return image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)


def difference(one: Image.Image, other: Image.Image) -> float:
    """Root mean square difference of two images; 256 if their sizes differ."""
    if one.size != other.size:
        return 256.0
    pixels = [np.asarray(image.convert("RGB"), dtype=np.float64) for image in (one, other)]
    return float(np.sqrt(np.mean((pixels[0] - pixels[1]) ** 2)))


def is_same(path: Path, image: Image.Image) -> bool:
    """Whether a file contains the same image."""
    if not path.is_file():
        return False
    with Image.open(path) as kept:
        return difference(kept, image) <= TOLERANCE


def main(arguments: list[str]) -> int:
    """Writes or only compares the images; returns the exit code."""
    stale = [
        f"docs/plots.md has no command for {kind}"
        for kind in kinds.NAMES
        if kind not in [words[2] for words in commands()]
    ]
    with TemporaryDirectory() as folder:
        for command in commands():
            path = output(command)
            try:
                image = draw(command, Path(folder))
            except RuntimeError as error:
                stale.append(str(error))
                continue
            if is_same(path, image):
                continue
            name = path.relative_to(ROOT)
            if "--check" in arguments:
                stale.append(f"{name} is out of date: python -m tools.plots")
                continue
            path.parent.mkdir(exist_ok=True)
            image.save(path, optimize=True)
            print(f"{name} written, {path.stat().st_size} bytes")
    print(*stale, sep="\n", end="\n" if stale else "")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
