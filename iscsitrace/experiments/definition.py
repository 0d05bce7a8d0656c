"""The definition of an experiment: a TOML file, read and checked. InputInvalid says in a line which key is wrong.

docs/lab.md says what there is; `vocabulary` names the settings. It runs nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.experiments.entries import Entry, joined
from iscsitrace.experiments.vocabulary import SETTINGS, Kind, Value

SECTIONS: Final = ("link", "tcp", "initiator", "target", "workload", "capture")
"""The tables that hold settings."""
QUANTITIES: Final = {
    "throughput": "MB/s",
    "idle_fraction": "%",
    "model_error": "%",
    "period": "ms",
    "k": "delays",
    "connections": "connections",
    "converge": "s",
    "goodput_lost": "%",
    "latency_cv": "%",
    "connection_spread": "%",
    "cwnd_spread": "%",
    "efficiency": "%",
    "cpu": "s/GB",
    "target_cpu": "s/GB",
    "host_share": "%",
    "jain": "of 1",
    "spread": "s",
    "spread_ratio": "times",
    "retransmission_rate": "%",
    "utilisation": "%",
    "timeouts": "timeouts",
    "slow_start_rank": "of 1",
    "scatter": "%",
}
"""What results can be plotted and compared, and its unit."""
FIGURES: Final = ("lines", "packets", "streams", "finishes", "courses", "budget")
CAPTURED: Final = ("packets", "streams")
"""Figures that are drawn from a capture."""
WORLDS: Final = ("simulated", "real")
TABLES: Final = ("efficiency", "budget")
"""What a definition may want beside the tables that all have."""
_LIMITS: Final = 2
ARM: Final = "arm"
"""What stands for the arm where a setting could stand."""


@dataclass(frozen=True)
class Written:
    """A value of a setting: as it is written, which people read, and as a run takes it."""

    text: str
    value: Value


Place = Mapping[str, Written]
"""Settings by dotted name."""


@dataclass(frozen=True)
class Arm:
    """A variant of the experiment."""

    name: str
    settings: Place
    grid: Mapping[str, tuple[Written, ...]]
    """Of its own, in place of that of all."""
    repeats: int | None = None
    """Of its own, in place of those of all, in the simulated world."""
    is_modelled: bool = True
    """Whether the model, which is of what goes on for ever, has anything to say of it."""
    worlds: tuple[str, ...] = WORLDS
    """In which it can be run."""
    own: Mapping[str, Place] = field(default_factory=dict)
    """By world, what it has there alone."""
    warm_up_seconds: float | None = None
    """Of its own, in place of that of all."""


@dataclass(frozen=True)
class Figure:
    """A picture of the results."""

    name: str
    kind: str
    """One of FIGURES: ``lines`` over a setting, ``finishes`` of streams, the first to be done first, ``courses`` over
    the time of runs, the ``budget`` of calls over a setting; or, from the capture of one point, the ``packets`` of a
    few cycles, or its ``streams``.
    """
    title: str
    where: Mapping[str, Written]
    """Only points with these settings."""
    arms: tuple[str, ...]
    """Only these; all when empty."""
    x: str = ""
    """A setting."""
    y: str = ""
    """One of QUANTITIES."""
    lines: str = ARM
    """A line for each value of this setting, or each arm."""
    courses: tuple[str, ...] = ()
    """Names of `results.Course`, all of one unit."""
    cycles: int = 1
    """How many cycles of a capture."""
    is_to_scale: bool = False
    """Whether numbers stand along x where they belong; else values lie evenly."""


@dataclass(frozen=True)
class Published:
    """Figures that somebody else measured or printed."""

    quantity: str
    """One of QUANTITIES."""
    source: str
    where: Mapping[str, Written]
    arms: tuple[str, ...]
    x: str
    values: tuple[tuple[Written, float], ...]
    """Value of the setting ``x``, and the figure in the quantity's unit."""


@dataclass(frozen=True)
class Spot:
    """A place of the grid."""

    arm: str
    where: Mapping[str, Written]


@dataclass(frozen=True)
class Check:
    """A number that a claim rests on, and between which limits it has to be."""

    quantity: str
    """One of QUANTITIES."""
    of: Spot
    beside: Spot | None
    """What it is divided by, or what is taken off; None for a number of its own."""
    is_difference: bool
    low: float
    high: float


@dataclass(frozen=True)
class Claim:
    """What a study says."""

    name: str
    text: str
    note: str
    """Why it may come out another way, or cannot be tested."""
    checks: tuple[Check, ...]
    """All have to hold; none where it cannot be tested."""
    worlds: tuple[str, ...] = WORLDS
    """In which it can be tested."""
    real_note: str = ""
    """In place of the note, in the real world."""
    evidence: tuple[Spot, ...] = ()
    """Where captures show why it comes out another way; where its checks look when there are none."""


@dataclass(frozen=True)
class RealWorld:
    """Whether the kernel's TCP can carry it, and at what reduced scale."""

    is_possible: bool
    note: str
    settings: Place
    grid: Mapping[str, tuple[Written, ...]]
    repeats: int | None
    warm_up_seconds: float | None
    arms: tuple[str, ...]
    """Only these; all when empty."""


