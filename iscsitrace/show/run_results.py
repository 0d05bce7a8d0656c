"""Reports a run, of either world, as text, as a document, and as an exit code: the results of the initiator, links and
files, and what a target served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from iscsitrace.measure.ranks import PERCENTILES, is_meaningful
from iscsitrace.show import terminal
from iscsitrace.show.document import Block, Grid, Heading, Section, table
from iscsitrace.show.line import say
from iscsitrace.wording import amounts, cells
from iscsitrace.wording.login_keys import LOGIN_KEYS

EXIT_DATA_LOSS = 1
EXIT_IMPOSSIBLE = 2

_SECOND_NS = 1_000_000_000
_NAMES = {setting: name for name, (setting, _) in LOGIN_KEYS.items()} | {
    f"{side}_max_recv_data_segment_length": f"MaxRecvDataSegmentLength ({side})" for side in ("initiator", "target")
}


def describe_initiator(results: dict[str, Any]) -> dict[str, Any]:
    """The results as a document: the main figures first, then all of them."""
    seconds = results["elapsed_ns"] / _SECOND_NS
    first: dict[str, Any] = {
        "mode": results["mode"],
        "bytes": results["bytes"],
        "seconds": seconds,
        "throughput_bytes_per_s": results["bytes"] / seconds if seconds else None,
    }
    if "cpu" in results:
        first["cpu_s_per_GB"] = amounts.seconds_per_gigabyte(results["cpu"], results["bytes"])
    if results["mode"] == "socket":
        return first | results
    latencies = {"ping_ns": _latency(results["ping_ns"]), "call_latency_ns": _latency(results["call_latency_ns"])}
    latencies |= {
        name: results[name] | {"latency_ns": _latency(results[name]["latency_ns"])} for name in ("read", "write")
    }
    first |= {
        "iops": results["calls"] / seconds if seconds else None,
        "latency_ns": latencies["ping_ns" if results["mode"] == "ping" else "call_latency_ns"],
        "parameters": [
            {name: connection[name] for name in ("session", "connection", "cid", "target")}
            | {_NAMES[name]: _spelled(value) for name, value in (connection["parameters"] or {}).items()}
            for connection in results["connections"]
        ],
    }
    return first | {name: value for name, value in (results | latencies).items() if name not in first}


def _latency(summary: dict[str, Any]) -> dict[str, Any]:
    """The same with None for percentiles of too few values."""
    return {name: value if is_meaningful(name, summary["count"]) else None for name, value in summary.items()}


def _spelled(value: object) -> object:
    """A value in the RFC's spelling."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return value


def cpu_lines(results: dict[str, Any]) -> Iterator[str]:
    """Processor time, in total and per 10^9 bytes; nothing if unknown."""
    taken = results.get("cpu")
    if taken is None:
        return
    user, system = (taken[name] / _SECOND_NS for name in ("user_ns", "system_ns"))
    each = amounts.seconds_per_gigabyte(taken, results.get("bytes", 0))
    share = "" if each is None else f": {each:.3f} s/GB"
    yield f"processor time {user + system:.6f} s (user {user:.6f}, system {system:.6f}){share}"


def show_initiator(results: dict[str, Any]) -> None:
    """Shows the results."""
    terminal.show([Section("", tuple(initiator_blocks(results)))])


def initiator_blocks(results: dict[str, Any], *, has_parameters: bool = True) -> Iterator[Block]:
    """The results. Of a run that could not begin there are only errors, which :func:`end` shows."""
    if not has_begun(results):
        return
    if results["mode"] == "socket":
        yield from _of_sockets(results)
        return
    if results["mode"] == "discover":
        found = results["discovered"]
        yield table(("target", "address"), [(one["name"], ", ".join(one["addresses"]) or None) for one in found])
    elif results["mode"] == "ping":
        yield table(("pings", *_latency_headings("min", *PERCENTILES)), [_latency_row(results["ping_ns"], "min")])
    else:
        yield from _of_workload(results)
        yield from cpu_lines(results)
        if results.get("tuning"):
            yield from _of_tuning(results["tuning"])
        if has_parameters:
            yield from _of_parameters(results["connections"])
    yield from _problems(results)


def _of_sockets(results: dict[str, Any]) -> Iterator[Block]:
    seconds = results["elapsed_ns"] / _SECOND_NS
    rate = cells.megabytes(results["bytes"] / seconds if seconds else None)
    steady = cells.megabytes(results["steady_bytes_per_s"])
    yield f"{cells.megabytes(results['bytes'])} MB in {seconds:.6f} s: {rate} MB/s; in the second half {steady} MB/s"
    if len(results["connections"]) > 1:
        rows = [
            (one["connection"], one["target"] + 1, one["bytes"], cells.megabytes(one["steady_bytes_per_s"]))
            for one in results["connections"]
        ]
        yield table(("connection", "target", "bytes", "MB/s in the second half"), rows)
    yield from cpu_lines(results)


def _latency_headings(*names: str) -> tuple[str, ...]:
    return tuple(f"{name} ms" for name in names)


def _latency_row(latency: dict[str, Any], *first: str) -> tuple[object, ...]:
    known = _latency(latency)
    return (known["count"], *(cells.milliseconds(known[name]) for name in (*first, *PERCENTILES)))


