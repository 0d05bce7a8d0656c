"""Experiments: definitions and their errors, points, interrupted and resumed runs, results compared with the model."""

from __future__ import annotations

import csv
import json
import multiprocessing
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from iscsitrace.cli import main
from iscsitrace.cli.traffic import run_options, simulate
from iscsitrace.errors import InputInvalid, OutputExists
from iscsitrace.lab.settings import structs as settings
from iscsitrace.lab.settings.kinds import Value
from iscsitrace.lab.settings.table import SETTINGS
from iscsitrace.plots import experiment as experiment_plot
from iscsitrace.plots import style
from iscsitrace.plots.experiment import Chart, Graph
from iscsitrace.show.document import Opening
from iscsitrace.studies import (
    charts,
    definition,
    expected,
    experiment,
    figures,
    measured,
    points,
    records,
    repeats,
    report,
    results,
    tables,
    verdicts,
)
from iscsitrace.studies.definition import Definition, LineFigure, PacketFigure
from iscsitrace.studies.points import DesignPoint
from iscsitrace.studies.quantities import PointResult
from iscsitrace.studies.results import JudgedClaim, Results

SMALL = """
title = "Small"
source = "a test"
warm-up-calls = 3

[link]
rate = "351Mbit"

[initiator.tcp]
delayed-ack = false

[workload]
operation = "read"
calls = 8

[grid.link]
one-way-delay = ["1ms", "2ms"]

[[arms]]
name = "held"
target.status = "apart-held"
workload.block-size = "125K"

[[arms]]
name = "with data"
workload.block-size = "125K"

[[arms]]
name = "impossible"
workload.block-size = "1000B"
grid.link.one-way-delay = ["1ms"]

[[figures]]
name = "idle"
kind = "lines"
title = "Idle"
x = "link.one-way-delay"
y = "idle_fraction"
arms = ["held", "with data"]

[[figures]]
name = "packets"
kind = "packets"
title = "Packets"
arms = ["held"]
where.link.one-way-delay = "2ms"

[[published]]
quantity = "idle_fraction"
arms = ["held"]
x = "link.one-way-delay"
values = [["1ms", 57], ["2ms", 73], ["4ms", 84]]
"""
# 128000 bytes and a header of 48, in segments of 1448 that take 1514 on a line of 351 Mbit/s
BLOCK_MS = 128_048 * 1514 / 1448 * 8 / 351e3
PLAIN = SMALL.split("[[figures]]", maxsplit=1)[0]
"""Without figures, which take longest."""
ALL_DONE = 5


def written(folder: Path, text: str, name: str = "small.toml") -> Definition:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return definition.load(folder / name)


class Watched:
    """Records the progress; stops the run after this many points."""

    def __init__(self, last: int | None = None) -> None:
        self.seen: list[experiment.Progress] = []
        self._last = last

    def __call__(self, progress: experiment.Progress) -> bool:
        self.seen.append(progress)
        return self._last is not None and progress.done >= self._last

    @property
    def run_now(self) -> list[str]:
        """Names of the points of this run, without those of earlier runs."""
        return [each.latest.name for each in self.seen if each.latest is not None]


def carry_out(
    text: str, folder: Path, *, last: int | None = None, jobs: int = 1, keep: str = "figures"
) -> tuple[Results, Watched]:
    found = written(folder.parent / "definition", text)
    watched = Watched(last)
    made = points.of_experiment(found, "simulated")
    experiment.prepare(found, made, folder, is_forced=False)
    return experiment.carry_out(found, made, folder, watched, jobs=jobs, keep=keep), watched


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results, Watched]:
    folder = tmp_path_factory.mktemp("experiment") / "run"
    return folder, *carry_out(SMALL, folder)


def by_name(found: Results) -> dict[tuple[str, str], PointResult]:
    return {(point.arm, point.grid["link.one-way-delay"]): point for point in found.points}


# ---- definitions


@pytest.mark.parametrize("name", definition.names())
def test_every_shipped_experiment_can_be_run(name: str) -> None:
    found = definition.load(name)
    made = points.of_experiment(found, "simulated")
    assert len({point.name for point in made}) == len(made)
    assert figures.needed(found, made) or not any(isinstance(figure, PacketFigure) for figure in found.figures)
    for published in found.published:
        arms = [point for point in made if not published.arms or point.arm in published.arms]
        at = [point for point in arms if point.is_at(published.where.settings)]
        for value, _ in published.pairs:
            assert any(point.is_at({published.x: value}) for point in at), f"no point at {published.x} {value.text}"


