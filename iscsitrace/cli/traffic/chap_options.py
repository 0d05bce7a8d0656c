"""CHAP names and secrets of both sides, from options, a file, the environment or a prompt.

A secret in the command line is visible to every user of the machine; the other ways are not.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any, Final

import click

from iscsitrace.cli.sections import Option, option
from iscsitrace.cli.units import Quantity
from iscsitrace.errors import InputInvalid

SECRET_BYTES_MIN: Final = 12
"""RFC 7143 section 9.2.1: secrets of less than 96 bits need IPsec."""
ENVIRONMENT: Final = {"initiator": "ISCSITRACE_CHAP_SECRET", "target": "ISCSITRACE_MUTUAL_CHAP_SECRET"}

Account = dict[str, str]
"""``name`` and ``secret``."""


class Credentials(Quantity):
    """``USER[%SECRET]``, to a name and a secret, which is empty if it is not there."""

    name = "USER[%SECRET]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Account:
        """The pair; fails with a line that shows how to write one."""
        if isinstance(value, dict):
            return value
        user, percent, secret = value.partition("%")
        if not user or (percent and not secret):
            self.fail("not a name, or a name, % and a secret, like joe%twelve-or-more", param, ctx)
        return {"name": user, "secret": secret}


def options(of_initiator: str, of_target: str) -> tuple[Option, ...]:
    """The options, with the help of the first two."""
    return (
        option("--chap", type=Credentials(), multiple=True, help=of_initiator),
        option("--mutual-chap", "chap_of_target", type=Credentials(), help=of_target),
        option(
            "--chap-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Names and secrets of --chap and --mutual-chap: lines 'initiator USER%SECRET' and "
            "'target USER%SECRET'. Only its owner may read it.",
        ),
        option(
            "--short-secrets",
            "allows_short",
            is_flag=True,
            help=f"Allow secrets of fewer than {SECRET_BYTES_MIN} bytes. They need IPsec (RFC 7143 section 9.2.1).",
        ),
    )


def gathered(
    chap: tuple[Account, ...], chap_of_target: Account | None, chap_file: Path | None, *, allows_short: bool
) -> dict[str, Any] | None:
    """The accounts of ``initiators`` and of the ``target``; None without any. Asks for secrets that are missing."""
    initiators = list(chap)
    if chap_file is not None:
        of_file = _read(chap_file)
        initiators += of_file["initiator"]
        for account in of_file["target"]:
            if chap_of_target is not None:
                raise InputInvalid(f"{chap_file}: a target has one account, which is {chap_of_target['name']}")
            chap_of_target = account
    if chap_of_target and not initiators:
        raise click.UsageError("--mutual-chap needs --chap: the target authenticates only initiators that do so, too")
    if not initiators:
        return None
    initiators = [_with_secret(account, "initiator") for account in initiators]
    target = None if chap_of_target is None else _with_secret(chap_of_target, "target")
    for account in (*initiators, *([target] if target else [])):
        require_length(account["secret"], allows_short=allows_short)
    return {"initiators": initiators, "target": target}


def require_length(secret: str, *, allows_short: bool) -> None:
    """InputInvalid for a secret that is too short."""
    length = len(secret.encode())
    if length < SECRET_BYTES_MIN and not allows_short:
        raise InputInvalid(
            f"a CHAP secret has {length} bytes; without IPsec it needs {SECRET_BYTES_MIN} (RFC 7143 section 9.2.1; "
            "--set short-secrets=yes allows it)"
        )


def _read(file: Path) -> dict[str, list[Account]]:
    """The accounts of a file by side. Empty lines and those that begin with # are skipped."""
    try:
        with file.open(encoding="utf-8") as stream:
            if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
                raise InputInvalid(f"{file}: other users have access to these secrets (chmod 600 {file})")
            lines = stream.read().splitlines()
    except OSError as error:
        raise InputInvalid(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise InputInvalid(f"{file}: its text is not UTF-8") from None
    found: dict[str, list[Account]] = {side: [] for side in ENVIRONMENT}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        side, _, account = line.partition(" ")
        user, _, secret = account.strip().partition("%")
        if side not in found or not user or not secret:
            # without the line, which may have a secret
            raise InputInvalid(f"{file}: line {number} is neither 'initiator USER%SECRET' nor 'target USER%SECRET'")
        found[side].append({"name": user, "secret": secret})
    return found


def _with_secret(account: Account, side: str) -> Account:
    if account["secret"]:
        return account
    variable = ENVIRONMENT[side]
    secret = os.environ.get(variable, "")
    if not secret and sys.stdin.isatty():
        secret = click.prompt(f"CHAP secret of {account['name']}", hide_input=True, err=True)
    if not secret:
        raise InputInvalid(f"no CHAP secret of {account['name']}: use --chap-file or {variable}")
    return account | {"secret": secret}


def without_user(url: str) -> tuple[str, Account | None]:
    """A URL whose user has no secret, without that user; and the user. Other URLs as they are."""
    scheme, slashes, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if not at or "%" in user or not user:
        return url, None
    return f"{scheme}{slashes}{host}{slash}{path}", {"name": user, "secret": ""}


def require_length_in(url: str, *, allows_short: bool) -> None:
    """InputInvalid for a URL with a secret that is too short."""
    address, _, query = url.partition("://")[2].partition("?")
    _, percent, secret = address.partition("/")[0].rpartition("@")[0].partition("%")
    secrets = [secret] if percent else []
    secrets += [pair.partition("=")[2] for pair in query.split("&") if pair.startswith("target_password=")]
    for each in secrets:
        require_length(each, allows_short=allows_short)
