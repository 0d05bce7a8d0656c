"""The diagnosis of a trace as a JSON document and as text. Each remedy of one output is said once, and later findings
refer to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.diagnosis.headline import broke, to_act_on, weight
from iscsitrace.findings.breaches import PROTOCOL_VIOLATION
from iscsitrace.measure import capture_health
from iscsitrace.relate import loads
from iscsitrace.show import inputs
from iscsitrace.show.document import Breakdown, Findings, FoundProblem, Section, Step, TimeShare, table
from iscsitrace.show.shown import LISTED, Shown, ShowOptions, groups_as_dict, sections_of_groups
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells
from iscsitrace.wording.parts import BY_NAME

if TYPE_CHECKING:
    from iscsitrace.diagnosis.examination import Diagnosis
    from iscsitrace.diagnosis.headline import Headline
    from iscsitrace.diagnosis.subject import Subject
    from iscsitrace.findings.finding import Advice, AdviceGain, Finding
    from iscsitrace.fit.gain import Gain
    from iscsitrace.measure.budget import Budget
    from iscsitrace.relate.jobs.streams import Job
    from iscsitrace.tables.trace import TraceTables


_OPEN: Final = 1.1
"""Ratio of a gain's high to its low from which both are shown."""


def gains_in_words(gains: Sequence[Gain]) -> str:
    """Such as ``model: up to 8.0x with queue depth 8``; empty if the model predicts none."""
    if not gains:
        return ""
    return f"model: {', '.join(f'{_times(gain)} with {gain.change}' for gain in gains)}"


def notes_on(advice: Advice, gains: Sequence[Gain]) -> str:
    """What the advice touches, and what the model predicts of it; empty where nothing is known."""
    return "; ".join(note for note in (advice.touches, gains_in_words(gains)) if note)


def _times(gain: Gain) -> str:
    """``up to 5.1x``; ``about 5.1x (2.2x to 7.8x)`` where the packets leave much open."""
    times = f"{gain.throughput_factor:.1f}x"
    is_open = gain.high > _OPEN * gain.low
    return f"about {times} ({gain.low:.1f}x to {gain.high:.1f}x)" if is_open else f"up to {times}"


def _share_of(finding: Finding, sessions: Sequence[int]) -> str:
    if not finding.cost_in_words or finding.rank == "failure":
        return ""
    is_of_one = len(sessions) > 1 and len(finding.sessions) == 1
    return f"of the time of session {finding.sessions[0]}" if is_of_one else "of the time"


def _is_advised(finding: Finding, is_only_told: bool) -> bool:
    return not is_only_told or finding.rank == "failure" or finding.is_problem


REFERENCE: Final = "See "
"""What the name of another finding follows, where all its advice was given there."""


