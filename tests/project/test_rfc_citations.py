"""Every section of an RFC that code, comments and documentation cite exists, and those that name a key are that key's.

A section without an RFC is one of RFC 7143, as the files say that leave it out.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from iscsitrace.tables.schema import DERIVED_CYCLE_COLUMNS, DERIVED_TABLES, TABLES
from iscsitrace.tables.schema.computed import SIDECAR
from tests.support.rfc_sections import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
ISCSI = 7143
SOURCES = (
    "core/*/src/**/*.rs",
    "core/*/tests/**/*.rs",
    "core/*/examples/**/*.rs",
    "iscsitrace/**/*.py",
    "tests/**/*.py",
    "tests/vectors/*.md",
    "tools/*.py",
    "docs/*.md",
)
# sections of the studies' papers
_OF_PAPERS = ROOT / "docs" / "reproduction.md"
FILES = sorted({file for pattern in SOURCES for file in ROOT.glob(pattern)} - {Path(__file__).resolve(), _OF_PAPERS})

# Between two words there may be a new line of a comment or of a string.
_GAP = r"""[\s\\/!#"]+"""
_NUMBER = r"\d+(?:\.\d+)*"
_FURTHER = rf"(?:,{_GAP}and|,|{_GAP}and|{_GAP}to){_GAP}\d{{1,2}}(?:\.\d{{1,2}})*(?![\w%]|\.\d)"
_DOCUMENT = rf"(?:(?P<document>RFC ?\d+|[A-Z]+-\d|\S+\.md),?{_GAP})?"
_SECTIONS = re.compile(rf"{_DOCUMENT}\b[Ss]ections?{_GAP}(?P<sections>{_NUMBER}(?:{_FURTHER})*)")
_APPENDIX = re.compile(rf"{_DOCUMENT}\b[Aa]ppendix{_GAP}(?P<sections>[A-Z](?:\.\d+)*)\b")
_EITHER = re.compile(r"\b(?:[Ss]ections?|[Aa]ppendix)\b")
# The initiator's and the target's refusals name their section in a string of its own.
_LITERAL = re.compile(r'"(?P<sections>\d+(?:\.\d+)+)"')
_REFUSING = ROOT / "core" / "lab" / "src" / "protocol"


@cache
def citations(text: str, *patterns: re.Pattern[str]) -> list[tuple[int, int, str]]:
    """Line, RFC and section of everything that a text cites of an RFC."""
    found: list[tuple[int, int, str]] = []
    if not patterns and not _EITHER.search(text):
        return found
    for pattern in patterns or (_SECTIONS, _APPENDIX):
        for match in pattern.finditer(text):
            document = match.groupdict().get("document") or f"RFC {ISCSI}"
            if document.startswith("RFC"):
                line = text.count("\n", 0, match.start("sections")) + 1
                rfc = int(document.removeprefix("RFC"))
                found += [(line, rfc, each) for each in re.findall(r"[A-Z\d]+(?:\.\d+)*", match["sections"])]
    return found


def unknown(text: str, *patterns: re.Pattern[str]) -> list[str]:
    """What a text cites and no RFC has."""
    return [
        f"line {line}: RFC {rfc} section {section}"
        for line, rfc, section in citations(text, *patterns)
        if section not in SECTIONS.get(rfc, {})
    ]


def text_of(file: Path) -> str:
    """A file; a page's "section 4" without an RFC is its own."""
    text = file.read_text()
    return re.sub(r"\(section \d\)", "", text) if file.suffix == ".md" else text


@pytest.mark.parametrize("rfc", SECTIONS)
def test_the_table_has_titles_and_no_section_without_the_one_around_it(rfc: int) -> None:
    for section, title in SECTIONS[rfc].items():
        assert title.strip() == title != ""
        assert section.rpartition(".")[0] in {"", *SECTIONS[rfc]}


def test_the_table_leaves_no_section_of_rfc_7143_out() -> None:
    for section in SECTIONS[ISCSI]:
        parent, dot, last = section.rpartition(".")
        before = str(int(last) - 1) if last.isdigit() else chr(ord(last) - 1)
        assert before in {"0", "@"} or f"{parent}{dot}{before}" in SECTIONS[ISCSI]


def test_cited_sections_exist() -> None:
    wrong = []
    for file in FILES:
        text = text_of(file)
        literals = unknown(text, _LITERAL) if _REFUSING in file.parents else []
        wrong += [f"{file.relative_to(ROOT)}, {each}" for each in unknown(text) + literals]
    assert wrong == []


def test_citations_are_found_where_they_are() -> None:
    found = {file.relative_to(ROOT).parts[0]: 0 for file in FILES}
    for file in FILES:
        found[file.relative_to(ROOT).parts[0]] += len(citations(text_of(file)))
    assert found["core"] > 500
    assert found["iscsitrace"] > 20
    assert found["docs"] > 30


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("RFC 7143 section 7.16", "7.16"),
        ("(RFC 7143, section 11.20.1; RFC 9293, section 3.1)", "11.20.1"),
        ("RFC 7143 sections 6.1, 6.2 and 6.5", "6.5"),
        ("sections 11.3 to 11.21 of the figures", "11.21"),
        ("/// so it is (RFC 7143\n    /// section 4.2.4.1).", "4.2.4.1"),
        ('"so it is (RFC 7143 " \\\n    "section 13.27)"', "13.27"),
        ('"so it is (RFC 7143 \\\n     section 123.4)"', "123.4"),
        ("// Section 11.18.4: a NOP-Out", "11.18.4"),
        ("RFC 7143 section 4.3 and appendix F", "F"),
        ("RFC 7143 appendix A.5", "A.5"),
    ],
)
def test_a_section_that_nobody_wrote_is_found(text: str, wrong: str) -> None:
    (found,) = unknown(text)
    assert found.endswith(f"RFC 7143 section {wrong}")