def _of_workload(results: dict[str, Any]) -> Iterator[Block]:
    seconds = results["elapsed_ns"] / _SECOND_NS
    rate = results["bytes"] / seconds if seconds else None
    yield (
        f"{cells.megabytes(results['bytes'])} MB in {seconds:.6f} s: {cells.megabytes(rate)} MB/s, "
        f"{results['calls'] / seconds if seconds else 0:.1f} IOPS"
    )
    rows = [("calls", results["bytes"], *_latency_row(results["call_latency_ns"]))]
    for operation in ("read", "write"):
        if results[operation]["commands"]:
            done = results[operation]
            rows.append((f"{operation} commands", done["bytes"], *_latency_row(done["latency_ns"])))
    yield table(("latency of", "bytes", "count", *_latency_headings(*PERCENTILES)), rows)


def _of_tuning(tuning: dict[str, Any]) -> Iterator[Block]:
    yield Heading("Connections")
    if tuning["converged_s"] is not None:
        again = "" if tuning["settled_connections"] is not None else ", then searched again"
        yield f"found after {tuning['converged_s']:.1f} s{again}; {tuning['connections']} connections at the end"
    else:
        yield f"not found by the end of the run; {tuning['connections']} connections at the end"
    if tuning["refusal"]:
        yield f"at most {tuning['most_connections']}: {tuning['refusal']}"
    rows = [
        (
            f"{step['time_s']:.1f}",
            step["connections"],
            cells.megabytes(step["goodput_bytes_per_s"]),
            None if step["command_s"] is None else f"{1e3 * step['command_s']:.3f}",
            step["decision"],
            step["next_connections"],
            step["why"],
        )
        for step in tuning["steps"]
        if step["decision"] != "watch"
    ]
    yield table(("time", "connections", "MB/s", "command ms", "then", "next", "why"), rows)


def _of_parameters(connections: list[dict[str, Any]]) -> Iterator[Block]:
    """A row per key, and a column for each group of connections with the same parameters."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for one in connections:
        if one["parameters"]:
            alike.setdefault(str(sorted(one["parameters"].items())), []).append(one)
    if alike:
        groups = list(alike.values())
        rows = (
            (shown, *(_spelled(group[0]["parameters"].get(name)) for group in groups)) for name, shown in _NAMES.items()
        )
        yield table(("key", *map(_places, groups)), rows, "Negotiated parameters")


def _places(group: list[dict[str, Any]]) -> str:
    numbers = [one["connection"] for one in group]
    return f"connection {numbers[0]}" if len(numbers) == 1 else f"connections {numbers[0]} to {numbers[-1]}"


def _problems(results: dict[str, Any]) -> Iterator[Block]:
    counts = {
        "commands retried after BUSY, TASK SET FULL or UNIT ATTENTION": results["retry_count"],
        "data digest errors": results["data_digest_error_count"],
        "reads with wrong data": results["verify_error_count"],
        "errors": results["error_count"],
    }
    if any(counts.values()):
        yield Heading("Problems")
    yield from (f"{name}: {count}" for name, count in counts.items() if count)
    if results["first_mismatch"]:
        place = results["first_mismatch"]
        found = f": block {place['found_block']} of the pattern with seed {place['found_seed']}"
        yield f"wrong data at byte {place['byte']}{found if place['found_block'] is not None else ''}"
    yield from (f"note: {remark}" for remark in results["remarks"])


def end_initiator(results: dict[str, Any], *, is_unfinished: bool = False) -> None:
    """Prints the errors on stderr, one per line, and exits with 2 if the run could not begin, 1 for problems."""
    for error in results["errors"]:
        say(f"iscsitrace: {' '.join(error.split())}", err=True)
    unnamed = results["error_count"] - len(results["errors"])
    if unnamed > 0:
        say(f"iscsitrace: and {unnamed} more errors", err=True)
    if results["error_count"] and not has_begun(results):
        raise click.exceptions.Exit(EXIT_IMPOSSIBLE)
    if is_unfinished or any(
        results.get(name) for name in ("error_count", "verify_error_count", "data_digest_error_count")
    ):
        raise click.exceptions.Exit(EXIT_DATA_LOSS)


def has_begun(results: dict[str, Any]) -> bool:
    """Whether the run did any of its work."""
    if results["mode"] == "discover":
        return bool(results["discovered"])
    if results["mode"] == "ping":
        return bool(results["ping_ns"]["count"])
    return results["started_ns"] is not None


_UNUSUAL = (
    *("refused_connections", "refused_logins", "rejects", "ignored_cmd_sns", "data_digest_errors"),
    *("stray_data_outs", "wrong_data_outs", "wrong_exp_stat_sns", "faults"),
)
_DESCRIBED = ("schema", "tool", "kind", "captures", "started_ns", "ended_ns", "packet_counts", "capture_dropped_counts")


def describe(truth: dict[str, Any]) -> dict[str, Any]:
    """The document: the run, then its results."""
    results = truth["results"]
    described = {name: truth[name] for name in _DESCRIBED if name in truth}
    return described | (describe_initiator(results) if is_ours(truth) else results)


def is_ours(truth: dict[str, Any]) -> bool:
    """Whether the initiator was ours. Others report a throughput only."""
    return "mode" in truth["results"]


def show(truth: dict[str, Any], directory: Path) -> None:
    """Shows results, links, retransmissions and files."""
    terminal.show([Section("", tuple(_blocks(truth, directory)))])


def _blocks(truth: dict[str, Any], directory: Path) -> Iterator[Block]:
    results = truth["results"]
    if is_ours(truth):
        yield from initiator_blocks(results, has_parameters=False)
    else:
        rate = cells.megabytes(results["throughput_bytes_per_s"])
        yield f"{rate} MB/s, {results['iops']} IOPS of {cells.size(results['read_bytes'])}"
        yield from cpu_lines(results)
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
