"""A figure as SVG within an HTML page: text stays text, colours follow the page, ids are unique.

The page has one style sheet for all pictures (``Looks``). The position of each axes is kept, so that the page can show
a point in the units of the axes. A picture with too many marks becomes a bitmap in an SVG of the same size.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree  # matplotlib's own output is parsed, nobody else's

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from iscsitrace.plots import style

SIZE_LIMIT: Final = 400_000
"""Most characters of SVG; a larger picture becomes a bitmap."""
FOLLOWING: Final = {
    # colour of the style: its name in the page, its value in dark mode
    style.BLACK: ("ink", "#e6edf3"),
    "#ffffff": ("paper", "#161b22"),
    "#dddddd": ("grid", "#30363d"),
    "#efefef": ("shade", "#262c34"),
    style.PALE: ("pale", "#3a424c"),
    style.GREY: ("grey", "#9aa4ae"),
    style.BLUE: ("blue", "#3f9fdc"),
}
"""Colours with too little or too much contrast on a dark page."""
_GROUND: Final = "#fefefe"
_BITMAP_DPI: Final = 120
_POINTS_PER_INCH: Final = 72
_NUMBER: Final = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")
_XLINK: Final = "{http://www.w3.org/1999/xlink}href"
_FONT: Final = re.compile(r"(font:.*?)'DejaVu Sans'[^;]*")
_NUMERIC_ATTRIBUTES: Final = ("d", "x", "y", "width", "height", "points", "transform", "x1", "x2", "y1", "y2")


@dataclass(frozen=True)
class Inline:
    """A picture for a page."""

    svg: str
    axes: list[dict[str, Any]]
    """For each axes with plain numbers: its box in the picture (x y width height), limits and labels."""


class Looks:
    """The styles of all pictures of a page, each named by a class."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, declarations: str) -> str:
        """The class of these declarations."""
        return self._names.setdefault(declarations, f"k{len(self._names)}")

    @property
    def sheet(self) -> str:
        """The rules, in order of first use."""
        return "\n".join(f".{name}{{{declarations}}}" for declarations, name in self._names.items())


def draw(figure: Figure, prefix: str, looks: Looks) -> Inline:
    """The picture; its ids begin with ``prefix``."""
    for axes in figure.axes:
        if axes.images or any(each.get_rasterized() for each in axes.collections):
            # the colours of a bitmap cannot follow the page: it keeps its light background
            axes.set_facecolor(_GROUND)
    stream = io.BytesIO()
    with style.applied(), mpl.rc_context({"svg.fonttype": "none"}):
        style.draw_into(stream, figure, "svg", {"Date": None, "Creator": None})
    root = ElementTree.fromstring(stream.getvalue().decode())  # noqa: S314 -- written by matplotlib three lines above
    width, height = (float(inches) * _POINTS_PER_INCH for inches in figure.get_size_inches())
    places = [place for axes in figure.axes if (place := _place(axes, width, height))]
    if len(stream.getvalue()) > 8 * SIZE_LIMIT:
        return Inline(_bitmap(figure, width, height), places)
    _adopt(root, prefix, looks)
    _merge(root)
    text = ElementTree.tostring(root, encoding="unicode")
    if len(text) > SIZE_LIMIT:
        return Inline(_bitmap(figure, width, height), places)
    return Inline(text, places)


def _bitmap(figure: Figure, width: float, height: float) -> str:
    stream = io.BytesIO()
    with style.applied():
        style.draw_into(stream, figure, "png", {"Software": None}, _BITMAP_DPI)
    data = base64.b64encode(stream.getvalue()).decode()
    box = f"0 0 {width:g} {height:g}"
    return (
        f'<svg viewBox="{box}"><image href="data:image/png;base64,{data}" width="{width:g}" height="{height:g}"/></svg>'
    )


def _adopt(root: ElementTree.Element, prefix: str, looks: Looks) -> None:
    """Adapts the SVG to a page: no XML namespaces, only ids that are referred to, styles by class."""
    names: dict[str, str] = {}

    def own(name: str) -> str:
        return names.setdefault(name, f"{prefix}{len(names)}")

    box = root.get("viewBox", "")
    root.attrib.clear()
    root.set("viewBox", box)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.tail = None
        if element.text is not None and not element.text.strip():
            element.text = None
        element.attrib.update({name: _shortened(name, value, own) for name, value in element.attrib.items()})
        if _XLINK in element.attrib:
            element.set("href", element.attrib.pop(_XLINK))
        if "style" in element.attrib:
            element.set("class", looks.name(_following(element.attrib.pop("style"))))
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in names:
            element.set("id", names[name])


def _shortened(name: str, value: str, own: Callable[[str], str]) -> str:
    """The value of an attribute: numbers with two decimals, ids renamed by ``own``."""
    if name in _NUMERIC_ATTRIBUTES:
        return " ".join(_NUMBER.sub(lambda found: f"{float(found[0]):.2f}", value).split())
    if name == _XLINK and value.startswith("#"):
        return f"#{own(value[1:])}"
    return _REFERENCE.sub(lambda found: f"url(#{own(found[1])})", value)


def _following(declarations: str) -> str:
    """Declarations with the colours of the page and fonts that browsers have."""
    for color, (name, _) in FOLLOWING.items():
        declarations = re.sub(re.escape(color), f"var(--plot-{name}, {color})", declarations, flags=re.IGNORECASE)
    declarations = _FONT.sub(r"\1'DejaVu Sans',Verdana,sans-serif", declarations)
    return ";".join(part.strip() for part in declarations.split(";") if part.strip())


def _merge(root: ElementTree.Element) -> None:
    """Joins consecutive lines of one style into one path, and removes groups without attributes."""
    for parent in list(root.iter()):
        last: ElementTree.Element | None = None
        for child in list(parent):
            if child.tag == "g" and not child.attrib and len(child) == 1:
                # a group without attributes and with one child adds nothing
                place = list(parent).index(child)
                parent[place] = each = child[0]
            else:
                each = child
            is_line = each.tag == "path" and "id" not in each.attrib and not each.get("d", "").endswith("z")
            if is_line and last is not None and _look(last) == _look(each):
                last.set("d", f"{last.get('d')} {each.get('d')}")
                parent.remove(each)
            else:
                last = each if is_line else None


def _look(path: ElementTree.Element) -> dict[str, str]:
    return {name: value for name, value in path.attrib.items() if name != "d"}


def _place(axes: Axes, width: float, height: float) -> dict[str, Any] | None:
    """Box and limits of an axes; None if neither axis is linear with plain numbers."""
    box = axes.get_position()
    place: dict[str, Any] = {
        "box": [
            round(each, 2) for each in (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)
        ]
    }
    for name, axis, limits, siblings in (
        ("x", axes.xaxis, axes.get_xlim(), axes.get_shared_x_axes()),
        ("y", axes.yaxis, axes.get_ylim(), axes.get_shared_y_axes()),
    ):
        label = axis.get_label_text() or next(
            (text for each in siblings.get_siblings(axes) if (text := getattr(each, f"{name}axis").get_label_text())),
            "",
        )
        if label and axis.get_scale() == "linear" and isinstance(axis.get_major_formatter(), ScalarFormatter):
            place[name] = {"limits": [float(f"{each:.9g}") for each in limits], "label": label}
    return place if "x" in place or "y" in place else None
