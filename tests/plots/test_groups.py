"""What commands are told apart by in plots."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import iscsitrace
from iscsitrace.cli.read import plot
from iscsitrace.plots import kind
from iscsitrace.tables.trace import TraceTables

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@cache
def trace() -> TraceTables:
    """Two sessions, of which one took the place of the other."""
    return iscsitrace.read(SAMPLES / "black-out-and-relogin" / "capture.pcapng.gz")


@pytest.mark.parametrize("by", kind.GROUP_TITLES)
def test_every_command_with_a_value_is_in_its_group(by: str) -> None:
    found, cycles = kind.groups_of(trace(), by), trace().cycles
    assert len(found.places) == len(cycles)
    words = {"lun": "LUN", "session": "session", "connection": "connection"}
    for place, value in zip(found.places.tolist(), cycles[by].tolist(), strict=True):
        if place >= 0:
            assert found.labels[place] == (f"{words[by]} {value}" if by in words else value)
    is_data = np.isin(cycles["operation"], ["read", "write"])
    assert (found.places[is_data] >= 0).all()
    assert by != "lun" or (found.places[~is_data] == -1).all()


def test_luns_of_several_targets_have_the_end_of_its_name() -> None:
    assert kind._short(["LUN 0 of iqn.a", "LUN 1 of iqn.a"]) == ["LUN 0", "LUN 1"]
    long = "iqn.2026-01.org.example:storage.array-17.pool-3"
    shown = "...rg.example:storage.array-17.pool-3"[-27:]
    assert kind._short([f"LUN 0 of {long}", "LUN 0 of iqn.b"]) == [f"LUN 0 of ...{shown}", "LUN 0 of iqn.b"]


def test_the_command_line_offers_all_of_them() -> None:
    assert set(plot._BY) == set(kind.GROUP_TITLES)
