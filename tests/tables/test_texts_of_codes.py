"""The text of each code against tshark's: login status, task management, asynchronous event, reject reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import iscsitrace
from tests.support import tshark_values
from tests.support.hand_timed import (
    RESERVED,
    Wire,
    capture,
    login_request,
    login_response,
    management,
    management_response,
    pdu,
)

KEYS = {"InitiatorName": "iqn.2026-01.example:a", "TargetName": "iqn.2026-01.example:t", "SessionType": "Normal"}


def _texts_of_tshark(field: str) -> dict[int, str]:
    found = tshark_values.names(field)
    if field == "iscsi.reject.reason":
        # from a draft; reserved in RFC 7143, section 11.17.1
        del found[1]
    return found


def _login_refused(code: int) -> tuple[bytes, bytes]:
    answer = login_response({})
    return login_request(KEYS), answer[:36] + code.to_bytes(2) + answer[38:]


def _managed(code: int) -> tuple[bytes, bytes]:
    return management(7, code, cmd_sn=2, lun=3, referenced=5), b""


def _answered(code: int) -> tuple[bytes, bytes]:
    return management(7, 1, cmd_sn=2, lun=3, referenced=5), management_response(7, 1, result=code)


def _event(code: int) -> tuple[bytes, bytes]:
    words = (RESERVED, 2, 2, 64, code << 24)
    return b"", pdu(0x32, 0x80, b"\0\0", bytes(8), RESERVED, words, b"")


def _rejected(code: int) -> tuple[bytes, bytes]:
    return b"", pdu(0x3F, 0x80, bytes([code, 0]), bytes(8), RESERVED, (0, 2, 2, 64), bytes(48))


def _stems(text: str) -> set[str]:
    """The first letters of the words that carry a meaning."""
    return {word[:4] for word in text.lower().replace("(", " ").split() if len(word) > 3 or word.isupper()}


@pytest.mark.parametrize(
    ("field", "table", "column", "made"),
    [
        ("iscsi.login.status", "logins", "status_text", _login_refused),
        ("iscsi.taskmanfun.function", "task_management", "function_text", _managed),
        ("iscsi.taskmanfun.response", "task_management", "response_text", _answered),
        ("iscsi.asyncevent", "asyncs", "event_text", _event),
        ("iscsi.reject.reason", "rejects", "reason_text", _rejected),
    ],
)
def test_each_code_has_the_text_of_tshark(
    tmp_path: Path, field: str, table: str, column: str, made: Callable[[int], tuple[bytes, bytes]]
) -> None:
    expected = _texts_of_tshark(field)
    wires = []
    for number, code in enumerate(expected):
        wire = Wire(40_000 + number)
        if field != "iscsi.login.status":
            wire.send(0, login_request(KEYS)).receive(1, login_response({}))
        asked, answered = made(code)
        if asked:
            wire.send(2, asked)
        if answered:
            wire.receive(3, answered)
        wires.append(wire)
    texts = [row[column] for row in iscsitrace.read(capture(tmp_path, *wires)).table(table).rows()]
    assert len(set(texts)) == len(texts) == len(expected)
    for text, theirs in zip(texts, expected.values(), strict=True):
        assert _stems(text) & _stems(theirs), (text, theirs)
    assert len(expected) >= 4
