"""Our initiator and our target in tests, a run in one call; and the data pattern of writes, in NumPy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iscsitrace.lab import traffic

BLOCK_BYTES = 512
NAME = "iqn.2001-04.com.example:ours"


@dataclass
class Initiator:
    """A completed run of our initiator."""

    results: dict[str, Any]
    connections_seen: int
    """The largest number of its open sockets at a time."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Negotiated parameters of its first connection."""
        parameters: dict[str, Any] = self.results["connections"][0]["parameters"]
        return parameters


def initiate(url: str, *more: str, period_ns: int = traffic.PERIOD_NS, **client: Any) -> Initiator:
    """Runs our initiator to its end; the other arguments are the core's settings of a client."""
    seen = [0]

    def watch(_: object, descriptors: traffic.Descriptors) -> bool:
        seen.append(len(descriptors))
        return False

    settings = {"client": client, "urls": [traffic.parse_url(each).resolved() for each in (url, *more)]}
    return Initiator(traffic.run_initiator(settings, watch, period_ns=period_ns)["results"], max(seen))


def transfer(url: str, operation: str, offers: Mapping[str, Any] | None = None, /, **workload: Any) -> Initiator:
    """Reads and verifies, or writes the pattern; the run has to transfer all bytes without errors."""
    settings = {"operation": operation, "verify": operation != "write", **workload}
    login = {"offers": offers or {}}
    run = initiate(url, login=login, workload=settings)
    assert run.results["errors"] == []
    assert (run.results["error_count"], run.results["verify_error_count"]) == (0, 0)
    assert run.results["bytes"] == workload["total_bytes"]
    return run


def pattern(seed: int, first_block: int, block_count: int) -> bytes:
    """The data of writes, as in core/lab/src/workload/pattern.rs: block number and seed, then words from both."""
    blocks = np.arange(first_block, first_block + block_count, dtype=np.uint64)
    word = np.uint64
    mixed = blocks ^ word((seed << 32 | seed >> 32) & (1 << 64) - 1)
    mixed = (mixed ^ mixed >> word(30)) * word(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> word(27)) * word(0x94D049BB133111EB)
    first = mixed ^ mixed >> word(31)
    words = first[:, None] + np.arange(64, dtype=np.uint64)[None, :] * word(0x9E3779B97F4A7C15)
    content = words.astype("<u8").view(np.uint8).reshape(block_count, BLOCK_BYTES)
    content[:, :8] = blocks.astype(">u8").view(np.uint8).reshape(block_count, 8)
    content[:, 8:16] = np.frombuffer(seed.to_bytes(8, "big"), np.uint8)
    return bytes(content)


@dataclass
class OurTarget:
    """Our running target, and its log when it has ended."""

    listening: list[str] = field(default_factory=list)
    log: dict[str, Any] = field(default_factory=dict)

    @property
    def discovery_url(self) -> str:
        """The discovery URL of its first portal."""
        return f"iscsi://{self.listening[0]}"

    @property
    def url(self) -> str:
        """The URL of its first logical unit."""
        return self.url_of(0)

    def url_of(self, lun: int, portal: int = 0) -> str:
        """The URL of any logical unit, over any portal."""
        return f"iscsi://{self.listening[portal]}/{NAME}/{lun}"


@contextmanager
def our_target(*units: dict[str, Any], listen: Sequence[str] = ("127.0.0.1:0",), **portal: Any) -> Iterator[OurTarget]:
    """Our target with these logical units, in a thread during the block; other arguments are settings of the core."""
    target = OurTarget()
    is_ready, is_over = threading.Event(), threading.Event()
    failures: list[BaseException] = []
    device = {"target_name": NAME, "logical_units": list(units) or [{}], **portal.pop("device", {})}

    def ready(addresses: list[str]) -> None:
        target.listening = addresses
        is_ready.set()

    def serve() -> None:
        settings = {"portal": {"targets": [device]} | portal, "listen": list(listen)}
        try:
            target.log = traffic.run_target(settings, ready, lambda *_: is_over.is_set())
        except BaseException as failure:
            failures.append(failure)
            is_ready.set()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert is_ready.wait(10)
        if not failures:
            yield target
    finally:
        is_over.set()
        thread.join(10)
    for failure in failures:
        raise failure
