"""Serves metrics over HTTP: one thread, a limited number of connections, and a time limit for each request.

At the limit a new connection replaces the oldest one that has not sent a request: at once if its own request has
arrived, otherwise only if that one has been silent for a while; if there is none, it is refused. A scrape sends its
request at once, so a flood of connections does not keep it out. The pages come from prometheus-client; Tornado speaks
HTTP and TLS. Nothing here knows a metric.

TLS and passwords come from a file in the format of the Prometheus exporter toolkit (docs/web-configuration.md there):
``tls_server_config`` with certificates, ``basic_auth_users`` with bcrypt hashes. A key that is not supported is an
error, so that nobody relies on it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from prometheus_client import make_wsgi_app
from prometheus_client.registry import CollectorRegistry
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.wsgi import WSGIContainer

from iscsitrace.errors import ExtraMissing, InputInvalid

_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CERTIFICATES: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_NOBODY: Final = "$2b$10$nmK9jEhmoB6yX/inCIKrOOI9CR4KntCwuJyVRwMPHsg7vY4bDvPSO"
"""Compared for an unknown user, so that the time does not tell which users exist."""


class _Tls(msgspec.Struct, forbid_unknown_fields=True):
    cert_file: str
    key_file: str
    client_auth_type: Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = "NoClientCert"
    client_ca_file: str | None = None
    min_version: Literal["TLS12", "TLS13"] = "TLS12"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tls_server_config: _Tls | None = None
    basic_auth_users: dict[str, str] | None = None


@dataclass(frozen=True)
class Access:
    """What a client needs: TLS, and a user with a password, if there are any."""

    tls: ssl.SSLContext | None = None
    users: dict[str, str] = field(default_factory=dict)
    """User names and bcrypt hashes of their passwords."""

    def admits(self, authorization: str) -> bool:
        """Whether an Authorization header (RFC 7617) has a user and the right password."""
        scheme, _, encoded = authorization.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        is_right = _is_right(password, self.users.get(user, _NOBODY))
        return bool(colon) and is_right and user in self.users


OPEN: Final = Access()
"""Everybody who reaches the port."""


def read_access(path: Path) -> Access:
    """The access that a file describes. InputInvalid for a wrong file, ExtraMissing without PyYAML and bcrypt."""
    try:
        import bcrypt  # noqa: F401
        import yaml  # noqa: F401
    except ImportError as error:
        raise ExtraMissing("--web-config", str(error.name), "watch") from error
    try:
        found = msgspec.yaml.decode(path.read_bytes(), type=_File | None) or _File()
    except OSError as error:
        raise InputInvalid(f"cannot read {path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputInvalid(f"{path}: {error}") from error
    users = found.basic_auth_users or {}
    for user, hashed in users.items():
        _require_hash(path, user, hashed)
    tls = found.tls_server_config
    return Access(None if tls is None else _context(path, tls), users)


def _require_hash(path: Path, user: str, hashed: str) -> None:
    import bcrypt

    try:
        bcrypt.checkpw(b"", hashed.encode())
    except ValueError:
        raise InputInvalid(f"{path}: the password of {user} is not a bcrypt hash (htpasswd -nBC 10 {user})") from None


def _context(path: Path, tls: _Tls) -> ssl.SSLContext:
    """Files are relative to the folder of the configuration."""
    if (tls.client_ca_file is None) != (tls.client_auth_type == "NoClientCert"):
        raise InputInvalid(f"{path}: client_ca_file and a client_auth_type that verifies need each other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.verify_mode = _CERTIFICATES[tls.client_auth_type]
    try:
        context.load_cert_chain(path.parent / tls.cert_file, path.parent / tls.key_file)
        if tls.client_ca_file is not None:
            context.load_verify_locations(path.parent / tls.client_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InputInvalid(f"{path}: cannot use its certificates: {error}") from error
    return context


@lru_cache(maxsize=64)
def _is_right(password: str, hashed: str) -> bool:
    """A comparison takes tens of milliseconds, on purpose; scrapes repeat the same password."""
    import bcrypt

    # bcrypt uses 72 bytes
    return bcrypt.checkpw(password.encode()[:72], hashed.encode())


CONNECTIONS_MAX: Final = 64
REQUEST_S: Final = 5.0
"""Time for the TLS handshake and all headers of a request, and for the next one on the same connection."""
_SERVED_S: Final = 1.0
"""A connection whose request had arrived is kept for so long, also where its client does not take the answer."""
_SILENT_S: Final = 0.5
"""After that time a connection without a request gives way to any other."""
_TLS_HANDSHAKE: Final = b"\x16\x03"
_HEADER_BYTES_MAX: Final = 16 << 10
_BACKLOG: Final = 1024
_UNAUTHORIZED: Final = "401 Unauthorized"

_Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Any]


class MetricsServer:
    """A server in a thread of its own, from its creation until `stop`."""

    def __init__(self, registry: CollectorRegistry, address: str, port: int, access: Access = OPEN) -> None:
        """InputInvalid if the port is not available."""
        try:
            family, *_, bound = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(bound, family=family, backlog=_BACKLOG)
        except OSError as error:
            raise InputInvalid(f"cannot serve at {address}:{port}: {error.strerror or error}") from error
        listener.setblocking(False)
        self.port: int = listener.getsockname()[1]
        # its warnings, on requests that are no HTTP, would disturb the screen
        logging.getLogger("tornado").propagate = False
        logging.getLogger("tornado").addHandler(logging.NullHandler())
        self._loop = asyncio.new_event_loop()
        app = _with_password(make_wsgi_app(registry), access)

        async def begin() -> None:
            server = _Server(
                WSGIContainer(app),
                ssl_options=access.tls,
                idle_connection_timeout=REQUEST_S,
                body_timeout=REQUEST_S,
                max_header_size=_HEADER_BYTES_MAX,
                max_body_size=0,
                max_buffer_size=1 << 20,
            )
            server.add_socket(listener)
            self._server = server

        def serve() -> None:
            asyncio.set_event_loop(self._loop)
            # a request to stop may come at any moment: it ends the only run of the loop
            begun = self._loop.create_task(begin())
            self._loop.run_forever()
            if not begun.done():
                self._loop.run_until_complete(begun)
            self._server.close_all()
            self._loop.close()

        self._thread = threading.Thread(target=serve, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Closes the port and all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class _Server(HTTPServer):
    """Has at most `CONNECTIONS_MAX` connections."""

    def initialize(self, *arguments: Any, **options: Any) -> None:
        super().initialize(*arguments, **options)
        # the time of their beginning and whether their request was whole then, in order
        self._streams: dict[IOStream, tuple[float, bool]] = {}

    def _handle_connection(self, connection: socket.socket, address: Any) -> None:
        """Tornado calls it for each new connection; one that is refused costs little."""
        if self._makes_room(connection):
            super()._handle_connection(connection, address)
        else:
            connection.close()

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        self._streams[stream] = time.monotonic(), _has_request(stream.socket)
        super().handle_stream(stream, address)

    def _makes_room(self, connection: socket.socket) -> bool:
        if len(self._streams) < CONNECTIONS_MAX:
            return True
        self._streams = {stream: begun for stream, begun in self._streams.items() if not stream.closed()}
        if len(self._streams) < CONNECTIONS_MAX:
            return True
        idle = next((each for each in self._streams if not self._is_served(each)), None)
        if idle is None or (self._age_s(idle) < _SILENT_S and not _has_request(connection)):
            return False
        idle.close()
        del self._streams[idle]
        return True

    def _age_s(self, stream: IOStream) -> float:
        return time.monotonic() - self._streams[stream][0]

    def _is_served(self, stream: IOStream) -> bool:
        is_new = self._age_s(stream) < _SERVED_S and (self._streams[stream][1] or stream.writing())
        return is_new or _has_request(stream.socket)

    def close_all(self) -> None:
        self.stop()
        for stream in self._streams:
            stream.close()


def _has_request(connection: socket.socket) -> bool:
    """Whether the headers of a request, or the beginning of a TLS handshake, wait to be read."""
    try:
        # not the method of a TLS socket, which knows no flags
        waiting = socket.socket.recv(connection, _HEADER_BYTES_MAX, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return False
    return b"\r\n\r\n" in waiting or waiting.startswith(_TLS_HANDSHAKE)


def _with_password(app: _Wsgi, access: Access) -> _Wsgi:
    if not access.users:
        return app

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if access.admits(environ.get("HTTP_AUTHORIZATION", "")):
            return app(environ, start_response)
        start_response(_UNAUTHORIZED, [("WWW-Authenticate", 'Basic realm="iscsitrace"')])
        return [b"Unauthorized\n"]

    return guarded
