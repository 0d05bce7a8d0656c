"""A subject as the model takes it: its setting, and the waits that packets show but no setting tells.

What the model reckons itself (path, line, window, R2T rounds, a held status) comes as a setting; what only the budget
knows (hosts, losses, slow start) is taken from there as it was measured, so that a what-if of the one leaves the other
as it is (docs/method.md, section 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import Any, Final

from iscsitrace.analysis.model.bursts import solicited_bytes
from iscsitrace.analysis.model.prediction import predict
from iscsitrace.analysis.model.queueing import commands_per_ns, is_uneven
from iscsitrace.analysis.model.setting import Setting

WAITS: Final = ("target_service", "initiator_service", "initiator_think", "ack_wait")
"""Parts that each task pays beside its delays, while other tasks go on: nanoseconds a task."""
STALLS: Final = ("loss", "slow_start", "receiver", "unknown")
"""What holds up all tasks together, and the more of it the more is moved: nanoseconds a byte."""


OF_ONE_CONNECTION: Final = ("loss", "receiver")
"""Of these, what holds up the tasks of one connection, and not those of others."""


@dataclass(frozen=True)
class Situation:
    """One workload over one path, as measured."""

    setting: Setting
    """Its ``queue_depth`` is that of all connections together; its ``service_ns`` is the sum of the waits."""
    waits_ns: Mapping[str, float] = field(default_factory=dict)
    """Of WAITS, per task."""
    stalls_ns_per_byte: Mapping[str, float] = field(default_factory=dict)
    """Of STALLS."""
    open_names: frozenset[str] = frozenset()
    """Fields of Setting and Solicitation that the packets do not tell: their values are assumed."""
    service_deviation_ns: float = 0.0
    """Standard deviation of what the target takes for a task, where tasks go one after another."""
    groups: int = 1
    """Of connections that are like those measured, and stall on their own."""

    def throughput(self, *, is_rough: bool = False) -> float:
        """Bytes per second, by the model; roughly, and soon, without following tasks that are in each other's way."""
        if self.groups > 1:
            return self._side_by_side(is_rough=is_rough)
        setting = replace(self.setting.dealt(), service_ns=sum(self.waits_ns.values()))
        reached = min(_throughput(setting, is_rough=is_rough), self._by_chance(setting))
        ns_per_byte = 1e9 / reached + sum(self.stalls_ns_per_byte.values())
        return 1e9 / ns_per_byte

    def with_setting(self, **changes: Any) -> Situation:
        """The same with other values of its setting."""
        return replace(self, setting=replace(self.setting, **changes))

    def with_keys(self, **changes: Any) -> Situation:
        """The same with other keys in force."""
        return self.with_setting(solicitation=replace(self.setting.solicitation, **changes))

    def with_connections(self, count: int) -> Situation:
        """The same over a multiple of its connections, each with one task at least: so many that work side by side."""
        groups = max(1, count // self.setting.connections)
        tasks = max(self.setting.queue_depth, groups * self.setting.connections)
        found = self.with_setting(connections=groups * self.setting.connections, queue_depth=tasks)
        return replace(found, groups=groups)

    def _by_chance(self, setting: Setting) -> float:
        """What is left of a throughput when tasks meet on the line; infinite when they fall into step."""
        outstanding = setting.queue_depth * setting.connections
        if outstanding == 1 or not setting.c_bytes_per_s or not self.service_deviation_ns:
            return inf
        alone = predict(replace(setting, queue_depth=1, connections=1))
        if not is_uneven(self.service_deviation_ns, alone.transfer_ns):
            return inf
        return 1e9 * setting.block_bytes * commands_per_ns(outstanding, alone.period_ns, alone.transfer_ns)

    def _side_by_side(self, *, is_rough: bool) -> float:
        """What so many groups give: as many times one of them, up to what all can that share the line.

        A loss, or a receiver that is late, holds up one connection, and the others go on; slow start is all
        connections' at once.
        """
        tasks, connections = self.setting.queue_depth // self.groups, self.setting.connections // self.groups
        stalls = self.stalls_ns_per_byte
        own = {each: stall for each, stall in stalls.items() if each in OF_ONE_CONNECTION}
        one = replace(
            self.with_setting(connections=connections, queue_depth=tasks), stalls_ns_per_byte=own, groups=1
        ).throughput(is_rough=is_rough)
        together = replace(self, stalls_ns_per_byte={}, groups=1).throughput(is_rough=is_rough)
        common = sum(stall for each, stall in stalls.items() if each not in OF_ONE_CONNECTION)
        return 1e9 / (1e9 / min(self.groups * one, together) + common)

    def without(self, name: str, share: float = 1.0) -> Situation:
        """The same without a wait or stall, or without a share of it."""
        waits_ns = {each: wait * (1 - share * (each == name)) for each, wait in self.waits_ns.items()}
        stalls = {each: stall * (1 - share * (each == name)) for each, stall in self.stalls_ns_per_byte.items()}
        return replace(self, waits_ns=waits_ns, stalls_ns_per_byte=stalls)


@lru_cache(maxsize=4096)
def _throughput(setting: Setting, *, is_rough: bool) -> float:
    """By the model. Of tasks without rounds or windows it is known without following each of them: as many times that
    of one, up to what the line carries.
    """
    outstanding = setting.queue_depth * setting.connections
    if outstanding == 1 or setting.is_status_held:
        return predict(setting).throughput_bytes_per_s
    alone = predict(replace(setting, queue_depth=1, connections=1))
    is_plain = not alone.stall_ns and (setting.operation == "read" or not solicited_bytes(setting))
    if not (is_plain or is_rough):
        return predict(setting).throughput_bytes_per_s
    line = setting.block_bytes * 1e9 / alone.transfer_ns if alone.transfer_ns else inf
    return min(outstanding * alone.throughput_bytes_per_s, line)
