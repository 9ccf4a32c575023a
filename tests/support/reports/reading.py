"""Pages read by a parser of HTML: their elements, their figures, and the JSON that they carry."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure on a page."""

    key: str
    value: str
    form: str
    shown: str


@dataclass(slots=True)
class Page(HTMLParser):
    """A page that was read."""

    text: str
    tags: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    carried: str = ""
    """The text of the element with the JSON."""
    titles: list[str] = field(default_factory=list)
    """What charts tell the mouse."""
    _open: dict[str, str] | None = None
    _shown: str = ""
    _within: str = ""

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)
        self.feed(self.text)
        self.close()

    @property
    def document(self) -> Any:
        """Return the JSON that the page carries."""
        return json.loads(self.carried)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of an element."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self._within = tag
        if tag == "title":
            self.titles.append("")
        if tag == "data":
            self._open, self._shown = {name: value or "" for name, value in attrs}, ""

    def handle_endtag(self, tag: str) -> None:
        """Take note of a figure that is complete."""
        self._within = ""
        if tag == "data" and self._open is not None:
            found = self._open
            self.figures.append(
                Figure(
                    key=found["data-key"],
                    value=found["value"],
                    form=found["data-form"],
                    shown=self._shown,
                )
            )
            self._open = None

    def handle_data(self, data: str) -> None:
        """Take the text of the elements that matter."""
        if self._open is not None:
            self._shown += data
        if self._within == "script":
            self.carried += data
        if self._within == "title":
            self.titles[-1] += data


def at(document: Any, key: str) -> Any:
    """Return the value at a key such as `workers.0.rows`, or None."""
    for step in key.split("."):
        if document is None:
            return None
        document = document[int(step)] if isinstance(document, list) else document.get(step)
    return document


def agrees(figure: Figure, value: Any) -> bool:
    """Return whether a figure is the value of the JSON, as far as its digits go."""
    if value is None:
        return figure.value == "" and figure.shown == "–"
    if isinstance(value, str):
        return figure.value == figure.shown == value
    if float(figure.value) != value:
        return False
    number, _, unit = figure.shown.partition(" ")
    percent = number.endswith("%")
    shown = float(number.rstrip("%").replace(",", ""))
    scale = 0.01 if percent else {"kB": 1e3, "MB": 1e6, "GB": 1e9, "MB/s": 1e6}.get(unit, 1)
    digits = number.rstrip("%").partition(".")[2]
    half = 0.5 * 10 ** -len(digits) * scale
    return abs(shown * scale - value) <= max(half * 1.01, abs(value) * 0.005)
