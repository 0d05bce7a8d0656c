"""Samples TCP_INFO of every connection of a guest until SIGTERM; then writes rows as JSON to the file that is named."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from iscsitrace.lab.places import HERE
from iscsitrace.lab.recording import sampling


def main() -> None:
    """Samples with a period in ms, into a file."""
    period_ms, file = sys.argv[1:]
    # before the first sample, so that the signal is never lost
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with sampling(HERE, period_s=int(period_ms) / 1000) as samples:
        signal.sigwait({signal.SIGTERM})
    Path(file).write_text(json.dumps({"rows": samples.rows, "missed_count": samples.missed_count}))


if __name__ == "__main__":
    main()
