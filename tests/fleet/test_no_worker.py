"""What a cluster says when no worker reads a tap."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.fleet import dask_cluster
from iscsitrace.fleet.dask_cluster import DaskCluster

LOOKS = 3


def looking(workers: list[dict[str, Any]], later: list[dict[str, Any]]) -> list[str]:
    """What is said while the only task waits: with these workers when it is submitted, and those at each look."""
    said: list[str] = []
    there = dict(enumerate(workers))
    client: Any = SimpleNamespace(
        status="running", dashboard_link="", submit=lambda *_, **__: "task",
        scheduler_info=lambda **_: {"workers": there},
    )  # fmt: skip
    cluster = DaskCluster(client, "tcp://127.0.0.1:1", said.append)
    cluster.submit("a", print)
    there.clear()
    there.update(enumerate(later))
    for _ in range(LOOKS * dask_cluster._PATIENCE):
        cluster._look_for_workers()
    client.status = "closed"
    for _ in range(dask_cluster._PATIENCE - 1):
        cluster._look_for_workers()
    with pytest.raises(InputInvalid, match=r"the scheduler tcp://127\.0\.0\.1:1 is lost; run the same command again"):
        cluster._look_for_workers()
    return said


@pytest.mark.parametrize("later", [[], [{"resources": {"tap-b": 1}}], [{}]])
def test_a_cluster_may_get_workers_at_any_time(later: list[dict[str, Any]]) -> None:
    named: list[dict[str, Any]] = [{"resources": {"tap-a": 1}}, {"resources": {"tap-b": 1}}]
    assert looking(named, later) == ["tap a waits for a worker"] * LOOKS
    assert looking(named, named) == []


def test_workers_that_name_no_tap_read_all() -> None:
    assert looking([{}], []) == ["tap a waits for a worker"] * LOOKS
    assert looking([{}], [{"resources": {"tap-b": 1}}]) == []
    with pytest.raises(InputInvalid, match="no worker reads tap a"):
        looking([{"resources": {"tap-b": 1}}], [])
