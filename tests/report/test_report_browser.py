"""The report in headless Chromium: it renders without errors, plots zoom, tabs switch, also in the dark scheme.

Fails in CI where Chromium is missing.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path as FilePath

import numpy as np
import pytest
from PIL import Image

import iscsitrace
from iscsitrace.report import captures
from iscsitrace.show import page
from tests.support.browser import Browser, required
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation
from tests.support.transport import Path

MS = 1_000_000
CONTRAST = """
(() => {
  const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const rgb = (text) => text.match(/[0-9.]+/g).map(Number);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = rgb(getComputedStyle(each).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("svg, script")) continue;
    const pair = [light(rgb(getComputedStyle(element).color)), light(ground(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${walker.currentNode.data.trim().slice(0, 40)}`);
  }
  return poor;
})()
"""
RESET = """
document.querySelectorAll("[data-zoom=home]").forEach((button) => button.click());
document.querySelector("[role=tab]").click();
document.activeElement.blur();
scrollTo(0, 0);
"""
SVG = "document.querySelector('figure.plot:not([hidden]) svg')"
BOX = f"{SVG}.getAttribute('viewBox')"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> FilePath:
    """A report on two sessions over 8 ms each way, one of them of two names that are long words."""
    conversation = Conversation(Path(one_way_delay_ns=8 * MS))
    name = f"iqn.2024-01.example:{'x' * 180}"
    conversation.session().login(texts={"TargetName": name}).read(count=20).write(count=3).logout()
    conversation.session().login(texts={"TargetName": name + "y"}).read(count=2).logout()
    capture = conversation.run()
    folder = tmp_path_factory.mktemp("report")
    trace = iscsitrace.read(
        write_pcapng(folder / "wan.pcapng", capture.packets, capture.path.link_type),
        tables=captures.needed(is_large=False),
    )
    (folder / "report.html").write_text(page.render(captures.describe(trace), "1.2.3"))
    return folder / "report.html"


@pytest.fixture(scope="module")
def opened(file: FilePath, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The report in a browser."""
    program = required()
    with Browser(program, tmp_path_factory.mktemp("profile")) as browser:
        browser.resize(1600)
        browser.prefer("light")
        browser.open(file)
        yield browser


@pytest.fixture
def browser(opened: Browser, file: FilePath) -> Iterator[Browser]:
    """The report as opened; afterwards the test fails on any error or load."""
    opened.resize(1600)
    opened.prefer("light")
    opened.evaluate(RESET)
    yield opened
    assert opened.complaints == []
    assert {each for each in opened.requests if not each.startswith("data:")} == {file.as_uri()}


def middle(browser: Browser) -> tuple[float, float]:
    browser.evaluate(f"{SVG}.scrollIntoView({{block: 'center'}})")
    box = browser.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({SVG}.getBoundingClientRect())")
    return box[0] + box[2] / 2, box[1] + box[3] / 2


def numbers(browser: Browser) -> list[float]:
    return [float(each) for each in browser.evaluate(BOX).split()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_fits_and_has_enough_contrast(browser: Browser, width: int, scheme: str) -> None:
    browser.resize(width)
    browser.prefer(scheme)
    assert browser.evaluate(OVERFLOW) == 0
    assert browser.evaluate(CONTRAST) == []
    brightness = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)[0]")
    assert (brightness < 60) == (scheme == "dark")
    # the ink of the plots follows
    ink = browser.evaluate(f"getComputedStyle({SVG}).fill.match(/[0-9]+/g).map(Number)[0]")
    assert (ink > 200) == (scheme == "dark")


WIDE = """
(() => {
  const wide = [...document.querySelectorAll(".scroll:not(.canvas)")].find(
    (each) => !each.querySelector(".heat") && each.checkVisibility() && each.scrollWidth > each.clientWidth + 20);
  wide.scrollLeft = POSITION;
  wide.scrollIntoView({block: "center"});
  const box = wide.getBoundingClientRect();
  return [box.x + scrollX, box.y + scrollY, box.width, box.height];
})()
"""


def edges_shaded(browser: Browser, position: str) -> tuple[bool, bool]:
    """Whether the left and the right edge of a table that is too wide differ from its ground, at least in its gaps."""
    x, y, width, height = browser.evaluate(WIDE.replace("POSITION", position))
    clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
    data = browser.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        pixels = np.asarray(image.convert("L"), dtype=np.float64)
    ground = np.median(pixels)
    left, right = (np.abs(np.median(pixels[:, columns]) - ground) > 10 for columns in (slice(0, 4), slice(-4, None)))
    return bool(left), bool(right)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_that_goes_on_has_a_shadow_at_that_edge(browser: Browser, scheme: str) -> None:
    browser.resize(400)
    browser.prefer(scheme)
    assert edges_shaded(browser, "0") == (False, True)
    assert edges_shaded(browser, "wide.scrollWidth") == (True, False)


def test_the_first_screen_shows_the_limiter_and_the_advice(browser: Browser) -> None:
    browser.resize(1600, 900)
    for selector in (".verdict", ".bar", ".change li", ".facts"):
        assert browser.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().bottom") < 900, selector
    browser.resize(400, 850)
    assert browser.evaluate("document.querySelector('.change li').getBoundingClientRect().top") < 850


def test_buttons_zoom_and_show_all(browser: Browser) -> None:
    whole = numbers(browser)
    browser.evaluate("document.querySelector('figure:not([hidden]) [data-zoom=in]').click()")
    # 1.5 times, about the middle
    assert numbers(browser) == pytest.approx([whole[2] / 6, whole[3] / 6, whole[2] / 1.5, whole[3] / 1.5], abs=0.01)
    browser.evaluate("document.querySelector('figure:not([hidden]) [data-zoom=right]').click()")
    assert numbers(browser)[0] == pytest.approx(whole[2] / 6 + 0.2 * whole[2] / 1.5, abs=0.01)
    browser.evaluate("document.querySelector('figure:not([hidden]) [data-zoom=home]').click()")
    assert numbers(browser) == whole


def test_keys_zoom_and_move(browser: Browser) -> None:
    whole = numbers(browser)
    browser.evaluate("document.querySelector('figure:not([hidden]) .canvas').focus()")
    for key in "++":
        browser.press(key)
    assert numbers(browser)[2] == pytest.approx(whole[2] / 2.25, abs=0.01)
    left = numbers(browser)[0]
    browser.press("ArrowLeft")
    assert numbers(browser)[0] < left
    # never beyond the picture
    for _ in range(12):
        browser.press("ArrowUp")
    assert numbers(browser)[1] == 0
    browser.press("0")
    assert numbers(browser) == whole


def test_a_box_drawn_with_the_mouse_is_zoomed_into_and_a_double_click_shows_all(browser: Browser) -> None:
    whole = numbers(browser)
    x, y = middle(browser)
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    browser.mouse("mouseMoved", x + 80, y + 20, button="left")
    browser.mouse("mouseReleased", x + 80, y + 20, button="left", clickCount=1)
    scale = whole[2] / browser.evaluate(f"{SVG}.getBoundingClientRect().width")
    box = numbers(browser)
    assert box[2] == pytest.approx(80 * scale, rel=0.02)
    # the box began in the middle of the picture
    assert box[0] == pytest.approx(whole[2] / 2, rel=0.02)
    assert browser.evaluate(f"{SVG}.querySelector('.box')") is None
    for count in (1, 2):
        browser.mouse("mousePressed", x, y, button="left", clickCount=count)
        browser.mouse("mouseReleased", x, y, button="left", clickCount=count)
    assert numbers(browser) == whole


def test_the_wheel_scrolls_the_page_until_a_plot_is_focused(browser: Browser) -> None:
    whole = numbers(browser)
    x, y = middle(browser)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-1)
    assert numbers(browser) == whole
    browser.evaluate("document.querySelector('figure:not([hidden]) .canvas').focus()")
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
    assert numbers(browser)[2] == pytest.approx(whole[2] / 1.2, abs=0.01)


def test_the_position_of_the_mouse_is_shown_in_the_units_of_the_axes(browser: Browser) -> None:
    # of the throughput, the middle of the upper axes
    axes = browser.evaluate("JSON.parse(document.querySelector('figure:not([hidden])').dataset.axes)")
    x, y, width, height = axes[0]["box"]
    middle(browser)
    at = browser.evaluate(
        f"(({{x, y}}) => [x, y])(new DOMPoint({x + width / 4}, {y + height / 2}).matrixTransform({SVG}.getScreenCTM()))"
    )
    browser.mouse("mouseMoved", *at)
    said = browser.evaluate("document.querySelector('figure:not([hidden]) .place').textContent")
    low, high = axes[0]["x"]["limits"]
    assert float(said.split()[0]) == pytest.approx(low + (high - low) / 4, abs=(high - low) / 100)
    assert axes[0]["y"]["label"] in said


def test_tabs_switch_with_the_arrow_keys_and_show_one_plot(browser: Browser) -> None:
    shown = (
        "[...document.querySelectorAll('figure.plot')].filter((each) => each.checkVisibility()).map((each) => each.id)"
    )
    assert browser.evaluate(shown) == ["panel1"]
    browser.evaluate("document.getElementById('tab1').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate(shown) == ["panel2"]
    assert browser.evaluate("document.activeElement.id") == "tab2"
    browser.press("Home")
    browser.press("ArrowLeft")
    last = browser.evaluate("document.querySelectorAll('[role=tab]').length")
    assert browser.evaluate(shown) == [f"panel{last}"]
    states = browser.evaluate("[...document.querySelectorAll('[role=tab]')].map((each) => each.ariaSelected)")
    assert states == ["false"] * (last - 1) + ["true"]


def test_every_plot_has_content(browser: Browser) -> None:
    count = browser.evaluate("document.querySelectorAll('[role=tab]').length")
    assert count >= 8
    for number in range(count):
        browser.evaluate(f"document.querySelectorAll('[role=tab]')[{number}].click()")
        width, height = browser.evaluate(f"(({{width, height}}) => [width, height])({SVG}.getBBox())")
        assert width > 500
        # lanes are as high as there are sessions
        is_lanes = browser.evaluate(f"document.querySelectorAll('[role=tab]')[{number}].textContent") == "Events"
        assert height > (80 if is_lanes else 300)


def test_paper_has_every_plot_and_no_buttons(browser: Browser) -> None:
    browser.prefer("dark", media="print")
    visible = "[...document.querySelectorAll('{}')].filter((each) => each.checkVisibility()).length"
    assert browser.evaluate(visible.format("figure.plot")) == browser.evaluate(
        "document.querySelectorAll('figure.plot').length"
    )
    assert browser.evaluate(visible.format("button, nav")) == 0
    # dark pages are printed on white paper
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
