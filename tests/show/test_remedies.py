"""Advice in words: each remedy once, its gains by the model, and no gain that is not believed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from iscsitrace.findings.finding import Advice, AdviceGain, Finding
from iscsitrace.show import diagnose
from iscsitrace.show.diagnose import Remedies

SHARED, OWN, OTHER = Advice("Use more connections."), Advice("Raise the window."), Advice("Find the loss.")


def finding(name: str, *advice: Advice, found: tuple[AdviceGain, ...] = ()) -> Finding:
    problem: Any = SimpleNamespace(name=name, advice=advice)
    return Finding(problem, "warning", 0.5, "text", (), predict=lambda _: found)


def gain(factor: float, low: float | None = None, high: float | None = None, advice: Advice = SHARED) -> AdviceGain:
    return AdviceGain("4 connections", factor, low or factor, high or factor, advice)


def test_a_remedy_is_said_once_and_then_referred_to() -> None:
    said = Remedies()
    assert said.steps(finding("window_small", OWN, SHARED, found=(gain(2.0),)), "session 0") == [
        ("Raise the window.", ""),
        ("Use more connections.", "model: up to 2.0x with 4 connections"),
    ]
    # another finding of the session, with a gain of its own
    assert said.steps(finding("loss", SHARED, OTHER, found=(gain(3.0),)), "session 0") == [
        ("Find the loss.", ""),
        ("See window_small.", "model: up to 3.0x with 4 connections"),
    ]
    # the same findings of another session
    assert said.steps(finding("loss", SHARED, OTHER), "session 1") == [
        ("See window_small of session 0.", ""),
        ("See loss of session 0.", ""),
    ]
    assert said.steps(finding("window_small", OWN, SHARED), "session 1") == [("See window_small of session 0.", "")]


def test_the_gain_of_a_remedy_is_shown_once_for_each_session() -> None:
    said = Remedies()
    for label in ("session 0", "session 1"):
        (first,) = said.steps(finding("window_small", SHARED, found=(gain(2.0),)), label)
        (again,) = said.steps(finding("loss", SHARED, found=(gain(2.0),)), label)
        assert (first[1], again[1]) == ("model: up to 2.0x with 4 connections", "")


def test_another_output_says_all_again() -> None:
    one = finding("loss", SHARED)
    assert Remedies().steps(one, "session 0") == Remedies().steps(one, "session 0") == [(SHARED.text, "")]


def test_a_range_is_shown_where_its_ends_differ_by_more_than_a_tenth() -> None:
    assert diagnose.gains_in_words([gain(20.0)]) == "model: up to 20.0x with 4 connections"
    assert diagnose.gains_in_words([gain(15.0, 15.0, 16.4)]) == "model: up to 15.0x with 4 connections"
    assert diagnose.gains_in_words([gain(15.0, 15.0, 16.6)]) == "model: about 15.0x (15.0x to 16.6x) with 4 connections"


def test_advice_says_what_it_touches_before_its_gains() -> None:
    careful = Advice("Restart it.", touches="ends all sessions")
    said = Remedies()
    assert said.steps(finding("old", careful), "session 0") == [("Restart it.", "ends all sessions")]
    assert Remedies().steps(finding("old", careful, found=(gain(2.0, advice=careful),)), "session 0") == [
        ("Restart it.", "ends all sessions; model: up to 2.0x with 4 connections")
    ]
    # where the remedy was said before, so was what it touches
    assert said.steps(finding("old", careful), "session 1") == [("See old of session 0.", "")]


def test_a_gain_as_json_names_its_advice() -> None:
    document = finding("loss", OWN, SHARED, found=(gain(2.0, 1.9, 2.1),)).as_dict()["gains"]
    assert document == [{"change": "4 connections", "throughput_factor": 2.0, "low": 1.9, "high": 2.1, "advice": 1}]
