"""Writes iscsitrace/wording/login_keys.py from the table of keys in core/wire/src/key.rs.

Command options and definitions of experiments use the keys without importing the core.
``python -m tools.login_keys`` writes the file; tests/project/test_vocabulary.py fails if it is out of date.
"""

from __future__ import annotations

from pathlib import Path

from iscsitrace import _core

FILE = Path(__file__).resolve().parents[1] / "iscsitrace/wording/login_keys.py"
_KINDS = {"number": "NUMBER", "boolean": "TRUTH", "list": "LIST"}
_HEAD = '''\
"""The operational login keys of RFC 7143, section 13: the name of each in settings and results, and its kind of value.

Generated from core/wire/src/key.rs by `python -m tools.login_keys`; do not edit.
"""

from __future__ import annotations

NUMBER, TRUTH, LIST = "a number", "Yes or No", "a list of values"
LOGIN_KEYS: dict[str, tuple[str, str]] = {
'''
_TAIL = '''\
}
"""Key in the RFC's spelling: its name in settings and results, and its kind of value."""
'''


def text() -> str:
    """The content of the file."""
    rows = [key for key in _core.login_keys() if key["setting"]]
    return (
        _HEAD + "".join(f'    "{key["name"]}": ("{key["setting"]}", {_KINDS[key["kind"]]}),\n' for key in rows) + _TAIL
    )


if __name__ == "__main__":
    FILE.write_text(text())
