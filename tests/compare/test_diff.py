"""`diff` of two captures: pairs that differ in one setting, which must explain the gap."""

from __future__ import annotations

import json
from math import isclose, log, prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.compare import differences, sides
from iscsitrace.compare.differences import ELSE, Explanation, explain
from iscsitrace.compare.sides import match, why_not
from iscsitrace.errors import InputInvalid
from iscsitrace.fit.situation import Measured, Situation
from iscsitrace.model.setting import Setting, Solicitation
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.hangs import SOURCE, cut_in_a_read
from tests.support.runs import Runs

MS = 1_000_000
PATH = "--one-way-delay 4ms --rate 320Mbit"
READ = f"read --block-size 64K --bytes 8M {PATH}"
SOLICITED = "--key InitialR2T=Yes --key ImmediateData=No --key FirstBurstLength=65536"
WRITE = f"write --block-size 256K --bytes 16M {PATH}"
AT_ONCE = "--key MaxOutstandingR2T=4 --set target-key=MaxOutstandingR2T=4"

# what differs -> the two runs
PAIRS = {
    "block_bytes": (READ, f"read --block-size 512K --bytes 24M {PATH}"),
    "queue_depth": (READ, f"{READ} --queue-depth 8 --bytes 24M"),
    "delay_ns": (READ, "read --block-size 64K --bytes 8M --one-way-delay 1ms --rate 320Mbit"),
    "c_bytes_per_s": (
        f"read --block-size 1M --bytes 16M {PATH}",
        f"read --block-size 1M --bytes 16M {PATH} --rate 1Gbit",
    ),
    "window_bytes": (
        f"read --block-size 1M --bytes 24M --set receive-buffer=64K {PATH}",
        f"read --block-size 1M --bytes 24M --set receive-buffer=2M {PATH}",
    ),
    "is_status_held": (f"{READ} --set status=apart-held", READ),
    "loss": (f"{READ} --set to-initiator-loss=1%", READ),
    "target_service": (f"{READ} --service-delay 5ms", READ),
    "initiator_think": (f"{READ} --think-time 5ms", READ),
    "MaxBurstLength": (
        f"{WRITE} {SOLICITED} --key MaxBurstLength=65536",
        f"{WRITE} {SOLICITED} --key MaxBurstLength=262144",
    ),
    "MaxOutstandingR2T": (
        f"{WRITE} {SOLICITED} --key MaxBurstLength=65536",
        f"{WRITE} {SOLICITED} --key MaxBurstLength=65536 {AT_ONCE}",
    ),
    "InitialR2T": (
        "write --block-size 64K --bytes 8M --key InitialR2T=Yes --key ImmediateData=No --key FirstBurstLength=65536 "
        + PATH,
        "write --block-size 64K --bytes 8M --key InitialR2T=No --key ImmediateData=No --key FirstBurstLength=65536 "
        + PATH,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def only_side(capture: Path) -> sides.Side:
    (side,) = sides.sides_of(iscsitrace.read(capture, tables=sides.NEEDED).table).values()
    return side


def explained(one: Path, other: Path) -> Explanation:
    a, b = only_side(one), only_side(other)
    assert why_not(a, b) is None
    assert a.measured
    assert b.measured
    return explain(a.measured, b.measured)


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize("name", PAIRS)
def test_the_only_difference_explains_the_gap(runs: Runs, name: str, tap: str) -> None:
    slow, fast = (runs(options) for options in PAIRS[name])
    found = explained(slow.capture(tap), fast.capture(tap))
    assert found.factor == pytest.approx(fast.throughput / slow.throughput, rel=0.05)
    shares = {each.name: each.share for each in found.differences}
    assert 0.9 <= (shares[name] or 0) <= 1.1, shares
    assert abs(found.unexplained_share or 0) <= 0.1


def test_swapping_the_captures_gives_the_reciprocal(runs: Runs) -> None:
    slow, fast = (runs(options).capture() for options in PAIRS["block_bytes"])
    there, back = explained(slow, fast), explained(fast, slow)
    assert isclose(there.factor * back.factor, 1)
    others = {each.name: each.factor for each in back.differences}
    for each in there.differences:
        assert isclose(each.factor * others[each.name], 1, rel_tol=1e-9)


def test_a_run_compared_with_itself_has_no_gap(runs: Runs) -> None:
    capture = runs(READ).capture()
    found = explained(capture, capture)
    assert (found.factor, found.model_factor, found.differences) == (1, 1, ())
    assert found.unexplained_share is None


# --- shares, on synthetic settings


def situations(operation: str, depth: int) -> st.SearchStrategy[Situation]:
    solicitations = st.builds(
        Solicitation,
        is_initial_r2t=st.booleans(),
        is_immediate_data=st.booleans(),
        first_burst_bytes=st.sampled_from([8_192, 65_536]),
        max_burst_bytes=st.sampled_from([65_536, 262_144]),
        max_outstanding_r2t=st.integers(1, 3),
    )
    return st.builds(
        lambda waits, stalls, **of_setting: Situation(Setting(operation, **of_setting), waits, stalls),
        waits=st.fixed_dictionaries({"target_service": st.integers(0, 10 * MS)}),
        stalls=st.fixed_dictionaries({"loss": st.floats(0, 100), "slow_start": st.floats(0, 10)}),
        block_bytes=st.sampled_from([4_096, 65_536, 1_048_576]),
        delay_ns=st.integers(100_000, 20 * MS),
        c_bytes_per_s=st.sampled_from([1e7, 4e7, 1e8]),
        queue_depth=st.integers(1, depth),
        connections=st.integers(1, 2),
        window_bytes=st.sampled_from([None, 65_536, 1_048_576]),
        solicitation=solicitations,
    )


def measured(situation: Situation, remainder: float = 1.0) -> Measured:
    return Measured(situation, situation.throughput() * remainder, 1, {}, 1, 1)


# each example needs hundreds of predictions, which are slow for several concurrent writes
@pytest.mark.parametrize(("operation", "depth"), [("read", 16), ("write", 1)])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), remainder=st.floats(0.5, 2))
def test_factors_multiply_to_the_whole_gap(operation: str, depth: int, data: st.DataObject, remainder: float) -> None:
    a, b = data.draw(situations(operation, depth)), data.draw(situations(operation, depth))
    one, other = measured(a), measured(b, remainder)
    found = explain(one, other)
    assert isclose(prod(each.factor for each in found.differences), found.model_factor, rel_tol=1e-6)
    assert isclose(found.model_factor, b.throughput() / a.throughput(), rel_tol=1e-6)
    assert isclose(found.unexplained_factor, remainder, rel_tol=1e-6)
    if found.unexplained_share is not None:
        shares = [each.share for each in found.differences]
        assert isclose(sum(share or 0 for share in shares) + found.unexplained_share, 1, abs_tol=1e-6)
    assert len(found.differences) <= differences.MOST


