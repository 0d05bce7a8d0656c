"""The options of a workload and of the login keys that the initiator offers: the same in both worlds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import click

from iscsitrace.cli.sections import option
from iscsitrace.cli.traffic.setting_options import Named, SettingsOption, Values, settings_section
from iscsitrace.cli.units import Quantity
from iscsitrace.lab.settings.table import MOST_CONNECTIONS
from iscsitrace.wording.quantities import parse_count

if TYPE_CHECKING:
    from iscsitrace.lab.faults.fault import Fault

_DEFAULT_SECONDS_NS = 5_000_000_000


class Digests(Quantity):
    """``none``, ``crc32c``, or both, the preferred one first."""

    name = "DIGESTS"
    _WORDS: ClassVar = {"none": "None", "crc32c": "CRC32C"}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """The RFC's words; fails with a line that lists the digests."""
        words = value.lower().split(",")
        if any(word not in self._WORDS for word in words):
            self.fail(f"{value!r} is not a digest; write none, crc32c or crc32c,none", param, ctx)
        return [self._WORDS[word] for word in words]


class CountOrSearch(Quantity):
    """A number, or ``auto``, ``auto:model``, ``auto:golden``: the run searches for the number."""

    name = f"1-{MOST_CONNECTIONS}|auto[:RULE]"
    _RULES: ClassVar = {"auto": "model", "auto:model": "model", "auto:golden": "golden"}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Values:
        """The setting of the number, or of the rule; fails with a line that shows what to write."""
        if isinstance(value, dict):
            return value
        number = parse_count(str(value))
        if number is not None and 1 <= number <= MOST_CONNECTIONS:
            return {"workload.connections": number}
        if value not in self._RULES:
            self.fail(f"{value!r}: write 1 to {MOST_CONNECTIONS}, or {', '.join(self._RULES)}", param, ctx)
        return {"workload.connections": 1, "workload.connections-rule": self._RULES[value]}


def lasting(workload: dict[str, Any], faults: Sequence[Fault] = ()) -> dict[str, Any]:
    """A workload in real time: without bytes and seconds it lasts 5 s; with timed faults, until 5 s after the last."""
    from iscsitrace.lab.faults.settings import duration_ns

    if workload.get("total_bytes") is None and workload.get("duration_ns") is None:
        return workload | {"duration_ns": duration_ns(faults) or _DEFAULT_SECONDS_NS}
    return workload


WORKLOAD = settings_section(
    "Workload",
    "workload",
    own={
        "workload.connections": option(
            "--connections",
            type=CountOrSearch(),
            default="1",
            show_default=True,
            help="Connections per session (MC/S). With auto the run searches for the best number: by the model "
            "(auto:model) or by golden-section search (auto:golden).",
        )
    },
)

KEYS = settings_section(
    "Login keys",
    *(
        option(
            f"--{name}-digest",
            type=SettingsOption(f"initiator.keys.{name.title()}Digest", Digests()),
            help="none, crc32c, or crc32c,none.",
        )
        for name in ("header", "data")
    ),
    option(
        "--key",
        "keys",
        type=Named("initiator.keys", "a login key", is_emptied=True),
        multiple=True,
        help="Any operational key, like MaxBurstLength=65536 or InitialR2T=Yes. Without a value the key is not sent.",
    ),
)
