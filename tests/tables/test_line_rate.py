"""The rate of a line, held against the rate to which a link was set: simulated links, and recorded ones (netem)."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from tests.support.capture_file import read_records, thin, write_pcapng
from tests.support.recordings import description_of, recorded_captures

TOLERANCE = 0.05
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def rates(file: Path | bytes) -> dict[tuple[int, bool], float | None]:
    """Bits per second with headers, by connection and direction (true: to the target); None where not reached."""
    rows = iscsitrace.read(file, tables=["senders"]).senders.rows()
    return {
        (row["connection"], row["to_target"]): row["line_wire_bytes_per_s"] and row["line_wire_bytes_per_s"] * 8
        for row in rows
    }


def simulate(directory: Path, options: str) -> list[Path]:
    """Both taps of a run: the initiator's first."""
    result = CliRunner().invoke(main, ["simulate", *options.split(), "-o", str(directory)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return [directory / "initiator.pcapng", *sorted(directory.glob("target*.pcapng"))]


DEEP = "read --block-size 256K --queue-depth 8 --bytes 16M"

REACHED: dict[str, tuple[str, float]] = {
    "slow": ("read --block-size 256K --queue-depth 4 --bytes 4M --rate 5Mbit --one-way-delay 4ms", 5e6),
    "moderate": (f"{DEEP} --rate 100Mbit --one-way-delay 8ms", 1e8),
    "LAN": (f"{DEEP} --rate 1Gbit --one-way-delay 50us", 1e9),
    "fast": ("read --block-size 256K --queue-depth 16 --bytes 128M --rate 10Gbit --one-way-delay 100us", 1e10),
    "writes": ("write --block-size 256K --queue-depth 4 --bytes 16M --rate 100Mbit --one-way-delay 4ms", 1e8),
    "IPv6": (f"{DEEP} --rate 100Mbit --one-way-delay 4ms --set ipv6=yes", 1e8),
    "one large command at a time": ("read --block-size 1M --bytes 32M --rate 100Mbit --one-way-delay 8ms", 1e8),
    "no timestamps": (f"{DEEP} --rate 100Mbit --one-way-delay 4ms --set timestamps=no", 1e8),
    "losses": (f"{DEEP} --rate 100Mbit --one-way-delay 4ms --loss 0.1%", 1e8),
    "jitter": (f"{DEEP} --rate 100Mbit --one-way-delay 4ms --set jitter=2ms", 1e8),
    "reordering": (f"{DEEP} --rate 100Mbit --one-way-delay 4ms --set reorder=1%,2ms", 1e8),
    "two sessions": (f"{DEEP} --rate 30Mbit --one-way-delay 2ms --sessions 2", 3e7),
    "two connections": (f"{DEEP} --rate 100Mbit --one-way-delay 4ms --connections 2", 1e8),
}  # fmt: skip


@pytest.mark.parametrize("name", REACHED)
def test_a_line_with_a_queue_has_its_rate_at_both_taps(tmp_path: Path, name: str) -> None:
    options, bits_per_s = REACHED[name]
    for tap in simulate(tmp_path, options):
        found = {of: rate for of, rate in rates(tap).items() if of[1] == options.startswith("write")}
        assert found
        for rate in found.values():
            assert rate == pytest.approx(bits_per_s, rel=TOLERANCE), tap.name
    # ACKs and commands do not fill a line
    assert {rate for of, rate in rates(tap).items() if of not in found} == {None}


NOT_REACHED = {
    "no line": "read --block-size 256K --queue-depth 4 --bytes 16M --one-way-delay 8ms",
    "a small receive window": f"{DEEP} --rate 1Gbit --one-way-delay 8ms --set receive-buffer=64K",
    "a small send buffer": f"{DEEP} --one-way-delay 8ms --set send-buffer=64K",
    "small commands": "read --block-size 4K --bytes 2M --rate 100Mbit --one-way-delay 4ms",
    "a slow target": "read --block-size 4K --queue-depth 8 --bytes 4M --rate 1Gbit --one-way-delay 1ms "
    "--service-delay 2ms",
    "a slow initiator": f"{DEEP} --one-way-delay 1ms --set initiator-host-delay=5ms",
}


@pytest.mark.parametrize("name", NOT_REACHED)
def test_a_line_that_was_never_full_has_no_rate(tmp_path: Path, name: str) -> None:
    for tap in simulate(tmp_path, NOT_REACHED[name]):
        assert set(rates(tap).values()) == {None}, tap.name


@pytest.mark.parametrize(("queue_depth", "has_queue"), [(1, False), (4, True)])
def test_a_queue_that_empties_between_commands_stands_at_no_tap(
    tmp_path: Path, queue_depth: int, has_queue: bool
) -> None:
    """Far from the sender the first data of a read come later than the path takes, and sooner than through a queue."""
    options = f"read --block-size 512K --bytes 8M --queue-depth {queue_depth} --rate 20Mbit --one-way-delay 4ms"
    for tap in simulate(tmp_path, options):
        to_initiator = next(
            row for row in iscsitrace.read(tap, tables=["senders"]).senders.rows() if not row["to_target"]
        )
        assert (to_initiator["standing_queue_ns"] > 0) == has_queue, tap.name


def test_paths_to_several_targets_share_the_line_of_their_initiator(tmp_path: Path) -> None:
    taps = simulate(
        tmp_path,
        "read --block-size 64K --queue-depth 8 --bytes 16M --set access-rate=50Mbit --rate 1Gbit --one-way-delay 4ms "
        "--targets 2",
    )
    assert {of: rate and round(rate / 1e6) for of, rate in rates(taps[0]).items() if not of[1]} == {
        (0, False): 50,
        (1, False): 50,
    }
    # at a target the other half of the traffic is not seen: its own part is no rate of the line
    for tap in taps[1:]:
        assert rates(tap)[0, False] in (None, pytest.approx(5e7, rel=TOLERANCE))


def test_a_capture_that_begins_in_mid_session_has_the_rate(tmp_path: Path) -> None:
    taps = simulate(tmp_path, f"{DEEP} --rate 100Mbit --one-way-delay 4ms")
    for tap in taps:
        records, link_type = read_records(tap)
        cut = write_pcapng(tmp_path / "cut.pcapng", records[60:], link_type)
        assert rates(cut)[0, False] == pytest.approx(1e8, rel=TOLERANCE)


@pytest.mark.parametrize("share", [0.0001, 0.01])
def test_packets_missing_from_the_capture_cost_little_of_the_rate(tmp_path: Path, share: float) -> None:
    for tap in simulate(tmp_path, f"{DEEP} --rate 100Mbit --one-way-delay 4ms"):
        records, link_type = read_records(tap)
        thinned = write_pcapng(tmp_path / "thin.pcapng", thin(records, share, 1), link_type)
        assert rates(thinned)[0, False] == pytest.approx(1e8, rel=TOLERANCE)


def test_the_time_in_the_queue_of_the_line_is_the_same_at_both_taps(tmp_path: Path) -> None:
    """Also where the receive window is full meanwhile."""
    taps = simulate(tmp_path, f"{DEEP} --rate 20Mbit --one-way-delay 4ms --set receive-buffer=128K")
    for tap in taps:
        opinion = examine(iscsitrace.read(tap, tables=NEEDED).table).sessions[0]
        assert opinion.time
        assert opinion.time.shares["transfer"] > 0.95
        assert "line_saturated" in {finding.name for finding in opinion.findings}


# --- recorded captures


def set_rate(description: dict[str, Any], *, to_target: bool) -> float | None:
    """Bits per second to which the lab's link was set at the egress of a side."""
    side = "initiator" if to_target else "target"
    found = re.search(r"rate ([\d.]+)([kmg]bit)", str(description.get("network", {}).get(f"netem_{side}_egress")))
    return float(found[1]) * UNITS[found[2]] if found else None


def test_recorded_lines_have_the_rate_of_their_link_and_no_others_have_one() -> None:
    files = recorded_captures()
    if not files:
        pytest.skip("the recorded captures are not here")
    count = 0
    for file in files:
        description = description_of(file)
        assert description is not None
        document = json.loads(description.read_text())
        for (_, to_target), rate in rates(file).items():
            truth = set_rate(document, to_target=to_target)
            if truth is None:
                assert rate is None, file.name
            else:
                count += 1
                assert rate == pytest.approx(truth, rel=TOLERANCE), file.name
    assert count >= 6


def test_both_taps_of_a_recorded_line_agree() -> None:
    files = [file for file in recorded_captures() if file.name.startswith(("19_rate-limited", "34_shared_line"))]
    if not files:
        pytest.skip("the recorded captures are not here")
    assert len(files) == 4
    opinions = [examine(iscsitrace.read(file, tables=NEEDED).table).sessions for file in files]
    for here, there in list(pairwise(opinions))[::2]:
        for number in here:
            (one, other) = (opinions[number] for opinions in (here, there))
            assert one.time
            assert other.time
            assert one.time.shares["transfer"] == pytest.approx(other.time.shares["transfer"], abs=0.02)
            texts = [opinion.headline.text.split(" Packets")[0] for opinion in (one, other)]
            # the path lies between both taps, and captures begin with different packets
            when_s = [[float(each) for each in re.findall(r"([\d.]+) s\b", text)] for text in texts]
            assert when_s[0][0] == pytest.approx(when_s[1][0], abs=0.02)
            # beyond the line it goes on until the queue is empty
            assert when_s[0][1:] == pytest.approx(when_s[1][1:], abs=0.15)
            # the shares in the sentences differ by less than the tolerance
            sentences = [re.sub(r"[\d.]+ (%|s\b)", "", text) for text in texts]
            assert sentences[0] == sentences[1]


@pytest.mark.parametrize("file", sorted(SAMPLES.glob("*/*.pcap*")), ids=lambda file: file.parent.name)
def test_no_line_of_the_samples_was_full(file: Path) -> None:
    assert set(rates(file).values()) <= {None}
