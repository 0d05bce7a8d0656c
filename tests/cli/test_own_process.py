"""What a process gives up once its inputs are open, as the kernel shows it; calls from Python give up nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation
from tests.support.programs import running

_LIMIT_S = 30.0
NET_RAW, DAC_READ_SEARCH = 1 << 13, 1 << 2
_DUMPCAP = """#!/bin/sh
trap 'exit 0' INT TERM
cat {file}
while :; do sleep 0.05; done
"""


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    conversation = Conversation()
    conversation.session().login().read(count=4).logout()
    file = tmp_path / "source.pcapng"
    write_pcapng(file, conversation.run().packets, 1)
    program = tmp_path / "bin" / "dumpcap"
    program.parent.mkdir()
    program.write_text(_DUMPCAP.format(file=file))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return file


def rights(process_id: int) -> set[tuple[int, int, int]]:
    """Effective and permitted capabilities, and whether new privileges are impossible, of every thread."""
    found = set()
    for task in Path(f"/proc/{process_id}/task").iterdir():
        # a thread may end meanwhile
        with suppress(FileNotFoundError, ProcessLookupError):
            rows = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            found.add((int(rows["CapEff"], 16), int(rows["CapPrm"], 16), int(rows["NoNewPrivs"])))
    return found


def _own_capabilities() -> int:
    return min(effective for effective, *_ in rights(os.getpid()))


def test_a_capture_keeps_the_right_to_open_interfaces_alone(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.pcapng"
    words = ["capture", "--dumpcap", "always", "-i", "lo", "-w", str(out), "-b", "packets:10", "--compress"]
    with running(
        subprocess.Popen([sys.executable, "-m", "iscsitrace", *words], stderr=subprocess.PIPE, text=True)
    ) as process:
        assert process.stderr is not None
        begun = [process.stderr.readline().split()[1] for _ in range(3)]
        assert sorted(begun) == ["listening", "writing", "writing"]
        kept = _own_capabilities() & NET_RAW
        # all threads, also those that compress and read
        assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 2
        assert rights(process.pid) == {(kept, kept, 1)}
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=_LIMIT_S)[1]
    assert process.returncode == 0
    assert "more rights" not in said


def test_a_watch_keeps_the_right_to_read_files_alone(capture: Path, tmp_path: Path) -> None:
    words = ["watch", "--json", "--prometheus", "0", str(capture)]
    with running(
        subprocess.Popen(
            [sys.executable, "-m", "iscsitrace", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        process.stdout.readline()
        kept = _own_capabilities() & DAC_READ_SEARCH
        assert rights(process.pid) == {(kept, kept, 1)}
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=_LIMIT_S)[1]
    assert process.returncode == 0
    assert said == ""


def test_a_call_from_python_gives_up_nothing(capture: Path, tmp_path: Path) -> None:
    before = rights(os.getpid())
    result = CliRunner().invoke(main, ["watch", "--no-follow", "--json", str(capture)])
    assert result.exit_code == 0, result.output
    words = ["capture", "--dumpcap", "always", "-i", "lo", "-a", "duration:0.2", "-w", str(tmp_path / "x.pcapng")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert rights(os.getpid()) == before


def test_root_may_still_write_where_only_root_may(capture: Path, tmp_path: Path) -> None:
    """A folder of another user: the right to write there stays, because each file of a ring needs it."""
    if os.getuid() != 0:
        pytest.skip("another user's folder needs root")
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    folder.chmod(0o700)
    words = ["capture", "--dumpcap", "always", "-i", "lo", "-w", str(folder / "x.pcapng"), "-b", "packets:10"]
    with running(
        subprocess.Popen([sys.executable, "-m", "iscsitrace", *words], stderr=subprocess.PIPE, text=True)
    ) as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=_LIMIT_S)[1]
    assert process.returncode == 0, said
    assert len(list(folder.iterdir())) > 1


_TRYING = """
import socket, subprocess, sys
from pathlib import Path
import iscsitrace.recording.capture as anonymise
import iscsitrace.tables.trace as trace
from iscsitrace.cli import main

def tried(name, attempt):
    try:
        attempt()
    except PermissionError:
        print("refused:", name, file=sys.stderr)
    else:
        print("possible:", name, file=sys.stderr)

def trying(*arguments, **options):
    tried("connect", lambda: socket.create_connection(("127.0.0.1", {port})))
    tried("serve", lambda: socket.create_server(("127.0.0.1", 0)))
    tried("write elsewhere", lambda: Path("elsewhere", "new").touch())
    tried("write to the output's folder", lambda: Path("out", "new").touch())
    tried("start a program", lambda: subprocess.run(["/bin/true"]))
    return read(*arguments, **options)

