"""Volumes: what joins and what parts the logical units of several sessions, by hand-made tables and captures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from iscsitrace.relate import volumes
from iscsitrace.relate.volumes import Volume, _distinct, is_unique_in_the_world
from tests.support.calls import calls_of
from tests.support.histories import Told
from tests.support.tables_by_hand import table

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"
NAA = "naa.6001405c86130259b4c4d2a9b1b0008a"
OTHER_NAA = "naa.6001405db2d66f2f1ce474f9cdfa64db"
TGT = "naa.60000000000000000e00000000010001"
"""What every tgt calls its first logical unit of its first target."""
DISK = {"peripheral_qualifier": 0, "device_type": 0}


class Host(Told):
    """Sessions and what their targets said."""

    def unit(self, session: int, lun: int = 0, **columns: Any) -> Host:
        self.add("logical_units", session=session, lun=lun, time_first_ns=0.1, **(DISK | columns))
        return self

    def volumes(self) -> tuple[Volume, ...]:
        return volumes.find(self.source()).all


def seen(host: Host) -> list[list[tuple[int, int]]]:
    """Session and LUN of the members of each volume."""
    return [[(member.session, member.lun) for member in volume.members] for volume in host.volumes()]


def two_sessions(**second: Any) -> Host:
    host = Host()
    host.session(0, 20)
    host.session(0, 20, isid="81", **second)
    return host


def test_a_designator_joins_paths_with_different_luns_and_targets() -> None:
    host = two_sessions(target_name="iqn.other")
    host.unit(0, 3, designator=NAA, block_bytes=512, block_count=2048).unit(1, 7, designator=NAA)
    host.unit(1, 3, designator=OTHER_NAA)
    assert seen(host) == [[(0, 3), (1, 7)], [(1, 3)]]
    first, second = host.volumes()
    assert (first.known_by, first.identity, first.luns, first.capacity_bytes) == ("designator", NAA, (3, 7), 1 << 20)
    assert (first.targets, first.label, first.host) == (("iqn.t", "iqn.other"), "LUN 3 of iqn.t", "iqn.i")
    assert [[member.session for member in path] for path in first.paths] == [[0], [1]]
    assert second.label == "LUN 3 of iqn.other"


def test_each_initiator_has_its_own_volume() -> None:
    host = two_sessions(initiator_name="iqn.j").unit(0, designator=NAA).unit(1, designator=NAA)
    assert [volume.host for volume in host.volumes()] == ["iqn.i", "iqn.j"]


@pytest.mark.parametrize(
    ("designator", "is_unique"),
    [
        (NAA, True),
        (TGT, False),
        # LIO with a serial number without hexadecimal digits
        ("naa.60014050000000000000000000000000", False),
        ("naa.5000c500a1b2c3d4", True),
        ("naa.2001000c50a1b2c3", True),
        ("naa.3001405c86130259", False),
        ("eui.00a0980012345678", True),
        ("eui.0000000012345678", False),
        ("iqn.2026-11.example:disk,L,0x0001", True),
        ("t10.IET     00010001", False),
        ("vendor.FREEBSD MYDEVID   0", False),
    ],
)
def test_which_names_no_other_target_has(designator: str, is_unique: bool) -> None:
    assert is_unique_in_the_world(designator) is is_unique
    host = two_sessions(target_name="iqn.other").unit(0, designator=designator).unit(1, designator=designator)
    assert len(host.volumes()) == (1 if is_unique else 2)
    # on one target it is what that target said
    same = two_sessions().unit(0, designator=designator).unit(1, designator=designator)
    assert len(same.volumes()) == 1


def test_what_one_session_has_at_two_luns_names_neither() -> None:
    host = two_sessions()
    serial = {"vendor": "IET", "product": "VIRTUAL-DISK", "unit_serial_number": "beaf11"}
    for session in (0, 1):
        host.unit(session, 1, designator=NAA, **serial).unit(session, 2, designator=NAA, **serial)
    assert seen(host) == [[(0, 1), (1, 1)], [(0, 2), (1, 2)]]
    assert {volume.known_by for volume in host.volumes()} == {"target"}


def test_a_serial_number_joins_where_there_is_no_designator() -> None:
    serial = {"vendor": "ACME", "product": "disk", "unit_serial_number": "77"}
    host = two_sessions().unit(0, 1, **serial).unit(1, 4, **serial).unit(1, 1, **serial | {"unit_serial_number": "78"})
    assert seen(host) == [[(0, 1), (1, 4)], [(1, 1)]]
    assert [(each.known_by, each.identity) for each in host.volumes()] == [
        ("serial", "ACME disk 77"),
        ("serial", "ACME disk 78"),
    ]
    # without a vendor and a product it is a number that any disk may have
    assert len(two_sessions().unit(0, 1, unit_serial_number="7").unit(1, 4, unit_serial_number="7").volumes()) == 2


def test_a_scan_that_was_cut_takes_the_name_that_another_session_got() -> None:
    serial = {"vendor": "ACME", "product": "disk", "unit_serial_number": "77"}
    # by its serial number, whatever its LUN; else by its LUN
    host = two_sessions().unit(0, 1, designator=NAA, **serial).unit(1, 4, **serial)
    assert seen(host) == [[(0, 1), (1, 4)]]
    assert seen(two_sessions().unit(0, 1, designator=NAA).unit(1, 1)) == [[(0, 1), (1, 1)]]
    # not where the target said another serial number, nor where the LUN is another
    other = two_sessions().unit(0, 1, designator=NAA, **serial).unit(1, 1, **serial | {"unit_serial_number": "78"})
    assert seen(other) == [[(0, 1)], [(1, 1)]]
    assert seen(two_sessions().unit(0, 1, designator=NAA).unit(1, 2)) == [[(0, 1)], [(1, 2)]]


def test_where_the_same_lun_had_two_names_the_login_before_decides() -> None:
    host = Host()
    host.session(0, 5, end="reset")
    host.session(0, 20, isid="81")
    host.session(6, 20, replaces=0)
    host.unit(0, 1, designator=NAA).unit(1, 1, designator=OTHER_NAA).unit(2, 1)
    assert seen(host) == [[(0, 1), (2, 1)], [(1, 1)]]
    assert [[[each.session for each in path] for path in volume.paths] for volume in host.volumes()] == [
        [[0, 2]],
        [[1]],
    ]
    # an own login: cannot tell which
    host.session(7, 20, isid="82")
    host.unit(3, 1)
    assert seen(host) == [[(0, 1), (2, 1)], [(1, 1)], [(3, 1)]]


def test_without_a_word_of_the_target_the_names_decide_then_the_addresses() -> None:
    host = two_sessions().unit(0).unit(1)
    assert [(each.known_by, each.identity) for each in host.volumes()] == [("target", "iqn.t LUN 0")]
    silent: dict[str, Any] = {"initiator_name": None, "target_name": None}
    host = Host()
    host.session(0, 20, **silent)
    host.session(0, 20, **silent)
    host.session(0, 20, target_address="10.0.0.3", target_port=3261, **silent)
    for session in range(3):
        host.read(session, 1, 2)
    assert seen(host) == [[(0, 0), (1, 0)], [(2, 0)]]
    assert [(each.known_by, each.identity, each.host) for each in host.volumes()] == [
        ("address", "10.0.0.2 LUN 0", "10.0.0.1"),
        ("address", "10.0.0.3:3261 LUN 0", "10.0.0.1"),
    ]


def test_a_session_that_began_before_the_capture_has_the_initiator_of_its_address() -> None:
    host = two_sessions(initiator_name=None, target_name=None)
    host.unit(0, designator=NAA).unit(1, designator=NAA)
    assert seen(host) == [[(0, 0), (1, 0)]]
    # two initiators behind one address: cannot tell
    host.session(0, 20, initiator_name="iqn.j")
    assert seen(host) == [[(0, 0)], [(1, 0)]]


def test_what_holds_no_data_is_no_volume() -> None:
    host = two_sessions()
    host.unit(0, 0, device_type=0x0C).unit(0, 1, peripheral_qualifier=3).unit(0, 2, device_type=None)
    host.unit(0, 3, peripheral_qualifier=None, device_type=None).unit(0, 4, peripheral_qualifier=None)
    assert seen(host) == [[(0, 2)]]
    # what a path checker asks is one, and what was read
    host.read(0, 1, 2, lun=4, operation="test_unit_ready", bytes=0, data_bytes=0)
    host.read(0, 1, 2, lun=1)
    assert seen(host) == [[(0, 1)], [(0, 2)], [(0, 4)]]
    # discovery sessions have none
    host.session(0, 1, session_type="discovery")
    host.unit(2, designator=NAA)
    assert len(host.volumes()) == 3


def test_every_command_has_the_volume_of_its_session_and_lun() -> None:
    host = two_sessions().unit(0, 0, designator=NAA).unit(1, 9, designator=NAA).unit(0, 1 << 40, designator=OTHER_NAA)
    found = volumes.find(host.source())
    places = [(0, 0), (1, 9), (0, 1 << 40), (0, 9), (7, 0), (None, 0), (1, None)]
    cycles = table("cycles", *({"cycle": number, "session": s, "lun": n} for number, (s, n) in enumerate(places)))
    assert found.of_commands(cycles).tolist() == [0, 0, 1, -1, -1, -1, -1]
    assert volumes.find(Host().source()).of_commands(cycles).tolist() == [-1] * 7


@pytest.mark.parametrize("seed", range(6))
def test_used_logical_units_against_a_set(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    sessions, luns = drawn.integers(0, 4, 12).tolist(), drawn.choice([0, 3, 1 << 40], 12).tolist()
    rows = [{"session": session, "lun": lun} for session, lun in zip(sessions, luns, strict=True)]
    which = np.ones(12, dtype=bool)
    assert _distinct(table("cycles", *rows), which) == set(zip(sessions, luns, strict=True))


def test_ten_thousand_sessions_take_no_second() -> None:
    host = Host()
    count = 10_000
    for number in range(count):
        host.rows["sessions"].append(
            {"session": number, "session_type": "normal", "initiator_name": "iqn.i", "target_name": "iqn.t"}
        )
        host.rows["connections"].append(
            {"connection": number, "session": number, "initiator_address": "10.0.0.1", "target_address": "10.0.0.2"}
        )
    host.unit(0, designator=NAA)
    for number in range(1, count):
        host.unit(number)
    source = host.source()
    started = time.process_time()
    (volume,) = volumes.find(source).all
    assert time.process_time() - started < 1
    assert len(volume.members) == count


def test_the_target_of_tgt_is_known_by_its_name_for_the_logical_unit() -> None:
    trace = iscsitrace.read(VECTORS / "stuck-command-tgt" / "initiator.pcapng.gz", tables=())
    (volume,) = volumes.find(trace.table).all
    # LUN 0 of tgt is a controller
    assert (volume.luns, volume.known_by, volume.identity) == ((1,), "designator", TGT)


def test_a_restarted_target_keeps_its_volume() -> None:
    trace = iscsitrace.read(VECTORS / "target-restart-lio" / "initiator.pcapng.gz", tables=())
    (volume,) = volumes.find(trace.table).all
    (path,) = volume.paths
    assert len(path) > 1
    # the initiator logged in without a new scan
    assert path[0].designator is not None


@pytest.mark.parametrize("serial", [None, "other"])
def test_a_unit_without_a_designator_is_compared_with_few_others(
    serial: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, count = Host(), 200
    compared = calls_of(monkeypatch, volumes._Group, "contradicts")
    for number in range(2 * count):
        host.session(0, 20, isid=f"{number:x}")
        own: dict[str, Any] = {}
        if number < count:
            # as many volumes at one LUN of the target as sessions
            own |= {"designator": f"naa.6001405c86130259b4c4d2a9{number:08x}"}
        if serial:
            own |= {"vendor": "A", "product": "B", "unit_serial_number": str(number) if number < count else serial}
        host.unit(number, **own)
    assert len(host.volumes()) == count + 1
    assert len(compared) <= 4 * count


def test_a_unit_with_the_serial_number_of_one_that_has_a_designator_is_that_one() -> None:
    host = Host()
    product: dict[str, Any] = {"vendor": "A", "product": "B"}
    for number in range(5):
        host.session(0, 20, isid=f"{number:x}")
    host.unit(0, designator=NAA, unit_serial_number="1", **product)
    host.unit(1, designator=OTHER_NAA)
    # the one without a serial number gets the first that is not another's
    host.unit(2, unit_serial_number="1", **product).unit(3, unit_serial_number="2", **product)
    host.unit(4, unit_serial_number="3", **product)
    assert [len(each) for each in seen(host)] == [2, 2, 1]
