"""Captures on another host: SFTP from a real sshd on loopback."""

from __future__ import annotations

import getpass
import gzip
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from iscsitrace.fleet import history
from tests.support import rings
from tests.support.lab import needs_peers

pytestmark = needs_peers


@dataclass
class Server:
    """An sshd that lets this user in with a key, which ``home`` has."""

    process: subprocess.Popen[bytes]
    home: Path
    port: int

    def url(self, folder: Path) -> str:
        return f"sftp://{getpass.getuser()}@127.0.0.1:{self.port}{folder}"

    def fleet_run(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code and output of ``iscsitrace fleet run`` with the user's key and no agent."""
        environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
        done = subprocess.run(
            [sys.executable, "-m", "iscsitrace", "fleet", "run", *map(str, arguments)],
            env=environment | {"HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    program, keygen = (shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("sshd", "ssh-keygen"))
    if program is None or keygen is None:
        pytest.fail("sshd is missing: tools/setup peers installs it")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd confines itself to it
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    for key in (home / ".ssh" / "id_ed25519", tmp_path / "host_key"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=30)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = tmp_path / "sshd_config"
    settings.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {home}/.ssh/id_ed25519.pub\nPermitRootLogin prohibit-password\n"
        "PasswordAuthentication no\nSubsystem sftp internal-sftp\n"
    )
    process = subprocess.Popen([program, "-D", "-e", "-f", settings], stderr=subprocess.PIPE)
    try:
        for _ in range(500):
            assert process.poll() is None, process.communicate()[1].decode()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.01)
        yield Server(process, home, port)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_the_dataset_of_captures_over_sftp_is_that_of_one_pass(tmp_path: Path, server: Server) -> None:
    packets = rings.traffic(1)
    *first, last = rings.cut(tmp_path / "captures" / "ring", packets, rings.random_borders(packets, 6, 3))
    # one that is compressed, and one that comes later
    first[1].with_name(first[1].name + ".gz").write_bytes(gzip.compress(first[1].read_bytes()))
    first[1].unlink()
    last.rename(tmp_path / last.name)
    data = tmp_path / "data"
    source = f"a={server.url(tmp_path / 'captures' / 'ring')}"
    code, _, err = server.fleet_run(source, "-o", data)
    assert (code, err) == (0, "")
    (tmp_path / last.name).rename(last)
    code, _, err = server.fleet_run(source, "-o", data)
    assert (code, err) == (0, "")
    rings.assert_equal(data, "a", rings.whole(tmp_path, packets))
    entries = history.TapHistory(data, "a").entries
    assert [entry.status for entry in entries.values()] == [history.READ] * 6
    assert all(entry.path.startswith(f"sftp://127.0.0.1:{server.port}/") for entry in entries.values())


def test_a_host_that_does_not_answer_or_let_in_is_one_line(tmp_path: Path, server: Server) -> None:
    packets = rings.traffic(1)
    rings.cut(tmp_path / "ring", packets, [])
    source = f"a={server.url(tmp_path / 'ring')}"
    (server.home / ".ssh" / "id_ed25519").unlink()
    for _ in range(2):
        code, out, err = server.fleet_run(source, "-o", tmp_path / "data")
        assert (code, out) == (2, "")
        assert err.startswith("iscsitrace: ")
        assert err.count("\n") == 1
        assert f"127.0.0.1:{server.port}" in err
        server.process.terminate()
        server.process.wait(timeout=30)
