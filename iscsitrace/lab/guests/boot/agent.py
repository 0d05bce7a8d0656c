"""Runs in a guest what the host asks for, with the standard library of the guest's Python.

Host and guest exchange messages over a virtio-serial port: a line of JSON, with ``bytes``, the length of the content
that follows it. A request has ``id`` and ``do``; its answer has the same id, and ``error`` where it failed.

- run: argv, environment, limit_s; its content is the standard input. Answers code (null: killed at the limit) and
  output_bytes; its content is the output, then the errors.
- start: argv, environment, log (a path). Answers process, its number.
- stop: process, signal, limit_s. Answers code.
- poll: process. Answers code, null while it runs.
- write: path, mode; its content is the file's.
- read: path, offset. The answer's content is the file's from there on.
- time: answers time_ns (since 1970) and monotonic_ns.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

Fields = dict[str, Any]
Answer = tuple[Fields, bytes]

_NAME = "agent"
_KILL_LIMIT_S = 10
_started: dict[int, subprocess.Popen[bytes]] = {}
_writing = threading.Lock()


def _run(request: Fields, content: bytes) -> Answer:
    process = subprocess.Popen(
        request["argv"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **request["environment"]},
        start_new_session=True,
    )
    code: int | None
    try:
        output, errors = process.communicate(content, request["limit_s"])
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        code = None
    return {"code": code, "output_bytes": len(output)}, output + errors


def _start(request: Fields, _: bytes) -> Answer:
    with Path(request["log"]).open("wb") as log:
        process = subprocess.Popen(
            request["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **request["environment"]},
            start_new_session=True,
        )
    _started[process.pid] = process
    return {"process": process.pid}, b""


def _stop(request: Fields, _: bytes) -> Answer:
    process = _started.pop(request["process"])
    for number, limit_s in ((request["signal"], request["limit_s"]), (signal.SIGKILL, _KILL_LIMIT_S)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(limit_s)
            break
    return {"code": process.returncode}, b""


def _poll(request: Fields, _: bytes) -> Answer:
    return {"code": _started[request["process"]].poll()}, b""


def _write(request: Fields, content: bytes) -> Answer:
    path = Path(request["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(request["mode"])
    return {}, b""


def _read(request: Fields, _: bytes) -> Answer:
    with Path(request["path"]).open("rb") as file:
        file.seek(request["offset"])
        return {}, file.read()


def _time(_: Fields, __: bytes) -> Answer:
    return {"time_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}, b""


_ACTIONS = {"run": _run, "start": _start, "stop": _stop, "poll": _poll, "write": _write, "read": _read, "time": _time}


def _answer(port: int, request: Fields, content: bytes) -> None:
    try:
        found, result = _ACTIONS[request["do"]](request, content)
    except Exception as error:
        found, result = {"error": f"{type(error).__name__}: {error}"}, b""
    line = json.dumps({"id": request["id"], **found, "bytes": len(result)}).encode() + b"\n"
    left = memoryview(line + result)
    # the host may be gone
    with _writing, suppress(OSError):
        while left:
            left = left[os.write(port, left) :]


def serve(port: int) -> None:
    """Serves the host over a descriptor until it is gone."""
    _answer(port, {"id": 0, "do": "time"}, b"")
    with os.fdopen(port, "rb") as requests:
        while line := requests.readline():
            request = json.loads(line)
            content = requests.read(request["bytes"])
            if request["do"] == "time":
                # at once: the host measures how long this takes
                _answer(port, request, content)
            else:
                threading.Thread(target=_answer, args=(port, request, content), daemon=True).start()


def main() -> None:
    """Serves the host over the guest's port, of which only one descriptor can be open."""
    names = Path("/sys/class/virtio-ports").glob("*/name")
    (name,) = [path for path in names if path.read_text().strip() == _NAME]
    serve(os.open(f"/dev/{name.parent.name}", os.O_RDWR))


if __name__ == "__main__":
    main()