(module, name) = (anonymise, "anonymise") if {words!r}[0] == "anonymise" else (trace, "read")
read = getattr(module, name)
setattr(module, name, trying)
main({words!r})
"""
"""A command whose reader tries what it may not do."""


def tried(words: list[str], folder: Path) -> dict[str, bool]:
    """What a reader can do within a command: by what it tried, whether that was possible."""
    for name in ("out", "elsewhere"):
        (folder / name).mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = _TRYING.format(port=server.getsockname()[1], words=words)
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    assert done.returncode == 0, done.stderr
    lines = [line.partition(": ") for line in done.stderr.splitlines()]
    return {name: said == "possible" for said, _, name in lines if said in ("possible", "refused")}


_NOTHING = dict.fromkeys(
    ("connect", "serve", "write elsewhere", "write to the output's folder", "start a program"), False
)


@cache
def _has_landlock() -> bool:
    asked = "from iscsitrace.recording.capture import confine; print(confine([]))"
    return subprocess.check_output([sys.executable, "-c", asked], text=True) == "[]\n"


@pytest.mark.parametrize(
    ("words", "possible"),
    [
        *(([*words.split(), "source.pcapng"], set()) for words in ("summary", "events --json", "diagnose", "cycles")),
        *(
            ([*words.split(), "source.pcapng"], set())
            for words in ("mirrors", "check", "report --format md -o -", "model fit")
        ),
        (["diff", "source.pcapng", "source.pcapng"], set()),
        (["export", "-o", "out", "source.pcapng"], {"write to the output's folder"}),
        (["export", "--sidecar", "-o", "out", "source.pcapng"], {"write to the output's folder"}),
        (["plot", "cycles", "-o", "out/plot.svg", "source.pcapng"], {"write to the output's folder"}),
        (["report", "-o", "out/report.html", "source.pcapng"], {"write to the output's folder"}),
        (["anonymise", "-o", "out/x.pcapng", "source.pcapng"], {"write to the output's folder"}),
    ],
)
def test_a_reader_writes_to_its_output_alone(
    words: list[str], possible: set[str], capture: Path, tmp_path: Path
) -> None:
    if not _has_landlock():
        pytest.skip("the kernel has no Landlock")
    assert tried(words, tmp_path) == _NOTHING | dict.fromkeys(possible, True)


_INSIDE = """
import ctypes, fcntl, os, signal, socket, sys, threading
from pathlib import Path
from iscsitrace.recording import capture

victim, server = int(sys.argv[1]), ("127.0.0.1", int(sys.argv[2]))
local, is_serving = sys.argv[3], sys.argv[4] == "serves"
libc = ctypes.CDLL(None, use_errno=True)
own = Path("out/own")
own.touch()

def call(number, *arguments):
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), "")

def connected(*kind):
    with socket.socket(*kind) as opened:
        opened.connect(server)

ATTEMPTS = {
    "TCP": lambda: connected(socket.AF_INET, socket.SOCK_STREAM),
    "MPTCP": lambda: connected(socket.AF_INET, socket.SOCK_STREAM, 262),
    "UDP": lambda: connected(socket.AF_INET, socket.SOCK_DGRAM),
    "TCP fast open": lambda: socket.socket().sendto(b"x", 0x20000000, server),
    "a local socket": lambda: socket.socket(socket.AF_UNIX).connect(local),
    "an abstract socket": lambda: socket.socket(socket.AF_UNIX).connect("\\0" + local),
    "io_uring": lambda: call(425, 1, ctypes.create_string_buffer(120)),
    "a signal": lambda: os.kill(victim, 0),
    "a signal to all": lambda: os.kill(-1, 0),
    "a signal to a thread": lambda: call({"x86_64": 200, "aarch64": 130}[os.uname().machine], victim, 0),
    "a signal by a descriptor": lambda: signal.pidfd_send_signal(os.pidfd_open(victim), 0),
    "ptrace": lambda: call({"x86_64": 101, "aarch64": 117}[os.uname().machine], 16, victim, 0, 0),
    "memory of a process": lambda: call({"x86_64": 310, "aarch64": 270}[os.uname().machine], victim, 0, 0, 0, 0, 0),
    "limits of a process": lambda: __import__("resource").prlimit(victim, 7),
    "chmod u+s": lambda: own.chmod(0o4755),
    "chmod g+s": lambda: own.chmod(0o2755),
    "a new file u+s": lambda: os.open("out/new", os.O_CREAT | os.O_WRONLY, 0o4755),
    "a program": lambda: os.execv("/bin/true", ["true"]),
    "a process": os.fork,
    "a name space": lambda: os.unshare(os.CLONE_NEWUSER) if hasattr(os, "unshare") else call(
        {"x86_64": 272, "aarch64": 97}[os.uname().machine], 0x10000000),
    "a mount": lambda: call({"x86_64": 165, "aarch64": 40}[os.uname().machine], b"a", b"/", b"tmpfs", 0, 0),
    "keys for a terminal": lambda: fcntl.ioctl(0, 0x5412, b"x"),
    "shared memory": lambda: call({"x86_64": 29, "aarch64": 194}[os.uname().machine], 0, 4096, 0o1600),
    "a program for the kernel": lambda: call({"x86_64": 321, "aarch64": 280}[os.uname().machine], 0, 0, 0),
}
problems = capture.confine([Path("out")], [0] if is_serving else [])
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
    except PermissionError:
        continue
    except OSError as error:
        print(name, error)
    else:
        print(name, "possible")
# what a reader needs
threading.Thread(target=lambda: None).start()
socket.socketpair()
os.kill(os.getpid(), 0)
own.chmod(0o600)
own.rename("out/renamed")
try:
    socket.create_server(("127.0.0.1", 0))
    print("serves")
except PermissionError:
    pass
"""
"""What is tried from inside; a line for each attempt that is not refused."""


@pytest.mark.parametrize("serves", [False, True])
def test_a_confined_reader_reaches_nobody(tmp_path: Path, *, serves: bool) -> None:
    (tmp_path / "out").mkdir()
    local = str(tmp_path / "socket")
    with (
        running(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])) as victim,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        named.bind(local)
        named.listen()
        abstract.bind("\0" + local)
        abstract.listen()
        words = [str(victim.pid), str(server.getsockname()[1]), local, "serves" if serves else "reads"]
        done = subprocess.run(
            [sys.executable, "-c", _INSIDE, *words],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert victim.poll() is None
        victim.kill()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("serves\n" if serves else "")


def test_a_program_that_calls_a_command_and_goes_on_keeps_its_rights(capture: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from iscsitrace.cli import main\n"
        "main(['summary', sys.argv[1]], standalone_mode=False)\n"
        "Path(sys.argv[1]).with_name('beside').write_text('x')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(capture)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