def test_the_read_study_is_complete() -> None:
    made = points.of_experiment(definition.load("read-study"), "simulated")
    delays = {point.place["link.one-way-delay"].text for point in made}
    assert delays == {"0ms", "1ms", "2ms", "4ms", "8ms", "16ms"}
    assert {point.values["workload.operation"] for point in made if point.arm == "socket"} == {"socket_read"}
    sizes = {settings.call_bytes(point.values) for point in made if point.values["workload.operation"] == "read"}
    assert sizes == {500 << 10, 255 << 9, 125 << 10, 1 << 20, 2 << 20, 4 << 20}
    assert {point.values.get("target.status") for point in made} >= {"apart_held", "in_data"}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (('title = "Small"', ""), "missing required field `title`"),
        (('title = "Small"', "title = 5"), "Expected `str`, got `int` - at `$.title`"),
        (('rate = "351Mbit"', 'rate = "351"'), "link.rate: '351' is not a rate like \"320Mbit\""),
        (('rate = "351Mbit"', 'rat = "351Mbit"'), "link.rat: there is no such setting; there are rate, one-way-delay,"),
        (("[link]", "[links]"), "unknown field `links`"),
        (("calls = 8", 'calls = "8"'), "workload.calls: '8' is not a whole number"),
        (('operation = "read"', 'operation = "rread"'), "workload.operation: 'rread' is not one of read, write, mixed"),
        (('["1ms", "2ms"]', '"1ms"'), "grid.link.one-way-delay: expected a list of values, at least one"),
        (('["1ms", "2ms"]', '["1ms", "1ms"]'), "grid.link.one-way-delay[1]: the value 1ms is there twice"),
        (('["1ms", "2ms"]', '["1ms", "2"]'), "grid.link.one-way-delay[1]: '2' is not a time like \"8ms\""),
        (('name = "with data"', 'name = "held"'), "arms: 'held' is there twice"),
        (('status = "apart-held"', 'status = "late"'), "target.status: 'late' is not one of in-data, apart,"),
        (('"impossible"\n', '"impossible"\nsize = 3\n'), "unknown field `size` - at `$.arms[2]`"),
        (('kind = "lines"', 'kind = "bars"'), "Invalid value 'bars' - at `$.figures[0].kind`"),
        (('y = "idle_fraction"', 'y = "speed"'), "y: 'speed' is none of throughput, idle_fraction,"),
        (
            ('arms = ["held", "with data"]', 'arms = ["hold"]'),
            "figures[0].arms: no arm is called 'hold'; there are held,",
        ),
        (
            ('x = "link.one-way-delay"\ny', 'x = "link.loss"\ny'),
            "figures[0].x: no arm or grid sets 'link.loss'; they set ",
        ),
        (
            ('where.link.one-way-delay = "2ms"', 'where.link.loss = "1%"'),
            "figures[1].where.link.loss: no point has this",
        ),
        (
            ('name = "packets"', 'name = "../packets"'),
            "name: it names a file: use letters, digits and dashes - at `$.figures[1]`",
        ),
        (('kind = "packets"\n', ""), "missing required field `kind` - at `$.figures[1]`"),
        (
            ('kind = "packets"', 'kind = "packets"\ncycles = 0'),
            "Expected `int` >= 1 - at `$.figures[1].cycles`",
        ),
        (
            ('kind = "packets"', 'kind = "packets"\ny = "k"'),
            "unknown field `y` - at `$.figures[1]`",
        ),
        (("[grid.link]", "[grid.lnk]"), "grid.lnk.one-way-delay: there is no such setting; there are link, tcp,"),
        (("[grid.link]", "[grid]\nlink = 3\n[grid.target]"), "grid.link: there is no such setting; there are "),
        (("[link]", "tcp = 7\n[link]"), "Expected `object`, got `int` - at `$.tcp`"),
        (('arms = ["held", "with data"]', "arms = [5]"), "Expected `str`, got `int` - at `$.figures[0].arms[0]`"),
        (('["4ms", 84]', '["4ms", "84"]'), "Expected `int | float`, got `str` - at `$.published[0].values[2][1]`"),
        (('["4ms", 84]', '["4", 84]'), "values[2]: '4' is not a time like"),
        (('["4ms", 84]]', '["4ms", 84]]\nread-as = "Mbps"'), "read-as: 'Mbps' is none of MiB/s - at `$.published[0]`"),
        (
            ('["4ms", 84]]', '["4ms", 84]]\nread-as = "MiB/s"'),
            "read-as: the quantity has to be one in MB/s - at `$.published[0]`",
        ),
        (('title = "Small"', 'title = "Small"\npage-figures = ["packets"]'), "page-figures: 'packets' is none of idle"),
        (
            ('kind = "lines"', 'kind = "lines"\nof-target = 2'),
            "of-target: x has to be link.target-delays, as-rtt - at `$.figures[0]`",
        ),
        (
            ("[grid.link]", '[[conditions]]\nwhat = "line"\nours = "1 Gbit/s"\nprinted = "1G"\n[grid.link]'),
            "source: what the study prints has a place in it; an assumption has none - at `$.conditions[0]`",
        ),
        (
            ("[grid.link]", '[[exhibits]]\nname = "figure 1"\nenglish = "a drawing"\n[grid.link]'),
            "why: name a figure of ours, or say why there is none - at `$.exhibits[0]`",
        ),
        (("warm-up-calls = 3", "warm-up-calls = -1"), "Expected `int` >= 0 - at `$.warm-up-calls`"),
        (
            ("[initiator.tcp]", "[initiator.keys]\nMaxBurst = 5\n[initiator.tcp]"),
            "initiator.keys.MaxBurst: there is no",
        ),
        (('title = "Small"', 'title = "Small'), " is not TOML: "),
    ],
)
def test_a_mistake_is_a_one_line_error_with_its_key(tmp_path: Path, change: tuple[str, str], line: str) -> None:
    assert change[0] in SMALL
    with pytest.raises(InputInvalid) as caught:
        written(tmp_path, SMALL.replace(*change, 1))
    text = str(caught.value)
    assert text.startswith(str(tmp_path / "small.toml"))
    assert "\n" not in text
    assert line in text


def test_every_point_has_a_time_limit(tmp_path: Path) -> None:
    found = written(tmp_path, SMALL.replace("calls = 8", ""))
    with pytest.raises(InputInvalid, match="held: the length is missing"):
        points.of_experiment(found, "simulated")


