"""Two captures joined: real ones against the lab's account, simulated ones against a join that holds every packet."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from iscsitrace.tables import tap_join
from tests.support.capture_file import Record, thin, write_pcapng
from tests.support.recordings import captures_folder
from tests.support.two_taps import TwoTaps, clock_offset_hint, join_files, pairs_of, round_trip_ns, simulated

BOTH_ENDS = sorted(captures_folder().glob("*.initiator.pcap*"))
CLOCK_OFFSET_NS = 3_600_000_000_123
SIMULATED = {
    "losses both ways": "read --one-way-delay 4ms --rate 200Mbit --block-size 128K --bytes 8M --loss 1%",
    "writes": "write --one-way-delay 2ms --rate 500Mbit --block-size 256K --bytes 8M --queue-depth 4 --loss 2%",
    "bursts": "read --one-way-delay 8ms --rate 200Mbit --queue-depth 4 --bytes 8M --set burst-loss=0.2%,20%",
    "reordering": (
        "mixed --one-way-delay 3ms --rate 300Mbit --queue-depth 4 --bytes 8M --set reorder=2%,2ms --loss 0.3%"
    ),
    "jitter that reorders": (
        "read --one-way-delay 1ms --queue-depth 8 --bytes 16M --set jitter=3ms --set jitter-reorders=yes --loss 0.5%"
    ),
    "LAN": "mixed --one-way-delay 50us --rate 1Gbit --queue-depth 8 --bytes 8M --loss 0.5%",
    "full queue": "read --one-way-delay 4ms --rate 50Mbit --queue 30 --queue-depth 4 --bytes 8M --connections 3",
    "without SACK": "read --one-way-delay 4ms --rate 100Mbit --bytes 4M --loss 1% --set sack=no",
    "without timestamps": "read --one-way-delay 4ms --rate 100Mbit --bytes 4M --loss 1% --set timestamps=no",
    "without both": "mixed --one-way-delay 4ms --rate 100Mbit --bytes 4M --loss 1% --set timestamps=no --set sack=no",
    "asymmetric": (
        "write --set to-target-one-way-delay=2ms --set to-initiator-one-way-delay=30ms "
        "--rate 100Mbit --bytes 4M --loss 1%"
    ),
}


def name_of(file: Path) -> str:
    return file.name.partition(".initiator")[0]


@pytest.mark.parametrize("initiator", BOTH_ENDS, ids=name_of)
def test_real_captures_of_both_ends_agree_with_the_lab(initiator: Path) -> None:
    """Delays within 5 % or 0.2 ms, packets of each capture, and netem's drops (README of the captures)."""
    name = name_of(initiator)
    description = json.loads((initiator.parent / f"{name}.json").read_text())
    joined = join_files(initiator, initiator.with_name(initiator.name.replace(".initiator.", ".target.")))
    transits, paths = joined["transits"], joined["paths"]
    clock = description["clock"]
    offset_ns = 1000 * np.mean(
        [clock[f"target_minus_initiator_us_{when}"]["offset_us"] for when in ("before", "after")]
    )
    delays = {
        True: transits["transit_ns"][transits["to_target"]] - offset_ns,
        False: offset_ns - transits["transit_ns"][~transits["to_target"]],
    }
    measured = description["measured_one_way_delay_ms"]
    expected = {
        to_target: [value for key, value in measured.items() if key.startswith(prefix)]
        for to_target, prefix in ((True, "initiator_to_target"), (False, "target_to_initiator"))
    }
    is_offloaded = description["network"]["offloads_tso_gso_gro"] == "on"
    for to_target, directions in expected.items():
        p50 = np.median([direction["p50"] for direction in directions])
        assert abs(np.median(delays[to_target]) / 1e6 - p50) <= max(0.05 * p50, 0.2)
        if not is_offloaded:
            # the lab matched whole packets
            assert len(delays[to_target]) == pytest.approx(sum(each["packets"] for each in directions), abs=20)
    # netem's drops; 24_path_mtu: the bridge's, "18 frames of 4162 bytes" (README)
    drops = sum(
        int(count) for text in description["network"]["qdisc_after"].values() for count in DROPPED.findall(text)
    )
    assert paths["lost"].sum() == (18 if name == "24_path_mtu" else drops)
    assert paths["lost"][paths["to_target"]].sum() == 0
    for column in ("missing_at_a", "missing_at_b", "cannot_tell", "outside", "duplicated"):
        assert paths[column].sum() == 0, column


DROPPED = re.compile(r"\(dropped (\d+),")


