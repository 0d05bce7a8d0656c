"""Where dependencies come from, their licences, and that what is tested is pinned: by lock files, without a network.

`make audit` asks cargo-deny and pip-audit as well, which know published vulnerabilities.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from importlib.metadata import distribution, version
from typing import Any

import pytest

from tools.docs import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = tomllib.loads((ROOT / "core" / "Cargo.lock").read_text())["package"]
POLICY = tomllib.loads((ROOT / "core" / "deny.toml").read_text())
PINS = dict(line.split("==") for line in (ROOT / "tools" / "constraints.txt").read_text().split())
EXTRAS = PROJECT["optional-dependencies"]
INSTALLED = sorted(
    each
    for each in {
        *PROJECT["dependencies"],
        *(each for name in EXTRAS if name not in ("mutants", "wheel") for each in EXTRAS[name]),
    }
    if not each.startswith("iscsitrace[")
)
COPYLEFT = re.compile(r"\bA?GPL|\bLGPL|General Public", re.IGNORECASE)


def normal(name: str) -> str:
    """As package indices compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def permits(expression: str, allowed: set[str]) -> bool:
    """Whether a licence expression is met by allowed licences; old crates write / for OR."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def either(at: int) -> tuple[bool, int]:
        value, at = both(at)
        while at < len(words) and words[at] == "OR":
            other, at = both(at + 1)
            value = value or other
        return value, at

    def both(at: int) -> tuple[bool, int]:
        value, at = one(at)
        while at < len(words) and words[at] == "AND":
            other, at = one(at + 1)
            value = value and other
        return value, at

    def one(at: int) -> tuple[bool, int]:
        if words[at] == "(":
            value, at = either(at + 1)
            return value, at + 1
        if words[at + 1 : at + 2] == ["WITH"]:
            return " ".join(words[at : at + 3]) in allowed, at + 3
        return words[at] in allowed, at + 1

    value, end = either(0)
    assert end == len(words), expression
    return value


def crates() -> list[dict[str, Any]]:
    command = [
        "cargo",
        "metadata",
        "--manifest-path",
        "core/Cargo.toml",
        "--locked",
        "--offline",
        "--format-version",
        "1",
    ]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["packages"]
    return found


def test_expressions_of_licences() -> None:
    allowed = {"MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"}
    assert permits("MIT OR GPL-3.0", allowed)
    assert permits("GPL-3.0/MIT", allowed)
    assert permits("(GPL-3.0 OR MIT) AND Zlib", allowed)
    assert permits("Apache-2.0 WITH LLVM-exception", allowed)
    assert not permits("Apache-2.0", allowed)
    assert not permits("MIT AND GPL-3.0", allowed)
    assert not permits("(GPL-3.0 OR MIT) AND NCSA", allowed)


def test_every_crate_is_from_the_registry_with_a_digest() -> None:
    others = [each["name"] for each in LOCK if "source" not in each]
    assert all(name.startswith("iscsitrace-") for name in others), others
    for each in LOCK:
        if "source" in each:
            assert each["source"].startswith("registry+"), each["name"]
            assert re.fullmatch("[0-9a-f]{64}", each["checksum"]), each["name"]


def test_every_crate_has_an_allowed_licence() -> None:
    allowed = set(POLICY["licenses"]["allow"])
    exceptions = {each["crate"]: set(each["allow"]) for each in POLICY["licenses"]["exceptions"]}
    found = crates()
    assert len(found) > 100
    for each in found:
        licence = each["license"]
        assert licence, each["name"]
        assert permits(licence, allowed | exceptions.get(each["name"], set())), f"{each['name']}: {licence}"


@pytest.mark.parametrize("requirement", INSTALLED)
def test_a_python_dependency_is_pinned_at_what_is_tested(requirement: str) -> None:
    """No upper bounds in pyproject.toml: the newest version that was tested is the pin."""
    name = re.split(r"[><=!~\[;, ]", requirement)[0]
    pins = {normal(each): pin for each, pin in PINS.items()}
    assert normal(name) in pins, f"{name} has no line in tools/constraints.txt"
    assert version(name) == pins[normal(name)]
    if least := re.search(r">=([\d.]+)", requirement):
        assert _numbers(version(name)) >= _numbers(least[1])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def test_what_a_user_installs_has_no_strict_copyleft() -> None:
    for requirement in PROJECT["dependencies"]:
        name = re.split(r"[><=!~\[;, ]", requirement)[0]
        data = distribution(name).metadata
        stated = " ".join([*(data.get_all("License-Expression") or ()), *(data.get_all("Classifier") or ())])
        assert not COPYLEFT.search(stated), name