def test_a_world_that_cannot_run_it_is_refused(tmp_path: Path) -> None:
    found = written(tmp_path, SMALL + '\n[real]\nis-possible = false\nnote = "too fast for a kernel"\n')
    assert len(points.of_experiment(found, "simulated")) == ALL_DONE
    with pytest.raises(InputInvalid, match="small cannot run in the real world: too fast for a kernel"):
        points.of_experiment(found, "real")


def test_the_real_world_has_a_separate_scale(tmp_path: Path) -> None:
    more = '\n[real]\nrepeats = 2\nworkload.calls = 4\nworkload.block-size = "64K"\ngrid.link.one-way-delay = ["5ms"]\n'
    found = points.of_experiment(written(tmp_path, SMALL + more), "real")
    held = [point for point in found if point.arm == "held"]
    assert [(point.repeat, point.place["link.one-way-delay"].text) for point in held] == [(1, "5ms"), (2, "5ms")]
    assert held[0].values["workload.calls"] == 4
    # the settings that define an arm stay
    assert held[0].values["workload.block-size"] == 128_000
    assert held[0].run_settings["world"]["seed"] != held[1].run_settings["world"]["seed"]


def test_a_simulated_point_is_repeated_if_it_is_random(tmp_path: Path) -> None:
    lossy = '[[arms]]\nname = "lossy"\nlink.to-initiator.loss = "1%"\n'
    lossy += '[[arms]]\nname = "random"\nworkload.access = "random"\n'
    found = written(tmp_path, "repeats = 3\n" + PLAIN + lossy)
    counts = Counter(point.arm for point in points.of_experiment(found, "simulated"))
    assert counts == {"held": 2, "with data": 2, "impossible": 1, "lossy": 6, "random": 6}
    assert len(points.of_experiment(found, "real")) == 3 * (2 + 2 + 1 + 2 + 2)


# ---- settings: those of the same options of `simulate`

_OPTIONS: dict[str, tuple[Any, list[str]]] = {
    "link.rate": ("320Mbit", ["--rate", "320Mbit"]),
    "link.one-way-delay": ("8ms", ["--one-way-delay", "8ms"]),
    "link.loss": ("0.01%", ["--loss", "0.01%"]),
    "link.jitter": ("1ms", ["--set", "jitter=1ms"]),
    "link.overhead": ("24B", ["--set", "overhead=24"]),
    "link.to-target.loss": ("1%", ["--set", "to-target-loss=1%"]),
    "link.to-initiator.rate": ("1Gbit", ["--set", "to-initiator-rate=1Gbit"]),
    "link.access-rate": ("100Mbit", ["--set", "access-rate=100Mbit"]),
    "link.target-delays": (["1ms", "20ms"], ["--target-delay", "1ms", "--target-delay", "20ms"]),
    "tcp.window": ("1M", ["--set", "receive-buffer=1M"]),
    "tcp.send-buffer": ("128KB", ["--set", "send-buffer=128KB"]),
    "tcp.congestion-control": ("reno", ["--congestion-control", "reno"]),
    "tcp.hystart": (False, ["--set=hystart=no"]),
    "initiator.tcp.delayed-ack": (False, ["--set", "initiator-tcp=delayed-ack=no"]),
    "target.tcp.mss": (536, ["--set", "target-tcp=mss=536"]),
    "initiator.keys.MaxBurstLength": ("256K", ["--key", "MaxBurstLength=262144"]),
    "initiator.keys.InitialR2T": (False, ["--key", "InitialR2T=No"]),
    "target.keys.MaxRecvDataSegmentLength": ("64K", ["--set", "target-key=MaxRecvDataSegmentLength=65536"]),
    "target.status": ("apart-held", ["--set", "status=apart-held"]),
    "target.service-delay": ("2ms", ["--service-delay", "2ms"]),
    "target.is-serial": (True, ["--set=serial=yes"]),
    "target.command-window": (8, ["--set", "command-window=8"]),
    "target.count": (3, ["--targets", "3"]),
    "workload.block-size": ("127.5K", ["--block-size", "127.5K"]),
    "workload.system-call-size": ("500K", ["--set", "system-call-size=500K"]),
    "workload.max-transfer": ("127.5K", ["--set", "max-transfer=127.5K"]),
    "workload.queue-depth": (8, ["--queue-depth", "8"]),
    "workload.bytes": ("10MB", ["--bytes", "10MB"]),
    "workload.seconds": (1.5, ["--seconds", "1.5"]),
    "workload.access": ("random", ["--random"]),
    "workload.think-time": ("3ms", ["--think-time", "3ms"]),
    "workload.connections": (4, ["--connections", "4"]),
    "workload.sessions": (2, ["--sessions", "2"]),
    "workload.layout": ("mirror", ["--set=mirror=yes"]),
    "workload.deal": ("least-loaded", ["--set", "deal=least-loaded"]),
    "workload.read-share": (0.7, ["--set", "read-share=0.7"]),
}


