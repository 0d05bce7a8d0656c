"""Makes docs/images/report.png: the first screen of the report on a sample, as headless Chromium renders it.

``python -m tools.report_picture`` writes it. Look at the picture before it is committed: no test compares it, because
fonts differ between machines.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "report.png"
CAPTURE = ROOT / "samples" / "sequential-read-16ms" / "capture.pcapng.gz"
WIDTH, HEIGHT = 1200, 900
COLORS = 128


def main() -> int:
    """Writes the picture; returns the exit code."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("chromium is not installed: apt install chromium", file=sys.stderr)
        return 2
    with TemporaryDirectory() as name:
        page, screen = Path(name, "report.html"), Path(name, "screen.png")
        report = [sys.executable, "-m", "iscsitrace", "report", "-o", str(page), str(CAPTURE)]
        subprocess.run(report, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            [
                *(browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={name}/profile"),
                *(f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={screen}", page.as_uri()),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        with Image.open(screen) as image:
            image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)} written, {PICTURE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
