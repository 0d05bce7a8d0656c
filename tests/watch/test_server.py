"""The server of the metrics under clients that want too much, and the file with its certificates and passwords."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import bcrypt
import pytest
from click.testing import CliRunner
from prometheus_client import Gauge
from prometheus_client.registry import CollectorRegistry

from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid
from iscsitrace.watch import server
from iscsitrace.watch.exposition import Exposition
from iscsitrace.watch.server import CONNECTIONS_MAX, MetricsServer

HASH = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()
Serve = Callable[..., MetricsServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def begin(access: server.Access = server.OPEN) -> MetricsServer:
            registry = CollectorRegistry()
            registry.register(Exposition())
            running = MetricsServer(registry, "127.0.0.1", 0, access)
            stack.callback(running.stop)
            return running

        yield begin


def scrape(port: int, context: ssl.SSLContext | None = None, user: str = "", patience_s: float = 30) -> int:
    """The status of a scrape, over TLS with a context; by the host's name, which the certificate has."""
    headers = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if user else {}
    if context is None:
        connection = http.client.HTTPConnection("localhost", port, timeout=patience_s)
    else:
        connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=context)
    try:
        connection.request("GET", "/metrics", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def descriptor_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_half_requests_take_neither_threads_nor_descriptors_without_bound(serve: Serve) -> None:
    running = serve()
    before = descriptor_count()
    threads = threading.active_count()
    half_requests: list[socket.socket] = []
    try:
        for number in range(900):
            client = socket.create_connection(("127.0.0.1", running.port), timeout=30)
            half_requests.append(client)
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Half: ")
            if number % 300 == 299:
                # one whose request comes late is refused while all others have just begun: half a second at most
                assert any(scraped_under_load(running.port) == 200 for _ in range(25))
        # the clients' ends are in this process, too
        assert descriptor_count() - before - len(half_requests) <= CONNECTIONS_MAX + 1
        assert threading.active_count() <= threads + 1
    finally:
        for client in half_requests:
            client.close()


FLOOD = """
import collections, itertools, socket, sys, time
port, sent = int(sys.argv[1]), sys.argv[2].encode()
held = collections.deque(maxlen=900)
for count in itertools.count(1):
    # two hundred times as many connections as the server has, each second
    if not count % 64:
        time.sleep(0.01)
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", port))
    held.append(client)
    if sent and len(held) > 1:
        try:
            held[-2].send(sent)
        except OSError:
            pass
"""


@pytest.mark.parametrize("sent", ["", "GET /metrics HTTP/1.1\r\nX-Half: "], ids=["silent", "half requests"])
def test_scrapes_are_answered_under_a_flood_of_connections(sent: str, serve: Serve) -> None:
    running = serve()
    floods = [subprocess.Popen([sys.executable, "-c", FLOOD, str(running.port), sent]) for _ in range(2)]
    answers: list[int] = []

    def lead() -> int:
        """Of the answers over the refusals: without the place for whole requests few scrapes are answered."""
        return 2 * answers.count(200) - len(answers)

    try:
        time.sleep(0.5)
        while lead() < 4 and len(answers) < 15:
            answers.append(scraped_under_load(running.port))
    finally:
        for flood in floods:
            flood.kill()
            flood.wait()
    assert lead() == 4, answers


def test_clients_that_take_no_answer_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iscsitrace.watch.server.CONNECTIONS_MAX", 3)
    registry = CollectorRegistry()
    large = Gauge("large", "more than the kernel buffers", ("label",), registry=registry)
    for number in range(16_000):
        large.labels("x" * 500 + str(number)).set(1)
    running = MetricsServer(registry, "127.0.0.1", 0)
    deaf = []
    try:
        for _ in range(3):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(30)
            client.connect(("127.0.0.1", running.port))
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            deaf.append(client)
        # each has the beginning of its answer
        for client in deaf:
            assert client.recv(1)
        time.sleep(1.1)
        assert scrape(running.port) == 200
    finally:
        for client in deaf:
            client.close()
        running.stop()


def scraped_under_load(port: int) -> int:
    try:
        return scrape(port, patience_s=5)
    except (OSError, http.client.HTTPException):
        time.sleep(0.2)
        return 0


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "half a request"])
def test_a_request_has_a_time_limit(sent: bytes, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.2)
    with socket.create_connection(("127.0.0.1", serve().port), timeout=30) as client:
        client.sendall(sent)
        # closed by the server, with or without an answer
        while client.recv(4096):
            pass


