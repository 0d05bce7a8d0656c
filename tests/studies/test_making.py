"""How results were made: a command that can be typed, and the seeds of the repeats."""

from __future__ import annotations

import os
import platform
import shlex

import pytest

from iscsitrace.cli.traffic import experiment
from iscsitrace.studies import definition, results
from iscsitrace.studies.points import of_experiment


@pytest.mark.parametrize("world", ["simulated", "real", "guests"])
@pytest.mark.parametrize("is_reduced", [True, False])
def test_the_command_is_one_of_iscsitrace(world: str, is_reduced: bool) -> None:
    program, *words = shlex.split(results.command("read-study", world, is_reduced=is_reduced))
    assert program == "iscsitrace"
    assert words[:2] == ["lab", "run"]
    params = experiment.command.make_context("run", words[2:]).params
    assert (params["name"], params["world"], params["is_reduced"]) == ("read-study", world, is_reduced)
    assert str(params["directory"]) == "DIR"


def test_only_the_kernels_tcp_depends_on_the_kernel() -> None:
    assert platform.system() not in results.versions("simulated")
    real = results.versions("real")
    assert platform.release().startswith(real[platform.system()])
    assert all(each.isdigit() for each in real[platform.system()].split("."))
    # of the last quarter of an hour: a busy machine is a slow host
    assert float(real["load average"].split(" on ")[0]) == pytest.approx(os.getloadavg()[2], abs=0.3)


def test_seeds_are_those_of_the_repeats() -> None:
    points = of_experiment(definition.load("stream-study"), "simulated")
    # of twenty repeats at most, 1000 apart
    assert results.seeds(points) == tuple(range(1, 20_000, 1000))
    assert results.seeds_text(results.seeds(points)) == "1, 1001 ... 19001"
    assert results.seeds_text((1, 1001)) == "1, 1001"
