"""A guest: a virtual machine by QEMU with one processor, the programs that run in it, and the channel to its agent
(`boot/agent.py` describes the messages).

Its network card is a TAP device that nothing else of this machine reaches. It ends with the block that started it, and
with this process, however that ends. Any thread may ask the agent; a thread of the channel receives the answers.
"""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from iscsitrace.errors import ToolMissing
from iscsitrace.lab import own_process
from iscsitrace.lab.guests.image import Image, packed
from iscsitrace.lab.places import Finished, last_line, require

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


_PACKAGE = "qemu-system-x86"
_PROGRAM = "qemu-system-x86_64"
_BOOT_LIMIT_S = 180
_FILE_LIMIT_S = 300
_PROBE_LIMIT_S = 3
_SLACK_S = 30
_POLL_S = 0.05
_LOG = "/run/log-{}"
_CLOCK_EXCHANGES = 50
# mov dx, 0x501; mov al, 0; out dx, al; hlt - and the signature of a boot sector
_BOOT_SECTOR = b"\xba\x01\x05\xb0\x00\xee\xf4".ljust(510, b"\0") + b"\x55\xaa"
_COMMAND_LINE = " ".join(
    (
        *("console=ttyS0", "quiet", "panic=-1", "mitigations=off"),
        # the kernel walks its whole table of connections to list them: a small one, for a slow processor
        "thash_entries=1024",
    )
)


@dataclass(frozen=True)
class Acceleration:
    """How QEMU runs a guest's processor."""

    name: str
    processor: str
    meaning: str


KVM = Acceleration("kvm", "host", "by this machine's processor (KVM)")
TCG = Acceleration(
    "tcg",
    "max",
    "translated (QEMU's TCG, since KVM does not work here): hosts are slow; protocol and faults are real, MB/s are not",
)


@functools.cache
def acceleration() -> Acceleration:
    """KVM where it runs a program of a few instructions in time; nested or forbidden KVM often does not."""
    with tempfile.NamedTemporaryFile(suffix=".img") as disk:
        disk.write(_BOOT_SECTOR)
        disk.flush()
        command = [
            *(require(_PROGRAM, _PACKAGE), "-nodefaults", "-no-user-config", "-display", "none", "-m", "16"),
            *("-accel", KVM.name, "-cpu", KVM.processor, "-device", "isa-debug-exit,iobase=0x501,iosize=1"),
            *("-drive", f"file={disk.name},format=raw,if=ide,readonly=on"),
        ]
        try:
            code = subprocess.run(command, check=False, capture_output=True, timeout=_PROBE_LIMIT_S).returncode
        except subprocess.TimeoutExpired:
            return TCG
    # isa-debug-exit ends QEMU with twice what is written, plus one
    return KVM if code == 1 else TCG


class GuestProcess:
    """A program that runs in a guest until the block ends that started it."""

    def __init__(self, guest: Guest, name: str, number: int, log: str) -> None:
        self.name = name
        self._guest = guest
        self._number = number
        self._log = log
        self._code: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        answer, _ = self._guest.channel.ask("poll", process=self._number)
        return answer["code"] is None

    @property
    def log(self) -> str:
        """Its standard output and error so far."""
        return self._guest.read(self._log).decode("utf-8", "replace")

    def wait_until(self, condition: Callable[[], bool], what: str, limit_s: float = 60) -> None:
        """Waits for a condition; ToolMissing if the program ends first, or after the time limit."""
        end = time.monotonic() + limit_s
        while not condition():
            if not self.is_running:
                raise ToolMissing(f"{self.name} ended in guest {self._guest.name}: {last_line(self.log)}")
            if time.monotonic() > end:
                raise ToolMissing(f"{self.name} in guest {self._guest.name}: {what} not within {limit_s:g} s")
            time.sleep(_POLL_S)

    def stop(self, number: signal.Signals = signal.SIGTERM, limit_s: float = 10) -> int | None:
        """Asks it to end, and kills it after the time limit; returns its exit code. Does nothing the second time."""
        if self._code is None:
            answer, _ = self._guest.channel.ask(
                "stop", process=self._number, signal=number, limit_s=limit_s, wait_s=limit_s + _SLACK_S
            )
            self._code = answer["code"]
        return self._code