def leaves(found: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(found, dict):
        for name, value in found.items():
            yield from leaves(value, f"{place}.{name}")
    elif isinstance(found, list) and any(isinstance(each, dict) for each in found):
        for number, value in enumerate(found):
            yield from leaves(value, f"{place}.{number}")
    else:
        yield place, found


def by_options(arguments: list[str]) -> dict[str, Any]:
    context = simulate.command.make_context("simulate", ["read", "-o", "DIR", *arguments])
    return dict(leaves(run_options.run_settings("read", 1, dict(context.params))))


def by_definition(values: dict[str, Any]) -> dict[str, Any]:
    read = {name: SETTINGS[name].kind.read(value) for name, value in values.items()}
    assert None not in read.values()
    return dict(leaves(settings.of_run({"workload.operation": "read", **read}, 1)))


@pytest.mark.parametrize("name", _OPTIONS)
def test_a_setting_equals_the_option_of_the_same_name(name: str) -> None:
    value, arguments = _OPTIONS[name]
    plain, told = by_options([]), by_options(arguments)
    changed = {place: found for place, found in told.items() if plain.get(place, ...) != found}
    assert changed
    mine, told_mine = by_definition({}), by_definition({name: value})
    # what further targets have like the first is left to the core's defaults, as the first one's is
    changed = {
        place: found
        for place, found in changed.items()
        if place in told_mine or told.get(re.sub(r"^\.portals\.\d+", ".portals.0", place), ...) != found
    }
    assert {place: told_mine.get(place, ...) for place in changed} == changed
    assert {place for place in told_mine if mine.get(place, ...) != told_mine[place]} <= changed.keys()


# ---- runs


def test_the_model_and_hand_arithmetic_agree_with_the_measurement(small: tuple[Path, Results, Watched]) -> None:
    found = by_name(small[1])
    for arm, delays in (("held", 4), ("with data", 2)):
        for delay, delay_ms in (("1ms", 1.0), ("2ms", 2.0)):
            point = found[arm, delay]
            period_ms = delays * delay_ms + BLOCK_MS
            assert point.period_ns == pytest.approx(period_ms * 1e6, rel=0.01)
            assert point.steady_throughput_bytes_per_s == pytest.approx(128_000 / period_ms * 1e3, rel=0.01)
            assert point.idle_fraction == pytest.approx(delays * delay_ms / period_ms, abs=0.01)
            assert point.k == pytest.approx(delays, abs=0.05)
            assert point.model_error == pytest.approx(0, abs=0.03)
            assert point.call_count == 5
            assert sum(point.parts_ns.values()) == pytest.approx(point.period_ns, rel=0.01)


def test_a_failed_point_reports_its_error_and_the_others_run(small: tuple[Path, Results, Watched]) -> None:
    folder, found, watched = small
    assert found.is_complete
    assert len(found.points) == found.point_count == ALL_DONE
    (failed,) = found.failed
    assert failed.arm == "impossible"
    assert failed.error == "block_size_bytes is 1000; it has to be a multiple of 512 from 512 to 16777216 bytes"
    assert watched.seen[-1].failed == 1
    assert watched.seen[-1].done == ALL_DONE
    assert watched.seen[-1].left_s == 0
    assert "block_size_bytes is 1000" in (folder / results.CSV).read_text()


def test_results_are_read_back_from_their_file(small: tuple[Path, Results, Watched]) -> None:
    folder, found, _ = small
    assert results.load(folder) == found
    document = json.loads((folder / results.JSON).read_text())
    assert (document["kind"], document["schema"]) == ("experiment", 1)
    assert document["points"][0]["model_error"] == found.points[0].model_error
    rows = (folder / results.CSV).read_text().splitlines()
    assert rows[0].startswith("arm,link.one-way-delay,repeat,throughput_bytes_per_s,")
    assert len(rows) == 1 + ALL_DONE


def test_only_the_captures_of_figures_are_kept(small: tuple[Path, Results, Watched]) -> None:
    folder, found, _ = small
    kept = [point.name for point in found.points if point.captures]
    assert kept == ["held,one-way-delay=2ms"]
    for point in found.points:
        files = {path.name for path in (folder / results.POINTS / point.name).iterdir()}
        wanted = {"result.json", *point.captures, *(["truth.json"] if point.captures else [])}
        assert files == wanted


MIRROR = """
title = "two copies"
source = "a test"
warm-up-calls = 2

[link]
rate = "100Mbit"
access-rate = "100Mbit"
one-way-delay = "1ms"

[target]
count = 2

[workload]
operation = "write"
layout = "mirror"
block-size = "64K"
calls = 10
"""


def test_a_mirror_counts_its_calls_once_and_keeps_no_capture(tmp_path: Path) -> None:
    found, _ = carry_out(MIRROR, tmp_path / "run")
    (point,) = found.points
    assert point.call_count == 8
    # both copies pass one line in each direction, with the status: nothing else takes time
    sent_ms = 2 * 65_536 * 1514 / 1448 * 8 / 100e3
    assert point.period_ns is not None
    assert sent_ms + 2 < point.period_ns / 1e6 < sent_ms + 2 + 4.5
    assert point.model_error == pytest.approx(0, abs=0.03)
    assert [path.name for path in (tmp_path / "run" / results.POINTS / point.name).iterdir()] == ["result.json"]


def test_published_figures_are_shown_beside_ours(small: tuple[Path, Results, Watched]) -> None:
    first, second, third = small[1].beside
    assert (first.at, first.published, first.unit, first.source) == ("1ms", 57, "%", "a test")
    assert first.ours == pytest.approx(57, abs=1)
    assert second.ours == pytest.approx(73, abs=1)
    # no point is there
    assert third.ours is None


def test_a_fit_over_distance_finds_how_many_delays_a_cycle_pays(small: tuple[Path, Results, Watched]) -> None:
    found = {each.arm: each.fit for each in small[1].fits}
    assert found["held"]["k"]["value"] == pytest.approx(4, rel=0.02)
    assert found["with data"]["k"]["value"] == pytest.approx(2, rel=0.02)


def test_finished_points_are_not_run_again(small: tuple[Path, Results, Watched]) -> None:
    folder, found, _ = small
    made = points.of_experiment(definition.load(folder.parent / "definition" / "small.toml"), "simulated")
    watched = Watched()
    again = experiment.run(made, folder, watched, kept=lambda point: point.name == "held,one-way-delay=2ms")
    # what failed is tried again
    assert watched.run_now == ["impossible,one-way-delay=1ms"]
    assert tuple(again) == found.points


def test_a_stopped_run_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    part, _ = carry_out(PLAIN, folder, last=2)
    assert not part.is_complete
    assert [point.name for point in part.points] == ["held,one-way-delay=1ms", "held,one-way-delay=2ms"]
    assert results.load(folder) == part
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("points/*/result.json")}
    # a result that was cut short is none
    (folder / "points" / "held,one-way-delay=2ms" / "result.json").write_text('{"name": "held,')
    whole, watched = carry_out(PLAIN, folder)
    assert whole.is_complete
    assert "held,one-way-delay=1ms" not in watched.run_now
    assert len(watched.run_now) == ALL_DONE - 1
    assert (folder / "points" / "held,one-way-delay=1ms" / "result.json").stat().st_mtime_ns in kept.values()


