"""``iscsitrace model plan``: text, JSON and errors, from options, a fit and a capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from tests.support.runs import Runs

LONG_BURSTS = ("--first-burst", "1M", "--max-burst", "1M")
PATH = ("--one-way-delay", "8ms", "--rate", "320Mbit")


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["model", "plan", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    result = plan(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def rows_of(result: Result) -> dict[str, str]:
    """The rows of the table by their change."""
    return {line.partition("  ")[0]: line.partition("  ")[2].strip() for line in result.stdout.splitlines()}


def test_a_plan_says_what_is_wanted_and_what_each_change_needs() -> None:
    result = plan("read", *PATH, "--window", "256K")
    assert result.exit_code == 0
    assert "read: what 34.2 MB/s needs" in result.stdout
    assert "Without the delay it would carry 38.0 MB/s; 90 % of that is wanted." in result.stdout
    rows = rows_of(result)
    assert rows["queue depth"].startswith("queue depth 10, window 544K ")
    assert rows["window"].startswith("not enough ")


def test_the_json_has_settings_that_predict_evaluates_alike() -> None:
    found = document("write", *PATH, "--reach", "8MB/s", "--block-size", "1M", "--window", "512K")
    assert found["wanted_bytes_per_s"] == 8e6
    assert found["without_delay"] is None
    (keys,) = (each for each in found["plans"] if each["change"] == "keys")
    assert keys["values"] == {"is_initial_r2t": False, "first_burst_bytes": 1 << 20, "max_burst_bytes": 1 << 20}
    result = CliRunner().invoke(
        main,
        [*"model predict write --block-size 1M --window 512K --initial-r2t no --json".split(), *PATH, *LONG_BURSTS],
    )
    (predicted,) = json.loads(result.stdout)["predictions"]
    assert predicted["throughput_bytes_per_s"] == keys["throughput_bytes_per_s"] >= 8e6


def test_a_rate_is_in_bytes_or_bits() -> None:
    of_bytes, of_bits = (document("read", *PATH, "--reach", each) for each in ("8MB/s", "64Mbit"))
    assert of_bytes == of_bits


def test_a_load_that_is_enough_says_so() -> None:
    shown = plan("read", *PATH, "--queue-depth", "8", "--reach", "3MB/s")
    assert ", which is enough, limited by round trips." in shown.stdout
    # less is enough, too: the rows say how much, and call it neither more nor larger
    rows = rows_of(shown)
    assert rows["I/O size"].startswith("I/O size 8K ")
    assert rows["queue depth"].startswith("queue depth 1 ")
    assert not {"more", "larger"} & {*shown.stdout.split()}
    assert "which is enough" not in plan("read", *PATH, "--reach", "30MB/s").stdout


def test_a_mirror_is_planned_by_the_delays_to_its_targets() -> None:
    found = document("write", "--target-delay", "4ms,25ms", "--rate", "1Gbit", "--reach", "2MB/s")
    (far,) = (each for each in found["plans"] if each["change"] == "delay_ns")
    assert far["values"]["target_delays_ns"][0] == 4_000_000
    assert far["values"]["target_delays_ns"][1] == pytest.approx(far["setting"]["delay_ns"])


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = Runs(tmp_path_factory.mktemp("runs"))
    return runs("read --block-size 64K --bytes 8M --queue-depth 2 --one-way-delay 4ms --rate 320Mbit").capture()


def test_a_capture_is_planned_like_its_fit(capture: Path, tmp_path: Path) -> None:
    of_capture = document(str(capture), "--hide", "80%")
    fit = tmp_path / "fit.json"
    fit.write_text(CliRunner().invoke(main, ["model", "fit", str(capture), "--json"]).stdout)
    of_fit = document("--fit", str(fit), "--hide", "80%")
    assert of_capture["captures"] == [str(capture)]
    assert [each["values"] for each in of_capture["plans"]] == [each["values"] for each in of_fit["plans"]]
    for each in of_capture["plans"]:
        assert each["throughput_low_bytes_per_s"] <= each["throughput_bytes_per_s"]
    # 8 ms and 1.7 ms on the line: five carry 33.8 MB/s, four 27.0
    (deeper,) = (each for each in of_capture["plans"] if each["change"] == "queue_depth")
    assert deeper["values"] == {"queue_depth": 5}
    text = plan(str(capture)).stdout
    assert "one command in flight" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name read or write"),
        (("read",), "set --one-way-delay"),
        (("read", *PATH, "--hide", "90%", "--reach", "1MB/s"), "use one of them"),
        (("read", *PATH, "--socket", "1Gbit"), "use one of them"),
        (("read", *PATH, "--hide", "0%"), "wants nothing"),
        (("read", *PATH, "--reach", "8MB"), 'a rate of data like "8MB/s"'),
        (("read", *PATH, "--reach", "0MB/s"), 'a rate of data like "8MB/s"'),
        (("read", "--one-way-delay", "8ms"), "set a rate or a service time"),
        (("read", "--target-delay", "1ms,2ms", "--rate", "1Gbit"), "belongs to a mirrored write"),
        (("nowhere.pcapng",), "nowhere.pcapng"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    result = plan(*arguments)
    assert result.exit_code != 0
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_capture_without_steady_commands_is_one_line(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    few = runs("read --block-size 64K --bytes 64K --one-way-delay 1ms").capture()
    result = plan(str(few))
    assert result.exit_code != 0
    assert "nothing to plan from" in result.stderr