@pytest.mark.parametrize(("remainder", "share"), [(1.0203, 1.0), (1.0201, None), (1 / 1.0203, 1.0), (1 / 1.0201, None)])
def test_throughputs_within_two_percent_are_equal(remainder: float, share: float | None) -> None:
    """The logarithm of 1.0202 is 0.02: no difference has a share of so small a gap."""
    a = Situation(Setting("read", 65_536, 4 * MS, 4e7))
    found = explain(measured(a), measured(a, remainder))
    assert found.unexplained_share == (None if share is None else pytest.approx(share))


def test_shares_are_shares_of_the_logarithm_of_the_gap() -> None:
    """A factor of two by the queue and a factor of two that the model does not explain have equal shares."""
    a = Situation(Setting("read", 65_536, 4 * MS))
    (queue,) = (found := explain(measured(a), measured(a.with_setting(queue_depth=2), 2.0))).differences
    assert (queue.name, queue.factor, queue.share) == ("queue_depth", pytest.approx(2), pytest.approx(0.5))
    assert found.factor == pytest.approx(4)
    assert found.unexplained_share == pytest.approx(0.5)


def test_two_settings_that_only_help_together_have_equal_shares() -> None:
    """With either setting alone one R2T round remains; both together save it."""
    keys = Solicitation(is_immediate_data=False, first_burst_bytes=65_536, max_recv_data_segment_bytes=65_536)
    a = Situation(Setting("write", 65_536, 4 * MS, 4e7, solicitation=keys))
    b = a.with_keys(is_initial_r2t=False).with_setting(queue_depth=2)
    found = {each.name: each.factor for each in explain(measured(a), measured(b)).differences}
    # 4 delays and the line time before, 2 delays after; half of that with two commands in flight
    line_ns = 65_536 / 4e7 * 1e9
    alone, together = (16 * MS + line_ns) / (8 * MS + line_ns), 2.0
    assert found == {"InitialR2T": pytest.approx(alone), "queue_depth": pytest.approx(together)}


def test_a_value_unknown_on_one_side_is_no_difference() -> None:
    a = Situation(Setting("read", 65_536, 4 * MS), open_names=frozenset({"c_bytes_per_s"}))
    b = Situation(Setting("read", 65_536, 4 * MS, 4e7))
    assert explain(measured(a), measured(b)).differences == ()