def test_a_point_is_identified_by_the_settings_of_its_result(tmp_path: Path) -> None:
    def digests(text: str, world: str = "simulated") -> dict[str, str]:
        return {point.name: point.digest for point in points.of_experiment(written(tmp_path, text), world)}

    plain = digests(SMALL)
    assert len(set(plain.values())) == ALL_DONE
    # texts and figures do not count
    assert digests(SMALL.replace('title = "Idle"', 'title = "Idleness"').replace('"a test"', '"another"')) == plain
    # nor does how a size is written
    assert digests(SMALL.replace('"125K"', '"128000B"')) == plain
    held = SMALL.replace('"held"\ntarget.status = "apart-held"', '"held"\ntarget.status = "apart"')
    changed = {name for name, digest in digests(held).items() if digest != plain[name]}
    assert changed == {"held,one-way-delay=1ms", "held,one-way-delay=2ms"}
    for other in (digests(SMALL.replace("= 3", "= 2")), digests(SMALL, "real")):
        assert not set(other.values()) & set(plain.values())


def test_several_processes_give_the_same_results_as_one(small: tuple[Path, Results, Watched], tmp_path: Path) -> None:
    made = points.of_experiment(written(tmp_path, PLAIN), "simulated")
    found = experiment.run(made, tmp_path / "run", Watched(), jobs=2, kept=lambda _: False)
    assert found == [replace(point, captures=()) for point in small[1].points]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_process_that_is_killed_ends_the_run(tmp_path: Path, is_wanted: bool) -> None:
    made = points.of_experiment(written(tmp_path, PLAIN), "simulated")
    killed = []

    def watch(_: experiment.Progress) -> bool:
        for child in multiprocessing.active_children():
            child.kill()
            killed.append(child.pid)
        return is_wanted and bool(killed)

    if is_wanted:
        assert len(experiment.run(made, tmp_path / "run", watch, jobs=2, kept=lambda _: False)) < ALL_DONE
    else:
        with pytest.raises(InputInvalid, match="was killed; run the command again to continue"):
            experiment.run(made, tmp_path / "run", watch, jobs=2, kept=lambda _: False)
    assert killed


def test_each_experiment_has_a_separate_folder(small: tuple[Path, Results, Watched], tmp_path: Path) -> None:
    folder, *_ = small
    other = written(tmp_path, SMALL, "other.toml")
    made = points.of_experiment(other, "simulated")
    with pytest.raises(OutputExists, match="has small in the simulated world; use another folder, or --force"):
        experiment.prepare(other, made, folder, is_forced=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputExists, match="has other files in it"):
        experiment.prepare(other, made, tmp_path / "mine", is_forced=True)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"kind": "run", "schema": 1}', '{"kind": "experiment", "schema": 99}']
)
def test_invalid_results_are_a_one_line_error(tmp_path: Path, text: str) -> None:
    (tmp_path / results.JSON).write_text(text)
    with pytest.raises(InputInvalid, match=r"results\.json (is not the results|has no results)"):
        results.load(tmp_path)
    with pytest.raises(InputInvalid, match="cannot read"):
        results.load(tmp_path / "nowhere")


# ---- measured and expected values


def truth_of(ended_ms: list[int], size: int = 1000) -> dict[str, Any]:
    ended = [None if each < 0 else each * 1_000_000 for each in ended_ms]
    return {
        "cycles": {
            "operation": [None, *["read"] * len(ended)],
            "target": [0] * (1 + len(ended)),
            "connection": [0] * (1 + len(ended)),
            "bytes": [0, *[size] * len(ended)],
            "by_initiator": {"submitted_ns": [0] * (1 + len(ended)), "completed_ns": [0, *ended]},
        },
        "results": {"started_ns": 0},
    }


def test_an_arm_and_a_reduced_scale_may_have_a_warm_up_of_their_own(tmp_path: Path) -> None:
    text = 'title = "t"\nsource = "s"\nworkload.calls = 9\nwarm-up-calls = 4\n[real]\nwarm-up-calls = 2\n'
    (tmp_path / "own.toml").write_text(text + '[[arms]]\nname = "one"\n[[arms]]\nname = "two"\nwarm-up-calls = 0\n')
    found = definition.load(tmp_path / "own.toml")
    for world, calls in (("simulated", [4, 0]), ("real", [2, 0])):
        assert [each.warm_up.calls for each in points.of_experiment(found, world)] == calls


