"""The diagnosis of a trace as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iscsitrace.measure import capture_health
from iscsitrace.relate import loads
from iscsitrace.show import health, inputs, verdict_groups
from iscsitrace.show.document import Section, table
from iscsitrace.show.remedies import Remedies
from iscsitrace.show.shown import LISTED, Choice, Shown
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells
from iscsitrace.wording.parts import BY_NAME

if TYPE_CHECKING:
    from iscsitrace.diagnosis.examination import Diagnosis
    from iscsitrace.diagnosis.headline import Headline
    from iscsitrace.diagnosis.opinions import Opinion
    from iscsitrace.findings.finding import Finding
    from iscsitrace.relate.jobs.streams import Job
    from iscsitrace.tables.trace import Trace


def as_dict(trace: Trace, diagnosis: Diagnosis, by: Sequence[str] = (), sessions: Sequence[int] = ()) -> dict[str, Any]:
    """What ``diagnose --json`` prints, but for the findings to fail on; with the verdicts ``by`` each of these, of
    these ``sessions`` where any are named.
    """
    document = trace.provenance | inputs.contents(trace)
    for kind, opinions in (("session", diagnosis.sessions), ("connection", diagnosis.connections)):
        document[f"{kind}s"] = [
            row | (opinions[row[kind]].as_dict() if row[kind] in opinions else {}) for row in document[f"{kind}s"]
        ]
    return document | {
        "mirrors": [account.as_dict(number) for number, account in enumerate(diagnosis.mirrors)],
        "jobs": [job.as_dict(number) for number, job in enumerate(diagnosis.jobs)],
        "stories": [each.as_dict() for each in diagnosis.stories],
        "volumes": [
            loads.volume_document(volume, diagnosis.volume_outages.get(volume.number, ()))
            for volume in diagnosis.volumes
        ],
        "headline": diagnosis.headline and diagnosis.headline.as_dict(),
        "budget": diagnosis.budget,
        "counters": capture_health.by_name(trace.counters),
        **inputs.places_of(trace),
        **({"by": verdict_groups.as_dict(trace, diagnosis, by, sessions)} if by else {}),
    }


def sections_by(trace: Trace, diagnosis: Diagnosis, by: Sequence[str], choice: Choice) -> Iterator[Section]:
    """The verdicts of sessions by each of these as text, below the headline of the capture."""
    yield inputs.section(trace.inputs)
    shown = Shown(trace, diagnosis, choice)
    if diagnosis.headline and not shown.is_requested:
        yield Section("", ("", diagnosis.headline.text))
    yield from verdict_groups.sections(trace, diagnosis, by, choice.sessions, choice.top)


def sections(trace: Trace, diagnosis: Diagnosis, choice: Choice) -> Iterator[Section]:
    """The diagnosis as text: headlines first, then what is shown in full."""
    shown = Shown(trace, diagnosis, choice)
    yield inputs.section(trace.inputs)
    if not shown.subjects:
        yield Section("", ("no iSCSI session was found",))
    yield Section("", ("", *_verdicts(diagnosis, shown)))
    yield from shown.others()
    yield from inputs.sections_of_places(inputs.places_of(trace))
    remedies = Remedies()
    # what was found of connects without a session has no other place
    for story in shown.unanswered:
        yield _findings(story.label, story.findings, story.headline, remedies)
    of_stories: set[int] = set()
    for label, opinion in shown.in_full:
        yield from _breakdown(label, opinion)
        new = [finding for finding in opinion.findings if id(finding) not in of_stories]
        if new or not opinion.findings:
            yield _findings(label, new, opinion.headline, remedies)
        # sessions of one story share its findings, which are shown once
        of_stories.update(map(id, opinion.findings))
    yield from (_streams(job, choice.top) for job in shown.jobs)
    losses = capture_health.reaching(capture_health.by_name(trace.counters), "data_loss")
    if losses:
        yield health.health(losses)


def _verdicts(diagnosis: Diagnosis, shown: Shown) -> Iterator[str]:
    """Each headline once, that of what broke first; one of those that differ by their number alone."""
    worst = diagnosis.headline
    first = [worst] if worst and worst.severity == "error" and not shown.is_requested else []
    said = dict.fromkeys(each.text for each in (*first, *(story.headline for story in shown.unanswered)))
    yield from said
    texts = {label: opinion.headline.text for label, opinion in shown.subjects}
    for label, others in shown.alike.items():
        if texts[label] not in said:
            yield texts[label]
        if others:
            kind, _ = label.split()
            listed = cells.numbers([other.split()[1] for other in others], LISTED)
            yield f"    The same is true of {wording.count(len(others), kind)}: {listed}."


def _breakdown(label: str, opinion: Opinion) -> Iterator[Section]:
    time = opinion.time
    if not time or not time.jobs_ns:
        return
    words = {"idle": "no command in flight", "scan": "device scan", "flush": "SYNCHRONIZE CACHE"}
    excluded = [f"{words[use]} {cells.seconds(amount)} s" for use, amount in time.uses_ns.items() if amount]
    rows = [
        (BY_NAME[part].label, cells.milliseconds(amount), cells.percent(time.shares[part]))
        for part, amount in time.parts_ns.items()
        if amount
    ]
    yield Section(
        f"Time breakdown of {label}: {cells.seconds(time.jobs_ns)} s of busy time",
        (f"excluded: {', '.join(excluded)}",) if excluded else (),
        (table(("part", "ms", "%"), rows),),
    )


def _findings(label: str, findings: Sequence[Finding], headline: Headline, remedies: Remedies) -> Section:
    if not findings:
        return Section(f"No problem found in {label}")
    has_shares = any(each.share and each.rank != "failure" for each in findings)
    return Section(
        f"Findings of {label}" + (", shares of the busy time" if has_shares else ""),
        tuple(line for each in findings for line in _lines(each, label, headline, remedies)),
    )


def _lines(finding: Finding, label: str, headline: Headline, remedies: Remedies) -> Iterator[str]:
    cost = f", {finding.cost_in_words}" if finding.cost_in_words else ""
    yield f"{finding.name} ({finding.severity}{cost}): {finding.below(headline.sentence)}"
    for text, gains in remedies.steps(finding, label):
        yield f"    - {text}" + (f" ({gains})" if gains else "")
    if finding.display_filter:
        yield f"    {finding.display_filter}"


def _streams(job: Job, top: int) -> Section:
    """The parallel streams of a job: the ``top`` that finish last, the first of them first."""
    columns = (
        *("connection", "session", "MB", "MB/s", "finished after s", "retransmitted %", "losses", "timeouts"),
        "cause",
    )
    rows = [
        (
            stream.run.connection,
            stream.run.session,
            cells.megabytes(stream.run.bytes),
            cells.megabytes(stream.run.bytes_per_s),
            cells.seconds(stream.run.last_ns - job.first_ns),
            cells.percent(stream.evidence.retransmission_rate),
            stream.evidence.loss_count,
            stream.evidence.timeout_count,
            stream.cause.name if stream.cause else None,
        )
        for stream in job.streams[-top:]
    ]
    behind, alone = cells.seconds(job.first_to_last_ns), cells.percent(job.alone_share)
    return Section(
        f"Parallel streams of one job: Jain's fairness index {job.jain:.3f}; the last finishes {behind} s after the "
        f"first, and runs alone for {alone} % of the job",
        grids=(replace(table(columns, rows), notes=_finished(len(job.streams) - top)),),
    )


def _finished(count: int) -> tuple[str, ...]:
    """The note on the streams that finished before those of the table."""
    return (f"{wording.count(count, 'stream')} finished before these.",) if count > 0 else ()
