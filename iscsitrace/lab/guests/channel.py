"""The host's end of the exchange with the agent of a guest (`boot/agent.py` describes the messages).

Any thread may ask; a thread of the channel receives the answers.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO, Any

from iscsitrace.errors import ToolMissing

Answer = tuple[dict[str, Any], bytes]
_HELLO = 0


@dataclass(frozen=True)
class GuestClock:
    """The clock of a guest against this host's, both in ns since 1970: offset = guest's less host's."""

    offset_ns: int
    error_ns: int
    """Half of the shortest exchange that measured it."""


class Channel:
    """A connected channel. ToolMissing when the guest reports an error, does not answer in time, or ends."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self._connection = connection
        self._name = name
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Answer]] = {_HELLO: Future()}
        self._hello = self._waiting[_HELLO]
        self._lock = threading.Lock()
        self._is_over = False
        threading.Thread(target=self._receive, name=f"answers of {name}", daemon=True).start()

    def await_boot(self, limit_s: float) -> None:
        """Waits for the agent's first message."""
        self._result(self._hello, limit_s)

    def ask(self, do: str, content: bytes = b"", *, wait_s: float = 30, **request: Any) -> Answer:
        """The answer to a request."""
        return self._result(self.send(do, content, **request), wait_s)

    def send(self, do: str, content: bytes = b"", **request: Any) -> Future[Answer]:
        """Sends a request; the future has the answer."""
        number, future = next(self._numbers), Future[Answer]()
        line = json.dumps({"id": number, "do": do, **request, "bytes": len(content)}).encode()
        with self._lock:
            if self._is_over:
                raise ToolMissing(f"the guest {self._name} has ended")
            self._waiting[number] = future
            self._connection.sendall(line + b"\n" + content)
        return future

    def _result(self, future: Future[Answer], limit_s: float) -> Answer:
        try:
            return future.result(limit_s)
        except TimeoutError:
            raise ToolMissing(f"the guest {self._name} did not answer within {limit_s:g} s") from None

    def _receive(self) -> None:
        with self._connection.makefile("rb") as answers:
            try:
                while line := answers.readline():
                    self._take(json.loads(line), answers)
            except (OSError, ValueError):
                pass
        with self._lock:
            self._is_over = True
        for future in self._waiting.values():
            future.set_exception(ToolMissing(f"the guest {self._name} has ended"))

    def _take(self, answer: dict[str, Any], answers: IO[bytes]) -> None:
        content = answers.read(answer["bytes"])
        with self._lock:
            future = self._waiting.pop(answer["id"])
        if "error" in answer:
            future.set_exception(ToolMissing(f"guest {self._name}: {answer['error']}"))
        else:
            future.set_result((answer, content))