def test_the_warm_up_does_not_count() -> None:
    # 100 ms for each of two calls, then 10 ms each; in no order
    truth = truth_of([100, 200, 220, 210, 230])
    stretch = measured.steady_stretch(truth, {"workload.block-size": 1000}, 2)
    assert (stretch.start_ns, stretch.end_ns, stretch.call_count) == (200_000_000, 230_000_000, 3)
    assert stretch.throughput_bytes_per_s == pytest.approx(3000 / 0.030)
    whole = measured.steady_stretch(truth, {"workload.block-size": 1000}, 0)
    assert whole.throughput_bytes_per_s == pytest.approx(5000 / 0.230)
    with pytest.raises(InputInvalid, match="5 system calls are too few"):
        measured.steady_stretch(truth, {"workload.block-size": 1000}, 5)


def test_a_call_ends_with_its_last_command() -> None:
    values: dict[str, Value] = {
        "workload.system-call-size": 2000,
        "workload.block-size": 1000,
        "workload.max-transfer": 1000,
    }
    stretch = measured.steady_stretch(truth_of([9, 10, 19, 20, 29, 30]), values, 1)
    assert (stretch.start_ns, stretch.end_ns, stretch.call_count) == (10_000_000, 30_000_000, 2)
    assert stretch.throughput_bytes_per_s == pytest.approx(4000 / 0.020)


BASE: dict[str, Value] = {
    "workload.operation": "read",
    "workload.block-size": 128_000,
    "link.rate": 351_000_000,
    "link.one-way-delay": 8_000_000,
    "target.status": "apart_held",
    "initiator.tcp.delayed-ack": False,
}


def period_ms(**changes: Value) -> float:
    values = BASE | {name.replace("__", ".").replace("_", "-"): value for name, value in changes.items()}
    prediction = expected.of_point(values, None)
    assert prediction is not None
    return prediction.period_ns / 1e6


def test_the_model_includes_held_statuses() -> None:
    def line_ms(size: int) -> float:
        return size * 1514 / 1448 * 8 / 351e3

    assert period_ms() == pytest.approx(32 + line_ms(128_000), rel=0.001)
    assert period_ms(target__status="in_data") == pytest.approx(16 + line_ms(128_000), rel=0.001)
    # a call of four commands: its end waits for the ACK of the first, which is 16 ms + the first on their way
    call = {"workload__system_call_size": 512_000, "workload__block_size": 130_560, "workload__max_transfer": 130_560}
    assert period_ms(**call) == pytest.approx(16 + 16 + line_ms(130_560), rel=0.001)
    # near by its data take longer than that
    assert period_ms(**call, link__one_way_delay=1_000_000) == pytest.approx(2 + line_ms(512_000), rel=0.001)


def test_mixed_reads_and_writes_have_no_model() -> None:
    assert expected.of_point(BASE | {"workload.operation": "mixed"}, None) is None


# ---- figures


def test_a_figure_shows_measured_published_and_expected_values(small: tuple[Path, Results, Watched]) -> None:
    folder, found, _ = small
    made = definition.load(folder.parent / "definition" / "small.toml")
    figure = made.figures[0]
    assert isinstance(figure, LineFigure)
    chart = charts.of_lines(figure, made, repeats.rows(found.points))
    assert [text for _, text in chart.ticks] == ["1", "2"]
    assert chart.x_label == "one-way delay, ms"
    held, with_data = chart.lines
    assert (held.name, with_data.name) == ("held", "with data")
    assert held.measured == pytest.approx([57, 72.4], abs=1)
    assert held.model == pytest.approx(held.measured, abs=1)
    assert held.printed == (57, 73)
    assert with_data.printed == (None, None)
    assert "%" in chart.y_label
    drawn = Figure()
    with style.applied():
        experiment_plot.draw(drawn, chart)
    (axes,) = drawn.axes
    legend = axes.get_legend()
    assert legend is not None
    assert [each.get_text() for each in legend.get_texts()] == ["held", "with data", "model", "printed in the study"]
    shown = {tuple(np.asarray(line.get_ydata()).tolist()) for line in axes.lines}
    assert {held.measured, held.model, held.printed} <= shown
    assert [each.file for each in found.figures] == ["idle.svg", "packets.svg"]
    assert all((folder / each.file).read_text().startswith("<?xml") for each in found.figures)
    assert [each.others for each in found.figures] == [("idle.pdf", "idle.csv"), ("packets.pdf",)]
    assert all((folder / each.others[0]).read_bytes().startswith(b"%PDF") for each in found.figures)


def test_the_numbers_of_a_figure_are_beside_it(small: tuple[Path, Results, Watched]) -> None:
    folder, found, _ = small
    rows = list(csv.DictReader((folder / "idle.csv").read_text().splitlines()))
    points = by_name(found)
    assert [(row["line"], row["one-way delay, ms"]) for row in rows] == [
        ("held", "1"), ("held", "2"), ("with data", "1"), ("with data", "2"),
    ]  # fmt: skip
    for row in rows:
        point = points[row["line"], f"{row['one-way delay, ms']}ms"]
        assert float(row["idle fraction, %"]) == 100 * (point.idle_fraction or 0)
        assert (row["runs"], row["95 % low"], row["95 % high"]) == ("1", "", "")
    assert [row["printed"] for row in rows] == ["57", "73", "", ""]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (Graph("a", (0.0,), (1.0,), (None,), (1,), (None,), (None,), (None,)), "Marks: measured, one run each."),
        (
            Graph("a", (0.0,), (1.0,), (None,), (1,), (2.0,), (None,), (None,)),
            "Marks: measured, one run each. Lines: model at the places of the marks, joined.",
        ),
        (
            Graph("a", (0.0, 1.0), (1.0, 1.0), ((0.5, 1.5), None), (3, 1), (None, None), (None, None), (None, None)),
            "Marks: measured, means over repeats, or one run. Error bars: 95 % confidence intervals of 3 repeats.",
        ),
        (
            Graph(
                "a", (0.0, 1.0), (1.0, 1.0), ((0.5, 1.5), (0.0, 2.0)), (3, 5), (None, None), (None, 1.0), (None, None)
            ),
            "Marks: measured, means over repeats. Error bars: 95 % confidence intervals of 3 to 5 repeats. Stars: "
            "printed in the study.",
        ),
    ],
)
def test_a_caption_names_what_is_drawn(line: Graph, words: str) -> None:
    assert charts.caption(Chart("t", "x", "y", (), (line,))) == words


