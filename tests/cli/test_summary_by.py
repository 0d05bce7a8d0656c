"""``summary --by``: the same loads on the terminal, in JSON and in the report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.relate.loads import NAMES
from iscsitrace.show.loads import HEADINGS

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"
HUNG = str(VECTORS / "black-out-lio" / "initiator.pcapng.gz")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["summary", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_table_has_a_row_for_each_load(name: str) -> None:
    loads = json.loads(run(HUNG, "--by", name, "--json"))["by"][name]
    _, caption = HEADINGS[name]
    _, shown = run(HUNG, "--by", name).split(f"\n{caption}\n")
    heading, *rows = shown.strip().splitlines()
    assert loads
    assert len(rows) == len(loads)
    for row, load in zip(rows, loads, strict=True):
        assert row.startswith(load["label"]) or row.strip().startswith(load["label"])
        assert re.search(rf"\s{load['command_count']}\s", row)
        assert f"{load['bytes'] / 1e6:.3f}" in row
    assert "no status" in heading


def test_a_hung_command_is_a_bound_of_the_latency() -> None:
    (load, *_) = json.loads(run(HUNG, "--by", "lun", "--json"))["by"]["lun"]
    assert load["without_status_count"] > 0
    assert load["latency_ns"]["max"] == load["without_status_ns"]
    assert load["latency_ns"]["open_count"] == load["without_status_count"]
    assert f">{load['without_status_ns'] / 1e6:.3f}" in run(HUNG, "--by", "lun")


def test_several_tables_and_none() -> None:
    shown = run(HUNG, "--by", "operation", "--by", "lun")
    assert shown.index("Load by operation") < shown.index("Load by LUN")
    assert "Negotiated parameters" not in shown
    assert "by" not in json.loads(run(HUNG, "--json"))


def test_diagnose_has_the_volumes_with_their_outages() -> None:
    result = CliRunner().invoke(main, ["diagnose", "--json", HUNG])
    (volume,) = json.loads(result.stdout)["volumes"]
    (load,) = json.loads(run(HUNG, "--by", "volume", "--json"))["by"]["volume"]
    assert volume.items() <= load.items()
    assert volume["outage_ns"] == sum(last - first for first, last in volume["outage_spans"])
    assert volume["outage_ns"] > 0


def test_of_many_loads_the_worst_are_shown() -> None:
    every = json.loads(run(HUNG, "--by", "operation", "--json"))["by"]["operation"]
    shown = run(HUNG, "--by", "operation", "--top", "1").splitlines()
    place = shown.index("Load by operation")
    assert shown[place + 2].split()[0] == every[0]["label"]
    assert shown[place + 3] == f"{len(every) - 1} more {'row is' if len(every) == 2 else 'rows are'} not shown."
