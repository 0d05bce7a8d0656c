"""The scenarios of guests: runs with a fault, or healthy ones, and what their captures have to show. Data in TOML.

``scenarios.toml`` has a table of each, by its name:

- ``target``: lio or tgt; ``faults``: as `lab.fault_catalogue.parse` reads them; ``node``: settings of iscsid.conf.
- ``settings``: of the run, by the names of definitions of experiments; they replace those of ``defaults``.
- ``fails``: whether the login or the I/O fails.
- ``seen.HOST``: display filters of tshark, each with the least number of frames that match; ``unseen.HOST``: filters
  that match none. HOST is that of the capture.
- ``gap.HOST``: the least time in s that the longest silence of the target lasts after the first I/O.
- ``headline.HOST``: the name of the finding that leads in the capture of a host, or `HEALTHY`; a list where chance
  decides what the tap sees. At the target that of the initiator, unless it is given.
- ``incomplete``: the hosts whose captures lack commands or login keys, so that they differ from the truth.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from iscsitrace.errors import InputInvalid
from iscsitrace.lab import fault_catalogue as catalogue
from iscsitrace.lab.guests import world
from iscsitrace.lab.settings import structs
from iscsitrace.lab.settings.table import SETTINGS

_SEED = 1

HEALTHY = "healthy"
"""Nothing is wrong: only what the settings ask for may lead."""


@dataclass(frozen=True)
class Scenario:
    """A scenario; its fields are described above."""

    name: str
    meaning: str
    target: str = "lio"
    faults: tuple[str, ...] = ()
    node: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    fails: bool = False
    seen: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unseen: Mapping[str, list[str]] = field(default_factory=dict)
    gap: Mapping[str, float] = field(default_factory=dict)
    headline: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    incomplete: tuple[str, ...] = ()

    def programs(self) -> world.GuestPrograms:
        """The programs and faults of its run."""
        parsed = tuple(catalogue.parse(each) for each in self.faults)
        return world.GuestPrograms(target=self.target, node_settings=self.node, faults=parsed)

    def run(self, directory: Path, say: Callable[[str], None]) -> dict[str, Any]:
        """Runs it, over the files of an earlier run; returns the truth."""
        values = {name: _value(name, written) for name, written in self.settings.items()}
        return world.run(
            structs.of_run(values, _SEED), directory, lambda _: False, say, programs=self.programs(), is_forced=True
        )


def _value(name: str, written: Any) -> Any:
    setting = SETTINGS.get(name)
    value = setting and setting.kind.read(written)
    if value is None:
        raise InputInvalid(f"{name} = {written!r} is not a setting of a run")
    return value


def scenarios() -> dict[str, Scenario]:
    """All scenarios by name, in their order."""
    text = resources.files(__package__).joinpath("scenarios.toml").read_text()
    tables = tomllib.loads(text)
    defaults = tables.pop("defaults")
    found = {}
    for name, table in tables.items():
        table |= {name: tuple(table.get(name, ())) for name in ("faults", "incomplete")}
        own = table.get("settings", {})
        leading = {"target": table["headline"]["initiator"]} | table["headline"]
        table["headline"] = {
            host: (names,) if isinstance(names, str) else tuple(names) for host, names in leading.items()
        }
        # fio repeats what is shorter than its time
        left_out = {"workload.seconds"} if "workload.bytes" in own else set()
        table["settings"] = {name: value for name, value in defaults.items() if name not in left_out} | own
        found[name] = Scenario(name, **table)
    return found