def test_error_bars_are_intervals_of_the_measured_values() -> None:
    line = Graph("a", (0.0, 1.0), (1.0, 4.0), ((0.5, 1.75), None), (3, 1), (None, None), (None, None), (None, None))
    drawn = Figure()
    with style.applied():
        experiment_plot.draw(drawn, Chart("t", "x", "y", ((0.0, "0"), (1.0, "1")), (line,)))
    (axes,) = drawn.axes
    (bars,) = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    (collection,) = bars.lines[2]
    ends = [(float(segment[0][1]), float(segment[1][1])) for segment in collection.get_segments()]
    assert ends == [(0.5, 1.75), (4.0, 4.0)]
    legend = axes.get_legend()
    assert legend is not None
    assert [each.get_text() for each in legend.get_texts()] == ["a", "95 % confidence interval"]


def test_titles_of_figures_stand_alone() -> None:
    """Of all studies together: no two figures have the same title, and none is a bare quantity."""
    titles = [(name, figure.title) for name in definition.names() for figure in definition.load(name).figures]
    assert not [title for title, count in Counter(title for _, title in titles).items() if count > 1]
    assert not [title for title in titles if len(title[1].split()) < 5]


def test_repeats_are_one_row_with_a_deviation(small: tuple[Path, Results, Watched]) -> None:
    point = by_name(small[1])["held", "1ms"]
    again = replace(point, repeat=2, steady_throughput_bytes_per_s=2 * (point.steady_throughput_bytes_per_s or 0))
    failed = replace(point, repeat=3, error="no")
    (row,) = repeats.rows([point, again, failed])
    one = (point.steady_throughput_bytes_per_s or 0) / 1e6
    assert (row.run_count, row.failed_count) == (2, 1)
    assert row.means["throughput"] == pytest.approx(1.5 * one)
    # standard deviation of one and two, with one degree of freedom
    assert row.estimates["throughput"].spread == pytest.approx(one / 2**0.5)


# ---- commands


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_lab_list_shows_every_experiment() -> None:
    listed = json.loads(invoke("lab", "list", "--json").output)["experiments"]
    assert [each["name"] for each in listed] == definition.names()
    text = invoke("lab", "list").output
    assert all(name in text for name in definition.names())


def test_lab_run_takes_an_operation_or_an_experiment(small: tuple[Path, Results, Watched]) -> None:
    folder, found, _ = small
    file = folder.parent / "definition" / "small.toml"
    shown = invoke("lab", "run", "-o", folder, file, "--json")
    # one point fails
    assert shown.exit_code == 1
    assert "failed: impossible,one-way-delay=1ms: block_size_bytes is 1000" in shown.stderr
    assert json.loads(shown.stdout) == json.loads(json.dumps(results.document(found)))
    assert "--block-size" in invoke("lab", "run", "read", "--help").output
    assert "--block-size" in invoke("lab", "run", "--help").output
    assert "--world" in invoke("lab", "run", "read-study", "--help").output


def test_results_are_shown_as_tables(small: tuple[Path, Results, Watched], capsys: pytest.CaptureFixture[str]) -> None:
    folder, found, _ = small
    tables.show(found, folder)
    text = capsys.readouterr().out
    for words in ("Measured and model", "Measured and published", "fitted", "Failed", "packets.svg", "1000; it has"):
        assert words in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("held") and " 1ms " in line]
    point = by_name(found)["held", "1ms"]
    assert f"{(point.steady_throughput_bytes_per_s or 0) / 1e6:.3f}" in row


def test_a_page_is_written_from_a_folder(small: tuple[Path, Results, Watched], tmp_path: Path) -> None:
    folder, found, _ = small
    page = tmp_path / "study.html"
    shown = invoke("report", folder, "-o", page)
    assert shown.exit_code == 0
    text = page.read_text()
    # the verdict is the largest error of the model, which results.json has, too
    worst = max(abs(each.model_error) for each in found.points if each.model_error is not None)
    assert f"largest {100 * worst:.1f} %" in text
    assert f"largest {100 * worst:.1f} %" in shown.output
    assert text.count("<figure") == len(found.figures)
    for point in found.points:
        assert point.error is None or point.error.partition(";")[0] in text
    assert f"{ALL_DONE} of" not in text
    ticket = invoke("report", folder, "--format", "md", "-o", "-").output
    assert "## Result" in ticket
    assert "**Measured and published**" in ticket


