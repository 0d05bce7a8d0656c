"""What `capture` decides before it captures: the program, the place of an error in a filter, names of files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from iscsitrace.cli.record.interfaces import _permission
from iscsitrace.errors import PermissionLacking
from iscsitrace.recording import capture, interfaces
from iscsitrace.recording.capture import place_of_problem
from iscsitrace.recording.file_names import numbered
from iscsitrace.recording.interfaces import _end


@pytest.mark.parametrize(
    ("choice", "may_dumpcap", "tried"),
    [
        ("auto", True, [None, "/usr/bin/dumpcap"]),
        ("auto", False, [None]),
        ("never", True, [None]),
        ("always", True, ["/usr/bin/dumpcap"]),
    ],
)
def test_dumpcap_captures_if_only_it_has_the_permission(
    choice: str, may_dumpcap: bool, tried: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/dumpcap")
    monkeypatch.setattr(interfaces, "_may", lambda *_: may_dumpcap)
    asked: list[str | None] = []

    def attempt(helper: str | None) -> dict[str, object]:
        asked.append(helper)
        if helper is None:
            raise PermissionLacking("no permission to capture on eth0: socket: Operation not permitted")
        return {}

    if tried[-1] is None:
        with pytest.raises(
            PermissionLacking, match=r"^no permission to capture on eth0: run it as root, .*docs capture permission"
        ):
            interfaces.capture_by(choice, ["eth0"], attempt)
    else:
        assert interfaces.capture_by(choice, ["eth0"], attempt) == {}
    assert asked == tried


@pytest.mark.parametrize(("has_libpcap", "has_dumpcap"), [(True, True), (False, True), (False, False)])
def test_an_interface_that_only_dumpcap_may_open_can_be_captured(
    has_libpcap: bool, has_dumpcap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link_types(name: str) -> list[int]:
        if not has_libpcap:
            raise PermissionLacking(f"no permission to capture on {name}: socket: Operation not permitted")
        return [1]

    monkeypatch.setattr(capture, "link_types", link_types)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/dumpcap")
    monkeypatch.setattr(interfaces, "_may", lambda *_: has_dumpcap)
    for found in interfaces.interfaces_found():
        assert found.can_capture == (has_libpcap or has_dumpcap)
        assert found.is_permission_lacking == (not found.can_capture)
        assert found.is_by_dumpcap == (has_dumpcap and not has_libpcap)
        expected = "yes" if has_libpcap else "yes, by dumpcap" if has_dumpcap else "no permission"
        assert _permission(found) == expected


# --- position of the error in a filter: known, because a valid filter was changed there


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("tcp prt 3260", "prt"),
        ("tcp port 3260 and and host 10.0.0.1", "and host"),
        ("tcp port 3260 or )", ")"),
        ("(tcp port 3260 or (udp) host", "host"),
        ("tcp port 3260 hots 10.0.0.1", "hots"),
        ("host 10.0.0.1 and tcp[13] = = 2", "= 2"),
        ("port 3260 not", "not"),
        ("port 3260 and", ""),
        ("(port 3260", ""),
        ("tcp port 99999", "99999"),
        ("ether host 1.2.3.4.5", "1.2.3.4.5"),
    ],
)
def test_the_position_of_an_error_in_a_filter(expression: str, wrong: str) -> None:
    message = capture.filter_problem(expression)
    assert message is not None
    place = place_of_problem(expression, message, capture.filter_problem)
    assert place == (expression.rindex(wrong) if wrong else len(expression)), message


@pytest.mark.parametrize(
    "expression",
    ["", "tcp port 3260", "vlan 7 and host 10.0.0.1", "tcp[tcpflags] & tcp-syn != 0", "ip6 and not port 22"],
)
def test_a_valid_filter_has_no_error(expression: str) -> None:
    assert capture.filter_problem(expression) is None


def test_files_of_a_ring_are_named_like_dumpcaps() -> None:
    assert re.fullmatch(r"/x/name_00042_20\d{12}\.pcapng", str(numbered(Path("/x/name.pcapng"), 42)))


def test_addresses_are_read_from_the_kernels_tables() -> None:
    assert _end("0100007F:0CBC") == ("127.0.0.1", 3260)
    assert _end("B80D01200000000000000000010000FF:035C")[1] == 860
    assert _end("0000000000000000FFFF00000100007F:0CBC") == ("127.0.0.1", 3260)
