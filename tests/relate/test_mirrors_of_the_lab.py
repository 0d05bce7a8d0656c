"""Mirrors in captures of the lab against the truth, near misses, and how mirrors are shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import examine
from iscsitrace.errors import InputInvalid
from iscsitrace.events import derived
from iscsitrace.findings import NEEDED
from iscsitrace.relate import mirrors
from iscsitrace.relate.mirrors import account, recognition
from iscsitrace.relate.mirrors.account import Account
from iscsitrace.tables.schema import DERIVED_TABLES, SCHEMA_VERSION
from tests.support.capture_file import cut, read_records, write_pcapng
from tests.support.recordings import recorded_captures
from tests.support.runs import Run, Runs
from tests.support.tables_by_hand import MS

LINK = "--rate 320Mbit --bytes 4M --block-size 256K"


# --- captures of the lab


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("mirrors"))


def trace_of(run: Run, tap: str = "initiator") -> iscsitrace.Trace:
    return iscsitrace.read(run.capture(tap), tables=mirrors.NEEDED)


def target_of(run: Run) -> dict[int, int]:
    """The number of each session's target, from its name."""
    sessions = trace_of(run).sessions
    names = zip(sessions["session"].tolist(), sessions["target_name"].tolist(), strict=True)
    return {session: int(name.partition(":memory-")[2] or 1) - 1 for session, name in names}


def found_in(run: Run) -> list[Account]:
    return account.of_trace(trace_of(run).table)


def true_skews(run: Run) -> dict[int, tuple[int, int]]:
    """By address of each write: the time between the completions of its targets, and the last target."""
    cycles = json.loads((run.folder / "truth.json").read_text())["cycles"]
    done: dict[int, dict[int, int]] = {}
    rows = zip(cycles["operation"], cycles["lba"], cycles["target"], cycles["initiator"]["status_ns"], strict=True)
    for operation, lba, target, status_ns in rows:
        if operation == "write":
            done.setdefault(lba, {})[target] = status_ns
    return {
        lba: (max(each.values()) - min(each.values()), max(each, key=lambda target: each[target]))
        for lba, each in done.items()
    }


MIRRORS = {
    "two": (f"write --set mirror=yes --target-delay 1ms --target-delay 20ms {LINK}", 2, "round_trip"),
    "three": (
        f"write --set mirror=yes --target-delay 2ms --target-delay 1ms --target-delay 12ms {LINK}",
        3,
        "round_trip",
    ),
    "service": (
        f"write --set mirror=yes --targets 2 --one-way-delay 2ms --service-delay 1ms-30ms {LINK}",
        2,
        "target_service",
    ),
    "loss": (f"write --set mirror=yes --targets 2 --one-way-delay 4ms --loss 0.5% {LINK}", 2, "loss"),
    "one line": (
        "write --set mirror=yes --targets 2 --one-way-delay 1ms --rate 1Gbit --set access-rate=100Mbit --bytes 4M "
        "--block-size 256K",
        2,
        "line",
    ),
    "queue": (
        f"write --set mirror=yes --target-delay 1ms --target-delay 20ms --queue-depth 4 {LINK} --bytes 16M",
        2,
        "round_trip",
    ),
}


@pytest.mark.parametrize("name", MIRRORS)
def test_mirrors_of_the_lab_equal_the_truth(runs: Runs, name: str) -> None:
    options, side_count, cause = MIRRORS[name]
    run = runs(options)
    (found,) = found_in(run)
    assert found.mirror.is_sure
    assert len(found.mirror.sides) == side_count
    truth, targets = true_skews(run), target_of(run)
    made = derived.make("mirrored_writes", trace_of(run).table)
    assert set(made["lba"].tolist()) == set(truth)
    for row in made.rows():
        skew_ns, last = truth[row["lba"]]
        assert row["skew_ns"] == skew_ns
        if skew_ns:
            assert targets[row["last_session"]] == last
    assert found.farthest.cause == cause


def test_the_cause_is_the_rtt_by_its_difference(runs: Runs) -> None:
    run = runs(MIRRORS["two"][0])
    made = derived.make("mirrored_writes", trace_of(run).table)
    # 19 ms longer each way: one longer RTT in each write after slow start
    steady = made.select(slice(6, None))
    assert set(steady["cause"]) == {"round_trip"}
    assert steady["cause_ns"].tolist() == pytest.approx([38 * MS] * len(steady), abs=0.1 * MS)


