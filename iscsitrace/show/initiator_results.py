"""Reports a run of the initiator, of either world: as text, as a document, and as an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from iscsitrace.measure.ranks import is_meaningful
from iscsitrace.show import terminal
from iscsitrace.show.document import Block, Heading, Section, table
from iscsitrace.show.line import say
from iscsitrace.wording import amounts, cells
from iscsitrace.wording.login_keys import LOGIN_KEYS

EXIT_DATA_LOSS = 1
EXIT_IMPOSSIBLE = 2

_SECOND_NS = 1_000_000_000
_PERCENTILES = ("p50", "p95", "p99", "max")
_NAMES = {setting: name for name, (setting, _) in LOGIN_KEYS.items()} | {
    f"{side}_max_recv_data_segment_length": f"MaxRecvDataSegmentLength ({side})" for side in ("initiator", "target")
}


def describe(results: dict[str, Any]) -> dict[str, Any]:
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


def show(results: dict[str, Any]) -> None:
    """Shows the results."""
    terminal.show([Section("", tuple(blocks(results)))])


def blocks(results: dict[str, Any], *, has_parameters: bool = True) -> Iterator[Block]:
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
        yield table(("pings", *_latency_headings("min", *_PERCENTILES)), [_latency_row(results["ping_ns"], "min")])
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
    return (known["count"], *(cells.milliseconds(known[name]) for name in (*first, *_PERCENTILES)))


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
    yield table(("latency of", "bytes", "count", *_latency_headings(*_PERCENTILES)), rows)


def tuning_line(step: dict[str, Any]) -> str:
    """One measurement of the search for the number of connections, and its decision."""
    return f"{step['time_s']:.1f} s: {step['why']}; next {step['next_connections']}"


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


def end(results: dict[str, Any], *, is_unfinished: bool = False) -> None:
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
