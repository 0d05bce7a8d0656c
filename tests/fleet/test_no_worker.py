"""What a run does when no worker is left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.fleet import cluster, run
from iscsitrace.fleet.plan import Place
from iscsitrace.fleet.taps import Tap

LOOKS = 20


def looking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: list[bool], scheduler: str | None) -> list[str]:
    """What a run says while its only task waits, and a worker is or is not there at each look."""
    said: list[str] = []
    looks = iter(there)
    client: Any = SimpleNamespace(status="running", submit=lambda *_, **__: "task")
    monkeypatch.setattr(cluster, "resource_of", lambda *_: {})
    monkeypatch.setattr(cluster, "has_worker", lambda *_: next(looks))
    place = Place(tmp_path, "1", ("cycles",), "1", 1)
    tap = Tap("a", ())
    own = run._Run(client, place, [tap], run.Watch(say=said.append), scheduler)
    try:
        for _ in range(len(there) * run._PATIENCE):
            own._check_workers()
    except InputInvalid as error:
        said.append(str(error))
    return said


def test_a_cluster_of_this_machine_without_workers_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    *waits, last = looking(monkeypatch, tmp_path, [False] * LOOKS, None)
    assert waits == ["tap a waits for a worker"] * 6
    assert last == "no worker runs any more; the same command goes on where this one ended"


def test_a_worker_that_starts_again_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = [*[False] * 5, True] * 3
    assert looking(monkeypatch, tmp_path, there, None) == ["tap a waits for a worker"] * 15


def test_an_existing_cluster_may_get_workers_at_any_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = [False] * LOOKS
    assert looking(monkeypatch, tmp_path, there, "tcp://127.0.0.1:1") == ["tap a waits for a worker"] * LOOKS
