"""Who may read the metrics: TLS and passwords from a file as Prometheus exporters have it.

The format is that of the Prometheus exporter toolkit (docs/web-configuration.md there): ``tls_server_config`` with
certificates, ``basic_auth_users`` with bcrypt hashes. A key that is not supported is an error, so that nobody relies on
it. Serves nothing.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import msgspec

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


def read(path: Path) -> Access:
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
