"""Which extra of iscsitrace installs a Python package, from the metadata of the installation."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

_DISTRIBUTIONS: Final = {"rich": "textual", "yaml": "pyyaml"}
"""Packages whose distribution has another name, or that come with another one."""
_NOT_OFFERED: Final = ("dev", "mutants", "wheel")
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+).*extra\s*==\s*['\"]([A-Za-z0-9_-]+)['\"]")


def of_module(name: str) -> str | None:
    """The name of the extra; None for a package that no extra installs."""
    wanted = _plain(_DISTRIBUTIONS.get(name, name))
    try:
        found = [match.groups() for each in requires("iscsitrace") or () if (match := _REQUIREMENT.match(each))]
    except PackageNotFoundError:
        return None
    return next((extra for each, extra in found if _plain(each) == wanted and extra not in _NOT_OFFERED), None)


def _plain(name: str) -> str:
    """A name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
