"""The latency axis is logarithmic; without a latency above zero it has limits all the same."""

from __future__ import annotations

from pathlib import Path

import iscsitrace
from tests.support import hand_timed as by_hand
from tests.support.hand_timed import READ, Wire, command, data_in


def test_clocks_that_were_set_back_give_a_plot_without_a_warning(tmp_path: Path) -> None:
    """Warnings are errors here."""
    wire = Wire()
    for number, start_ms in enumerate((10, 20)):
        wire.send(start_ms, command(number, READ, cmd_sn=number + 1, read=512))
        wire.receive(start_ms - 5, data_in(number, 0, 0, 512, stat_sn=number + 1))
    wire.send(30, command(2, READ, cmd_sn=3, read=512))
    wire.receive(35, data_in(2, 0, 0, 512, stat_sn=3))
    trace = iscsitrace.read(by_hand.capture(tmp_path, wire))
    assert trace.cycles["latency_ns"].tolist() == [None, None, 5_000_000]
    assert trace.plot("latency")._repr_png_().startswith(b"\x89PNG")
