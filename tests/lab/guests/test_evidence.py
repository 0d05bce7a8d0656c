"""What a guest's kernel prints, read into rows."""

from __future__ import annotations

import pytest

from iscsitrace.lab.guests import evidence

TRACE = """\
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
          <idle>-0       [000] ..s2.    20.890123: tcp_probe: family=AF_INET src=10.71.0.1:48466 dest=10.71.0.2:3260 \
mark=0x0 data_len=48 snd_nxt=0x1f snd_una=0xf snd_cwnd=10 ssthresh=2147483647 snd_wnd=64256 srtt=9400 rcv_wnd=65535
     kworker/0:1-17      [000] .....    21.000007: tcp_retransmit_skb: family=AF_INET sport=3260 dport=48466 \
state=TCP_ESTABLISHED
     kworker/0:1-17      [000] .....    21.000008: other_event: a=1
"""


def test_events_of_tcp_have_the_time_of_the_guest() -> None:
    found = evidence.events_of(TRACE, boot_ns=1_000_000_000_000)
    (probe,) = found["tcp_probe"]
    assert probe["time_ns"] == 1_020_890_123_000
    assert (probe["src"], probe["snd_nxt"], probe["snd_cwnd"]) == ("10.71.0.1:48466", 31, 10)
    (again,) = found["tcp_retransmit_skb"]
    assert again == {
        "time_ns": 1_021_000_007_000,
        "family": "AF_INET",
        "sport": 3260,
        "dport": 48466,
        "state": "TCP_ESTABLISHED",
    }
    assert found["tcp_send_reset"] == found["tcp_receive_reset"] == []
    assert "other_event" not in found


def test_counters_are_by_group() -> None:
    text = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm MaxConn\nTcp: 1 -1\n"
    assert evidence.counters_of(text) == {
        "Ip": {"Forwarding": 1, "DefaultTTL": 64}, "Tcp": {"RtoAlgorithm": 1, "MaxConn": -1},
    }  # fmt: skip


def test_the_log_has_times() -> None:
    text = "[   20.000100]  connection1:0: detected conn error (1020)\nno line of the kernel\n[12345.5] sd 2:0:0:0: x"
    assert evidence.log_of(text, boot_ns=1_000) == [
        {"time_ns": 20_000_101_000, "text": " connection1:0: detected conn error (1020)"},
        {"time_ns": 12_345_500_001_000, "text": "sd 2:0:0:0: x"},
    ]


@pytest.mark.parametrize(
    ("before", "after"), [("tcpdump: listening on eth0\n", ""), ("", "\n9 packets dropped by interface")]
)
def test_the_counts_of_tcpdump(before: str, after: str) -> None:
    text = "1361 packets captured\n1370 packets received by filter\n2 packets dropped by kernel"
    counts = evidence._COUNTS.search(before + text + after)
    assert counts is not None
    assert counts.groups() == ("1361", "2")
