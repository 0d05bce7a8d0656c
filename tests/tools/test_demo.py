"""``make demo``, the first thing that a new user runs, from start to end."""

from __future__ import annotations

import subprocess
import sys

from tools import demo


def test_the_demo_shows_every_sample_and_writes_a_report() -> None:
    page = demo.ROOT / "build" / "demo" / "wan.html"
    page.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tools.demo"]
    done = subprocess.run(command, check=False, cwd=demo.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert {capture.parent.name for capture in demo.samples()} <= {line.split(" ")[0] for line in lines}
    assert page.stat().st_size > 0