def test_sides_of_each_write(runs: Runs) -> None:
    run = runs(MIRRORS["three"][0])
    trace = trace_of(run)
    sides = derived.make("mirror_legs", trace.table)
    assert len(sides) == 3 * 16
    assert [column.name for column in sides.columns] == [each.name for each in DERIVED_TABLES["mirror_legs"].columns]
    cycles = {row["cycle"]: row for row in trace.cycles.rows()}
    for row in sides.rows():
        own = cycles[row["cycle"]]
        assert (row["session"], row["begin_ns"], row["end_ns"]) == (
            *(own["session"], own["command_first_ns"], own["status_ns"]),
        )
    waits = np.ma.getdata(sides["wait_ns"]).reshape(-1, 3)
    assert (waits.min(axis=1) == 0).all()
    # the session at 1 ms waits longest: 22 ms, and the one at 2 ms 20
    nearest = next(session for session, target in target_of(run).items() if target == 1)
    assert (waits[6:].argmax(axis=1) == sides["session"][:3].tolist().index(nearest)).all()
    assert np.sort(waits[6:], axis=1).ravel().tolist() == pytest.approx([0, 20 * MS, 22 * MS] * 10)


def test_a_snaplen_makes_a_mirror_uncertain(runs: Runs, tmp_path: Path) -> None:
    records, link_type = read_records(runs(MIRRORS["two"][0]).capture())
    file = write_pcapng(tmp_path / "cut.pcapng", cut(records, 128), link_type)  # type: ignore[arg-type]
    (found,) = account.of_trace(iscsitrace.read(file, tables=mirrors.NEEDED).table)
    assert (len(found.found), found.mirror.is_sure) == (16, False)
    assert found.kind == "mirror_or_stripe"
    (finding,) = [
        each
        for each in examine(iscsitrace.read(file, tables=NEEDED).table).sessions[1].findings
        if each.name == "mirror_waits_for_farthest"
    ]
    assert finding.severity == "info"
    assert "or a stripe with chunks of 256 KiB or less" in finding.text


