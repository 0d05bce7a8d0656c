"""``iscsitrace anonymise`` on the command line: files, keys, what is told, and what is refused."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from tests.support.capture_file import Record, read_records, write_pcapng
from tests.support.runs import Run, Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("anonymise")
    return Runs(folder)("read --one-way-delay 4ms --block-size 64K --bytes 1M --service-delay exp:2ms --seed 5")


def called(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["anonymise", *(str(each) for each in arguments)], catch_exceptions=False)


def test_only_its_owner_reads_the_file_and_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    result = called(run.capture(), "-o", path)
    assert result.exit_code == 0
    packets = iscsitrace.read(str(run.capture())).packet_count
    assert result.stdout == f"{path}: packets {packets:,}, iSCSI connections 1\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = path.read_bytes()
    assert called(run.capture(), "-o", path).exit_code == 2
    assert called(run.capture(), "-o", path, "--force").exit_code == 0
    assert path.read_bytes() != first, "another key"
    before = run.capture().read_bytes()
    assert called(run.capture(), "-o", run.capture(), "--force").exit_code == 2
    assert run.capture().read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["out.pcapng"]


def test_one_key_gives_the_same_names_to_two_taps(run: Run, tmp_path: Path) -> None:
    key = tmp_path / "key"
    paths = []
    for side in ("initiator", "target"):
        paths.append(tmp_path / f"{side}.pcapng")
        assert called(run.capture(side), "-o", paths[-1], "--key-file", key).exit_code == 0
    result = CliRunner().invoke(main, ["summary", "--json", *map(str, paths)])
    assert "same traffic at 2 taps, from the initiator to the target: initiator.pcapng -> target" in result.stderr
    document = json.loads(result.stdout)
    whole = CliRunner().invoke(main, ["summary", "--json", str(run.capture()), str(run.capture("target"))])
    assert len(document["sessions"]) == len(json.loads(whole.stdout)["sessions"]) == 1
    names = [iscsitrace.read(str(path)).sessions.raw("target_name")[0] for path in paths]
    assert names[0] == names[1] != iscsitrace.read(str(run.capture())).sessions.raw("target_name")[0]
    other = tmp_path / "other.pcapng"
    assert called(run.capture(), "-o", other).exit_code == 0
    assert iscsitrace.read(str(other)).sessions.raw("target_name")[0] != names[0]


def test_packets_of_other_connections_are_emptied_or_left_out(run: Run, tmp_path: Path) -> None:
    records, link_type = read_records(run.capture())
    arp = Record(records[0].time_ns, bytes(12) + b"\x08\x06" + b"who-has 10.1.2.3 tell me", 38)
    mixed = write_pcapng(tmp_path / "mixed.pcapng", [arp, *records], link_type)
    path = tmp_path / "out.pcapng"
    result = called(mixed, "-o", path, "--json")
    counts = json.loads(result.stdout)
    assert counts["packets"] == len(records) + 1
    assert (counts["packets_without_tcp"], counts["other_tcp_packets"]) == (1, 0)
    assert b"who-has" not in path.read_bytes()
    assert iscsitrace.read(str(path)).packet_count == len(records) + 1
    result = called(mixed, "-o", path, "--force", "--drop-others")
    assert "packets without TCP, left out except for ICMP errors: 1" in result.stdout
    assert iscsitrace.read(str(path)).packet_count == len(records)


def test_models_stay_on_request(tmp_path: Path) -> None:
    sample = Path(__file__).parents[2] / "samples" / "sequential-read-4ms" / "capture.pcapng.gz"
    found = []
    for options in ([], ["--keep-models"]):
        path = tmp_path / f"out{len(options)}.pcapng"
        assert called(sample, "-o", path, *options).exit_code == 0
        (row,) = iscsitrace.read(str(path)).logical_units.rows()
        found.append((row["vendor"], row["product"]))
        assert row["unit_serial_number"] != "c8613025-9b4c-4d2a-9b1b-0008a0e4bf78"
    assert found[1] == ("LIO-ORG", "FILEIO")
    assert [len(text) for text in found[0]] == [7, 6]
    assert found[0] != found[1]


def test_what_is_read_only_once_or_is_no_capture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for source in ("-", pipe):
        result = CliRunner().invoke(main, ["anonymise", str(source), "-o", str(path)])
        assert result.exit_code == 2
        assert "can be read only once: captures are read twice, so they have to be files" in result.output
    text = tmp_path / "text"
    text.write_text("this is no capture at all")
    result = CliRunner().invoke(main, ["anonymise", str(text), "-o", str(path)])
    assert result.exit_code == 2
    assert "is not a capture" in result.output
    assert not path.exists()
