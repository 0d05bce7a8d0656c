"""Long tables and the heat map in headless Chromium: sorting, filtering, and cells in words, also by keyboard.

Fails in CI where Chromium is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iscsitrace.show import page
from iscsitrace.show.document import Document, Grid, HeatCell, HeatMap, HeatRow, Opening, Section
from tests.report.test_report_browser import CONTRAST, OVERFLOW
from tests.support.browser import Browser, required

ROWS = (
    ("session 2", "iqn.b", "9.5", "1,000"),
    ("session 10", "iqn.a", "-", "20"),
    ("session 1", "iqn.<i>c", "10.25", "3"),
)
FIRST_CELLS = """
[...document.querySelectorAll("table.long tbody tr")].filter((row) => !row.hidden)
  .map((row) => row.cells[0].textContent.trim())
"""
PLACE = "document.querySelector('#heat .place').textContent"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    cells = tuple(HeatCell("out" if column == 1 else f"h{1 + column % 6}", f"at {column}") for column in range(48))
    rows = tuple(HeatRow(f"LUN {number} of iqn.{'t' * 60}", "iqn.i", "1.5", cells) for number in range(3))
    legend = (*((f"h{step}", f"step {step}") for step in range(1, 7)), ("out", "outage"), ("", "no command"))
    document = Document(
        "many",
        "",
        Opening("Result", "Many."),
        (
            Section("Others", (Grid("", ("session", "target", "lost s", "I/O s"), ROWS, is_long=True),), "others"),
            Section("Heat", (HeatMap(("0 s", "24 s", "48 s"), "1 s", legend, rows),), "heat"),
        ),
    )
    folder = tmp_path_factory.mktemp("report")
    (folder / "report.html").write_text(page.render(document, "1.2.3"))
    with Browser(required(), tmp_path_factory.mktemp("profile")) as browser:
        browser.resize(1600)
        browser.open(folder / "report.html")
        yield browser
        assert browser.complaints == []


@pytest.fixture
def browser(opened: Browser) -> Browser:
    opened.resize(1600)
    opened.prefer("light")
    return opened


def press_heading(browser: Browser, place: int) -> list[str]:
    browser.evaluate(f"document.querySelectorAll('table.long thead button')[{place}].focus()")
    browser.press(" ")
    shown: list[str] = browser.evaluate(FIRST_CELLS)
    return shown


def test_a_heading_sorts_and_sorts_the_other_way(browser: Browser) -> None:
    # numbers by value, the largest first; what has none is the last
    assert press_heading(browser, 2) == ["session 1", "session 2", "session 10"]
    assert press_heading(browser, 2) == ["session 2", "session 1", "session 10"]
    assert press_heading(browser, 3) == ["session 2", "session 10", "session 1"]
    # names by the numbers in them
    assert press_heading(browser, 0) == ["session 1", "session 2", "session 10"]
    assert press_heading(browser, 0) == ["session 10", "session 2", "session 1"]
    sorted_by = "[...document.querySelectorAll('table.long th[aria-sort]')].map((each) => each.textContent)"
    assert browser.evaluate(sorted_by) == ["session"]


def test_the_filter_keeps_the_rows_with_all_words(browser: Browser) -> None:
    def filtered(words: str) -> tuple[list[str], str]:
        field = "document.querySelector('.filter input')"
        browser.evaluate(f"{field}.value = {words!r}; {field}.dispatchEvent(new Event('input'))")
        return sorted(browser.evaluate(FIRST_CELLS)), browser.evaluate(
            "document.querySelector('.filter output').textContent"
        )

    assert filtered("SESSION iqn.a") == (["session 10"], "1 of 3 rows")
    assert filtered("<i>") == (["session 1"], "1 of 3 rows")
    assert filtered("nothing") == ([], "0 of 3 rows")
    assert filtered("") == (["session 1", "session 10", "session 2"], "")


def test_arrows_move_over_the_heat_map(browser: Browser) -> None:
    browser.evaluate("document.querySelector('#heat .scroll').focus()")
    browser.press("ArrowRight")
    name = f"LUN 0 of iqn.{'t' * 60} (iqn.i)"
    assert browser.evaluate(PLACE) == f"{name}, at 0"
    browser.press("ArrowRight")
    assert browser.evaluate(PLACE) == f"{name}, at 1"
    browser.press("ArrowDown")
    assert browser.evaluate(PLACE) == f"LUN 1{name[5:]}, at 1"
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")
    assert browser.evaluate(PLACE) == f"LUN 1{name[5:]}, at 0", "the first column is the last on the left"
    assert browser.evaluate("document.querySelectorAll('#heat .at').length") == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_fits_and_its_colors_differ(browser: Browser, width: int, scheme: str) -> None:
    browser.resize(width)
    browser.prefer(scheme)
    assert browser.evaluate(OVERFLOW) == 0
    assert browser.evaluate(CONTRAST) == []
    colors = browser.evaluate(
        "[...document.querySelectorAll('#heat .legend .swatch')].map((each) => getComputedStyle(each).background)"
    )
    assert len(set(colors)) == 8