class Remedies:
    """The remedies said so far, by their text: the finding, and its session or connection."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, str]] = {}
        self._gains: set[tuple[str, str]] = set()

    def told(
        self, findings: Sequence[Finding], label: str, sessions: Sequence[int] = (), *, is_only_told: bool = False
    ) -> Findings:
        """Findings of ``label``; of a story of several ``sessions``, a share may be of one.

        Where something broke, that and other problems have advice: then what limits the I/O ``is_only_told``, and so it
        is in a report on healthy I/O.
        """
        return Findings(
            tuple(
                FoundProblem(
                    name=each.name,
                    severity=each.severity.replace("_", " "),
                    cost=each.cost_in_words,
                    text=each.text,
                    steps=tuple(Step(*step) for step in self.steps(each, label))
                    if _is_advised(each, is_only_told)
                    else (),
                    display_filter=each.display_filter or "",
                    of=_share_of(each, sessions),
                )
                for each in findings
            )
        )

    def steps(self, finding: Finding, label: str) -> list[tuple[str, str]]:
        """The advice of a finding of ``label`` that is new with what it touches, then where the rest was said; each
        with its gains.

        A gain that was shown for the same session or connection is not shown again.
        """
        new, again = [], dict[str, list["AdviceGain"]]()
        for advice, gains in finding.gains_by_advice():
            name, where = self._said.setdefault(advice.text, (finding.name, label))
            if (name, where) == (finding.name, label):
                new.append((advice.text, notes_on(advice, gains)))
            else:
                place = name if where == label else f"{name} of {where}"
                known = again.setdefault(f"{REFERENCE}{place}.", [])
                known += [gain for gain in gains if (label, gains_in_words([gain])) not in self._gains]
            self._gains.update((label, gains_in_words([gain])) for gain in gains)
        return [*new, *((text, gains_in_words(gains)) for text, gains in again.items())]


def as_dict(
    trace: TraceTables, diagnosis: Diagnosis, by: Sequence[str] = (), sessions: Sequence[int] = ()
) -> dict[str, Any]:
    """What ``diagnose --json`` prints, but for the findings to fail on; with the verdicts ``by`` each of these, of
    these ``sessions`` where any are named.
    """
    document = trace.provenance | inputs.contents(trace)
    stories = {number: place for place, numbers in enumerate(diagnosis.stories.numbers) for number in numbers}
    for kind, opinions in (("session", diagnosis.sessions), ("connection", diagnosis.connections)):
        document[f"{kind}s"] = [
            row
            | ({"story": stories.get(row["session"])} | opinions[row[kind]].as_dict() if row[kind] in opinions else {})
            for row in document[f"{kind}s"]
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
        "time_breakdown": diagnosis.budget,
        # its old name
        "budget": diagnosis.budget,
        "counters": capture_health.by_name(trace.counters),
        **inputs.places_of(trace),
        **({"by": groups_as_dict(trace, diagnosis, by, sessions)} if by else {}),
    }


def sections_by(trace: TraceTables, diagnosis: Diagnosis, by: Sequence[str], choice: ShowOptions) -> Iterator[Section]:
    """The verdicts of sessions by each of these as text, below the headline of the capture."""
    yield inputs.of_trace(trace)
    shown = Shown(trace, diagnosis, choice)
    if diagnosis.headline and not shown.is_requested:
        yield Section("", ("", diagnosis.headline.text))
    yield from sections_of_groups(trace, diagnosis, by, choice.sessions, choice.top)


def sections(trace: TraceTables, diagnosis: Diagnosis, choice: ShowOptions) -> Iterator[Section]:
    """The diagnosis as text: headlines, what to do, and where the time went; all details where they are asked for."""
    shown = Shown(trace, diagnosis, choice)
    yield inputs.of_trace(trace)
    if not shown.subjects:
        yield Section("", ("no iSCSI session was found",))
    yield Section("", ("", *_verdicts(diagnosis, shown)))
    if steps := _steps(shown):
        yield Section("What to do", tuple(steps))
    yield from shown.others()
    yield from inputs.sections_of_places(inputs.places_of(trace))
    yield from _in_detail(shown) if choice.is_verbose else _in_brief(shown)
    yield from (_streams(job, choice.top) for job in shown.jobs)
    losses = capture_health.reaching(capture_health.by_name(trace.counters), "data_loss")
    if losses:
        yield Section("", (inputs.counters(losses),))


def overview(groups: Sequence[tuple[Sequence[str], Headline | None, str]]) -> Section:
    """One line for each group of captures: its first capture, the verdict, the finding that leads and its sentence.

    Of each ``groups`` has the captures, the headline where there is iSCSI, and why it could not be read.
    """
    columns = ("verdict", "finding", "lost s", "headline")
    rows = [
        (
            sources,
            *((headline.kind, headline.name, cells.seconds(headline.cost_ns)) if headline else (None, None, None)),
            headline.text if headline else error or "no iSCSI",
        )
        for sources, headline, error in groups
    ]
    return inputs.overview(columns, rows)


def lines_of_sessions(diagnosis: Diagnosis, shown: Shown) -> Iterator[Section]:
    """One line for each story and session: the verdict, the finding that leads, its cost and its sentence, which stands
    once for sessions with the same story.
    """
    told = [(story.label, story.headline) for story in shown.unanswered]
    told += [(label, opinion.headline) for label, opinion in shown.subjects]
    first: dict[str, str] = {}
    rows = []
    for label, headline in told:
        of = first.setdefault(headline.text, label)
        text = headline.text if of == label else f"as {of}"
        rows.append((label, headline.kind, headline.name, cells.seconds(headline.cost_ns), text))
    yield Section("", (table(("session", "verdict", "finding", "lost s", "headline"), rows),))
    yield from shown.others()


_STEPS: Final = 3
"""The most advice of one output."""


def _steps(shown: Shown) -> list[str]:
    """What to do: of each finding that leads the first step, the worst session first, then their further steps."""
    told = [(story.headline, story.findings) for story in shown.unanswered]
    ranked = sorted((opinion for _, opinion in shown.subjects), key=lambda each: weight(each.headline, each.jobs_ns))
    told += [(opinion.headline, opinion.findings) for opinion in reversed(ranked)]
    steps = [
        (place, advice, gains)
        for headline, findings in told
        for finding in to_act_on(headline, findings)
        for place, (advice, gains) in enumerate(finding.gains_by_advice())
    ]
    words: dict[str, str] = {}
    for _, advice, gains in sorted(steps, key=lambda each: each[0]):
        words.setdefault(advice.text, _with_notes(advice.text, notes_on(advice, gains)))
    return [f"  {number}. {step}" for number, step in enumerate([*words.values()][:_STEPS], start=1)]


def _with_notes(step: str, notes: str) -> str:
    return f"{step} ({notes})" if notes else step


def _in_brief(shown: Shown) -> Iterator[Section]:
    """Where the time went, and what else was found: a line each."""
    lines = []
    subjects = [*shown.together()]
    for subject in subjects:
        start = f"{subject.label}: " if len(subjects) > 1 or len(subject.sessions) > 1 else ""
        if subject.time and subject.time.jobs_ns:
            beside = "".join(f"; beside it {each}" for each in _closed(subject.findings))
            lines.append(f"{start}I/O time {cells.seconds(subject.time.jobs_ns)} s: {_parts(subject.time)}{beside}")
        lead = subject.headline.finding
        if lead and lead.display_filter:
            lines.append(f"{start}see {lead.display_filter}")
        others = [each for each in subject.findings if not lead or each.name != lead.name]
        if subject.headline.kind == "healthy":
            # the parts of its time stand above
            others = [each for each in others if each.severity != "info"]
        if others:
            named = ", ".join(_named(each, subject) for each in others)
            lines.append(f"{start}also found (-v): {named}")
    if lines:
        yield Section("", ("", *lines))


def _parts(time: Budget) -> str:
    """``network RTT 60 %, target service 30 %, ...``, the largest first."""
    parts = sorted(((share, part) for part, share in time.shares.items() if share >= _LEAST_PART), reverse=True)
    return ", ".join(f"{BY_NAME[part].label} {wording.percent(share)}" for share, part in parts)


_LEAST_PART: Final = 0.01
"""Share from which a part is in the short list."""


def _named(finding: Finding, subject: Subject) -> str:
    """``slow_target (22 %)``; where the share is of one session of several, ``slow_target (22 % of session 1)``."""
    if not finding.cost_in_words:
        return finding.name
    is_of_one = finding.rank != "failure" and len(finding.sessions) == 1 < len(subject.sessions)
    return f"{finding.name} ({finding.cost_in_words}{f' of session {finding.sessions[0]}' if is_of_one else ''})"


def _in_detail(shown: Shown) -> Iterator[Section]:
    """Each time breakdown as a table, and each finding with its sentence, advice and frames."""
    remedies = Remedies()
    for subject in shown.together():
        if len(subject.sessions) > 1:
            yield from _time(subject.label, subject.time, subject.findings)
    # what was found of connects without a session has no other place
    for story in shown.unanswered:
        yield _findings(story.label, story.findings, story.findings, remedies, story.story.numbers)
    of_stories: set[int] = set()
    for label, opinion in shown.in_full:
        yield from _time(label, opinion.time, opinion.findings)
        new = [finding for finding in opinion.findings if id(finding) not in of_stories]
        if new:
            yield _findings(label, new, opinion.findings, remedies)
        # sessions of one story share its findings, which are shown once
        of_stories.update(map(id, opinion.findings))


def _verdicts(diagnosis: Diagnosis, shown: Shown) -> Iterator[str]:
    """Each headline once, that of what broke first; one of those that differ by their number alone."""
    worst = diagnosis.headline
    first = [worst] if worst and worst.severity == "error" and not shown.is_requested else []
    said = dict.fromkeys(each.text for each in (*first, *(story.headline for story in shown.unanswered)))
    yield from said
    headlines = {label: opinion.headline for label, opinion in shown.subjects}
    for label, others in shown.alike.items():
        # a problem of its session may not show in a single connection
        if worst and worst.kind != "healthy" and headlines[label].kind == "healthy" and label.startswith("connection"):
            continue
        if headlines[label].text not in said:
            yield headlines[label].text
        if others:
            kind, _ = label.split()
            listed = cells.numbers([other.split()[1] for other in others], LISTED)
            yield f"    Same verdict for {wording.count(len(others), f'more {kind}', f'more {kind}s')}: {listed}."


_EXCLUDED: Final = {
    "idle": "idle gaps between bursts of I/O",
    "scan": "the device scan and its pauses",
    "flush": "SYNCHRONIZE CACHE",
}
"""Of the time from first command to last status what is not I/O time, by its use."""


def _time(label: str, time: Budget | None, findings: Sequence[Finding]) -> Iterator[Section]:
    if not time or not time.jobs_ns:
        return
    excluded = [f"{_EXCLUDED[use]} {cells.seconds(amount)} s" for use, amount in time.uses_ns.items() if amount]
    yield Section(
        f"Time breakdown of {label}: {cells.seconds(time.jobs_ns)} s of I/O time",
        (
            *([f"excluded: {', '.join(excluded)}"] if excluded else []),
            *(f"beside it: {each}" for each in _closed(findings)),
            *breakdown(label, time, findings),
        ),
    )


def _closed(findings: Sequence[Finding]) -> Iterator[str]:
    """The time in which no command could be in flight, and so none of the breakdown: the window was closed."""
    for finding in findings:
        if finding.problem is PROTOCOL_VIOLATION and finding.cost_ns:
            yield f"{cells.seconds(finding.cost_ns)} s in which the closed command window let no command pass"


def breakdown(label: str, time: Budget | None, findings: Sequence[Finding]) -> tuple[Breakdown, ...]:
    """The busy time by cause; nothing where there is none. Where something broke, no part of it is the limiter."""
    if not time or not time.jobs_ns:
        return ()
    limiter = None if broke(findings) else time.limiter
    beside = "".join(f"; beside it {each}" for each in _closed(findings))
    parts = tuple(
        TimeShare(
            name=BY_NAME[part].label,
            meaning=BY_NAME[part].meaning,
            share=time.shares[part],
            ms=cells.milliseconds(amount),
            color=BY_NAME[part].color,
            is_limiter=part == limiter,
        )
        for part, amount in time.parts_ns.items()
        if amount
    )
    return (Breakdown(f"Time breakdown of {label}{beside}", parts),)


def _findings(
    label: str,
    findings: Sequence[Finding],
    every: Sequence[Finding],
    remedies: Remedies,
    sessions: Sequence[int] = (),
) -> Section:
    """Those of ``every`` finding that were not told before."""
    has_shares = any(each.share and each.rank != "failure" for each in findings)
    return Section(
        f"Findings of {label}" + (", in percent of the I/O time" if has_shares else ""),
        (remedies.told(findings, label, sessions, is_only_told=broke(every) is not None),),
    )


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
        f"Parallel connections: Jain's fairness index {job.jain:.3f}; the last one finished {behind} s after the first "
        f"and ran alone for {alone} % of the time",
        (table(columns, rows, notes=_finished(len(job.streams) - top)),),
    )


def _finished(count: int) -> tuple[str, ...]:
    """The note on the streams that finished before those of the table."""
    return (f"{wording.count(count, 'connection')} finished before these.",) if count > 0 else ()
