"""The report on captures of several taps: where the time goes, right after the verdict, and in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.report import captures
from iscsitrace.show import markdown, page
from iscsitrace.show.document import Document
from tests.report.test_report_browser import CONTRAST, OVERFLOW
from tests.support.browser import Browser, required

FOLDER = Path(__file__).parents[2] / "samples" / "loss-1-percent"


def document(*, has_pictures: bool = True) -> Document:
    files = {"host": FOLDER / "capture.pcap.gz", "disk": FOLDER / "target.pcap.gz"}
    tables = captures.needed(is_large=False, has_pictures=has_pictures)
    return captures.describe(iscsitrace.read_taps(files, tables=tables), has_pictures=has_pictures)


@pytest.fixture(scope="module")
def report() -> Document:
    return document()


def test_the_time_by_place_is_beside_that_by_cause(report: Document) -> None:
    """Reads over 8 ms each way that lose 1 %, from a fast target."""
    found = report.section("places")
    assert found is not None
    place, _ = report.opening.breakdowns
    assert sum(part.share for part in place.parts) == pytest.approx(1)
    limiter = next(part for part in place.parts if part.is_limiter)
    assert limiter.name == "network"
    assert limiter.share > 0.9
    # netem dropped 36 packets of the target's host, and its kernel retransmitted as many
    assert [each.title for each in found.findings] == ["Lost between taps"]
    assert "lost 36 of 4,513 packets to the initiator" in found.findings[0].text
    assert ("Retransmissions", "36 packets") in [(fact.name, fact.value) for fact in report.opening.facts]


def test_the_section_with_its_pictures_follows_the_verdict(report: Document) -> None:
    found = report.sections[0]
    assert [picture.title for picture in found.pictures] == [
        "One-way delays between host and disk",
        "Time of 15 reads and writes by place",
    ]
    assert (found.identity, found.title) == ("places", "By place")
    html = page.render(report, "1.2.3")
    marks = [html.index(f'id="{name}"') for name in ("verdict", "places", "findings", "plots")]
    pictures = [html.index(f'aria-label="Zoom of {each.name}"') for each in found.pictures]
    marks[2:2] = pictures
    assert marks == sorted(marks)
    assert html.count("<h3>By place</h3>") == 1


def test_the_ticket_has_the_places_before_the_model(report: Document) -> None:
    found = document(has_pictures=False)
    assert found.sections[0].pictures == ()
    text = markdown.render(found)
    assert "**Time of reads and writes of session 0 by place**" in text
    assert 0 < text.index("| network | one-way") < text.index("## By place") < text.index("## Model")
    assert "**Lost between taps** (warning): " in text


def test_a_single_tap_has_no_places() -> None:
    trace = iscsitrace.read(FOLDER / "capture.pcap.gz", tables=captures.needed(is_large=False, has_pictures=False))
    found = captures.describe(trace, has_pictures=False)
    assert found.section("places") is None
    assert len(found.opening.breakdowns) == 1
    assert "By place" not in page.render(found, "1.2.3")


@pytest.fixture(scope="module")
def browser(report: Document, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = required()
    folder = tmp_path_factory.mktemp("places")
    (folder / "report.html").write_text(page.render(report, "1.2.3"))
    with Browser(program, folder / "profile") as opened:
        opened.open(folder / "report.html")
        yield opened
        assert opened.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits_and_has_enough_contrast(browser: Browser, width: int, scheme: str) -> None:
    browser.resize(width)
    browser.prefer(scheme)
    assert browser.evaluate(OVERFLOW) == 0
    assert browser.evaluate(CONTRAST) == []


def test_the_pictures_zoom_and_are_shown_without_tabs(browser: Browser) -> None:
    browser.resize(1400)
    figures = "[...document.querySelectorAll('#places figure.plot')]"
    assert browser.evaluate(f"{figures}.map((each) => each.hidden)") == [False, False]
    box = f"{figures}[1].querySelector('svg').getAttribute('viewBox')"
    before = browser.evaluate(box)
    browser.evaluate(f"{figures}[1].querySelector('[data-zoom=in]').click()")
    assert browser.evaluate(box) != before
    browser.evaluate(f"{figures}[1].querySelector('[data-zoom=home]').click()")
    assert browser.evaluate(box) == before
