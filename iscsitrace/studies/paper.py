"""What a definition says of the paper: its place, settings, figures and tables, and what is left out of it."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from iscsitrace.studies.definition_settings import Mistake, Text


class Paper(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Where the study was published; empty where that is not recorded."""

    authors: str = ""
    title: str = ""
    title_original: str = ""
    """The title in the language of the paper, where that is not English."""
    affiliation: str = ""
    venue: str = ""
    year: int | None = None
    is_probable: bool = msgspec.field(name="probable", default=False)
    """Whether it may be another one; ``remark`` has what agrees with the study, and what does not."""
    remark: str = ""


class Circumstance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A setting or a circumstance of the study, beside ours."""

    what: Text
    printed: str = ""
    """As the study prints it; empty where the study does not print it, so that ours is an assumption."""
    source: str = ""
    """The place in the paper."""
    ours: Text
    differs: str = ""
    """Why ours is another one; empty where it is the same, or an assumption."""
    remark: str = ""
    """How the printed one is read, or what ours has beside it."""

    def __post_init__(self) -> None:
        if self.remark and self.differs:
            raise Mistake("remark", "say it in differs")
        if bool(self.printed) != bool(self.source):
            raise Mistake("source", "what the study prints has a place in it; an assumption has none")


class Exhibit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A figure or a table of the paper."""

    name: Text
    """Its number, like `figure 4` or `table 1`."""
    caption: str = ""
    """As the paper prints it; empty where the text has none."""
    english: Text
    """What it shows: the caption in English, or a description where there is none."""
    ours: tuple[str, ...] = ()
    """Our counterparts: figures of this definition, or of a definition that is part of the same study."""
    why: str = ""
    """Why there is none, or how ours is different."""

    def __post_init__(self) -> None:
        if not self.ours and not self.why:
            raise Mistake("why", "name a figure of ours, or say why there is none")


class Omission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A figure, table or discussion of the study that is not repeated."""

    what: Text
    why: Text
