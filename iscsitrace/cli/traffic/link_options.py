"""The options of a link: of both directions, and of each direction alone."""

from __future__ import annotations

from iscsitrace.cli.traffic.setting_options import of_section, settings_section
from iscsitrace.lab.settings.table import DIRECTIONS

_OF_PATHS = ("link.target-delays", "link.access-rate")

LINK = settings_section(
    "Link",
    *(name for name in of_section("link") if name not in _OF_PATHS),
    *(f"link.{direction}" for direction in DIRECTIONS),
)

PATHS = settings_section("Paths", "target.count", *_OF_PATHS)
"""The targets, each with a path of its own; the paths have the settings of the link."""
