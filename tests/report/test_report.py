"""``iscsitrace report``: the content of the page, its limits, and that it is the same every time.

The page is read by html.parser, which knows nothing of the templates; its traffic is made by a conversation whose
settings are the truth.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import islice, pairwise
from pathlib import Path as FilePath

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import examine
from iscsitrace.errors import InputInvalid
from iscsitrace.plots import inline
from iscsitrace.report import captures, figures
from iscsitrace.show import markdown, page
from iscsitrace.show.document import Document, Grid, Heading, Opening, Plots, Section, SvgPlot
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.transport import Path

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>|`*_[a](http://evil.example)\u202e"
"""A name that would be markup in HTML and in Markdown, and reverses the direction of text."""
VOID = {"meta", "img", "br", "input", "link", "hr", "wbr"}
MS = 1_000_000


@dataclass
class Element:
    """One element parsed by html.parser."""

    tag: str
    attributes: dict[str, str]
    parents: tuple[str, ...]
    text: list[str] = field(default_factory=list)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


class Page(HTMLParser):
    """Every element with its text, including that of its children; and elements that were never closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[Element] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.wrong.append(f"{tag} has an attribute twice: {names}")
        element = Element(tag, {name: value or "" for name, value in attrs}, tuple(each.tag for each in self.open))
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1].tag != tag:
            self.wrong.append(f"</{tag}> closes {self.open[-1].tag if self.open else 'nothing'}")
            return
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        return [
            each
            for each in self.elements
            if each.tag == tag
            and all(each.attributes.get(name.strip("_")) == value for name, value in attributes.items())
        ]

    def one(self, tag: str, **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> FilePath:
    """Reads of 64 KiB one at a time over 8 ms each way, of a target with a hostile name, and one write."""
    conversation = Conversation(Path(one_way_delay_ns=8 * MS))
    actors = conversation.session(Session(max_burst_length=262_144))
    actors.login(texts={"TargetName": EVIL, "X-Evil": EVIL}).read(count=30).write(count=1).logout()
    capture = conversation.run()
    return write_pcapng(tmp_path_factory.mktemp("wan") / "wan.pcapng", capture.packets, capture.path.link_type)


@pytest.fixture(scope="module")
def document(wan: FilePath) -> Document:
    return captures.describe(iscsitrace.read(wan, tables=captures.needed(is_large=False)))


@pytest.fixture(scope="module")
def html(document: Document) -> str:
    return page.render(document, "1.2.3")


@pytest.fixture(scope="module")
def parsed(html: str) -> Page:
    return Page(html)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> FilePath:
    """Forty sessions of which the last moves most."""
    conversation = Conversation(Path(one_way_delay_ns=MS))
    for number in range(40):
        conversation.session().login().read(count=9 if number == 39 else 1).logout()
    capture = conversation.run()
    return write_pcapng(tmp_path_factory.mktemp("many") / "many.pcapng", capture.packets, capture.path.link_type)


def pictures(document: Document) -> tuple[SvgPlot, ...]:
    """Those of the section of plots."""
    section = document.section("plots")
    return section.pictures if section else ()


# --- content


def test_the_headline_is_that_of_the_diagnosis_and_comes_first(wan: FilePath, parsed: Page) -> None:
    opinion = examine(iscsitrace.read(wan, tables=captures.needed(is_large=False)).table).sessions[0]
    verdict = parsed.one("p", class_="verdict").words
    assert opinion.headline.text.startswith(verdict)
    # reads one at a time at an RTT of 16 ms, on a line of 1 Gbit/s
    assert verdict.startswith("Session 0 is limited by network latency. ")
    assert "A round trip takes at least 16.0 ms." in verdict
    headings = [each.words for each in parsed.elements if each.tag in ("h1", "h2", "h3")]
    assert headings[:3] == ["wan.pcapng", "Diagnosis of session 0", "What to change"]


def test_the_bar_adds_up_and_marks_the_limiter(document: Document, parsed: Page) -> None:
    (found,) = document.opening.breakdowns
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    assert [part.name for part in found.parts if part.is_limiter] == ["network RTT"]
    shown = parsed.one("div", class_="bar")
    assert f"network RTT {found.parts[1].percent}" in shown.attributes["aria-label"]
    assert "the limiter" in parsed.one("li", class_="limiter").words


def test_the_facts_are_those_of_the_conversation(parsed: Page) -> None:
    facts = {name.words: value.words for name, value in zip(parsed.all("dt"), parsed.all("dd"), strict=True)}
    assert facts["RTT"].startswith("16.0 ms")
    assert facts["Workload"] == "64 KiB reads queue depth 1, medians by bytes; 31 reads and writes"
    # 16 ms RTT, and 64 KiB at 1 Gbit/s in half a millisecond
    assert facts["Latency"].startswith("16.")


def test_every_section_has_a_heading_in_order_and_a_link(parsed: Page) -> None:
    levels = [int(each.tag[1]) for each in parsed.elements if re.fullmatch("h[1-6]", each.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    identities = [each.attributes["id"] for each in parsed.elements if "id" in each.attributes]
    assert len(identities) == len(set(identities))
    links = [each.attributes["href"] for each in parsed.all("a")]
    assert {link.removeprefix("#") for link in links} <= set(identities)
    wanted = {"#findings", "#plots", "#model", "#slow", "#traffic", "#parameters", "#connections", "#health", "#making"}
    assert wanted <= set(links)


def test_the_slowest_command_is_shown_with_its_frames(wan: FilePath, document: Document) -> None:
    rows = list(iscsitrace.read(wan).cycles.rows())
    slowest = max(rows, key=lambda row: row["latency_ns"] or 0)
    section = next(each for each in document.sections if each.identity == "slow")
    first = dict(zip(section.grids[0].columns, section.grids[0].rows[0], strict=True))
    assert first["cycle"] == str(slowest["cycle"])
    assert first["frame"] == str(slowest["command_frame"])
    assert f"frame.number>={slowest['command_frame']}" in section.grids[1].rows[0][1]


def test_negotiated_parameters_are_shown_with_their_offers(parsed: Page) -> None:
    table = next(each for each in parsed.all("table") if "Parameters: offered and negotiated" in each.words)
    assert "MaxBurstLength 262144 262144 262144 negotiated" in table.words


def test_plots_have_alternative_texts(document: Document, parsed: Page) -> None:
    names = [each.words for each in parsed.all("button", role="tab")]
    assert names[:4] == ["Throughput", "Time breakdown", "A typical command", "The slowest command"]
    assert len(parsed.all("figure", role="tabpanel")) == len(names) == len(pictures(document))
    canvases = [each for each in parsed.all("div", role="group") if "canvas" in each.attributes.get("class", "")]
    assert all(each.attributes["aria-label"] and each.attributes["tabindex"] == "0" for each in canvases)
    assert all(picture.how_to_read for picture in pictures(document))


def test_the_model_shows_gains_of_changes(document: Document, parsed: Page) -> None:
    model = document.section("model")
    assert model is not None
    gains, known, *_ = model.grids
    parameters = {row[0]: row for row in known.rows}
    # the status of these reads rides in the last Data-In: out and back
    assert float(parameters["k"][2]) == pytest.approx(2, abs=0.05)
    assert float(parameters["d"][2]) == pytest.approx(8, abs=0.05)
    what_if = {row[0]: row for row in gains.rows}
    # four reads of 16.5 ms become one of 18.1 ms, for 64 KiB take half a millisecond on the line
    assert float(what_if["I/O size 256 KiB"][1]) == pytest.approx(4 * 16.5 / 18.1, abs=0.1)
    assert float(what_if["half the RTT"][1]) == pytest.approx(16.5 / 8.5, abs=0.1)
    assert "I/O size 256 KiB" in next(each for each in parsed.all("table") if "Predicted gains" in each.words).words


def test_without_steady_commands_the_missing_model_is_explained(sessions: FilePath) -> None:
    trace = iscsitrace.read(sessions, tables=captures.needed(is_large=False, has_pictures=False))
    document = captures.describe(trace, session=7, has_pictures=False)
    model = document.section("model")
    assert model is not None
    assert model.grids == ()
    assert model.lines[0].startswith("No model of session 7: ")


# --- limits


def test_the_page_is_well_formed(parsed: Page) -> None:
    assert parsed.wrong == []
    assert parsed.open == []
    assert parsed.one("html").attributes["lang"] == "en"


def test_nothing_is_loaded_from_the_network(html: str, parsed: Page) -> None:
    loading = {"src", "href", "data", "poster", "action", "formaction", "background", "srcset", "xlink:href"}
    for element in parsed.elements:
        assert element.tag not in ("link", "iframe", "object", "embed", "base", "form")
        for name in loading & set(element.attributes):
            assert element.attributes[name].startswith(("#", "data:image/png;base64,")), element
        assert not any(name.startswith("on") for name in element.attributes), element
    style = " ".join(each.words for each in parsed.all("style"))
    assert "@import" not in style
    assert re.findall(r"url\((?!#)", style) == []
    (policy,) = (
        each.attributes["content"]
        for each in parsed.all("meta")
        if each.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert "'unsafe-inline'" not in policy.partition("script-src")[2]


def test_a_hostile_name_is_text(parsed: Page) -> None:
    assert len(parsed.all("script")) == 1
    assert parsed.all("img") == []
    # shown as it is, but for the mark that would turn the text around
    shown = EVIL.replace("\u202e", "\\u202e")
    assert shown in parsed.one("p", class_="note peers").words
    assert any(shown in each.words for each in parsed.all("td"))


def test_a_hostile_name_is_text_in_markdown(document: Document) -> None:
    text = markdown.render(document)
    assert "\u202e" not in text
    assert re.search(r"(?<!\\)<script", text) is None
    assert re.search(r"(?<!\\)<img", text) is None
    assert re.search(r"(?<!\\)\[a(?<!\\)\]\(", text) is None
    # every line of a table has as many cells as its head
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(cells) == 1, block


def test_long_names_are_cut_and_many_sessions_counted(sessions: FilePath) -> None:
    trace = iscsitrace.read(sessions, tables=captures.needed(is_large=False, has_pictures=False))
    document = captures.describe(trace, has_pictures=False)
    assert document.opening.label == "session 39"
    others, findings = document.section("others"), document.section("findings")
    assert others is not None
    assert findings is not None
    assert {row[0] for row in others.grids[0].rows} == {f"session {number}" for number in range(39)}
    assert sum(isinstance(block, Heading) for block in findings.blocks) == 1 + captures.IN_FULL
    assert len(page.render(document, "1")) < 200_000
    grouped = captures.describe(trace, has_pictures=False, by=("initiator", "volume"))
    groups = grouped.section("groups")
    assert groups is not None
    assert document.section("groups") is None
    assert [each.caption for each in groups.grids] == ["Sessions by initiator", "Sessions by volume"]
    assert "Sessions by volume" in page.render(grouped, "1.2.3")
    assert "Sessions by volume" in markdown.render(grouped)
    other = captures.describe(trace, session=7, has_pictures=False)
    assert other.opening.label == "session 7"
    with pytest.raises(InputInvalid, match="there is no session 40"):
        captures.describe(trace, session=40, has_pictures=False)


def test_the_size_is_bounded(html: str, document: Document) -> None:
    assert all(len(picture.svg) <= inline.SIZE_LIMIT for picture in pictures(document))
    assert len(html) < 2_000_000


def test_a_capture_without_iscsi_says_so(tmp_path: FilePath) -> None:
    file = write_pcapng(tmp_path / "empty.pcapng", [], 1)
    document = captures.describe(iscsitrace.read(file, tables=captures.needed(is_large=False)))
    parsed = Page(page.render(document, "1"))
    assert parsed.one("p", class_="verdict").words == "No iSCSI session was found."
    assert "No iSCSI session was found" in markdown.render(document)


# --- the same every time


def test_the_same_input_gives_the_same_bytes(
    wan: FilePath, document: Document, html: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two of the plots are enough to show it
    wanted = figures.wanted
    monkeypatch.setattr(figures, "wanted", lambda *arguments: islice(wanted(*arguments), 2))
    again = captures.describe(iscsitrace.read(wan, tables=captures.needed(is_large=False)))
    assert pictures(again) == pictures(document)[:2]
    known = {each.identity: each for each in document.sections}
    sections = tuple(known["plots"] if each.identity == "plots" else each for each in again.sections)
    assert page.render(document._replace(sections=sections), "1.2.3") == html


# --- pieces


def test_numbers_are_right_aligned_and_words_are_not() -> None:
    rows = (("1", "a", "-", "12 %", "64K"), ("2,000.5", "7", "-", "-", "-3"))
    assert Grid("g", ("n", "w", "none", "p", "size"), rows).is_number == (True, False, True, True, True)
    assert Grid("g", ("bound",), ((">7.5",), ("3",))).is_number == (True,)


def test_markup_of_advice_is_code_and_nothing_else() -> None:
    assert page.prose("say `a<b` & go") == "say <code>a&lt;b</code> &amp; go"
    # a name of 24 characters may be broken after its separators
    assert page.prose("raise /sys/block/DEVICE/queue/a&b_kb.") == (
        "raise /sys/<wbr>block/<wbr>DEVICE/<wbr>queue/<wbr>a&amp;b_<wbr>kb."
    )
    assert page.prose("see /sys/block/DEVICE/queue") == "see /sys/block/DEVICE/queue"
    assert page.unbroken("64 KiB in 14.1 s, 5 % of 12 states") == "64\xa0KiB in 14.1\xa0s, 5\xa0% of 12 states"


def test_notes_have_code_and_no_dash_of_a_list() -> None:
    lines = ("- windows: see `cycles`", Grid("none", ("a",), (), notes=("by `explain` <b>",)))
    text = page.fragment([Section("X", lines, "x")])
    assert "<p>windows: see <code>cycles</code></p>" in text
    assert '<p class="note">by <code>explain</code> &lt;b&gt;</p>' in text


def test_markdown_code_cannot_be_ended_from_within() -> None:
    assert markdown.code("a``b|c`") == "``` a``b\\|c` ```"


def test_a_document_of_a_single_section_is_rendered() -> None:
    lead = Opening("Diagnosis of session 3", "Session 3 waits.", label="session 3", peers="a to b")
    plots = Plots((SvgPlot("P", "T", "how", ("note",), '<svg viewBox="0 0 1 1"></svg>', []),))
    document = Document("t", "s", lead, (Section("X", ("line", Grid("none", ("a",), ()), plots), "x"),))
    parsed = Page(page.render(document, "1"))
    assert parsed.wrong == []
    assert parsed.one("p", class_="verdict").words == "Session 3 waits."


# --- the command


def report(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["report", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_nothing_is_overwritten_without_force(wan: FilePath, tmp_path: FilePath) -> None:
    file = tmp_path / "a.html"
    file.write_text("mine")
    assert report("-o", file, wan) == (2, "", f"iscsitrace: {file} exists; nothing was written (--force overwrites)\n")
    assert file.read_text() == "mine"
    code, said, _ = report("--no-plots", "--force", "-o", file, wan)
    assert (code, said.startswith(f"{file}: Session 0 is limited by network latency. ")) == (0, True)
    assert file.read_text().startswith("<!DOCTYPE html>")
    assert [each.name for each in tmp_path.iterdir()] == ["a.html"]


def test_markdown_goes_to_standard_output(wan: FilePath) -> None:
    code, text, _ = report("--format", "md", "-o", "-", wan)
    assert code == 0
    assert text.startswith("# wan.pcapng\n")
    assert "## Diagnosis of session 0\n\n**Session 0 is limited by network latency. " in text


def test_the_default_name_is_that_of_the_capture(
    wan: FilePath, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert report("--format", "md", wan)[0] == 0
    assert [each.name for each in tmp_path.iterdir()] == ["wan.report.md"]


def test_an_unknown_session_is_one_line(wan: FilePath, tmp_path: FilePath) -> None:
    code, _, error = report("--no-plots", "--session", "9", "-o", tmp_path / "a.html", wan)
    assert (code, error) == (2, "iscsitrace: there is no session 9; there are 0\n")
    assert list(tmp_path.iterdir()) == []
