"""Captures in which a side breaks RFC 7143, made by hand; the truth of each is what was done to make it."""

from __future__ import annotations

from pathlib import Path

from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.pdu import Task

BYTES = 4096


def immediate_data(
    folder: Path, *, is_agreed: bool, writes: int = 3, connections: int = 1, has_login: bool = True
) -> Path:
    """Writes with immediate data, after ImmediateData=Yes or No was agreed."""
    conversation = Conversation()
    actors = conversation.session(Session(connection_count=connections))
    # the keys alone say No: the conversation goes on as if Yes had been agreed
    texts = {} if is_agreed else {"ImmediateData": "No"}
    actors.login(texts=texts).tasks([Task("write", 8 * number, BYTES // 512) for number in range(writes)]).logout()
    capture = conversation.run()
    packets = capture.packets if has_login else capture.without_login()
    return write_pcapng(folder / "breach.pcapng", packets, capture.path.link_type)
