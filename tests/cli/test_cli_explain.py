"""``iscsitrace explain``: the page of a finding as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.diagnosis.registry import PROBLEMS

DOCS = Path(__file__).parents[2] / "docs/diagnosis.md"


def explain(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["explain", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_page_of_a_finding_is_that_of_the_docs(name: str) -> None:
    code, text = explain(name)
    assert code == 0
    _, rest = DOCS.read_text().split(f"\n### {name}\n\n")
    page = rest.partition("\n#")[0].replace("`", "").replace("**", "")
    # the same sentences, with other marks of lists
    for line in filter(None, (line.strip().removeprefix("- ") for line in page.splitlines())):
        assert line in text or line == "Advice:"
    assert all(
        f"  {number}. {each.text}".replace("`", "") in text for number, each in enumerate(PROBLEMS[name].advice, 1)
    )


def test_another_name_is_refused_with_the_known_ones() -> None:
    code, text = explain("lost")
    assert code == 2
    assert "'lost' is not one of " in text
    assert "'loss'" in text
    assert "'any'" not in text
