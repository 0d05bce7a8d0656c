"""A report as text: for a terminal of any width, and as plain lines for a pipe. Nothing depends on colour alone.

The time breakdown is a bar of letters, one for each part; lower case for time in which nothing waits.
The user chooses the sort order, a session and a line, and may pause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from iscsitrace.diagnosis.headline import Headline
from iscsitrace.measure.budget import PARTS, Budget
from iscsitrace.watch.columns import (
    COLUMNS,
    clock,
    count,
    joined,
    latency,
    milliseconds,
    percentile,
    rate,
    session_names,
    size,
    tail,
)
from iscsitrace.watch.figures import CAUSES, WatchLine, hang_sentence
from iscsitrace.watch.watcher import Report
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.cells import percent, printable
from iscsitrace.wording.parts import BY_NAME, Part

SORTS: Final = ("number", "throughput", "IOPS", "p99", "queue depth", "idle", "retransmissions")


@dataclass
class Choice:
    """The choices, and the state of the input."""

    sort: str = "number"
    is_paused: bool = False
    session: int | None = None
    """The session whose connections are shown; None shows all sessions."""
    row: int = 0
    note: str = ""
    source: str = ""
    is_over: bool = False
    quiet_s: float = 0.0


def sorted_lines(report: Report, choice: Choice) -> list[WatchLine]:
    """The lines of the table, in the chosen order."""
    if choice.session is None:
        lines = report.sessions
    else:
        lines = [line for line in report.connections if line.names["session"] == choice.session]
    keys: dict[str, Any] = {
        "number": lambda line: line.number,
        "throughput": lambda line: -(line.load.read_bytes + line.load.write_bytes),
        "IOPS": lambda line: -line.load.task_count,
        "p99": lambda line: -(line.load.latency_ns[tail(line.load.latency_ns)] or 0),
        "queue depth": lambda line: -(line.load.queue_depth_max or 0),
        "idle": lambda line: -((line.budget.idle_fraction or 0) if line.budget else 0),
        "retransmissions": lambda line: -line.retransmitted,
    }
    return sorted(lines, key=keys[choice.sort])


BAD: Final = "bold #D55E00"
DIM: Final = "dim"
CHOSEN: Final = "reverse"


def style_of(part: Part) -> str:
    """The style of a part's letter: its colour as the background."""
    return f"{'white' if part.is_dark else 'black'} on {part.color}"


def bar(budget: Budget | None, width: int) -> Text:
    """The time breakdown as letters: the length of each part is its share, rounded."""
    total_ns = budget.jobs_ns if budget else 0
    if budget is None or not total_ns:
        return Text("no time breakdown".ljust(width)[:width], style=DIM)
    parts = [(part, budget.parts_ns[part]) for part in PARTS if budget.parts_ns[part]]
    cells = {part: int(width * ns / total_ns) for part, ns in parts}
    # the cells that rounding left over go to the largest remainders
    rest = sorted(parts, key=lambda item: cells[item[0]] - width * item[1] / total_ns)
    for part, _ in rest[: width - sum(cells.values())]:
        cells[part] += 1
    text = Text()
    for part, _ in parts:
        text.append(BY_NAME[part].letter * cells[part], style=style_of(BY_NAME[part]))
    return text


def legend(budget: Budget | None, width: int) -> list[Text]:
    """The parts by label, largest first, in lines of this width."""
    if budget is None or not budget.jobs_ns:
        return []
    parts = sorted(((part, each) for part, each in budget.shares.items() if each), key=lambda item: -item[1])
    lines = [Text()]
    for part, share in parts:
        entry = f" {BY_NAME[part].label} {percent(share)} %  "
        if cell_len(lines[-1].plain) + 1 + len(entry) > width and lines[-1].plain:
            lines.append(Text())
        lines[-1].append(BY_NAME[part].letter, style=style_of(BY_NAME[part]))
        lines[-1].append(entry)
    return lines