def test_a_request_has_a_limited_size(serve: Serve) -> None:
    running = serve()
    request = b"GET /metrics HTTP/1.1\r\n" + 10_000 * (b"X-Long: " + 10_000 * b"x" + b"\r\n")
    is_closed = pytest.raises((BrokenPipeError, ConnectionResetError))
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client, is_closed:
        client.sendall(request)
    assert scrape(running.port) == 200


def test_a_server_that_was_stopped_is_gone(serve: Serve) -> None:
    registry = CollectorRegistry()
    running = MetricsServer(registry, "127.0.0.1", 0)
    with pytest.raises(InputInvalid, match="cannot serve at"):
        MetricsServer(registry, "127.0.0.1", running.port)
    running.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", running.port))


def test_a_server_can_be_stopped_as_it_begins() -> None:
    """Whatever its thread is doing."""
    for _ in range(100):
        MetricsServer(CollectorRegistry(), "127.0.0.1", 0).stop()


def test_passwords(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(f"basic_auth_users:\n  alice: {HASH}\n")
    running = serve(server.read_access(tmp_path / "web.yml"))
    assert scrape(running.port, user="alice:open sesame") == 200
    for wrong in ("", "alice:", "alice:open", "alice", "bob:open sesame", ":open sesame", "bob:nobody"):
        assert scrape(running.port, user=wrong) == 401, wrong


@pytest.mark.parametrize("header", ["", "Basic", "Basic !", "Bearer x", "Basic /w=="])
def test_a_broken_header_admits_nobody(header: str) -> None:
    assert not server.Access(users={"alice": HASH}).admits(header)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("certificates")
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    more = "-addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"
    subprocess.run([*words.split(), *more.split()], cwd=folder, check=True, capture_output=True)
    return folder


def test_tls(serve: Serve, certificates: Path) -> None:
    file = certificates / "web.yml"
    # relative to the file
    file.write_text("tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n")
    running = serve(server.read_access(file))
    context = ssl.create_default_context(cafile=str(certificates / "cert.pem"))
    # a handshake that does not begin stops nobody
    with socket.create_connection(("127.0.0.1", running.port)):
        assert scrape(running.port, context) == 200
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        scrape(running.port)


def test_certificates_of_clients(serve: Serve, certificates: Path) -> None:
    file = certificates / "clients.yml"
    file.write_text(
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: cert.pem, "
        "client_auth_type: RequireAndVerifyClientCert, min_version: TLS12}\n"
    )
    running = serve(server.read_access(file))
    context = ssl.create_default_context(cafile=str(certificates / "cert.pem"))
    with pytest.raises((ssl.SSLError, ConnectionResetError, http.client.RemoteDisconnected)):
        scrape(running.port, context)
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    assert scrape(running.port, context) == 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tls_server_config: {cert_file: none.pem, key_file: none.pem}", "cannot use its certificates"),
        ("tls_server_config: {cert_file: none.pem}", "key_file"),
        ("tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert}", "client_ca"),
        ("http_server_config: {http2: true}", "http_server_config"),
        ("basic_auth_users: {alice: open sesame}", "not a bcrypt hash"),
        ("basic_auth_users: [", "web.yml"),
        ("basic_auth_users: {alice: 7}", "basic_auth_users"),
    ],
)
def test_a_wrong_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(text)
    with pytest.raises(InputInvalid, match=message):
        server.read_access(tmp_path / "web.yml")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    words = ["watch", "--prometheus", "0", "--web-config", str(tmp_path / "none.yml"), "--no-follow", __file__]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "none.yml: No such file" in result.stderr


def test_an_empty_file_opens_the_server_to_all(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("")
    assert server.read_access(tmp_path / "web.yml") == server.OPEN
