"""Declarations of problems: each is registered, within its scope, and each advice keeps its what-if."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from iscsitrace import findings
from iscsitrace.diagnosis import opinions, registry
from iscsitrace.diagnosis.examination import examine
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.findings.case import Case, Groups
from iscsitrace.findings.distance import BLOCK_SIZE_SMALL, QUEUE_DEPTH_LOW
from iscsitrace.findings.finding import DATA_AT_RISK, Advice, Explains, Found, Observation, Scope, anywhere, in_order
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.grouping import Grouping
from tests.support.story import Story
from tests.support.tables_by_hand import MS


def cases(story: Story) -> tuple[Case, Case]:
    """The session of a story, and its one connection."""
    source = story.source()
    grouping = Grouping(source)
    sessions, connections = dict(grouping.sessions), dict(grouping.connections)
    groups = Groups((), (), source("cycles"))
    return Case(sessions[0], groups), Case(connections[3], groups)


def classic() -> Story:
    """Reads one at a time, each with an RTT of 20 ms."""
    return Story(rtt_to_target_ns=20 * MS).tasks(20, ("propagation", 20 * MS))


# --- the registry


def test_every_problem_of_a_file_is_found() -> None:
    texts = [file.read_text() for file in Path(findings.__path__[0]).glob("*.py")]
    declared = [name for text in texts for name in re.findall(r'= Problem\(\s+name="(\w+)"', text)]
    assert len(declared) > 40
    assert sorted(declared) == sorted(PROBLEMS)


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


def test_a_problem_that_is_looked_at_has_the_share_of_its_cost() -> None:
    problem = replace(
        QUEUE_DEPTH_LOW, rank="slowness", tell=lambda case: Observation("seen", [7], case.subject.jobs_ns / 4)
    )
    for found in (problem.find(case) for case in cases(classic())):
        assert found
        assert (found.share, found.severity, found.frames, found.text) == (0.25, "warning", (7,), "Seen.")


def test_problems_of_sessions_are_not_reported_for_connections() -> None:
    named = {scope: {each.name for each in registry.of_scopes(scope)} for scope in get_args(Scope)}
    assert named["session"] == {
        *("command_window_closed", "uneven_connections", "path_imbalance", "mirror_waits_for_farthest", "slow_lun"),
    }
    diagnosis = examine(classic().source())
    assert {each.name for each in diagnosis.connections[3].findings} <= named["connection"]


def test_a_problem_is_looked_for_only_where_its_part_takes_its_least_share() -> None:
    facts = Grouping(classic().source()).sessions.facts
    (share,) = facts.share(facts.part_ns("propagation"))
    assert 0 < share <= 1
    for least, is_found in ((share, True), (float(np.nextafter(share, 2)), False)):
        explains = Explains("propagation", least=least)
        for where in (anywhere, lambda facts: Found(anywhere(facts))):
            decided, (sought,) = registry.look(facts, [replace(QUEUE_DEPTH_LOW, where=where, explains=explains)])
            assert bool(decided or sought) == is_found


# --- advice and its what-if


def test_a_gain_stays_with_its_advice_when_another_is_inserted() -> None:
    case, _ = cases(classic())
    (plain, *_) = opinions.with_gains(lambda: case, [finding for finding in [BLOCK_SIZE_SMALL.find(case)] if finding])
    problem = replace(BLOCK_SIZE_SMALL, advice=(Advice("Buy a faster network."), *BLOCK_SIZE_SMALL.advice))
    (longer, *_) = opinions.with_gains(lambda: case, [finding for finding in [problem.find(case)] if finding])
    # the first of its advice has no case here
    own = BLOCK_SIZE_SMALL.advice[1]
    for finding, place in ((plain, 0), (longer, 1)):
        # one RTT per command, and nothing else: one of twice the size has twice the throughput
        first = finding.gains[0]
        assert (first.advice, first.change, first.throughput_factor) == (own, "256 KiB I/O", pytest.approx(2))
        assert [each["advice"] for each in finding.as_dict()["gains"]] == [place] * len(finding.gains)
        assert [bool(of) for _, of in finding.gains_by_advice()] == [False] * place + [True]
    assert longer.gains == plain.gains
    assert longer.advice[0] == "Buy a faster network."


def test_advice_that_changes_a_setting_says_what_it_touches() -> None:
    changed = re.compile(r"\b(?:net|node)\.[a-z]|\bset (?:parameter|attribute)\b")
    # these look at a setting, or leave it as it is
    looks = ("Check", "Compare", "Keep", "Larger buffers", "Find", "No action")
    every = [(name, each) for name, problem in PROBLEMS.items() for each in problem.advice]
    setting = [(name, each) for name, each in every if changed.search(each.text) and not each.text.startswith(looks)]
    assert len(setting) > 20
    assert [(name, each.text) for name, each in setting if not each.touches] == []
    risky = {name for name, each in every if each.touches.startswith(DATA_AT_RISK)}
    assert risky == {"mirror_waits_for_farthest", "slow_operation"}


def test_the_first_what_if_comes_first_and_keeps_its_index() -> None:
    case, _ = cases(classic())
    _, larger, *others = BLOCK_SIZE_SMALL.advice
    first = Advice("Try this first.", larger.what_if, is_tried_first=True)
    (found,) = opinions.with_gains(
        lambda: case,
        [finding for finding in [replace(BLOCK_SIZE_SMALL, advice=(larger, *others, first)).find(case)] if finding],
    )
    places = [each["advice"] for each in found.as_dict()["gains"]]
    assert places == sorted(places, reverse=True)
    # the second of its advice has no case here
    assert set(places) == {0, 1}
    assert found.as_dict()["gain"]["advice"] == 1
