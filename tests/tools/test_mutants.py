"""Mutation testing: the tests of a line, the outcome of a mutant in a small package, and the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants.__main__ import explain, report
from tools.mutants.lines import Lines, seconds_of_passed
from tools.mutants.sample import meaning, mutant_of
from tools.mutants.working_copy import outcome

MODULE = """from functools import cache

LIMIT = 3


def under(value):
    return value < LIMIT


@cache
def table():
    return [1, 2]


class Row:
    width = 2

    def size(self):
        return self.width
"""
SECONDS = {"tests/a.py::slow": 5.0, "tests/a.py::quick": 0.1, "tests/b.py::middle": 1.0, "tests/b.py::other": 0.5}
LINES = Lines(
    {"m.py": MODULE, "n.py": "import m\ndef f():\n    return m.table()\n"},
    {
        "m.py": {
            3: ["tests/a.py::quick (call)"],  # any test imported the module first
            7: ["tests/a.py::slow (call)", "tests/b.py::middle (call)", "tests/b.py::failed (call)"],
            12: ["tests/a.py::quick (call)"],
            16: ["tests/a.py::quick (call)"],
            19: ["tests/b.py::other (setup)"],
        },
        "n.py": {3: ["tests/b.py::middle (call)"]},
    },
    SECONDS,
    {"tests/a.py": "from m import Row\n", "tests/b.py": "import m\n"},
)


@pytest.mark.parametrize(
    ("line", "tests"),
    [
        # the file with the quicker tests first; a failed test is not used
        (7, ["tests/b.py::middle", "tests/a.py::slow"]),
        # a constant: the tests of the lines that use it, and of its own
        (3, ["tests/a.py::quick", "tests/b.py::middle", "tests/a.py::slow"]),
        # cached: every test of the file that filled the cache, and those of the lines that call it
        (12, ["tests/b.py::middle", "tests/a.py::quick", "tests/a.py::slow"]),
        # a class's own lines: the tests of its methods (a fixture counts for its whole file), and those that name it
        (16, ["tests/a.py::quick", "tests/a.py::slow", "tests/b.py::other", "tests/b.py::middle"]),
        (8, []),
    ],
)
def test_a_line_gets_the_tests_that_execute_it(line: int, tests: list[str]) -> None:
    found = LINES.tests_of("m.py", line)
    assert sorted(found) == sorted(tests)


def test_tests_are_grouped_by_file_with_the_quickest_first() -> None:
    # b takes 1 s, a 5.1 s
    assert LINES.tests_of("m.py", 12) == ["tests/b.py::middle", "tests/a.py::quick", "tests/a.py::slow"]


def test_only_tests_that_pass_in_time_are_used() -> None:
    case = '<testcase classname="tests.a" name="{}" time="{}">{}</testcase>'
    cases = [("good[1]", 2, ""), ("slow", 10.5, ""), ("bad", 1, "<failure/>"), ("odd", 1, "<skipped/>")]
    junit = f"<testsuites><testsuite>{''.join(case.format(*each) for each in cases)}</testsuite></testsuites>"
    assert seconds_of_passed(junit) == {"tests/a.py::good[1]": 2.0}


def test_annotations_are_not_mutated() -> None:
    text = "def f(a: int | None = 1) -> int | None:\n    b: int | None = a\n    return b\n"
    assert meaning(text) == meaning(text.replace("|", "&"))
    assert meaning(text) != meaning(text.replace("1", "2"))
    assert meaning("def") is None


def test_a_mutant_is_named_by_its_changed_lines() -> None:
    mutant = mutant_of("m.py", MODULE, MODULE.replace("\n\n@cache\n", ""))
    assert (mutant.line, mutant.before, mutant.after) == (10, "@cache", "")
    mutant = mutant_of("m.py", MODULE, MODULE.replace("value < LIMIT", "value <= LIMIT"))
    assert (mutant.line, mutant.before, mutant.after) == (7, "return value < LIMIT", "return value <= LIMIT")


@pytest.mark.parametrize(
    ("changed", "expected", "by"),
    [
        ("value < LIMIT", "value > LIMIT", ("killed", "tests/test_m.py::test_under")),
        ("value < LIMIT", "value <= LIMIT", ("survived", "")),
        ("LIMIT = 3", "LIMIT = 1 / 0", ("killed", "tests/test_m.py")),
    ],
)
def test_a_mutant_is_killed_or_survives_and_leaves_nothing(
    tmp_path: Path, changed: str, expected: str, by: tuple[str, str]
) -> None:
    copy = tmp_path / "copy"
    (copy / "tests").mkdir(parents=True)
    (copy / "m.py").write_text(MODULE)
    (copy / "tests" / "test_m.py").write_text("from m import under\n\n\ndef test_under():\n    assert under(1)\n")
    mutant = mutant_of("m.py", MODULE, MODULE.replace(changed, expected))
    row = outcome(copy, mutant, ["tests/test_m.py::test_under"], {"tests/test_m.py::test_under": 0.1}, 1)
    assert (row["outcome"], row["by"]) == by
    assert (copy / "m.py").read_text() == MODULE


def test_a_known_survivor_is_reported_with_its_reason() -> None:
    row = {"module": "m.py", "number": 7, "outcome": "survived", "by": "", "before": "a < b", "after": "a <= b"}
    killed = row | {"outcome": "killed", "by": "tests/a.py::quick", "number": 9}
    rows = [row, killed]
    explain(rows, '[[survivor]]\nmodule = "m.py"\nline = "a < b"\nmutation = "a <= b"\nreason = "never equal"\n')
    assert report(rows) == [
        "killed    m.py:9  tests/a.py::quick",
        "survived  m.py:7  ",
        "          - a < b",
        "          + a <= b",
        "          accepted: never equal",
        "Python: 2 mutants: 1 killed, 1 survived; generated pages not counted",
    ]
