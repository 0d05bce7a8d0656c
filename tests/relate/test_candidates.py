"""Mirrors among many volumes of one host: all are found, and few pairs of volumes are compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator

from iscsitrace.relate.mirrors import recognition, sides
from tests.support.mirrors_by_hand import Hosts, Write

VOLUMES = 40


def uniform(drawn: Generator, low: float, high: float) -> float:
    return float(drawn.uniform(low, high))


def place(drawn: Generator) -> int:
    return int(drawn.integers(10**7)) * 8


def at_random(drawn: Generator, count: int = 60) -> list[Write]:
    """Writes that follow each other, each to another place."""
    found, at = [], uniform(drawn, 0, 5)
    for _ in range(count):
        length = uniform(drawn, 1, 4)
        found.append((at, place(drawn), 128, length))
        at += length + uniform(drawn, 0, 2)
    return found


def in_a_row(drawn: Generator, count: int = 60) -> list[Write]:
    """Writes that follow each other, each behind the one before."""
    base = place(drawn)
    return [(at, base + 128 * number, 128, length) for number, (at, _, _, length) in enumerate(at_random(drawn, count))]


def copied(drawn: Generator, asked: list[Write], apart: int = 0, late_ms: float = 0.05) -> list[Write]:
    """The same writes, a little later, and done at another time."""
    return [(at + late_ms, lba + apart, blocks, length + uniform(drawn, 0, 3)) for at, lba, blocks, length in asked]


def split(asked: list[Write]) -> list[Write]:
    """Each write in two."""
    halves = [((at, lba, 48, length), (at + 0.01, lba + 48, blocks - 48, length)) for at, lba, blocks, length in asked]
    return [half for both in halves for half in both]


def one_block(drawn: Generator, asked: list[Write]) -> list[Write]:
    return [(at, 8, 8, length) for at, _, _, length in asked]


def host_of(drawn: Generator, work: Callable[..., list[Write]], mirrors: bool = True) -> Hosts:
    """Many volumes that write at the same time; some are mirrors."""
    hosts = Hosts()
    asked = [work(drawn) for _ in range(VOLUMES)]
    if mirrors:
        asked[7] = copied(drawn, asked[3])
        asked[20] = copied(drawn, asked[9], apart=262_144 - 2_048)
        asked[30] = split(copied(drawn, asked[11]))
        for place in (14, 19, 25, 38):
            asked[place] = copied(drawn, asked[12])
        asked[33] = one_block(drawn, asked[33])
        asked[34] = copied(drawn, asked[33])
    for number, each in enumerate(asked):
        hosts.ask(hosts.session(f"iqn.{number}"), each)
    return hosts


def found_in(hosts: Hosts) -> list[tuple[int, ...]]:
    return [mirror.sessions for mirror in recognition.find(hosts.source())]


MIRRORED = [(3, 7), (9, 20), (11, 30), (12, 14, 19, 25, 38), (33, 34)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("work", [at_random, in_a_row])
def test_mirrors_among_many_volumes(work: Callable[..., list[Write]], seed: int) -> None:
    hosts = host_of(np.random.default_rng(seed), work)
    found = found_in(hosts)
    # two of the others may write in step by chance
    assert set(MIRRORED) <= set(found)
    assert len(found) - len(MIRRORED) <= (work is in_a_row)


@pytest.mark.parametrize("work", [at_random, in_a_row])
def test_unrelated_volumes_are_not_compared(work: Callable[..., list[Write]]) -> None:
    every = sides.of_trace(host_of(np.random.default_rng(1), work, mirrors=False).source())
    assert len(every) == VOLUMES
    assert sum(map(len, recognition.of_host(every))) <= VOLUMES // 4


@pytest.mark.parametrize(("count", "share"), [(40, 0.2), (80, 0.01)])
def test_few_volumes_with_the_same_layout_are_compared(count: int, share: float) -> None:
    """File systems that were made alike write the same addresses, each in an order of its own."""
    drawn = np.random.default_rng(2)
    hosts = Hosts()
    for number in range(count):
        own = [(at, 2_048 + 8 * int(drawn.integers(60)), 8, length) for at, _, _, length in at_random(drawn)]
        hosts.ask(hosts.session(f"iqn.{number}"), own)
    every = sides.of_trace(hosts.source())
    assert sum(map(len, recognition.of_host(every))) <= share * count * (count - 1) / 2
    assert found_in(hosts) == []


@pytest.mark.parametrize("late_ms", [0.0, 0.9, 3.0])
def test_a_side_that_sends_late(late_ms: float) -> None:
    """Writes of many other volumes come between both."""
    drawn = np.random.default_rng(3)
    hosts = host_of(drawn, at_random, mirrors=False)
    hosts.ask(hosts.session("iqn.first"), asked := [(at, lba, blocks, 9.0) for at, lba, blocks, _ in at_random(drawn)])
    hosts.ask(hosts.session("iqn.second"), copied(drawn, asked, late_ms=late_ms))
    assert found_in(hosts) == [(VOLUMES, VOLUMES + 1)]


@pytest.mark.parametrize(("count", "is_every"), [(16, True), (17, False)])
def test_few_sides_are_all_compared(count: int, is_every: bool) -> None:
    drawn = np.random.default_rng(4)
    hosts = Hosts()
    for number in range(count):
        hosts.ask(hosts.session(f"iqn.{number}"), at_random(drawn))
    found = recognition.of_host(sides.of_trace(hosts.source()))
    assert (found == [list(range(place + 1, count)) for place in range(count)]) is is_every


@pytest.mark.parametrize(("mirrored", "is_found"), [(16, True), (15, False)])
def test_a_quarter_of_the_writes_of_one_side_is_enough(mirrored: int, is_found: bool) -> None:
    """The other side was written for long before, to places of its own."""
    drawn = np.random.default_rng(5)
    hosts = Hosts()
    common = [(1_000.0 + 20 * number, place(drawn), 8, 5.0) for number in range(mirrored)]
    alone = [(10.0 * number, place(drawn), 8, 5.0) for number in range(64 - mirrored)]
    others = [(2_000.0 + 10 * number, place(drawn), 8, 5.0) for number in range(64 - mirrored)]
    hosts.ask(hosts.session("iqn.first"), [*alone, *common])
    hosts.ask(hosts.session("iqn.second"), [*common, *others])
    for number in range(16):
        later = [(10_000 + at, lba, blocks, length) for at, lba, blocks, length in at_random(drawn)]
        hosts.ask(hosts.session(f"iqn.{number}"), later)
    assert recognition.of_host(sides.of_trace(hosts.source()))[0] == ([1] if is_found else [])


def test_the_same_mirrors_as_by_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = host_of(np.random.default_rng(6), at_random)
    monkeypatch.setattr(recognition, "PAIRED_MAX", VOLUMES)
    assert found_in(hosts) == MIRRORED