def render(report: Report | None, choice: Choice, width: int, height: int) -> list[Text]:
    """The board: at most ``height`` lines of at most ``width`` cells."""
    if report is None:
        what = f"{choice.source}: waiting for packets"
        return [Text(f"{what} ({choice.quiet_s:.0f} s)", style="bold")]
    lines = [*_head(report, choice, width), Text()]
    table = sorted_lines(report, choice)
    chosen = table[min(choice.row, len(table) - 1)] if table else None
    below = _detail(report, chosen, width) if chosen else [Text("no iSCSI session yet", style=DIM)]
    below += _findings(report, chosen, width)
    below += _counters(report, width)
    room = max(height - len(lines) - min(len(below), height // 2) - 2, 3)
    lines += [*_table(report, table, choice, width, room), Text(), *below]
    shown = lines[:height]
    for line in shown:
        line.truncate(width, overflow="ellipsis")
    return shown


def _head(report: Report, choice: Choice, width: int) -> list[Text]:
    length_s = (report.to_ns - report.from_ns) / 1e9
    state = "ended" if choice.is_over else "PAUSED" if choice.is_paused else "live"
    head = Text()
    head.append(f"{choice.source} ", style="bold")
    head.append(f" {state} ", style=CHOSEN if choice.is_paused else "bold")
    head.append(f" {clock(report.to_ns)}  {length_s:.3g} s  {report.packet_count:,} packets")
    pace = report.pace
    head.append(f"  lag {pace.lag_ns / 1e9:.1f} s", style=BAD if pace.lag_ns > 1e9 else "")
    lines = [head]
    load = report.whole
    whole = Text()
    whole.append("all  ", style="bold")
    whole.append(f"read {rate(load.read_bytes_per_s)} MB/s  write {rate(load.write_bytes_per_s)} MB/s  ")
    whole.append(f"{count(load.iops)} IOPS  ")
    now, total = report.whole.latency_ns, report.whole_total_latency_ns
    whole.append(latency(now))
    lines.append(whole)
    since = Text("since the start  ", style=DIM)
    since.append("  ".join(f"{name} {percentile(total, name)}" for name in ("p50", "p95", "p99", "max")))
    since.append(f" ms (n {total['n']})")
    lines.append(since)
    if choice.quiet_s > _QUIET_S and not choice.is_over:
        lines.append(Text(f"no packets for {choice.quiet_s:.0f} s", style="bold"))
    lines += _hangs(report)
    if pace.is_leaving_out or pace.left_out_packets:
        what = "is skipping packets" if pace.is_leaving_out else "skipped packets"
        lines.append(Text(f"! cannot keep up: {what}, {pace.left_out_packets} so far", style=BAD))
    elif pace.is_reduced:
        lines.append(Text("! cannot keep up: no time breakdown, RTT and owin for now", style=BAD))
    if report.dropped:
        lines.append(Text(f"! the capture dropped {report.dropped} packets so far", style=BAD))
    if choice.note:
        lines.append(Text(choice.note, style="bold"))
    return lines


_QUIET_S = 3.0
_HANGS_SHOWN = 3


def _table(report: Report, table: list[WatchLine], choice: Choice, width: int, room: int) -> list[Text]:
    columns = [column for column in COLUMNS if width >= column.least]
    own = sum(column.width + 1 for column in columns)
    name_width = max(width - own - 4, 8)
    title = "session" if choice.session is None else f"session {choice.session}: connection"
    head = Text(f"{title} (by {choice.sort})"[: name_width + 4].ljust(name_width + 4), style="bold underline")
    for column in columns:
        head.append(f" {column.heading:>{column.width}}")
    lines = [head]
    names = session_names(report.sessions, report.connections)
    room = max(room - 1, 1)
    first = max(0, min(choice.row, len(table) - 1) - room + 1)
    for place, line in enumerate(table[first : first + room], first):
        mark = ">" if place == min(choice.row, len(table) - 1) else " "
        text = Text(f"{mark}{line.number:>2} {joined(_ends(line, names), name_width).ljust(name_width)}")
        for column in columns:
            text.append(f" {column.cell(line):>{column.width}}")
        if mark == ">":
            text.stylize("bold")
        if not line.is_open:
            text.stylize(DIM)
        lines.append(text)
    hidden = len(table) - min(len(table), first + room)
    if hidden > 0:
        lines[-1] = Text(f"   ... {hidden + 1} more", style=DIM)
    return lines


def _ends(line: WatchLine, names: Mapping[int, tuple[str, str]]) -> tuple[str, str]:
    return names[line.number] if line.kind == "session" else (line.names["initiator"], line.names["target"])


def _detail(report: Report, line: WatchLine, width: int) -> list[Text]:
    budget = line.budget
    limiter = budget.limiter if budget else None
    head = Text()
    head.append(f"{line.kind} {line.number}", style="bold")
    idle = percent(budget.idle_fraction if budget else None)
    head.append(f"  idle {idle} %  limiter {BY_NAME[limiter].label if limiter else '-'}")
    head.append(f"  in flight {line.open_task_count}")
    if line.hang.is_old:
        head.append(f" (oldest {wording.time(line.hang.oldest_ns)})")
    mean = line.load.queue_depth_mean
    head.append(f"  QD mean {'-' if mean is None else f'{mean:.1f}'}")
    lines = [head, bar(budget, width), *legend(budget, width)]
    if budget and budget.jobs_ns:
        lines.append(Text(f"of {wording.time(budget.jobs_ns)} of I/O time", style=DIM))
    wire = Text()
    wire.append(f"RTT {milliseconds(line.rtt_smoothed_ns)} ms")
    least = [each.rtt_min_ns for each in line.transports.values() if each.rtt_min_ns is not None]
    wire.append(f" (min {milliseconds(min(least, default=None))})")
    wire.append(f"  owin {size(line.owin_peak_bytes)}")
    sizes = "  ".join(f"{size(each['bytes'])} x{each['task_count']}" for each in line.load.block_sizes)
    wire.append(f"  I/O sizes {sizes or '-'}")
    lines.append(wire)
    if any(each.retransmitted_total for each in line.transports.values()):
        again = {cause: sum(each.retransmissions[cause] for each in line.transports.values()) for cause in CAUSES}
        total = sum(each.retransmitted_total for each in line.transports.values())
        words = "  ".join(f"{cause.replace('_', ' ')} {amount}" for cause, amount in again.items() if amount)
        lines.append(Text(f"retransmissions: {words or 0}  ({total} so far)", style=BAD if words else ""))
    return lines


def _findings(report: Report, chosen: WatchLine | None, width: int) -> list[Text]:
    lines = []
    session = chosen.number if chosen and chosen.kind == "session" else chosen.names["session"] if chosen else None
    story = next((headline for sessions, headline in report.stories if session in sessions), None)
    if report.headline:
        lines += _folded(Text(printable(report.headline.text), style=_style_of(report.headline)), width)
    if story and story != report.headline:
        lines += _folded(Text(printable(story.text), style=_style_of(story)), width)
    for found in report.findings:
        cost = f", {found.cost}" if found.cost else ""
        line = Text()
        line.append(f"session {found.session}: {found.name} ({found.severity}{cost}): ", style="bold")
        line.append(printable(found.text))
        lines += _folded(line, width)
    return [Text("recent findings", style="bold underline"), *lines] if lines else []


def _style_of(headline: Headline) -> str:
    return BAD if headline.severity == "error" else ""


def _hangs(report: Report) -> list[Text]:
    """The sessions without progress, the longest first."""
    hanging = sorted(
        (line for line in report.sessions if line.hang.is_shown), key=lambda line: -line.hang.no_progress_ns
    )
    shown = hanging[:_HANGS_SHOWN]
    lines = [Text(f"! {hang_sentence(line.number, line.hang, line.open_task_count)}", style=BAD) for line in shown]
    if len(hanging) > len(shown):
        more = wording.count(len(hanging) - len(shown), "more session")
        lines.append(Text(f"! {more} without progress", style=BAD))
    return lines


def _counters(report: Report, width: int) -> list[Text]:
    rows = [row for row in report.counters if row["severity"] != "info"]
    if not rows:
        return []
    lines = [Text("problems of the capture", style="bold underline")]
    for row in rows:
        new = f" (+{row['new']})" if row["new"] else ""
        lines += _folded(Text(f"{row['severity']}: {row['name']} {row['count']}{new}: {row['meaning']}"), width)
    return lines


def _folded(line: Text, width: int) -> list[Text]:
    """A sentence in lines of this width, the later ones indented."""
    console = Console(width=width, color_system=None)
    first, *rest = line.wrap(console, width)
    if not rest:
        return [first]
    for each in rest:
        each.rstrip()
    left = Text(" ").join(rest)
    return [first, *(Text("  ").append_text(each) for each in left.wrap(console, max(width - 2, 1)))]


def lines_of(report: Report) -> list[str]:
    """The lines of an interval."""
    load, pace = report.whole, report.pace
    lines = [
        f"{clock(report.to_ns)} all: read {rate(load.read_bytes_per_s)} MB/s, "
        f"write {rate(load.write_bytes_per_s)} MB/s, "
        f"{count(load.iops)} IOPS, {latency(load.latency_ns)}, {wording.count(report.new_packets, 'packet')}"
    ]
    if pace.lag_ns > 10**9 or pace.is_reduced or pace.left_out_packets:
        reduced = ", no time breakdown, RTT and owin" if pace.is_reduced else ""
        left_out = f", {pace.left_out_packets} packets skipped so far" if pace.left_out_packets else ""
        lines.append(f"  cannot keep up: lag {pace.lag_ns / 1e9:.1f} s{reduced}{left_out}")
    if report.dropped:
        lines.append(f"  the capture dropped {report.dropped} packets so far")
    names = session_names(report.sessions, report.connections) if len(report.sessions) > 1 else {}
    listed = report.listed[0]
    for line in listed:
        name = f" ({joined(names[line.number])})" if names else ""
        lines.append(f"  session {line.number}{name}: {_session(line, report.to_ns - report.from_ns)}")
    if more := len(report.present[0]) - len(listed):
        lines.append(f"  {wording.count(more, 'more session')}, less busy than these")
    hanging = [line for line in listed if line.hang.is_shown]
    lines += [f"  {hang_sentence(line.number, line.hang, line.open_task_count)}" for line in hanging]
    for found in report.findings:
        if found.since_ns == report.to_ns:
            cost = f", {found.cost}" if found.cost else ""
            lines.append(f"  session {found.session}: {found.name} ({found.severity}{cost}): {found.text}")
    for row in report.counters:
        if row["new"] and row["severity"] != "info":
            lines.append(f"  {row['severity']}: {row['name']} +{row['new']}: {row['meaning']}")
    return lines


def _session(line: WatchLine, interval_ns: int) -> str:
    budget, load = line.budget, line.load
    idle = (
        f", idle {percent(budget.idle_fraction)} % of {wording.time(budget.jobs_ns)} busy"
        if budget and budget.jobs_ns
        else ""
    )
    limiter = f" ({BY_NAME[budget.limiter].label})" if budget and budget.limiter else ""
    depth = "" if load.queue_depth_max is None else f", QD {load.queue_depth_max}"
    rtt = "" if line.rtt_smoothed_ns is None else f", RTT {milliseconds(line.rtt_smoothed_ns)} ms"
    owin = "" if line.owin_peak_bytes is None else f", owin {size(line.owin_peak_bytes)}"
    # in flight for the whole interval: it is in none of these figures
    is_old = line.hang.oldest_ns >= interval_ns > 0
    oldest = f", oldest command in flight for {wording.time(line.hang.oldest_ns)}" if is_old else ""
    again = f", {wording.count(line.retransmitted, 'retransmission')}" if line.retransmitted else ""
    return (
        f"read {rate(load.read_bytes_per_s)} MB/s, write {rate(load.write_bytes_per_s)} MB/s, "
        f"{count(load.iops)} IOPS, {latency(load.latency_ns)}{depth}{idle}{limiter}{rtt}{owin}{again}{oldest}"
    )
