"""Published models of TCP under losses: numbers worked out by hand from the papers' formulas."""

from __future__ import annotations

from dataclasses import replace
from math import log2, sqrt

import pytest

from iscsitrace.fit import rivalry
from iscsitrace.fit.rivalry import RIVALS
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Setting, Solicitation

MS = 1_000_000
MODELS = {each.name: each.bytes_per_s for each in RIVALS}
# 100 ms of RTT, segments of 1000 bytes, one loss in a hundred
SETTING = Setting(
    "read", 1_000_000, 50.0 * MS, segment_bytes=1_000, loss=0.01, queue_depth=8, congestion_control="reno"
)


def rate(name: str, **values: object) -> float:
    return MODELS[name](replace(SETTING, **values))  # type: ignore[arg-type]


def test_the_first_is_the_model_of_this_package() -> None:
    assert rate("this model") == predict(SETTING).throughput_bytes_per_s
    assert RIVALS[0].name == "this model"


def test_mathis_has_the_square_root() -> None:
    """sqrt(3/2) / sqrt(0.01) = 12.247 segments for each RTT."""
    assert rate("Mathis") == pytest.approx(122_474, rel=1e-5)
    assert rate("Mathis", loss=0.0001) == pytest.approx(1_224_745, rel=1e-5)


def test_padhye_has_timeouts() -> None:
    """0.1 sqrt(2 0.01 / 3) = 0.0081650 and 0.3 * 3 sqrt(3 0.01 / 8) * 0.01 (1 + 32 0.0001) = 0.00055291: together
    0.0087179 s for a segment. Without timeouts it is the square root.
    """
    assert rate("Padhye (PFTK)") == pytest.approx(1_000 / 0.0087179, rel=1e-4)
    assert rate("Padhye (PFTK)", loss=1e-8) == pytest.approx(rate("Mathis", loss=1e-8), rel=1e-3)
    # with 30 % the probability of a timeout in the formula is 1: 0.1 * 0.44721 + 0.3 * 0.3 * 3.88
    assert rate("Padhye (PFTK)", loss=0.3) == pytest.approx(1_000 / (0.044721 + 0.3492), rel=1e-4)


def test_cubic_has_two_regions() -> None:
    """Near it is Reno's window; over 1 s with one loss in a million 1.0540 * 10^4.5 segments."""
    assert rate("CUBIC") == rate("Mathis")
    assert rate("CUBIC", delay_ns=500.0 * MS, loss=1e-6) == pytest.approx(1.0540 * 31_622.8 * 1_000, rel=1e-3)


def test_cardwell_is_slow_start_from_ten_segments() -> None:
    """Without losses to speak of, 70 segments take rounds of 10, 20 and 40; with a window of 20, 10 and 20 in two
    rounds, and the other 40 in two more. The paper's lost segment is the 70th.
    """
    alone = {"queue_depth": 1, "loss": 1e-12, "block_bytes": 69_000}
    assert rate("Cardwell", **alone) == pytest.approx(69_000 / 0.3, rel=1e-6)
    assert rate("Cardwell", **alone, window_bytes=20_000) == pytest.approx(69_000 / 0.4, rel=1e-6)
    # service time and R2T rounds come on top: two requests of an RTT each, and the command
    assert rate("Cardwell", **alone, service_ns=100.0 * MS) == pytest.approx(69_000 / 0.4, rel=1e-6)
    keys = Solicitation(is_immediate_data=False, max_burst_bytes=35_000)
    assert rate("Cardwell", **alone, operation="write", solicitation=keys) == pytest.approx(69_000 / 0.5, rel=1e-6)


def test_cardwell_pays_for_a_loss() -> None:
    """One segment, lost with 1 %: always by timeout, of 0.3 s and its repeats, (1 + p + 2 p^2 ...) / (1 - p)."""
    found = rate("Cardwell", queue_depth=1, block_bytes=1_000)
    # (1 - p) / p of p is 0.99 segments before the first loss, and the one
    begun = 0.01 * 0.99 / 0.01 + 1
    start_s = 0.1 * log2(begun / 10 + 1)
    wait_s = 0.3 * (1 + 0.01 + 2 * 0.0001) / 0.99
    by_timeout = min(1.0, _timeouts(begun / 2 + 5))
    loss_s = 0.01 * (by_timeout * wait_s + (1 - by_timeout) * 0.1)
    assert found == pytest.approx(1_000 / max(start_s + loss_s, 0.1), rel=1e-4)


def _timeouts(window: float) -> float:
    """Padhye's equation 24 at 1 %: (1 - 0.970299) (1 + 0.970299 (1 - 0.99^(w - 3))) / (1 - 0.99^w)."""
    return 0.029701 * (1 + 0.970299 * (1 - float(0.99 ** (window - 3)))) / (1 - float(0.99**window))


def test_every_loss_of_three_segments_is_a_timeout() -> None:
    assert rivalry._by_timeout(0.01, 3) == 1.0
    assert rivalry._by_timeout(0.01, 20) == pytest.approx(_timeouts(20), rel=1e-4)
    assert rivalry._backed_off(0.5) == pytest.approx(1 + 0.5 * 6)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "this model"])
def test_no_model_exceeds_line_or_window_and_connections_add_up(name: str) -> None:
    free = rate(name)
    assert rate(name, c_bytes_per_s=free / 2) == pytest.approx(free / 2)
    # headers of 48 bytes for each data PDU pass the line, too
    with_headers = rate(name, c_bytes_per_s=free / 2, data_pdu_bytes=1_000)
    assert with_headers == pytest.approx(free / 2 * 1_000 / 1_048)
    assert rate(name, window_bytes=5_000) == pytest.approx(50_000, rel=0.25)
    assert rate(name, window_bytes=5_000) <= 50_000
    assert rate(name, connections=3) == pytest.approx(3 * free)


def test_sources_can_be_found() -> None:
    for each in RIVALS[1:]:
        assert any(year in each.source for year in ("1997", "1998", "2000", "2023")), each.source
    assert sqrt(1.5) == pytest.approx(rate("Mathis") / 1_000 * 0.1 * sqrt(0.01))
