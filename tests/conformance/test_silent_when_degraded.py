"""The judge of conversations: what it finds in whole captures, at both taps, and nothing more in poor ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import iscsitrace
from tests.conformance import degrade
from tests.conformance.conversations import Conversation, made
from tests.support.capture_file import Record, read_records

Violations = set[tuple[str, str]]

TAPS = ("initiator", "target")
SAMPLES = 4
"""Packets of each capture that are dropped, and begun at."""
SEEDS = range(2)


def violations(capture: Path) -> Violations:
    """Rules and sides."""
    rows = iscsitrace.read(capture, tables=["violations"]).violations.rows()
    return {(row["rule"], row["side"]) for row in rows}


@pytest.mark.parametrize("tap", TAPS)
def test_a_broken_rule_is_found_at_both_taps(run: tuple[Conversation, Path], tap: str) -> None:
    conversation, folder = run
    found = violations(folder / "breaking" / f"{tap}.pcapng")
    assert (conversation.rule, conversation.side) in found
    assert {side for _, side in found} == {conversation.side}


@pytest.mark.parametrize("tap", TAPS)
def test_a_near_miss_has_none(run: tuple[Conversation, Path], tap: str) -> None:
    _, folder = run
    assert violations(folder / "legal" / f"{tap}.pcapng") == set()


def _degraded(records: Sequence[Record]) -> Iterator[tuple[str, Sequence[Record]]]:
    stride = max(1, len(records) // SAMPLES)
    for number in range(stride // 2, len(records), stride):
        yield f"without {number}", degrade.without(records, number)
        yield f"begun at {number}", degrade.begun_at(records, number)
    for seed in SEEDS:
        yield f"thinned by {seed}", degrade.thinned(records, seed)
        yield f"exchanged by {seed}", degrade.exchanged(records, seed)


@pytest.mark.parametrize("kind", ["breaking", "legal"])
def test_a_poor_capture_shows_no_rule_that_the_whole_one_does_not(
    run: tuple[Conversation, Path], kind: str, tmp_path: Path
) -> None:
    _, folder = run
    capture = folder / kind / "initiator.pcapng"
    records, _ = read_records(capture)
    whole = violations(capture)
    invented = {}
    for name, poor in _degraded(records):
        if more := violations(degrade.written(tmp_path / "poor.pcapng", poor)) - whole:
            invented[name] = more
    assert invented == {}


@pytest.mark.parametrize("is_lost", [False, True], ids=["digest", "lost"])
def test_recovery_at_error_recovery_level_1_breaks_no_rule(is_lost: bool, tmp_path: Path) -> None:
    keys = ("ErrorRecoveryLevel=1", "HeaderDigest=CRC32C", "DataDigest=CRC32C")
    agreed = " ".join(f"--key {key} --set target-key={key}" for key in keys)
    short = "--key MaxRecvDataSegmentLength=8192 --set status=apart --think-time 20ms"
    folder = made(f"read --block-size 32K --bytes 256K --one-way-delay 1ms {short} {agreed}", tmp_path / "run")
    records, _ = read_records(folder / "initiator.pcapng")
    capture = degrade.written(tmp_path / "recovered.pcapng", degrade.recovered(records, is_lost=is_lost))
    trace = iscsitrace.read(capture)
    # every PDU is there, in order: the recovery is no hole
    assert len(trace.pdus) == len(iscsitrace.read(folder / "initiator.pcapng").pdus) + (1 if is_lost else 2)
    assert violations(capture) == set()
