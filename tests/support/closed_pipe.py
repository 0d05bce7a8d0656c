"""Commands whose output nobody reads any more."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.support.programs import running


def closed_after_a_line(command: Sequence[str]) -> tuple[int, bytes]:
    """Exit code and messages of a program whose reader goes after its first line."""
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        return process.wait(), said