NEAR_MISSES = {
    # alike stripes in step: the same addresses at the same times
    "stripes": f"write --targets 2 --one-way-delay 2ms {LINK}",
    "two paths": f"write --sessions 2 --one-way-delay 2ms {LINK}",
    "anywhere": f"write --targets 2 --one-way-delay 2ms --random {LINK}",
    "reads": f"read --set mirror=yes --targets 2 --one-way-delay 2ms {LINK}",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_of_the_lab(runs: Runs, name: str) -> None:
    assert found_in(runs(NEAR_MISSES[name])) == []


def test_stripes_of_zeros_may_be_a_mirror(runs: Runs) -> None:
    (found,) = found_in(runs(f"{NEAR_MISSES['stripes']} --set zeros=yes"))
    assert not found.mirror.is_sure
    # without the data all stripes in step are in doubt
    trace = iscsitrace.read(runs(NEAR_MISSES["stripes"]).capture())
    assert [mirror.is_sure for mirror in recognition.find(trace.table)] == [False]


def crc32c(data: bytes) -> int:
    """CRC32C bit by bit (RFC 7143, section 13.1)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("keys", ["", "--key InitialR2T=Yes --key ImmediateData=No", "--key ImmediateData=No"])
def test_the_checksums_of_the_first_data(runs: Runs, keys: str) -> None:
    """Immediate, solicited or unsolicited: the data of a PDU at offset 0."""
    run = runs(f"write --bytes 1M --block-size 128K --set start-lba=100000 {keys}")
    trace = iscsitrace.read(run.capture(), tables=["write_starts"])
    raw = run.capture().read_bytes()
    lbas = trace.cycles["lba"]
    starts = list(trace.write_starts.rows())
    assert len(starts) == 8
    for row in starts:
        # a block of the lab's pattern begins with its number and its seed
        block = int(lbas[row["cycle"]]).to_bytes(8, "big") + (1).to_bytes(8, "big")
        place = raw.index(block)
        assert (row["bytes"], row["crc32c"]) == (64, crc32c(raw[place : place + 64]))


def test_data_is_read_only_on_request(runs: Runs) -> None:
    trace = iscsitrace.read(runs("write --bytes 1M --block-size 128K --set start-lba=100000 ").capture())
    with pytest.raises(InputInvalid, match="write_starts"):
        _ = trace.write_starts


@pytest.mark.parametrize("file", recorded_captures(), ids=lambda file: file.name)
def test_no_recording_has_a_mirror(file: Path) -> None:
    assert recognition.find(iscsitrace.read(file, tables=mirrors.RECOGNISING).table) == []


# --- output


def run_of(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command(runs: Runs) -> None:
    capture = runs(MIRRORS["two"][0]).capture()
    text = run_of("mirrors", "--top", "3", "--filter", capture)
    assert "Mirror 0: sessions 0 and 1 are a mirror" in text
    assert "Mirrored writes, 3 of 16" in text
    assert len(re.findall(r"^mirrored write \d+: frame.number in \{\d+, \d+, \d+, \d+\}$", text, re.MULTILINE)) == 3
    assert "sessions 0 and 1 are a mirror" in run_of("summary", capture)
    document = json.loads(run_of("mirrors", "--json", "--slower", "38ms", capture))
    assert document["schema"] == SCHEMA_VERSION
    assert document["mirrors"][0]["sessions"] == [0, 1]
    assert all(row["skew_ns"] > 38 * MS for row in document["mirrored_writes"])
    assert [side["session"] for side in document["mirrored_writes"][0]["legs"]] == [0, 1]


def test_the_absence_of_mirrors_is_reported(runs: Runs) -> None:
    assert run_of("mirrors", runs(NEAR_MISSES["stripes"]).capture()).startswith("no mirror")


def test_the_finding(runs: Runs) -> None:
    run = runs(MIRRORS["two"][0])
    diagnosis = examine(iscsitrace.read(run.capture(), tables=NEEDED).table)
    near, far = diagnosis.sessions[0], diagnosis.sessions[1]
    skews = [skew_ns for skew_ns, _ in true_skews(run).values()]
    for opinion in (near, far):
        (finding,) = [each for each in opinion.findings if each.name == "mirror_waits_for_farthest"]
        assert (finding.rank, finding.severity, finding.leads) == ("limit", "info", True)
        assert finding.share == pytest.approx(min(sum(skews) / opinion.jobs_ns, 1), rel=0.01)
        assert "session 1" in finding.text
        assert "It acknowledged 16 of 16 writes last" in finding.text
        assert finding.display_filter
        assert "mdadm" in " ".join(finding.advice)
    assert near.headline.text.startswith(
        "Session 0 is limited by the farthest target of its mirror. Sessions 0 and 1 are a mirror whose writes wait "
        "for session 1: "
    )
    # its leisure has a reason
    assert "initiator_think_time" not in [each.name for each in near.findings]
    assert "mirror_waits_for_farthest" not in [each.name for each in diagnosis.connections[0].findings]
    assert "uneven_connections" not in diagnosis.found


def test_sides_at_equal_rtt_wait_for_none(runs: Runs) -> None:
    run = runs(f"write --set mirror=yes --targets 2 --one-way-delay 2ms {LINK}")
    diagnosis = examine(iscsitrace.read(run.capture(), tables=NEEDED).table)
    assert len(diagnosis.mirrors) == 1
    assert "mirror_waits_for_farthest" not in diagnosis.found


def test_the_report_has_a_section(runs: Runs) -> None:
    text = run_of("report", "--format", "md", "-o", "-", runs(MIRRORS["two"][0]).capture())
    section = text.split("\n## Mirrors\n")[1].split("\n## ")[0]
    assert section.strip().startswith("### Mirror 0: sessions 0 and 1 are a mirror\n\nIts writes wait for session 1,")
    assert "## Mirrors" not in run_of("report", "--format", "md", "-o", "-", runs(NEAR_MISSES["stripes"]).capture())


def test_the_tables_are_exported(runs: Runs, tmp_path: Path) -> None:
    capture = runs(MIRRORS["two"][0]).capture()
    text = run_of("export", "-o", tmp_path, "--tables", "mirrored_writes,mirror_legs,streams", capture)
    assert "mirrored_writes.csv: 16 rows" in text
    assert "mirror_legs.csv: 32 rows" in text
    # mirror sides are not parallel streams
    assert "streams.csv: 0 rows" in text
    heading = (tmp_path / "mirrored_writes.csv").read_text().splitlines()[0]
    assert heading.split(",") == [column.name for column in DERIVED_TABLES["mirrored_writes"].columns]
