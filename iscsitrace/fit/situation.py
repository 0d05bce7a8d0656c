"""A session as the model takes it: a setting, and the waits that no setting predicts.

The model computes path, line, window, R2T rounds and a held status from the setting. Waits for hosts, losses and slow
start come from the time breakdown as measured. So a what-if of one leaves the other as it is (docs/method.md,
section 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import Any, Final

from iscsitrace.model.pipeline import commands_per_ns, is_uneven
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Prediction, Setting, altered
from iscsitrace.model.transfer import solicited_bytes

WAITS: Final = ("target_service", "initiator_service", "initiator_think", "ack_wait")
"""Waits of one command while others go on: nanoseconds per command."""
STALLS: Final = ("loss", "slow_start", "receiver", "outage", "unknown")
"""Stalls of all commands together, proportional to the bytes moved: nanoseconds per byte."""


OF_ONE_CONNECTION: Final = ("loss", "receiver")
"""Stalls of one connection, which the others do not share."""


@dataclass(frozen=True)
class Situation:
    """One workload over one path, as measured."""

    setting: Setting
    """Its ``queue_depth`` is that of all connections together; its ``service_ns`` is the sum of the waits."""
    waits_ns: Mapping[str, float] = field(default_factory=dict)
    """Of WAITS, per command."""
    stalls_ns_per_byte: Mapping[str, float] = field(default_factory=dict)
    """Of STALLS."""
    open_names: frozenset[str] = frozenset()
    """Fields of Setting and Solicitation that the packets do not show: their values are assumed."""
    service_deviation_ns: float = 0.0
    """Standard deviation of the target's service time, measured at queue depth 1."""
    sizes: tuple[tuple[int, float], ...] = ()
    """I/O sizes in bytes, each with its share of the commands; empty where all have the setting's size, their mean."""
    groups: int = 1
    """Groups of connections like the measured ones; each group stalls by itself."""
    _reached: dict[bool, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Its throughput, exact and rough, once computed: each what-if is compared with the same situation."""

    def throughput(self, *, is_rough: bool = False) -> float:
        """Throughput of the model in bytes per second; ``is_rough`` is faster and does not follow single commands."""
        if is_rough not in self._reached:
            of = self._side_by_side if self.groups > 1 else self._together
            self._reached[is_rough] = of(is_rough=is_rough)
        return self._reached[is_rough]

    def _together(self, *, is_rough: bool) -> float:
        """The throughput of one group."""
        setting = self.setting.dealt(service_ns=sum(self.waits_ns.values()))
        reached = min(self._of_sizes(setting, is_rough=is_rough), self._by_chance(setting))
        ns_per_byte = 1e9 / reached + sum(self.stalls_ns_per_byte.values())
        return 1e9 / ns_per_byte

    def with_setting(self, **changes: Any) -> Situation:
        """The same with other values of its setting; with another I/O size, all commands have that size."""
        if "block_bytes" in changes:
            return self._with(setting=altered(self.setting, **changes), sizes=())
        return self._with(setting=altered(self.setting, **changes))

    def with_sizes_of(self, other: Situation) -> Situation:
        """The same with the I/O sizes of another."""
        return self.with_setting(block_bytes=other.setting.block_bytes)._with(sizes=other.sizes)

    def _with(self, **changes: Any) -> Situation:
        return altered(self, **changes, _reached={})

    def with_stall(self, name: str, ns_per_byte: float) -> Situation:
        """The same with another stall."""
        return self._with(stalls_ns_per_byte={**self.stalls_ns_per_byte, name: ns_per_byte})

    def with_keys(self, **changes: Any) -> Situation:
        """The same with other negotiated parameters."""
        return self.with_setting(solicitation=altered(self.setting.solicitation, **changes))

    def with_connections(self, count: int) -> Situation:
        """The same over a multiple of its connections, side by side, each with one command in flight or more."""
        groups = max(1, count // self.setting.connections)
        tasks = max(self.setting.queue_depth, groups * self.setting.connections)
        found = self.with_setting(connections=groups * self.setting.connections, queue_depth=tasks)
        return found._with(groups=groups)

    def _of_sizes(self, setting: Setting, *, is_rough: bool) -> float:
        """The throughput of commands of these sizes, one after another: their waits for windows and R2Ts are not in
        proportion to their size. In a queue, where one is sent while others wait, that of commands of the mean size.
        """
        if not self.sizes or setting.queue_depth * setting.connections > 1:
            return _throughput(setting, is_rough=is_rough)
        alone = ((size, share, altered(setting, block_bytes=size)) for size, share in self.sizes)
        each_ns = sum(share * size / _throughput(one, is_rough=is_rough) for size, share, one in alone)
        return sum(size * share for size, share in self.sizes) / each_ns

    def _by_chance(self, setting: Setting) -> float:
        """The throughput of commands that meet on the line by chance; infinite where they fall into step."""
        outstanding = setting.queue_depth * setting.connections
        if outstanding == 1 or not setting.c_bytes_per_s or not self.service_deviation_ns:
            return inf
        alone = _alone(setting)
        if not is_uneven(self.service_deviation_ns, alone.transfer_ns):
            return inf
        return 1e9 * setting.block_bytes * commands_per_ns(outstanding, alone.period_ns, alone.transfer_ns)

    def _side_by_side(self, *, is_rough: bool) -> float:
        """The throughput of all groups: that of one times their number, up to what the shared line carries.

        A loss or a slow receiver stalls one connection while the others go on; slow start stalls all at once.
        """
        tasks, connections = self.setting.queue_depth // self.groups, self.setting.connections // self.groups
        stalls = self.stalls_ns_per_byte
        own = {each: stall for each, stall in stalls.items() if each in OF_ONE_CONNECTION}
        dealt = self.with_setting(connections=connections, queue_depth=tasks)
        one = dealt._with(stalls_ns_per_byte=own, groups=1).throughput(is_rough=is_rough)
        together = self._with(stalls_ns_per_byte={}, groups=1).throughput(is_rough=is_rough)
        common = sum(stall for each, stall in stalls.items() if each not in OF_ONE_CONNECTION)
        return 1e9 / (1e9 / min(self.groups * one, together) + common)

    def without(self, name: str, share: float = 1.0) -> Situation:
        """The same without a wait or stall, or without a share of it."""
        waits_ns = {each: wait * (1 - share * (each == name)) for each, wait in self.waits_ns.items()}
        stalls = {each: stall * (1 - share * (each == name)) for each, stall in self.stalls_ns_per_byte.items()}
        return self._with(waits_ns=waits_ns, stalls_ns_per_byte=stalls)


@lru_cache(maxsize=4096)
def _throughput(setting: Setting, *, is_rough: bool) -> float:
    """Throughput of the model. Commands without R2T rounds or window stalls need not be followed one by one: their
    throughput is that of one times the queue depth, up to the line rate.
    """
    outstanding = setting.queue_depth * setting.connections
    if outstanding > 1 and setting.is_status_held:
        return predict(setting).throughput_bytes_per_s
    alone = _alone(setting)
    if outstanding == 1:
        return alone.throughput_bytes_per_s
    is_plain = not alone.stall_ns and (setting.operation == "read" or not solicited_bytes(setting))
    if not (is_plain or is_rough):
        return predict(setting).throughput_bytes_per_s
    line = setting.block_bytes * 1e9 / alone.transfer_ns if alone.transfer_ns else inf
    return min(outstanding * alone.throughput_bytes_per_s, line)


def _alone(setting: Setting) -> Prediction:
    """One command of a setting, with no others in flight."""
    if setting.queue_depth != 1 or setting.connections != 1:
        setting = altered(setting, queue_depth=1, connections=1)
    return _predicted(setting)


@lru_cache(maxsize=4096)
def _predicted(setting: Setting) -> Prediction:
    """What-ifs of one session change the queue depth more often than what a command alone takes."""
    return predict(setting)