def test_the_model_is_beside_the_simulator_and_own_claims_are_counted_apart(
    small: tuple[Path, Results, Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, found, _ = small
    (tmp_path / "small.toml").write_text((folder / "small.toml").read_text())

    def outcome(made: Results) -> Opening:
        results.write(tmp_path, made)
        return report.describe(tmp_path, has_pictures=False).opening

    assert outcome(found).headline.startswith("Difference of the model from the simulator over 4 throughputs")
    assert "take the same settings" in outcome(found).headline
    assert "Recorded" not in outcome(found).headline
    # with the error of the model over the kernel's TCP, where a run is recorded
    agreement = records.ModelAgreement(12, 0.0123, 0.02, 0.04)
    recorded = records.RecordedRun("real", False, "", {}, (), 12, 0, agreement, ())
    with monkeypatch.context() as patch:
        patch.setattr(records, "of_world", lambda name, world: recorded if (name, world) == ("small", "real") else None)
        assert outcome(found).headline.endswith(
            "Recorded over the kernel's TCP: error of the model over 12 throughputs: median 1.2 %, 90th percentile "
            "2.0 %, largest 4.0 %."
        )
    real = outcome(replace(found, world="real"))
    assert real.headline.startswith("Error of the model over 4 throughputs")
    assert "same settings" not in real.headline
    claims = tuple(
        JudgedClaim(name, "", verdict, "", (), is_own=is_own)
        for name, verdict, is_own in (
            ("a", verdicts.REPRODUCED, False), ("b", verdicts.PARTLY, False), ("c", verdicts.NOT_TESTABLE, False),
            ("d", verdicts.REPRODUCED, True), ("e", verdicts.NOT_RUN, True),
        )
    )  # fmt: skip
    assert outcome(replace(found, claims=claims)).headline == (
        "1 of 2 tested claims of the study are reproduced; partly: b; not testable here: c. "
        "1 of 1 tested claims of our own is reproduced; not run: e."
    )
    # a name with a comma is in quotes, and none of ours is tested
    claims = (replace(claims[0], name="a, near"), replace(claims[1], name="a, far"), claims[2], claims[4])
    assert outcome(replace(found, claims=claims)).headline == (
        '1 of 2 tested claims of the study are reproduced; partly: "a, far"; not testable here: c. '
        "No claim of our own is tested; not run: e."
    )
    # a claim for guests alone is no result of the simulated world
    with (tmp_path / "small.toml").open("a") as stream:
        stream.write('\n[[claims]]\nname = "e"\ntext = "a text"\nworlds = ["guests"]\n')
    assert "of our own" not in outcome(replace(found, claims=claims)).headline


def test_a_folder_without_its_definition_is_a_one_line_error(
    small: tuple[Path, Results, Watched], tmp_path: Path
) -> None:
    folder, _, _ = small
    (tmp_path / "results.json").write_text((folder / "results.json").read_text())
    shown = invoke("report", tmp_path, "-o", tmp_path / "page.html")
    assert (shown.exit_code, shown.stderr.count("\n")) == (2, 1)
    assert "cannot read" in shown.stderr
    assert invoke("report", folder, tmp_path / "other.pcap").exit_code == 2
    assert invoke("report", folder, "--session", "1").exit_code == 2
    assert "cannot read" in invoke("report", tmp_path / "..", "-o", tmp_path / "page.html").stderr


def test_in_the_real_world_windows_and_host_delays_are_measured(tmp_path: Path) -> None:
    found = written(tmp_path, PLAIN)
    (values,) = [point.values for point in points.of_experiment(found, "simulated")][:1]
    plain, slow = (expected.of_point(values, None, expected.Environment(service_ns=each)) for each in (0.0, 2e6))
    assert plain is not None
    assert slow is not None
    assert slow.period_ns - plain.period_ns == pytest.approx(2e6)
    narrow = expected.setting_of(values, {}, expected.Environment(window_bytes=77_000))
    assert narrow is not None
    assert narrow.window_bytes == 77_000


def test_for_blocks_beyond_the_window_packets_show_held_statuses(tmp_path: Path) -> None:
    found = written(tmp_path, PLAIN)
    held = next(point.values for point in points.of_experiment(found, "simulated") if point.arm == "held")
    large = held | {"workload.block-size": 2_000_000, "tcp.window": 1_000_000}
    seen = [expected.of_point(large, None, expected.Environment(delays=each)) for each in (2.0, 2.8)]
    assert [round(each.k, 6) for each in seen if each] == [2.0, 2.8]
    # one way is 1 ms
    assert seen[1] is not None
    assert seen[0] is not None
    assert seen[1].period_ns - seen[0].period_ns == pytest.approx(0.8e6)
    # within the window the settings decide
    small = [expected.of_point(held, None, expected.Environment(delays=each)) for each in (2.0, None)]
    assert small[0] == small[1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("raed", "-o", "DIR"), "no experiment is called 'raed'; there are "),
        (("read-study", "-o", "DIR", "--arm", "6M"), "no arm is called '6M'; there are "),
        (("nowhere.toml", "-o", "DIR"), "cannot read nowhere.toml: No such file or directory"),
        (("read-study",), "Missing option '-o'"),
    ],
)
def test_impossible_runs_are_one_line_errors(tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    refused = invoke("lab", "run", *(tmp_path / "run" if each == "DIR" else each for each in arguments))
    assert refused.exit_code == 2
    assert line in refused.output
    assert not (tmp_path / "run").exists()


def test_ctrl_c_stops_and_shows_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "small.toml"
    file.write_text(PLAIN)
    show: Callable[..., list[PointResult]] = experiment.run

    def stopping(made: list[DesignPoint], folder: Path, watch: experiment.Watch, **more: Any) -> Any:
        return show(made, folder, lambda progress: watch(progress) or progress.done >= 1, **more)

    monkeypatch.setattr(experiment, "run", stopping)
    stopped = invoke("lab", "run", file, "-o", tmp_path / "run", "--jobs", 1)
    assert stopped.exit_code == 130
    assert "stopped: 1 of 5 points are done; run the command again to continue" in stopped.output