class Guest:
    """A running guest, and what can be done in it. ToolMissing where it fails."""

    def __init__(self, name: str, channel: Channel, shell_path: Path) -> None:
        self.name = name
        self.channel = channel
        self.shell_path = shell_path
        """A socket behind which a shell of the guest is, with a terminal."""
        self._logs = itertools.count()

    def run(
        self,
        *argv: str,
        limit_s: float = 60,
        is_checked: bool = True,
        input_text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Finished:
        """Runs a program to its end. Checked: ToolMissing with its last words when it fails or its time is up."""
        answer, text = self.channel.ask(
            *("run", input_text.encode()),
            argv=argv, environment=dict(environment or {}), limit_s=limit_s, wait_s=limit_s + _SLACK_S,
        )  # fmt: skip
        output, errors = text[: answer["output_bytes"]], text[answer["output_bytes"] :]
        finished = Finished(answer["code"], output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))
        if is_checked and finished.code != 0:
            how = f"did not finish in {limit_s:g} s" if finished.code is None else f"failed with code {finished.code}"
            raise ToolMissing(f"{argv[0]} in guest {self.name} {how}: {finished.last_message}")
        return finished

    def shell(self, script: str, *, limit_s: float = 60) -> str:
        """Runs lines of shell, up to the first that fails; returns what they print."""
        return self.run("/bin/sh", "-eu", "-c", script, limit_s=limit_s).output

    @contextmanager
    def started(self, *argv: str, stop_signal: signal.Signals = signal.SIGTERM) -> Iterator[GuestProcess]:
        """A program that runs until the block ends."""
        log = _LOG.format(next(self._logs))
        answer, _ = self.channel.ask("start", argv=argv, environment={}, log=log)
        process = GuestProcess(self, argv[0], answer["process"], log)
        try:
            yield process
        finally:
            with own_process.deferred(), suppress(ToolMissing):
                process.stop(stop_signal)

    def read(self, path: str, offset: int = 0) -> bytes:
        """The content of a file, from an offset on."""
        _, content = self.channel.ask("read", path=path, offset=offset, wait_s=_FILE_LIMIT_S)
        return content

    def write(self, path: str, content: str, mode: int = 0o644) -> None:
        """Writes a file; its folder is made."""
        self.channel.ask("write", content.encode(), path=path, mode=mode, wait_s=_FILE_LIMIT_S)

    def clock(self) -> GuestClock:
        """The clock of the guest now, by the shortest of many exchanges."""
        found = []
        for _ in range(_CLOCK_EXCHANGES):
            asked_ns = time.time_ns()
            answer, _ = self.channel.ask("time")
            error_ns = (time.time_ns() - asked_ns) // 2
            found.append(GuestClock(answer["time_ns"] - asked_ns - error_ns, error_ns))
        return min(found, key=lambda clock: clock.error_ns)


@contextmanager
def booted(
    name: str, image: Image, tap: int, hardware_address: str, *, namespace: str, memory_mib: int = 512
) -> Iterator[Starting]:
    """A guest that starts now, with an open TAP device as its network card; `Starting.guest` waits for it.

    QEMU runs in a network namespace, so that it can reach nothing but the device. ToolMissing if it ends.
    """
    with own_process.unwinding(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=own_process.prefix())))
        initial = folder / "initial.cpio.gz"
        initial.write_bytes(image.modules.read_bytes() + _boot_files(folder))
        ours, of_guest = socket.socketpair()
        stack.enter_context(ours)
        how = acceleration()
        command = [
            *(require("setpriv", "util-linux"), "--pdeathsig", "KILL"),
            *(require("ip", "iproute2"), "netns", "exec", namespace, require(_PROGRAM, _PACKAGE)),
            *("-nodefaults", "-no-user-config", "-display", "none", "-name", name, "-no-reboot"),
            *("-machine", "q35", "-accel", how.name, "-cpu", how.processor, "-smp", "1", "-m", str(memory_mib)),
            *("-kernel", str(image.kernel), "-initrd", str(initial), "-append", f"{_COMMAND_LINE} hostname={name}"),
            *("-drive", f"file={image.root},if=virtio,format=raw,readonly=on"),
            *("-netdev", f"tap,id=card,fd={tap},vhost=off"),
            *("-device", f"virtio-net-pci,netdev=card,mac={hardware_address},event_idx=off,romfile="),
            *("-chardev", f"socket,id=agent,fd={of_guest.fileno()}"),
            *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=agent"),
            *("-chardev", f"socket,id=shell,path={folder / 'shell'},server=on,wait=off"),
            *("-device", "virtconsole,chardev=shell"),
            *("-serial", f"file:{folder / 'console'}"),
        ]
        with of_guest, (folder / "errors").open("wb") as errors:
            popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                pass_fds=(tap, of_guest.fileno()), start_new_session=True,
            )  # fmt: skip
        try:
            yield Starting(Guest(name, Channel(ours, name), folder / "shell"), folder)
        finally:
            with own_process.deferred():
                popen.kill()
                popen.wait()


@dataclass(frozen=True)
class Starting:
    """A guest that starts."""

    _guest: Guest
    _folder: Path

    def guest(self) -> Guest:
        """The guest, as soon as its agent answers."""
        try:
            self._guest.channel.await_boot(_BOOT_LIMIT_S)
        except ToolMissing as error:
            words = [last_line((self._folder / name).read_text(errors="replace")) for name in ("errors", "console")]
            raise ToolMissing(f"{error}: {' / '.join(filter(None, words)) or 'no message'}") from error
        return self._guest


def _boot_files(folder: Path) -> bytes:
    """An archive of the files of `boot`, and of the lab's own modules, which need the standard library only."""
    archive, lab = folder / "boot", Path(__file__).parents[1]
    shutil.copytree(lab / "guests" / "boot", archive / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    (archive / "guest" / "init").rename(archive / "init")
    (archive / "init").chmod(0o755)
    package = archive / "guest" / "iscsitrace"
    (package / "lab").mkdir(parents=True)
    for file in (*lab.glob("*.py"), *lab.parent.glob("[_e]*.py")):
        shutil.copy(file, package / file.relative_to(lab.parent))
    return packed(archive)
