"""Reports a run with its files, of either world, as text and as a document."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from iscsitrace.show import initiator_results
from iscsitrace.show.link_results import show_lateness, show_links
from iscsitrace.show.terminal import show_heading, show_line, show_table
from iscsitrace.wording import cells

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
    results = truth["results"]
    if is_ours(truth):
        initiator_results.show(results, has_parameters=False)
    else:
        rate = cells.megabytes(results["throughput_bytes_per_s"])
        show_line(f"{rate} MB/s, {results['iops']} IOPS of {cells.size(results['read_bytes'])}")
        if line := initiator_results.cpu_line(results):
            show_line(line)
    show_all_links(truth)
    ends = (("initiator", truth["initiator_ends"]), *_numbered(truth["target_ends"]))
    resent = {name: sum(end["retransmitted_segment_count"] for end in found) for name, found in ends}
    show_line("retransmitted segments: " + ", ".join(f"{name} {count}" for name, count in resent.items()))
    show_heading("Files")
    names = (truth["captures"]["initiator"], *truth["captures"]["targets"])
    counts = [truth["packet_counts"]]
    headings = ["file", "packets"]
    if "capture_dropped_counts" in truth:
        counts.append(truth["capture_dropped_counts"])
        headings.append("dropped by the capture")
    rows: list[tuple[object, ...]] = [
        (directory / name, *values) for name, *values in zip(names, *counts, strict=True) if name
    ]
    show_table(headings, [*rows, (directory / "truth.json", *(None for _ in counts))])


def show_hosts(rows: Iterable[tuple[object, ...]]) -> None:
    """Shows the hosts of a real world: addresses, device, and the command that runs others there."""
    show_table(("host", "IPv4", "IPv6", "device", "to run a command there"), rows)
    show_line("Ctrl-C removes everything.")


def show_all_links(truth: dict[str, Any]) -> None:
    """Shows the links of a world, and how late they were in real time."""
    if truth["paths"]:
        show_heading("Links")
        show_links(_named(truth["access"], truth["paths"]))
    if truth.get("path_process"):
        show_lateness(_named(truth["access_process"], truth["path_process"]))


def _named(access: dict[str, Any] | None, paths: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [*([("access", access)] if access else []), *_numbered(paths)]


def _numbered(of_targets: list[Any]) -> list[tuple[str, Any]]:
    return [(f"target {number}", each) for number, each in enumerate(of_targets, 1)]
