"""System calls that are split into blocks: the next call starts when the last block of one is done."""

from __future__ import annotations

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Setting, Solicitation

_MS = 1e6
UNASKED = Solicitation(is_initial_r2t=False, first_burst_bytes=1 << 20, max_recv_data_segment_bytes=1 << 20)
ASKED = Solicitation(is_immediate_data=False, max_burst_bytes=250_000)


def call_ms(block_count: int, queue_depth: int, solicitation: Solicitation, service_ms: float = 0) -> float:
    """Duration of a call of this many blocks; a block takes 25 ms on the line, the RTT is 100 ms."""
    setting = Setting(
        "write",
        250_000,
        50 * _MS,
        c_bytes_per_s=10e6,
        queue_depth=queue_depth,
        call_bytes=block_count * 250_000,
        solicitation=solicitation,
        service_ns=service_ms * _MS,
    )
    return block_count * 250_000 / predict(setting).throughput_bytes_per_s * 1e3


@pytest.mark.parametrize(
    ("block_count", "queue_depth", "solicitation", "service_ms", "expected_ms"),
    [
        # one after the other on the line, and the last one's status
        (4, 4, UNASKED, 0, 4 * 25 + 100),
        (4, 9, UNASKED, 0, 4 * 25 + 100),
        # an R2T first
        (4, 4, ASKED, 0, 100 + 4 * 25 + 100),
        # two are done at 125 and 150 ms; the others begin then, and take as long
        (4, 2, UNASKED, 0, 150 + 125),
        (4, 1, UNASKED, 0, 4 * 125),
        # all R2Ts come together: the line is busy from then on
        (6, 6, ASKED, 0, 100 + 6 * 25 + 100),
        # a service time for each, all at once
        (4, 4, UNASKED, 7, 4 * 25 + 100 + 7),
    ],
)
def test_the_duration_of_a_call_by_hand_arithmetic(
    block_count: int, queue_depth: int, solicitation: Solicitation, service_ms: float, expected_ms: float
) -> None:
    assert call_ms(block_count, queue_depth, solicitation, service_ms) == pytest.approx(expected_ms, rel=1e-6)


def test_a_long_call_is_as_fast_as_blocks_without_calls() -> None:
    setting = Setting("write", 250_000, 20 * _MS, c_bytes_per_s=10e6, queue_depth=2, solicitation=ASKED)
    without = predict(setting).throughput_bytes_per_s
    long_ms = 500 * 250_000 / without * 1e3
    call = Setting(
        "write", 250_000, 20 * _MS, c_bytes_per_s=10e6, queue_depth=2, solicitation=ASKED, call_bytes=500 * 250_000
    )
    found_ms = 500 * 250_000 / predict(call).throughput_bytes_per_s * 1e3
    assert long_ms < found_ms < 1.01 * long_ms


def test_an_empty_call_is_refused() -> None:
    with pytest.raises(InputInvalid, match="call_bytes is 0; it has to be more than 0"):
        predict(Setting("write", 4096, 1.0, c_bytes_per_s=1e6, call_bytes=0))