@dataclass(frozen=True)
class Definition:
    """An experiment."""

    name: str
    text: str
    """The file, as it was read."""
    title: str
    source: str
    """The study that it repeats, or why it is there."""
    about: str
    settings: Place
    grid: Mapping[str, tuple[Written, ...]]
    arms: tuple[Arm, ...]
    repeats: int
    warm_up_calls: int
    """System calls at the beginning that do not count: slow start."""
    warm_up_seconds: float
    """The same as a time, of runs that end by the clock."""
    real: RealWorld
    figures: tuple[Figure, ...]
    published: tuple[Published, ...]
    claims: tuple[Claim, ...]
    tables: tuple[str, ...] = ()
    """Of TABLES."""


def load(path: Path) -> Definition:
    """Reads a definition; InputInvalid with one line when it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise InputInvalid(f"cannot read {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputInvalid(f"{path} is no TOML: {error}") from error
    return _definition(path.stem, text, Entry(str(path), "", found))


def _definition(name: str, text: str, top: Entry) -> Definition:
    settings, grid = _settings(top), _grid(top.table("grid"))
    arms = tuple(_arm(each) for each in top.tables("arms")) or (Arm("all", {}, {}),)
    names = [arm.name for arm in arms]
    for arm in names:
        if names.count(arm) > 1:
            raise top.error("arms", f"{arm!r} is there twice")
    known = {*settings, *grid, *(key for arm in arms for key in (*arm.settings, *arm.grid))}
    known |= {key for arm in arms for its in arm.own.values() for key in its}
    real = _real(top.table("real"), names)
    definition = Definition(
        name=name,
        text=text,
        title=top.text("title"),
        source=top.text("source"),
        about=" ".join(top.text("about", "").split()),
        settings=settings,
        grid=grid,
        arms=arms,
        repeats=top.count("repeats", 1),
        warm_up_calls=top.count("warm-up-calls", 0, least=0),
        warm_up_seconds=top.amount("warm-up-seconds", 0.0) or 0.0,
        real=real,
        figures=tuple(_figure(each, names, known) for each in top.tables("figures")),
        published=tuple(_published(each, names, known) for each in top.tables("published")),
        claims=tuple(_claim(each, names, known) for each in top.tables("claims")),
        tables=_of(top, "tables", TABLES, ()),
    )
    top.refuse_others()
    return definition


def _arm(entry: Entry) -> Arm:
    own = {}
    for world in WORLDS:
        table = entry.table(world)
        own[world] = _settings(table)
        table.refuse_others()
    arm = Arm(
        name=entry.text("name"),
        settings=_settings(entry),
        grid=_grid(entry.table("grid")),
        repeats=entry.count("repeats", 0, least=0) or None,
        worlds=_of(entry, "worlds", WORLDS, WORLDS),
        own=own,
        is_modelled=entry.switch("model", True),
        warm_up_seconds=entry.amount("warm-up-seconds", None),
    )
    entry.refuse_others()
    return arm


def _real(entry: Entry, arms: list[str]) -> RealWorld:
    grid = _grid(entry.table("grid"))
    repeats = entry.count("repeats", 0, least=0)
    world = RealWorld(
        is_possible=entry.switch("is-possible", True),
        note=entry.text("note", ""),
        settings=_settings(entry),
        grid=grid,
        repeats=repeats or None,
        warm_up_seconds=entry.amount("warm-up-seconds", None),
        arms=_arms(entry, arms),
    )
    entry.refuse_others()
    return world


def _figure(entry: Entry, arms: list[str], known: set[str]) -> Figure:
    kind = entry.word("kind", FIGURES)
    is_lines, has_lines, is_over = kind == "lines", kind not in CAPTURED, kind in {"lines", "budget"}
    figure = Figure(
        name=entry.text("name"),
        kind=kind,
        title=entry.text("title"),
        where=_where(entry.table("where"), known),
        arms=_arms(entry, arms),
        x=_setting(entry, "x", known) if is_over else "",
        y=entry.word("y", QUANTITIES) if is_lines else "",
        lines=_setting(entry, "lines", known, ARM) if has_lines else ARM,
        courses=entry.words("courses") if kind == "courses" else (),
        cycles=entry.count("cycles", 1) if kind == "packets" else 1,
        is_to_scale=is_lines and entry.switch("to-scale", False),
    )
    if kind == "courses" and not figure.courses:
        raise entry.error("courses", "it has to be a list of words, one at least")
    if not figure.name.replace("-", "").isalnum():
        raise entry.error("name", "it names a file: write letters, digits and dashes")
    entry.refuse_others()
    return figure


def _published(entry: Entry, arms: list[str], known: set[str]) -> Published:
    x = _setting(entry, "x", known)
    values = []
    for number, pair in enumerate(entry.rows("values")):
        if not (isinstance(pair, list) and len(pair) == 2 and _is_number(pair[1])):
            raise entry.error(f"values[{number}]", 'write a value of x and the figure, like ["8ms", 84]')
        values.append((_written(entry, f"values[{number}]", SETTINGS[x], pair[0]), float(pair[1])))
    published = Published(
        quantity=entry.word("quantity", QUANTITIES),
        source=entry.text("source", ""),
        where=_where(entry.table("where"), known),
        arms=_arms(entry, arms),
        x=x,
        values=tuple(values),
    )
    entry.refuse_others()
    return published


def _claim(entry: Entry, arms: list[str], known: set[str]) -> Claim:
    common = _where(entry.table("where"), known)
    claim = Claim(
        name=entry.text("name"),
        text=entry.text("text"),
        note=entry.text("note", ""),
        checks=tuple(_check(each, common, arms, known) for each in entry.tables("checks")),
        worlds=_of(entry, "worlds", WORLDS, WORLDS),
        real_note=entry.text("real-note", ""),
        evidence=tuple(_spot(each, common, arms, known) for each in entry.tables("evidence")),
    )
    entry.refuse_others()
    return claim


def _check(entry: Entry, common: Place, arms: list[str], known: set[str]) -> Check:
    limits = entry.rows("between")
    if len(limits) != _LIMITS or not all(map(_is_number, limits)) or limits[0] > limits[1]:
        raise entry.error("between", "write the least and the greatest number, like [1.8, 2.2]")
    of, over, minus = (entry.table(name) for name in ("of", "over", "minus"))
    if over.has_keys and minus.has_keys:
        raise entry.error("minus", "a number is divided or taken off, not both")
    beside = next((each for each in (over, minus) if each.has_keys), None)
    check = Check(
        quantity=entry.word("quantity", QUANTITIES),
        of=_spot(of, common, arms, known),
        is_difference=minus.has_keys,
        beside=None if beside is None else _spot(beside, common, arms, known),
        low=float(limits[0]),
        high=float(limits[1]),
    )
    entry.refuse_others()
    return check


def _spot(entry: Entry, common: Place, arms: list[str], known: set[str]) -> Spot:
    arm = entry.word("arm", arms)
    return Spot(arm, {**common, **_where(entry, known)})


def _arms(entry: Entry, names: list[str]) -> tuple[str, ...]:
    wanted = entry.words("arms")
    for name in wanted:
        if name not in names:
            raise entry.error("arms", f"no arm is called {name!r}; there are {', '.join(names)}")
    return wanted


def _of(entry: Entry, key: str, words: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    """Some of a few words; all that are meant when it is not there."""
    found = entry.words(key)
    for word in found:
        if word not in words:
            raise entry.error(key, f"{word!r} is none of {', '.join(words)}")
    return found or default


def _setting(entry: Entry, key: str, known: set[str], default: str | None = None) -> str:
    name = entry.text(key, default)
    if name != default and name not in known:
        raise entry.error(key, f"no setting {name!r} is set anywhere; there are {', '.join(sorted(known))}")
    return name


def _where(entry: Entry, known: set[str]) -> dict[str, Written]:
    found = _flat(entry)
    for name in found:
        if name not in known:
            raise entry.error(name, "no point has this setting")
    return {name: _written(entry, name, SETTINGS[name], value) for name, value in found.items()}


def _settings(entry: Entry) -> dict[str, Written]:
    found: dict[str, Written] = {}
    for section in SECTIONS:
        table = entry.table(section)
        for name, value in _flat(table, section).items():
            found[name] = _written(entry, name, SETTINGS[name], value)
    return found


def _grid(entry: Entry) -> dict[str, tuple[Written, ...]]:
    found = {}
    for name, values in _flat(entry).items():
        if not isinstance(values, list) or not values:
            raise entry.error(name, "it has to be a list of values, one at least")
        read = tuple(_written(entry, f"{name}[{number}]", SETTINGS[name], value) for number, value in enumerate(values))
        if len({each.text for each in read}) < len(read):
            raise entry.error(name, "a value is there twice")
        found[name] = read
    return found


def _flat(entry: Entry, prefix: str = "") -> dict[str, Any]:
    """Values by dotted name; InputInvalid for a name that is no setting."""
    found: dict[str, Any] = {}
    for name, value in entry.take_all().items():
        dotted = joined(prefix, name)
        if isinstance(value, dict):
            inner = Entry(entry.file, entry.key(name), value)
            found |= _flat(inner, dotted)
        elif dotted in SETTINGS:
            found[dotted] = value
        else:
            raise entry.error(name, _unknown(dotted))
    return found


def _unknown(name: str) -> str:
    section = name.rpartition(".")[0]
    known = [each.rpartition(".")[2] for each in SETTINGS if each.rpartition(".")[0] == section]
    return f"there is no such setting; there are {', '.join(known or SECTIONS)}"


def _written(entry: Entry, key: str, kind: Kind, written: Any) -> Written:
    value = kind.read(written)
    if value is None:
        raise entry.error(key, f"{written!r} is not {kind.needed}")
    return Written(_text(written), value)


def _text(written: Any) -> str:
    if isinstance(written, bool):
        return "yes" if written else "no"
    return ", ".join(map(_text, written)) if isinstance(written, list) else str(written)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
