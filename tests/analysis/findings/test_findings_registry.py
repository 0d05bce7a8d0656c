"""Declarations of problems: each is registered, within its scope, and each advice keeps its what-if."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from iscsitrace.analysis import findings
from iscsitrace.analysis.findings import gains, registry
from iscsitrace.analysis.findings.case import Case, Groups
from iscsitrace.analysis.findings.distance import QUEUE_DEPTH_LOW
from iscsitrace.analysis.findings.finding import Advice, Explains, Found, Observation, Problem, anywhere, in_order
from iscsitrace.analysis.findings.registry import FAMILIES, PROBLEMS, STORY_FAMILIES
from iscsitrace.analysis.measures.budget import PARTS
from iscsitrace.analysis.session.grouping import Grouping, sessions_and_connections_of
from tests.support.story import Story
from tests.support.tables_by_hand import MS


def cases(story: Story) -> tuple[Case, Case]:
    """The session of a story, and its one connection."""
    source = story.source()
    sessions, connections = sessions_and_connections_of(source)
    groups = Groups((), (), source("cycles"))
    return Case(sessions[0], groups), Case(connections[3], groups)


def classic() -> Story:
    """Reads one at a time, each with an RTT of 20 ms."""
    return Story(rtt_to_target_ns=20 * MS).tasks(20, ("propagation", 20 * MS))


# --- the registry


def test_every_family_is_registered() -> None:
    modules = [import_module(f"{findings.__name__}.{each.name}") for each in pkgutil.iter_modules(findings.__path__)]
    families = {each.__name__ for each in modules if each is not registry and hasattr(each, "PROBLEMS")}
    assert {family.__name__ for family in (*FAMILIES, *STORY_FAMILIES)} == families


def test_every_problem_of_a_family_is_registered_once() -> None:
    declared = [
        value
        for family in (*FAMILIES, *STORY_FAMILIES)
        for value in vars(family).values()
        # a family may name the problem of another
        if isinstance(value, Problem) and value.tell.__module__ == family.__name__
    ]
    assert sorted(problem.name for problem in declared) == sorted(PROBLEMS)
    assert all(PROBLEMS[problem.name] is problem for problem in declared)


def test_only_exclusive_problems_of_a_part_are_equally_specific() -> None:
    explained = [problem.explains for problem in PROBLEMS.values() if problem.explains]
    assert {each.part for each in explained} <= set(PARTS)
    # of these a subject has one at most
    exclusive = [Explains("receive_window"), Explains("congestion_window"), Explains("transfer")]
    assert sorted(each.part for each in explained if explained.count(each) > 1) == sorted(
        each.part for each in exclusive * 2
    )


def test_problems_of_equal_share_follow_the_order_of_the_docs() -> None:
    found = classic().opinion().findings
    assert [finding.name for finding in found] == ["queue_depth_low", "block_size_small"]
    assert registry.in_declared_order(reversed(in_order(found))) == found


# --- scope


@pytest.mark.parametrize("is_session_only", [True, False])
def test_problems_of_sessions_are_not_reported_for_connections(is_session_only: bool) -> None:
    def observe(case: Case) -> Observation:
        return Observation("seen", [7], case.subject.jobs_ns / 4)

    problem = replace(QUEUE_DEPTH_LOW, tell=observe, is_session_only=is_session_only)
    session, connection = (problem.find(case) for case in cases(classic()))
    assert session
    assert (session.share, session.severity, session.frames, session.cause) == (0.25, "warning", (7,), "Seen.")
    assert (connection is None) == is_session_only


def test_a_problem_is_looked_for_only_where_its_part_takes_its_least_share() -> None:
    facts = Grouping(classic().source()).sessions.facts
    (share,) = facts.share(facts.part_ns("propagation"))
    assert 0 < share <= 1
    for least, is_found in ((share, True), (float(np.nextafter(share, 2)), False)):
        explains = Explains("propagation", least=least)
        for where in (anywhere, lambda facts: Found(anywhere(facts))):
            decided, (sought,) = registry.look(facts, [replace(QUEUE_DEPTH_LOW, where=where, explains=explains)])
            assert bool(decided or sought) == is_found


def test_the_scopes() -> None:
    assert {name for name, problem in PROBLEMS.items() if problem.is_session_only} == {
        *("command_window_closed", "uneven_connections", "path_imbalance", "mirror_waits_for_farthest", "slow_lun"),
    }


# --- advice and its what-if


def test_a_gain_stays_with_its_advice_when_another_is_inserted() -> None:
    case, _ = cases(classic())
    (plain, *_) = gains.with_gains(lambda: case, [finding for finding in [QUEUE_DEPTH_LOW.find(case)] if finding])
    problem = replace(QUEUE_DEPTH_LOW, advice=(Advice("Buy a faster network."), *QUEUE_DEPTH_LOW.advice))
    (longer, *_) = gains.with_gains(lambda: case, [finding for finding in [problem.find(case)] if finding])
    own = QUEUE_DEPTH_LOW.advice[0]
    for finding, place in ((plain, 0), (longer, 1)):
        # one RTT per command, and nothing else: eight at once have eight times the throughput
        first = finding.gains[0]
        assert (first.advice, first.change, first.throughput_factor) == (own, "queue depth 8", pytest.approx(8))
        assert [each["advice"] for each in finding.as_dict()["gains"]] == [place] * len(finding.gains)
        assert [bool(of) for _, of in finding.gains_by_advice()] == [False] * place + [True, False, False]
    assert longer.gains == plain.gains
    assert longer.advice[0] == "Buy a faster network."


def test_the_first_what_if_comes_first_and_keeps_its_index() -> None:
    case, _ = cases(classic())
    depth, *others = QUEUE_DEPTH_LOW.advice
    first = Advice("Try this first.", depth.what_if, is_tried_first=True)
    (found,) = gains.with_gains(
        lambda: case,
        [finding for finding in [replace(QUEUE_DEPTH_LOW, advice=(depth, *others, first)).find(case)] if finding],
    )
    places = [each["advice"] for each in found.as_dict()["gains"]]
    assert places == sorted(places, reverse=True)
    assert set(places) == {0, 3}
    assert found.as_dict()["gain"]["advice"] == 3