@pytest.mark.parametrize("options", SIMULATED.values(), ids=SIMULATED)
def test_each_packet_is_placed_where_it_stayed(options: str, tmp_path: Path) -> None:
    """Against the truth of the simulated links, also with 5 % of the packets missing from one capture."""
    whole = simulated(tmp_path / "run", options, CLOCK_OFFSET_NS)
    a, b = whole.passed
    # fewer than seven packets in doubt prove nothing of a capture: 0.5 ** 7 < 1 %
    judge(whole, None, tmp_path, in_doubt=6 if "reorder" in options else 0)
    judge(replace(whole, captured=(thin(a, 0.05, seed=1), b)), "a", tmp_path)
    judge(replace(whole, captured=(a, thin(b, 0.05, seed=1))), "b", tmp_path)


def judge(taps: TwoTaps, missing_at: str | None, directory: Path, in_doubt: int = 0) -> None:
    """Every transit is found, no verdict is false, and nearly all packets with payload have one.

    Where no capture misses any, all have one but those in doubt.
    """
    joined = taps.join(directory)
    transits = joined["transits"]
    found = Counter(zip(transits["time_a_ns"].tolist(), transits["transit_ns"].tolist(), strict=True))
    assert found == taps.transits()
    tally = placed(taps, joined)
    for (truth, verdict, _), count in tally.items():
        right = "lost_in_network" if truth == "lost" else f"missing_at_{missing_at}"
        assert verdict in (right, "cannot_tell"), (truth, verdict, count)
    with_payload = {(truth, verdict): count for (truth, verdict, is_empty), count in tally.items() if not is_empty}
    unknown = sum(count for (_, verdict), count in with_payload.items() if verdict == "cannot_tell")
    assert unknown <= (0.05 * sum(with_payload.values()) if missing_at else in_doubt)
    assert not len(joined["counters"])


def placed(taps: TwoTaps, joined: dict[str, Any]) -> Counter[tuple[str, str, bool]]:
    """(truth, verdict, is without payload) of each packet that one capture alone holds, by count."""
    alone = taps.alone()
    tally: Counter[tuple[str, str, bool]] = Counter()
    for row in joined["path_losses"].rows():
        truth = alone.pop((row["is_seen_at_a"], row["frame"]))
        tally[truth, row["verdict"], row["first_offset_bytes"] == row["last_offset_bytes"]] += 1
    # the rest passed when the other capture had not begun, or had ended
    assert len(alone) == joined["paths"]["outside"].sum() <= 8
    return tally


def test_the_links_own_counters_are_found(tmp_path: Path) -> None:
    taps = simulated(tmp_path / "run", SIMULATED["losses both ways"], CLOCK_OFFSET_NS)
    joined = taps.join(tmp_path)
    links = json.loads((tmp_path / "run" / "truth.json").read_text())["paths"][0]
    for row in joined["paths"].rows():
        counters = links["to_target" if row["to_target"] else "to_initiator"]["counters"]
        sent, received = ("packets_a", "packets_b") if row["to_target"] else ("packets_b", "packets_a")
        assert (row[sent], row[received]) == (counters["arrived"]["count"], counters["delivered"]["count"])
        assert row["lost"] == counters["lost"]["count"] > 0
        assert row["matched"] == row[received]


def test_the_envelope_holds_the_extremes_of_all_transits(tmp_path: Path) -> None:
    joined = simulated(tmp_path / "run", SIMULATED["bursts"], CLOCK_OFFSET_NS).join(tmp_path)
    transits = joined["transits"]
    rows = list(joined["envelope"].rows())
    for row in rows:
        is_inside = (transits["to_target"] == row["to_target"]) & (transits["time_a_ns"] >= row["from_ns"])
        is_inside &= transits["time_a_ns"] < row["to_ns"]
        of_row = transits["transit_ns"][is_inside]
        assert (row["transits"], row["least_ns"], row["greatest_ns"]) == (len(of_row), of_row.min(), of_row.max())
        for extreme in ("least", "greatest"):
            at = is_inside & (transits["time_a_ns"] == row[f"{extreme}_time_a_ns"])
            assert row[f"{extreme}_ns"] in transits["transit_ns"][at]
    assert sum(row["transits"] for row in rows) == len(transits)


def test_a_capture_that_begins_late_or_ends_early_loses_nothing_to_the_network(tmp_path: Path) -> None:
    options = "mixed --one-way-delay 5ms --rate 100Mbit --bytes 4M --queue-depth 8"
    taps = simulated(tmp_path / "run", options, -CLOCK_OFFSET_NS)
    a, b = taps.passed
    for captured in [(a[2000:-1500], b), (a, b[2000:-1500]), (a[:-2000], b[2000:])]:
        partly = replace(taps, captured=captured)
        joined = joined_by_hand(partly, tmp_path)
        assert joined["transits"]["transit_ns"].size == partly.transits().total()
        assert len(joined["path_losses"]) == 0
        assert joined["paths"]["outside"].sum() > 0