def test_many_differences_are_summed_as_one(runs: Runs) -> None:
    a = Situation(Setting("write", 65_536, 4 * MS, 4e7), {"target_service": 0.0}, {"loss": 0.0})
    b = Situation(
        Setting("write", 70_000, 5 * MS, 5e7, queue_depth=2, connections=2, window_bytes=10**6, segment_bytes=1_000),
        {"target_service": 1e6, "initiator_think": 1e6, "ack_wait": 1e5},
        {"loss": 5.0, "slow_start": 2.0},
    ).with_keys(max_burst_bytes=65_536, first_burst_bytes=8_192)
    found = explain(measured(a), measured(b)).differences
    assert len(found) == differences.MOST
    assert found[-1].name == ELSE
    assert abs(log(found[-1].factor)) < min(abs(log(each.factor)) for each in found[:3])


# --- which sessions


def side(number: int, operation: str = "read", target: str | None = "disk", moved: int = 1_000) -> sides.Side:
    return sides.Side(
        session=number,
        initiator_name="host",
        target_name=target,
        operation=operation,
        measured=None,
        task_count=7,
        incomplete_count=0,
        without_status_count=0,
        bytes=moved,
        pace_bytes_per_s=1.0,
        block_sizes={},
        block_bytes=512,
        queue_depth=1,
        connection_count=1,
        parts_ns={},
        jobs_ns=1,
        path_ns=1,
        line_bytes_per_s=None,
        window_bytes=None,
        packet_count=1,
        retransmitted_packet_count=0,
        loss_count=0,
        latency_ns={},
        keys={},
    )


def numbers(*listed: sides.Side) -> dict[int, sides.Side]:
    return {each.session: each for each in listed}


def test_sessions_with_the_same_work_are_compared() -> None:
    a = numbers(side(0, "write", moved=5_000), side(1, "read"), side(2, "read", "other", 900))
    b = numbers(side(0, "read", "other"), side(3, "read", "third", 4_000))
    found = match(a, b)
    assert [each.session for each in found] == [2, 0], "same operation, same target"
    found = match(a, numbers(side(3, "read", "third", 4_000)))
    assert [each.session for each in found] == [1, 3], "the busiest reader"
    found = match(a, numbers(side(3, "write", "third", 4_000)))
    assert [each.session for each in found] == [0, 3]
    # a session that moved next to nothing is not meant
    assert match(numbers(side(0, "write", moved=5_000), side(1, moved=1)), b)[0].session == 0
    assert [each.session for each in match(a, b, 1, 3)] == [1, 3]


@pytest.mark.parametrize(
    ("a", "b", "number", "message"),
    [
        ([], [side(0)], None, "the first capture has no session that read or wrote data; diagnose says what it shows"),
        ([side(0)], [], None, "the second capture has no session that read or wrote data; diagnose says what it shows"),
        ([side(0), side(4)], [side(0)], 1, "the first capture has no session 1 that read or wrote data; it has 0, 4"),
    ],
)
def test_a_missing_session_is_reported(
    a: list[sides.Side], b: list[sides.Side], number: int | None, message: str
) -> None:
    with pytest.raises(InputInvalid, match=f"^{message}$"):
        match(numbers(*a), numbers(*b), number)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (side(0), side(1, "write"), "one session reads and the other writes: they are not comparable"),
        (side(0), side(1, "block"), "session 1 of the second capture mixes reads and writes"),
        (side(0), side(1), "session 0 of the first capture has only 7 complete reads: too few"),
    ],
)
def test_captures_that_cannot_be_compared_are_reported(a: sides.Side, b: sides.Side, reason: str) -> None:
    assert (why_not(a, b) or "").startswith(reason)


# --- the command


def diff(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["diff", *map(str, arguments)], catch_exceptions=False)


def test_the_command(runs: Runs) -> None:
    slow, fast = (runs(options).capture() for options in PAIRS["MaxBurstLength"])
    result = diff(slow, fast)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    verdict = next(line for line in lines if line.startswith("B is "))
    assert verdict.startswith("B is 2 times as fast as A: ")
    assert "MaxBurstLength 1" in verdict
    assert [line.split()[:3] for line in lines if line.startswith("MaxBurstLength ")] == [
        ["MaxBurstLength", "64", "KiB"],
        ["MaxBurstLength", "65536", "65536"],
    ]
    assert not any(line.startswith("InitialR2T") for line in lines), "that is alike"