def test_a_section_of_another_rfc_is_not_looked_for_in_rfc_7143() -> None:
    assert unknown("RFC 9293, section 11.18.1") == ["line 1: RFC 9293 section 11.18.1"]
    assert unknown("one\n// RFC 99999 section 1") == ["line 2: RFC 99999 section 1"]


@pytest.mark.parametrize(
    "text", ["SAM-5 section 99", "docs/method.md, section 99", "a section 'keys'", "intersection 99"]
)
def test_sections_of_other_documents_are_left_alone(text: str) -> None:
    assert unknown(text) == []


def test_a_refusal_with_a_section_that_nobody_wrote_is_found() -> None:
    assert unknown('Violation::new("no offer", "6.2.3")', _LITERAL) == ["line 1: RFC 7143 section 6.2.3"]


def test_numbers_beside_a_citation_are_none() -> None:
    assert citations("RFC 7143 section 13.12, 8192 bytes, and 50% or 3rd") == [(1, ISCSI, "13.12")]


def test_keys_have_the_section_of_their_name() -> None:
    source = (ROOT / "core" / "wire" / "src" / "key.rs").read_text()
    operational = re.findall(r'^ +\w+ "(\w+)" \w+ "([\d.]+)"', source, re.MULTILINE)
    naming = re.findall(r'^ +"(\w+)" "([\d.]+)" (?:Naming|Discovery|Authentication) ', source, re.MULTILINE)
    assert (len(operational), len(naming)) == (16, 9)
    keys = operational + naming
    assert [(name, section) for name, section in keys if name not in SECTIONS[ISCSI][section].split()] == []


def test_pdu_types_have_the_section_of_their_name() -> None:
    source = (ROOT / "core" / "wire" / "src" / "opcode.rs").read_text()
    names = dict(re.findall(r'Opcode::(\w+) => "([^"]+)"', source))
    assert len(names) == 18
    cited = {variant: section for section, variant in re.findall(r"/// Section ([\d.]+)\.\n +(\w+) = 0x", source)}
    assert [name for variant, name in names.items() if name not in SECTIONS[ISCSI][cited[variant]]] == []


COLUMNS = [
    (table.name, column)
    for table in (*TABLES.values(), *DERIVED_TABLES.values(), SIDECAR)
    for column in (*table.columns, *(DERIVED_CYCLE_COLUMNS if table.name == "cycles" else ()))
]


def test_sources_of_columns_exist() -> None:
    chapters = set(re.findall(r"^## (\d+)\. ", (ROOT / "docs" / "method.md").read_text(), re.MULTILINE))
    cited = 0
    for table, column in COLUMNS:
        where, method = f"{table}.{column.name}: {column.source}", column.source.partition("method ")[2]
        assert unknown(column.source) == [], where
        if method:
            assert method in chapters, where
        elif column.source.startswith("RFC "):
            rfc = int(column.source.split()[1])
            assert rfc in SECTIONS, where
            # a whole RFC, or one section of it
            assert column.source == f"RFC {rfc}" or len(citations(column.source)) == 1, where
            cited += 1
        else:
            assert set(column.source.split(", ")) <= {"", "SPC-4", "SBC-3", "SSC-4"}, where
    assert cited > 50


def test_columns_of_keys_have_the_section_of_their_key() -> None:
    columns = [
        (column.name, rfc, section)
        for _, column in COLUMNS
        for _, rfc, section in citations(column.source)
        if section.startswith("13.")
    ]
    assert len(columns) >= 8
    for name, rfc, section in columns:
        assert name.replace("_", "") in SECTIONS[rfc][section].lower()
