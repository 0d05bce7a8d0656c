"""The score of the analysis: how two scores compare, what totals count, and what a recording knows of its senders."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.budget.cases import Case
from bench.recordings import Recording, recordings
from bench.score import settings
from bench.score.comparison import compare, load, save, shared, totals, verdict
from bench.score.known import Limited, of_case
from bench.score.rows import BOTH, COLUMNS, Quantity, Row, of_run

ERROR = Quantity("an error", noise=1)
SHARE = Quantity("a share", noise=1, is_more_better=True)
FLAG = Quantity("a flag", is_more_better=True)


def row(run: str = "a run", tap: str = "target", sender: str = "", **cells: str) -> Row:
    return dict.fromkeys(COLUMNS, "") | {"source": "recorded", "run": run, "tap": tap, "sender": sender} | cells


@pytest.mark.parametrize(
    ("quantity", "before", "after", "expected"),
    [
        (ERROR, "5.00", "4.00", "equal"),
        (ERROR, "5.00", "3.99", "better"),
        (ERROR, "5.00", "6.01", "worse"),
        # the distance from zero counts, not the sign
        (ERROR, "-5.00", "5.50", "equal"),
        (ERROR, "-5.00", "3.00", "better"),
        (ERROR, "2.00", "-4.00", "worse"),
        (SHARE, "50.00", "52.00", "better"),
        (SHARE, "50.00", "48.00", "worse"),
        (SHARE, "50.00", "50.50", "equal"),
        (FLAG, "no", "yes", "better"),
        (FLAG, "yes", "no", "worse"),
        (FLAG, "no", "no", "equal"),
        (ERROR, "", "1.00", "new"),
        (ERROR, "1.00", "", "gone"),
        (ERROR, "", "", ""),
    ],
)
def test_what_became_of_a_cell(quantity: Quantity, before: str, after: str, expected: str) -> None:
    assert verdict(quantity, before, after) == expected


def test_a_comparison_counts_every_cell_and_names_every_change() -> None:
    before = [row(cwnd_median="2.00", rwnd_limited="3.00"), row(sender="target 1", headline="loss")]
    after = [row(cwnd_median="9.00", rwnd_limited="3.50"), row(sender="target 1", headline="none")]
    found = compare(before, after)
    assert found.counts["cwnd_median", "worse"] == 1
    assert found.counts["rwnd_limited", "equal"] == 1
    assert found.counts["headline", "changed"] == 1
    assert [str(each) for each in found.changes] == [
        "a run, target: cwnd_median 2.00 -> 9.00",
        "a run, target, target 1: headline loss -> none",
    ]


def test_only_the_runs_of_both_scores_are_compared() -> None:
    before = [row("first"), row("second")]
    after = [row("second"), row("second", sender="target 1"), row("third")]
    old, new = shared(before, after)
    assert {each["run"] for each in (*old, *new)} == {"second"}
    assert compare(old, new).unmatched == ("second, target, target 1",)


def test_totals_count_senders_within_both_limits_and_taps_that_agree() -> None:
    errors = [("5.00", "15.00"), ("5.01", "1.00"), ("1.00", "15.01"), ("", "")]
    rows = [row(sender=str(place), cwnd_median=one, cwnd_p95=other) for place, (one, other) in enumerate(errors)]
    rows += [row(tap=BOTH, headline_agrees=each, limiter_agrees="yes") for each in ("yes", "no", "yes")]
    rows[0]["resent_by_target"], rows[1]["resent_by_target"] = "0", "-1"
    windows, good, flags, *_ = totals(rows)
    assert "good for 1 of 3 senders" in windows
    assert "resent_by_target 1 of 2" in good
    assert "headline_agrees 2 of 3, limiter_agrees 3 of 3" in flags


def test_a_score_is_the_same_after_it_was_written(tmp_path: Path) -> None:
    rows = [row(cwnd_median="1.00", headline="loss"), row("a run, with a comma")]
    save(rows, tmp_path / "score.csv")
    assert load(tmp_path / "score.csv") == rows


def test_a_time_that_is_only_known_to_be_at_least_so_long_is_never_too_long() -> None:
    assert Limited(300, 1000).points(500) == pytest.approx(20)
    assert Limited(300, 1000, is_least=True).points(500) == 0
    assert Limited(300, 1000, is_least=True).points(100) == pytest.approx(-20)


def test_settings_differ_and_can_be_made_again() -> None:
    drawn = [settings.of_number(number) for number in range(settings.COUNT)]
    assert len({case.name for case in drawn}) == settings.COUNT
    assert settings.of_number(40) == drawn[40]
    # every kind often enough to be seen
    kinds = Counter(
        [case.operation for case in drawn]
        + [case.kind.split()[1] for case in drawn]
        + [case.congestion_control for case in drawn]
    )
    assert min(kinds.values()) >= settings.COUNT // 10
    assert all(case.total_bytes and case.total_bytes % case.block_bytes == 0 for case in drawn)


def test_a_simulated_run_has_a_row_for_each_tap_its_sender_and_both_taps(tmp_path: Path) -> None:
    """Reads that nothing disturbs over a line that is full: what every tap has to see."""
    case = Case("full", "read", 5, 8, 64 << 10, rate_bps=50_000_000, total_bytes=4 << 20)
    rows = {(each["tap"], each["sender"].partition(" ")[0]): each for each in of_run(of_case(case, tmp_path, 1))}
    assert list(rows) == [("initiator", ""), ("initiator", "target"), ("target", ""), ("target", "target"), (BOTH, "")]
    for tap in ("initiator", "target"):
        assert rows[tap, ""]["limiter"] == "transfer"
        assert rows[tap, ""]["limiter_right"] == "yes"
        assert (rows[tap, ""]["resent_by_initiator"], rows[tap, ""]["resent_by_target"]) == ("0", "0")
        assert abs(float(rows[tap, "target"]["rtt_least"])) < 2
        assert abs(float(rows[tap, "target"]["line_rate"])) < 2
    both = rows[BOTH, ""]
    assert (both["headline_agrees"], both["limiter_agrees"]) == ("yes", "yes")
    assert abs(float(both["delay_to_target"])) < 0.1


# --- what a recording says of its senders

MS = 1_000_000
HEAD = "time,event,local,peer,data_len,snd_nxt,snd_una,snd_cwnd_segs,ssthresh,snd_wnd,srtt_us,rcv_wnd"


def sample(time_ms: int, **values: int) -> dict[str, Any]:
    """TCP_INFO of the target, 10 segments in flight and more to send."""
    ends = {"local": "10.0.0.2", "lport": 3260, "peer": "10.0.0.1", "pport": 5000}
    usual = {"cwnd": 10, "unacked": 10, "sacked": 0, "lost": 0, "retrans": 0, "notsent": 100, "ca_state": 0}
    times = {"busy_us": time_ms * 1000, "min_rtt_us": 9000, "rtt_us": 30_000}
    return ends | {"t": time_ms / 1000} | times | usual | values


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    truth = {
        "files": [{"file": f"run.{tap}.pcap"} for tap in ("initiator", "target")],
        "clock": {"target_minus_initiator_us_before": {"offset_us": 300.0}},
        "network": {
            "netem_target_egress": "delay 4ms rate 20mbit",
            "netem_initiator_egress": "delay 4ms",
        },
        "bottleneck_bit_per_s": 20_000_000,
        "sender_time_ms": {"target 10.0.0.2:3260-10.0.0.1:5000": {"busy": 100, "rwnd_limited": 0, "mss": 1000}},
        "tcp_counters_delta": {"target": {"TcpRetransSegs": "3"}},
    }
    (tmp_path / "run.json").write_text(json.dumps(truth))
    rows = [
        f"1.{micros:06},{event},10.0.0.2:3260,10.0.0.1:{port},0,0,0,{cwnd},1,1,1,1"
        for micros, event, port, cwnd in (
            (1000, "ack_or_data_in", 5000, 10),
            (1500, "ack_or_data_in", 5001, 99),
            (2000, "retransmit", 5000, 50),
            (3000, "ack_or_data_in", 5000, 12),
            (4000, "ack_or_data_in", 5000, 14),
        )
    ]
    with gzip.open(tmp_path / "run.target.tcp_probe.csv.gz", "wt") as stream:
        stream.write("\n".join([HEAD, *rows]))
    samples = [
        sample(20),
        sample(40, unacked=9),
        sample(60, notsent=0, rtt_us=40_000),
        sample(80, unacked=12, sacked=2),
        sample(100, ca_state=4, min_rtt_us=8000),
        sample(120, unacked=0, notsent=0, rtt_us=1),
        sample(140, min_rtt_us=1) | {"pport": 5001},
    ]
    with gzip.open(tmp_path / "run.target.ss.jsonl.gz", "wt") as stream:
        stream.write("\n".join(json.dumps(each) for each in samples))
    (found,) = recordings(tmp_path)
    return found


def test_a_row_of_tcp_probe_has_the_window_since_the_row_before(recording: Recording) -> None:
    (sender,) = recording.senders
    assert (sender.side, sender.initiator_port) == ("target", 5000)
    known = sender.windows(recording.ahead_ns("target", "initiator"))
    assert known
    # times of the target's clock, 0.3 ms ahead of the initiator's
    assert known.time_ns.tolist() == [1000 * MS + 700_000, 1002 * MS + 700_000]
    assert known.cwnd_bytes.tolist() == [12_000, 14_000]
    assert recording.ahead_ns("target", "target") == recording.ahead_ns("initiator", "initiator") == 0
    assert recording.ahead_ns("initiator", "target") == -300_000


def test_a_congestion_window_holds_a_sender_that_has_more_to_send_and_as_much_in_flight(recording: Recording) -> None:
    """Two of five busy samples: not with room, with nothing to send, or after a timeout; it was busy for 120 ms."""
    (sender,) = recording.senders
    assert sender.cwnd_limited_ns == (48 * MS, 120 * MS)


def test_what_a_recording_knows_of_the_network(recording: Recording) -> None:
    assert list(recording.captures) == ["initiator", "target"]
    assert recording.resent_counts == {"initiator": 0, "target": 3}
    assert (recording.rate_bps("target"), recording.rate_bps("initiator")) == (20_000_000, None)
    # nothing was measured packet by packet
    assert recording.median_delay_ms == {}
    measured = {
        "initiator_to_target": {"min": 4.1, "p50": 5},
        "target_to_initiator (10.0.0.2)": {"min": 4.2, "p50": 40},
    }
    recording.truth["measured_one_way_delay_ms"] = measured | {"packets_only_at_target": 3}
    assert recording.median_delay_ms == {"to_target": 5, "to_initiator": 40}
    # the way back from another target
    recording.truth["measured_one_way_delay_ms"]["target_to_initiator (10.0.0.3)"] = {"min": 1, "p50": 1}
    assert recording.median_delay_ms == {}


def test_round_trips_under_load_are_those_of_busy_samples(recording: Recording) -> None:
    (sender,) = recording.senders
    assert sender.rtt_ms == {"least": 8, "load": 30}


def test_a_folder_that_is_missing_has_no_recordings(tmp_path: Path) -> None:
    assert list(recordings(tmp_path / "nowhere")) == []
