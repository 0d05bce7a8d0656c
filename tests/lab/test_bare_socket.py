"""Bulk transfers over plain sockets, in both worlds: all bytes arrive, and the captures have no iSCSI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid
from iscsitrace.lab import real
from tests.support.lab import needs_root

LINK = ("--rate", "100Mbit", "--one-way-delay", "2ms")
# of each frame of 1514 bytes 1448 are payload
PAYLOAD_BYTES_PER_S = 100e6 / 8 * 1448 / 1514
MODES = ("socket-read", "socket-write")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def truth_of(folder: Path) -> dict[str, Any]:
    truth = json.loads((folder / "truth.json").read_text())
    assert isinstance(truth, dict)
    return truth


def holds(folder: Path) -> None:
    """Every capture agrees with the truth, and has only the bytes of the sockets."""
    truth = truth_of(folder)
    to_target = truth["settings"]["client"]["workload"]["operation"] == "socket_write"
    files = [folder / name for name in (truth["captures"]["initiator"], *truth["captures"]["targets"])]
    assert len(files) == 2
    for file in files:
        result = run("check", "--truth", folder / "truth.json", file)
        assert result.exit_code == 0, result.output
        assert "compared: 0 commands with 0 values, 0 parameters, losses of 1 senders; differences: 0" in result.output
        trace = iscsitrace.read(str(file))
        assert len(trace.cycles) == 0
        (connection,) = trace.connections.rows()
        assert not connection["is_iscsi"]
        sent = [connection["stream_bytes_to_target"], connection["stream_bytes_to_initiator"]]
        # the request, and of a write the report
        assert sent == ([truth["results"]["bytes"] + 40, 40] if to_target else [40, truth["results"]["bytes"]])


@pytest.mark.parametrize("mode", MODES)
def test_a_simulated_transfer_is_as_fast_as_the_line(tmp_path: Path, mode: str) -> None:
    result = run("simulate", mode, *LINK, "--bytes", "8M", "-o", tmp_path)
    assert (result.exit_code, result.stderr) == (0, "")
    results = truth_of(tmp_path)["results"]
    assert results["bytes"] == 8 << 20
    assert results["steady_bytes_per_s"] == pytest.approx(PAYLOAD_BYTES_PER_S, rel=0.01)
    shown = f"{results['steady_bytes_per_s'] / 1e6:.3f} MB/s"
    assert f"in the second half {shown}" in result.stdout
    holds(tmp_path)


@pytest.mark.parametrize("mode", MODES)
def test_losses_are_found(tmp_path: Path, mode: str) -> None:
    assert run("simulate", mode, *LINK, "--loss", "0.5%", "--bytes", "2M", "-o", tmp_path).exit_code == 0
    truth = truth_of(tmp_path)
    sender = truth["initiator_ends"][0] if mode == "socket-write" else truth["target_ends"][0][0]
    assert sender["retransmitted_segment_count"] > 0
    holds(tmp_path)


def test_the_document_has_the_measurements(tmp_path: Path) -> None:
    options = ("--seconds", "0.5", "--connections", 3, "--targets", 2, "--json")
    result = run("simulate", "socket-read", *LINK, *options, "-o", tmp_path)
    document = json.loads(result.stdout)
    assert document["mode"] == "socket"
    assert [each["target"] for each in document["connections"]] == [0, 0, 0, 1, 1, 1]
    assert sum(each["bytes"] for each in document["connections"]) == document["bytes"]
    assert document["throughput_bytes_per_s"] == document["bytes"] / document["seconds"]
    # two paths with separate lines; the connections start their second half at different times
    assert 0.9 * 2 * PAYLOAD_BYTES_PER_S < document["steady_bytes_per_s"] <= 2 * PAYLOAD_BYTES_PER_S
    shown = run("simulate", "socket-read", *LINK, *options[:-1], "-o", tmp_path, "--force").stdout
    assert shown.count("\n         ") >= 6


@pytest.mark.parametrize(
    "option",
    [
        ("--queue-depth", "--queue-depth", "2"),
        ("--sessions", "--sessions", "2"),
        ("--key", "--key", "InitialR2T=No"),
        ("--set data-digest", "--set", "data-digest=crc32c"),
        ("--service-delay", "--service-delay", "1ms"),
    ],
)
def test_options_without_meaning_for_a_socket_are_refused(tmp_path: Path, option: tuple[str, ...]) -> None:
    result = run("simulate", "socket-read", *option[1:], "-o", tmp_path)
    assert result.exit_code == 2
    assert f"{option[0]} does not work with a bare socket" in " ".join(result.stderr.split())


def test_third_party_programs_have_no_plain_sockets(tmp_path: Path) -> None:
    settings = {
        "client": {"workload": {"operation": "socket_read", "total_bytes": 1 << 20}},
        "portals": [{}],
        "world": {"paths": [{}]},
    }
    for programs in (real.Programs(target="tgt"), real.Programs(initiator="iscsi-perf")):
        with pytest.raises(InputInvalid, match="between our own programs"):
            real.run(settings, tmp_path, lambda _: False, programs=programs)


@needs_root
@pytest.mark.parametrize("mode", MODES)
def test_a_transfer_over_the_kernels_sockets(tmp_path: Path, mode: str) -> None:
    result = run("lab", "run", mode, *LINK, "--set", "receive-buffer=256K", "--bytes", "4M", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    truth = truth_of(tmp_path)
    results = truth["results"]
    assert results["bytes"] == 4 << 20
    assert (truth["cycles"]["initiator_task_tag"], results["errors"]) == ([], [])
    # a machine under load slows it down, and nothing makes it faster
    assert 0 < results["steady_bytes_per_s"] <= PAYLOAD_BYTES_PER_S * 1.05
    assert truth["target_ends"][0][0]["congestion_control"] == "cubic"
    direction = "to_target" if mode == "socket-write" else "to_initiator"
    assert truth["paths"][0][direction]["counters"]["delivered"]["bytes"] > 4 << 20
    holds(tmp_path)
