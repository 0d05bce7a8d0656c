"""CHAP secrets: from the command line, a file, the environment or a prompt, and never too short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from iscsitrace.cli.traffic import chap_options, initiator
from iscsitrace.errors import InputInvalid

LONG, OTHER = "twelve-bytes", "other-secret-2"


def account(name: str, secret: str = "") -> dict[str, str]:
    return {"name": name, "secret": secret}


def gathered(
    *chap: dict[str, str], target: dict[str, str] | None = None, file: Path | None = None, allows_short: bool = False
) -> Any:
    return chap_options.gathered(chap, target, file, allows_short=allows_short)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chap"
    path.write_text(f"# of both sides\n\ninitiator joe%{LONG}\ninitiator jim%a%b c of 012\ntarget disk%{OTHER}\n")
    path.chmod(0o600)
    return path


def test_a_file_has_the_secrets_of_both_sides(file: Path) -> None:
    found = gathered(file=file)
    assert found["initiators"] == [account("joe", LONG), account("jim", "a%b c of 012")]
    assert found["target"] == account("disk", OTHER)
    assert gathered(account("ann", OTHER), file=file)["initiators"][0] == account("ann", OTHER)
    with pytest.raises(InputInvalid, match="a target has one account"):
        gathered(target=account("disk", LONG), file=file)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_for_others_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(InputInvalid, match="chmod 600"):
        gathered(file=file)


@pytest.mark.parametrize("line", ["joe%twelve-bytes", "initiator joe", "initiator %twelve-bytes", "host joe%abc"])
def test_a_wrong_line_is_named_but_not_shown(file: Path, line: str) -> None:
    file.write_text(f"# first\n{line}\n")
    with pytest.raises(InputInvalid, match="line 2") as caught:
        gathered(file=file)
    assert line not in str(caught.value)


def test_a_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISCSITRACE_CHAP_SECRET", LONG)
    monkeypatch.setenv("ISCSITRACE_MUTUAL_CHAP_SECRET", OTHER)
    found = gathered(account("joe"), target=account("disk"))
    assert found == {"initiators": [account("joe", LONG)], "target": account("disk", OTHER)}


def test_a_secret_is_asked_for_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISCSITRACE_CHAP_SECRET", raising=False)
    asked: list[tuple[str, dict[str, Any]]] = []

    def prompt(text: str, **options: Any) -> str:
        asked.append((text, options))
        return LONG

    monkeypatch.setattr(click, "prompt", prompt)
    with pytest.raises(InputInvalid, match=r"no CHAP secret of joe: use --chap-file or ISCSITRACE_CHAP_SECRET"):
        gathered(account("joe"))
    assert not asked
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert gathered(account("joe"))["initiators"] == [account("joe", LONG)]
    assert asked[0][1]["hide_input"]


def test_secrets_have_96_bits() -> None:
    # bytes, not characters
    for secret, is_long in (("elevenbytes", False), ("twelve-bytes", True), ("äääääb", False), ("äääääbc", True)):
        if is_long:
            assert gathered(account("joe", secret))
            continue
        with pytest.raises(InputInvalid, match=r"RFC 7143 section 9\.2\.1"):
            gathered(account("joe", secret))
        with pytest.raises(InputInvalid):
            gathered(account("joe", LONG), target=account("disk", secret))
        assert gathered(account("joe", secret), allows_short=True)["initiators"] == [account("joe", secret)]


def authenticated(*urls: str, **given: Any) -> Any:
    nothing = {"chap": (), "chap_of_target": None, "chap_file": None, "allows_short": False}
    return initiator._authenticated(urls, nothing | given)


def test_the_user_of_a_url_may_lack_a_secret(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setenv("ISCSITRACE_CHAP_SECRET", LONG)
    plain = "iscsi://h:3260/iqn.a:b/0?header_digest=crc32c"
    with_user = plain.replace("//", "//joe@")
    login = {"chap": account("joe", LONG), "chap_of_target": None}
    assert authenticated(plain) == ((plain,), {})
    assert authenticated(with_user, with_user) == ((plain, plain), login)
    assert authenticated(plain, chap=(account("joe"),)) == ((plain,), login)
    with pytest.raises(click.UsageError, match="different users"):
        authenticated(with_user, with_user.replace("joe", "jim"))
    with pytest.raises(click.UsageError, match="one name and secret"):
        authenticated(plain, chap_file=file)
    file.write_text(f"initiator joe%{OTHER}\n")
    assert authenticated(with_user, chap_file=file)[1]["chap"] == account("joe", OTHER)


def test_the_secrets_of_a_url_have_96_bits() -> None:
    long = f"iscsi://joe%{LONG}@h/iqn.a:b/0?target_user=disk&target_password={OTHER}"
    assert authenticated(long) == ((long,), {})
    for short in (long.replace(LONG, "short@%"), long.replace(OTHER, "short")):
        with pytest.raises(InputInvalid, match="--set short-secrets=yes allows it"):
            authenticated(short)
        assert authenticated(short, allows_short=True) == ((short,), {})