def test_the_command_as_json(runs: Runs) -> None:
    slow, fast = (runs(options).capture() for options in PAIRS["queue_depth"])
    document: dict[str, Any] = json.loads(diff("--json", slow, fast).stdout)
    assert list(document) == ["schema", "tool", "a", "b", "keys", "gap", "not_comparable", "places"]
    assert document["not_comparable"] is None
    a, b = document["a"], document["b"]
    assert (a["input"][0]["name"], b["input"][0]["name"]) == (str(slow), str(fast))
    assert (a["queue_depth"], b["queue_depth"]) == (1, 8)
    assert a["block_sizes"] == [{"bytes": 65_536, "task_count": 128}]
    for each in (a, b):
        assert sum(part["ns"] for part in each["time_breakdown"].values()) == each["jobs_ns"]
        assert each["budget"] == each["time_breakdown"]
        assert each["one_way_delay_ns"] == pytest.approx(4 * MS, rel=0.01)
        assert set(each["latency_ns"]) == {"n", "p50", "p95", "p99", "max"}
        assert (each["latency_ns"]["n"], each["incomplete_count"]) == (each["task_count"], 0)
        assert each["without_status_count"] == 0
    gap = document["gap"]
    assert gap["differences"][0]["name"] == "queue_depth"
    assert gap["throughput_factor"] == pytest.approx(b["pace_bytes_per_s"] / a["pace_bytes_per_s"])


def test_what_broke_in_a_capture_comes_before_the_gap() -> None:
    """An outage is no part of the gap, so that the answer alone would hide it; what is slow is the answer's."""
    broken = SOURCE.parents[1] / "black-out-and-relogin" / "capture.pcapng.gz"
    document: dict[str, Any] = json.loads(diff("--json", SOURCE, broken).stdout)
    a, b = (document[name]["headline"] for name in ("a", "b"))
    told = json.loads(CliRunner().invoke(main, ["diagnose", "--json", str(broken)]).stdout)["headline"]
    assert (a["severity"] == "error", b) == (False, told)
    assert b["severity"] == "error"
    text = diff(SOURCE, broken).stdout
    assert text.index(f"B: {b['text']}\n") < text.index("Causes of the gap")
    assert a["text"] not in text


def test_commands_without_a_status_are_counted_on_each_side(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcapng"
    cut_in_a_read(cut)
    document: dict[str, Any] = json.loads(diff("--json", SOURCE, cut).stdout)
    assert [document[name]["without_status_count"] for name in ("a", "b")] == [0, 1]
    assert "without a status 0 commands 1 command" in [
        " ".join(line.split()) for line in diff(SOURCE, cut).stdout.splitlines()
    ]


def test_the_delay_is_shown_as_the_rtt_that_one_tap_measures(runs: Runs) -> None:
    """4 ms and 1 ms each way."""
    result = diff(*(runs(options).capture() for options in PAIRS["delay_ns"]))
    (row,) = [line.split()[:5] for line in result.stdout.splitlines() if line.startswith("RTT ")][:1]
    assert row == ["RTT", "8.0", "ms", "2.0", "ms"]
    assert "one-way" not in result.stdout


def test_different_keys_are_shown_with_their_offers(runs: Runs) -> None:
    one, other = (runs(options).capture() for options in PAIRS["MaxOutstandingR2T"])
    (key,) = json.loads(diff("--json", one, other).stdout)["keys"]
    assert key == {
        "key": "MaxOutstandingR2T",
        "a": {"initiator": "1", "target": "1", "in_force": "1"},
        "b": {"initiator": "4", "target": "4", "in_force": "4"},
    }


def test_reads_compared_with_writes(runs: Runs) -> None:
    result = diff(runs(READ).capture(), runs(PAIRS["MaxBurstLength"][0]).capture())
    assert result.exit_code == 0
    assert "one session reads and the other writes: they are not comparable." in result.stdout
    assert "What explains it" not in result.stdout
    assert "Side by side" in result.stdout


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture with a login and nothing else."""
    conversation = Conversation()
    conversation.session(Session()).login().logout()
    capture = conversation.run()
    return write_pcapng(tmp_path_factory.mktemp("poor") / "poor.pcapng", capture.packets, capture.path.link_type)


def test_a_capture_without_commands_is_a_one_line_error(runs: Runs, poor: Path) -> None:
    for arguments, which in (((poor, runs(READ).capture()), "first"), ((runs(READ).capture(), poor), "second")):
        result = diff(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert (
            result.stderr
            == f"iscsitrace: the {which} capture has no session that read or wrote data; diagnose says what it shows\n"
        )


def test_the_same_file_twice_by_session(runs: Runs) -> None:
    capture = runs(READ).capture()
    assert "A and B have the same pace: " in diff(capture, capture, "--session-a", "0", "--session-b", "0").stdout
    result = diff(capture, capture, "--session-b", "7")
    assert result.exit_code == 2
    assert result.stderr == "iscsitrace: the second capture has no session 7 that read or wrote data; it has 0\n"
    assert diff("-", "-").exit_code == 2