def joined_by_hand(taps: TwoTaps, directory: Path) -> dict[str, Any]:
    """The join of the one connection of two captures without its SYN at one of them."""
    files = [
        write_pcapng(directory / f"{tap}.pcapng", records, 1) for tap, records in zip("ab", taps.captured, strict=True)
    ]
    seen_a, seen_b = (tap_join.connections_seen([file]) for file in files)
    is_client_target = [bool(each["connections_seen"]["client_port"][0] == 3260) for each in (seen_a, seen_b)]
    pair = tap_join.Pair(0, 0, is_client_target[0], is_client_target[1])
    hint_ns = clock_offset_hint(seen_a, seen_b, [pair])
    assert hint_ns is not None
    assert abs(hint_ns + CLOCK_OFFSET_NS) < 100_000_000
    return tap_join.join(files[:1], files[1:], [pair], hint_ns)


def test_connections_are_numbered_as_in_the_pass(tmp_path: Path) -> None:
    for file in sorted(captures_folder().glob("*.pcap*"))[::4]:
        seen = tap_join.connections_seen([file])["connections_seen"]
        trace = iscsitrace.read(file, tables=())
        by_number = {row["connection"]: row for row in seen.rows()}
        for row in trace.connections.rows():
            mine = by_number[row["connection"]]
            ends = {(row["initiator_address"], row["initiator_port"]), (row["target_address"], row["target_port"])}
            assert ends == {
                (mine["client_address"], mine["client_port"]),
                (mine["server_address"], mine["server_port"]),
            }, file
            assert mine["time_first_ns"] == row["time_first_ns"]


@pytest.mark.parametrize("clock", ["drift", "step ahead", "step back", "step of 20 s"])
def test_clocks_that_drift_or_step_hide_no_packet(clock: str, tmp_path: Path) -> None:
    whole = simulated(tmp_path / "run", SIMULATED["writes"], CLOCK_OFFSET_NS)
    a, b = whole.passed
    middle_ns = b[len(b) // 2].time_ns
    steps_ns = {"drift": 0, "step ahead": 80_000_000, "step back": -80_000_000, "step of 20 s": 20_000_000_000}
    moved = [
        replace(
            each,
            time_ns=each.time_ns
            + (steps_ns[clock] if each.time_ns > middle_ns else 0)
            + (round((each.time_ns - b[0].time_ns) * 200e-6) if clock == "drift" else 0),
        )
        for each in b
    ]
    # until the step is known, a tap is read too early: the order of ACKs and copies is uncertain
    judge(TwoTaps((a, moved), (a, moved)), None, tmp_path, in_doubt=0 if clock == "drift" else 6)


def test_the_order_of_the_taps_is_seen(tmp_path: Path) -> None:
    a, b = simulated(tmp_path / "run", "read --bytes 1M --one-way-delay 3ms", CLOCK_OFFSET_NS).passed
    files = [write_pcapng(tmp_path / f"{tap}.pcapng", records, 1) for tap, records in (("a", a), ("b", b))]
    rtt_ns = round_trip_ns(join_files(files[0], files[1]))
    assert rtt_ns is not None
    assert 6_000_000 <= rtt_ns < 6_010_000
    swapped_ns = round_trip_ns(join_files(files[1], files[0]))
    assert swapped_ns is not None
    assert swapped_ns <= -rtt_ns


def test_captures_of_other_traffic_share_no_connection_and_no_landmark(tmp_path: Path) -> None:
    runs = [simulated(tmp_path / str(seed), f"read --bytes 1M --one-way-delay 1ms --seed {seed}", 0) for seed in (1, 2)]
    files = [write_pcapng(tmp_path / f"{number}.pcapng", run.passed[0], 1) for number, run in enumerate(runs)]
    seen_a, seen_b = (tap_join.connections_seen([file]) for file in files)
    assert pairs_of(seen_a, seen_b) == []
    assert clock_offset_hint(seen_a, seen_b, []) is None


def test_a_connection_in_two_pairs_is_refused(tmp_path: Path) -> None:
    file = write_pcapng(tmp_path / "one.pcapng", [Record(0, bytes(60), 60)], 1)
    with pytest.raises(ValueError, match="two pairs"):
        tap_join.join([file], [file], [tap_join.Pair(0, 0), tap_join.Pair(0, 1)], 0)
