"""Designs of our initiator from the command line: both drivers do the same, and report their CPU time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab import actors, traffic
from iscsitrace.show import run_results
from iscsitrace.wording import amounts
from tests.support.lab import needs_root
from tests.support.programs import running
from tests.support.traffic import OurTarget, our_target

DESIGNS = [(driver, receive) for driver in actors.DRIVERS for receive in actors.RECEIVES]


@pytest.fixture(scope="module")
def target() -> Iterator[OurTarget]:
    with our_target({"size_bytes": 16 << 20, "medium": "ram"}) as running:
        yield running


def initiator(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["initiator", *map(str, arguments)])


def total_ns(found: dict[str, Any]) -> int:
    return int(found["cpu"]["user_ns"] + found["cpu"]["system_ns"])


@pytest.mark.parametrize(("driver", "receive"), DESIGNS)
def test_a_design_writes_and_reads_and_reports_its_cpu_time(target: OurTarget, driver: str, receive: str) -> None:
    design = ("--set", f"driver={driver}", "--set", f"receive={receive}", "--json", "--quiet")
    for mode, more in (("write", ()), ("read", ("--set=verify=yes",)), ("read", ())):
        shown = initiator(mode, target.url, "--bytes", "8M", "--block-size", "64K", "--queue-depth", 4, *more, *design)
        assert shown.exit_code == 0, shown.output
        found = json.loads(shown.stdout)
        assert (found["bytes"], found["calls"], found["verify_error_count"]) == (8 << 20, 128, 0)
        # one or three threads, of which at most two run at the same time
        assert 0 < total_ns(found) < 2 * found["elapsed_ns"] + 50_000_000
        assert found["cpu_s_per_GB"] == pytest.approx(total_ns(found) / (8 << 20))


def test_cpu_time_is_printed_below_the_latencies(target: OurTarget) -> None:
    shown = initiator("read", target.url, "--bytes", "1M", "--quiet")
    (line,) = [line for line in shown.output.splitlines() if line.startswith("processor time")]
    assert line.endswith(" s/GB")


def test_cpu_time_is_user_and_system_time_per_gigabyte() -> None:
    taken = {"user_ns": 1_500_000_000, "system_ns": 500_000_000}
    assert amounts.seconds_per_gigabyte(taken, 4 * 10**9) == 0.5
    assert amounts.seconds_per_gigabyte(taken, 0) is None
    assert amounts.seconds_per_gigabyte(None, 1) is None
    (line,) = run_results.cpu_lines({"cpu": taken, "bytes": 4 * 10**9})
    assert line == "processor time 2.000000 s (user 1.500000, system 0.500000): 0.500 s/GB"
    assert list(run_results.cpu_lines({"bytes": 1})) == []


def test_the_cpu_time_of_an_ended_program_is_known() -> None:
    before = actors.children_cpu_time()
    work = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    assert 0.2e9 <= sum(actors.children_cpu_time_since(before).values()) < 5e9


@pytest.mark.parametrize("driver", actors.DRIVERS)
def test_only_unverified_data_may_be_discarded(target: OurTarget, driver: str) -> None:
    # a pattern with another seed is on the disk: it is found only where data are looked at
    assert initiator("write", target.url, "--bytes", "1M", "--set", "pattern-seed=7", "--quiet").exit_code == 0
    design = ("--set", f"driver={driver}", "--set", "receive=discard", "--quiet", "--json")
    read = initiator("read", target.url, "--bytes", "1M", "--block-size", "256K", *design)
    assert read.exit_code == 0
    verified = initiator("read", target.url, "--bytes", "1M", "--block-size", "256K", "--set=verify=yes", *design)
    assert verified.exit_code == 1
    assert json.loads(verified.stdout)["first_mismatch"]["found_seed"] == 7
    digests = initiator("read", target.url, "--bytes", "1M", "--set", "data-digest=crc32c", *design)
    assert (digests.exit_code, json.loads(digests.stdout)["data_digest_error_count"]) == (0, 0)


def test_an_unknown_design_is_refused(target: OurTarget) -> None:
    assert (
        "'fibres' is not one of 'events', 'threads'" in initiator("read", target.url, "--set", "driver=fibres").output
    )
    settings = {"client": {}, "urls": [traffic.parse_url(target.url).resolved()], "driver": "fibres"}
    with pytest.raises(TrafficImpossible, match="unknown variant `fibres`"):
        traffic.run_initiator(settings, lambda *_: True)


@pytest.mark.parametrize("driver", actors.DRIVERS)
def test_ctrl_c_ends_a_run_cleanly(target: OurTarget, driver: str, tmp_path: Path) -> None:
    words = (
        "read",
        target.url,
        "--seconds",
        "60",
        "--connections",
        "1",
        "--set",
        f"driver={driver}",
        "--json",
        "--quiet",
    )
    infos = tmp_path / "infos"
    command = [sys.executable, "-m", "iscsitrace", "initiator", *words, "--tcp-info", str(infos)]
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as popen:
        try:
            end = time.monotonic() + 30
            while not (infos.exists() and infos.stat().st_size) and time.monotonic() < end:
                time.sleep(0.02)
            popen.send_signal(signal.SIGINT)
            output, _ = popen.communicate(timeout=30)
        finally:
            popen.kill()
    assert popen.returncode == 130
    found = json.loads(output)
    assert (found["error_count"], found["errors"]) == (0, [])
    assert found["seconds"] < 50


@needs_root
@pytest.mark.parametrize("program", ["threads", "iscsi-perf"])
def test_a_run_has_the_cpu_time_of_initiator_and_target(tmp_path: Path, program: str) -> None:
    own = ("--set", f"initiator-program={program}") if program == "iscsi-perf" else ("--set", f"driver={program}")
    options = ("--bypass", "--seconds", 1, "--block-size", "64K", "--set", "snaplen=160", "--set", "capture=initiator")
    shown = CliRunner().invoke(main, ["lab", "run", "read", *map(str, (*options, *own)), "-o", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    assert "processor time" in shown.output
    truth = json.loads((tmp_path / "run" / "truth.json").read_text())
    assert total_ns(truth["results"]) > 0
    assert total_ns(truth["target_logs"][0]) > 0
    programs = truth["settings"]["programs"]
    assert programs.get("driver") == (None if program == "iscsi-perf" else program)
    refused = CliRunner().invoke(
        main, ["lab", "run", "read", "--set", "initiator-program=iscsi-perf", "--set", "driver=threads", "-o", "DIR"]
    )
    assert "--set driver does not work with iscsi-perf" in refused.output
