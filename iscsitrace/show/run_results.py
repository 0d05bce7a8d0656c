"""Reports a run with its links and files, of either world, as text and as a document; and what a target served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from iscsitrace.measure.ranks import is_meaningful
from iscsitrace.show import initiator_results, terminal
from iscsitrace.show.document import Block, Grid, Section, table
from iscsitrace.wording import cells

_UNUSUAL = (
    *("refused_connections", "refused_logins", "rejects", "ignored_cmd_sns", "data_digest_errors"),
    *("stray_data_outs", "wrong_data_outs", "wrong_exp_stat_sns", "faults"),
)
_DESCRIBED = ("schema", "tool", "kind", "captures", "started_ns", "ended_ns", "packet_counts", "capture_dropped_counts")


def describe(truth: dict[str, Any]) -> dict[str, Any]:
    """The document: the run, then its results."""
    results = truth["results"]
    described = {name: truth[name] for name in _DESCRIBED if name in truth}
    return described | (initiator_results.describe(results) if is_ours(truth) else results)


def is_ours(truth: dict[str, Any]) -> bool:
    """Whether the initiator was ours. Others report a throughput only."""
    return "mode" in truth["results"]


def show(truth: dict[str, Any], directory: Path) -> None:
    """Shows results, links, retransmissions and files."""
    terminal.show([Section("", tuple(_blocks(truth, directory)))])


def _blocks(truth: dict[str, Any], directory: Path) -> Iterator[Block]:
    results = truth["results"]
    if is_ours(truth):
        yield from initiator_results.blocks(results, has_parameters=False)
    else:
        rate = cells.megabytes(results["throughput_bytes_per_s"])
        yield f"{rate} MB/s, {results['iops']} IOPS of {cells.size(results['read_bytes'])}"
        yield from initiator_results.cpu_lines(results)
    yield from _links(truth)
    ends = (("initiator", truth["initiator_ends"]), *_numbered(truth["target_ends"]))
    resent = {name: sum(end["retransmitted_segment_count"] for end in found) for name, found in ends}
    yield "retransmitted segments: " + ", ".join(f"{name} {count}" for name, count in resent.items())
    names = (truth["captures"]["initiator"], *truth["captures"]["targets"])
    counts = [truth["packet_counts"]]
    headings = ["file", "packets"]
    if "capture_dropped_counts" in truth:
        counts.append(truth["capture_dropped_counts"])
        headings.append("dropped by the capture")
    rows: list[tuple[object, ...]] = [
        (directory / name, *values) for name, *values in zip(names, *counts, strict=True) if name
    ]
    yield table(headings, [*rows, (directory / "truth.json", *(None for _ in counts))], "Files")


def show_served(counters: dict[str, int]) -> None:
    """Shows how much a target served, and every unusual event that occurred."""
    served = (
        f"served {counters['commands']} commands of {counters['sessions']} sessions over {counters['connections']} "
        f"connections: {counters['data_in_bytes']} bytes read, {counters['data_out_bytes']} bytes written"
    )
    unusual = (f"{name.replace('_', ' ')}: {counters[name]}" for name in _UNUSUAL if counters[name])
    terminal.show([Section("", (served, *unusual))])


def show_hosts(rows: Iterable[tuple[object, ...]]) -> None:
    """Shows the hosts of a real world: addresses, device, and the command that runs others there."""
    hosts = table(
        ("host", "IPv4", "IPv6", "device", "to run a command there"), rows, notes=("Ctrl-C removes everything.",)
    )
    terminal.show([Section("", (hosts,))])


def show_all_links(truth: dict[str, Any]) -> None:
    """Shows the links of a world, and how late they were in real time."""
    terminal.show([Section("", tuple(_links(truth)))])


def _links(truth: dict[str, Any]) -> Iterator[Block]:
    if truth["paths"]:
        yield links(_named(truth["access"], truth["paths"]), "Links")
    if truth.get("path_process"):
        yield lateness(_named(truth["access_process"], truth["path_process"]))


def _named(access: dict[str, Any] | None, paths: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [*([("access", access)] if access else []), *_numbered(paths)]


def _numbered(of_targets: list[Any]) -> list[tuple[str, Any]]:
    return [(f"target {number}", each) for number, each in enumerate(of_targets, 1)]


_DIRECTIONS = ("to_target", "to_initiator")
_FATES = ("queue_full", "lost", "lost_in_burst", "overtaken")


def links(logs: Iterable[tuple[str, dict[str, Any]]], caption: str = "") -> Grid:
    """A row per link and direction, by the name of the link."""
    rows = []
    for name, log in logs:
        for direction in _DIRECTIONS:
            counters, line = log[direction]["counters"], log[direction]["line"]
            rows.append(
                (
                    name,
                    direction.replace("_", " "),
                    counters["arrived"]["count"],
                    counters["arrived"]["bytes"],
                    *(counters[fate]["count"] for fate in _FATES),
                    cells.milliseconds(line["busy_ns"]) if line else None,
                )
            )
    headings = ("packets", "bytes", *(fate.replace("_", " ") for fate in _FATES), "line busy ms")
    return table(("link", "direction", *headings), rows, caption)


def lateness(processes: Iterable[tuple[str, dict[str, Any]]]) -> Grid:
    """A row per link in real time: how late its frames were sent."""
    rows = []
    for name, log in processes:
        late = log["lateness"]
        p99_ns = late["p99_ns"] if is_meaningful("p99", late["count"]) else None
        times_ns = (late["median_ns"], p99_ns, late["max_ns"])
        rows.append((name, *(cells.milliseconds(each) for each in times_ns), log["refused"]["count"]))
    return table(("link", "late: median ms", "p99 ms", "max ms", "refused by the kernel"), rows)
