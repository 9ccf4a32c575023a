"""A job file and the files that it includes, in the order in which they count."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from unloader.errors import ConfigError, UnloaderError, UsageError
from unloader.request.job import lines
from unloader.request.job.model import Mistake, Place
from unloader.request.job.parsing import read_toml
from unloader.request.job.variables import SHOWN, expanded, shown_variables
from unloader.request.settings import at_home

INCLUDE = "include"

Report = Callable[[Mistake], None]
"""Takes one mistake; may raise it, which ends the reading."""


class Document(Struct, frozen=True, kw_only=True):
    """One file."""

    path: str
    content: dict[str, Any]
    lines: dict[lines.Path, int]
    counts_entries: bool
    """False where the same file is included a second time: its keys count again, being the later
    ones, and its tables are there already."""
    shown: frozenset[str]
    """The variables that this file, or one that includes it, declares as fit to be shown."""

    def place(self, *path: str | int) -> Place:
        """Return where a key stands."""
        return Place(path=self.path, line=lines.line_of(self.lines, path))


def documents(path: Path, report: Report) -> tuple[Document, ...]:
    """Return a job file and all that it includes; later ones override those before.

    Raises:
        ConfigError: The file itself cannot be read or is not TOML.
    """
    return tuple(_with_included(str(path), (), set(), report, frozenset()))


def _with_included(
    path: str, around: tuple[str, ...], seen: set[str], report: Report, shown: frozenset[str]
) -> Iterator[Document]:
    text, content = read_toml(Path(path))
    real, numbers = os.path.realpath(path), lines.lines_of(text)
    try:
        shown |= shown_variables(content)
    except ValueError as error:
        why, _, hint = str(error).partition("; ")
        place = Place(path=path, line=lines.line_of(numbers, (SHOWN,)))
        _tell(report, place, UsageError(f"{place}: {SHOWN}: {why}", hint), SHOWN)
    document = Document(
        path=path,
        content=content,
        lines=numbers,
        counts_entries=real not in seen,
        shown=shown,
    )
    seen.add(real)
    for written in content:
        if written.lower() == INCLUDE:
            for inner in _included(document, written, report):
                place = document.place(written)
                yield from _one(place, inner, (*around, path), seen, report, document.shown)
    yield document


def _one(
    place: Place,
    path: str,
    around: tuple[str, ...],
    seen: set[str],
    report: Report,
    shown: frozenset[str],
) -> Iterator[Document]:
    real = [os.path.realpath(each) for each in around]
    if os.path.realpath(path) in real:
        circle = (*around[real.index(os.path.realpath(path)) :], path)
        way = ", which includes ".join(circle[1:])
        _tell(
            report,
            place,
            UsageError(
                f"{place}: files include each other in a circle: {circle[0]} includes {way}",
                "remove one of these includes",
            ),
        )
        return
    try:
        yield from _with_included(path, around, seen, report, shown)
    except ConfigError as error:
        # Of the file itself: what is wrong inside has been told by its own place.
        _tell(report, place, ConfigError(f"{place}: {INCLUDE}: {error.message}", error.hint))


def _included(document: Document, written: str, report: Report) -> list[str]:
    """Return the paths that a file includes, from where this process is."""
    value, place = document.content[written], document.place(written)
    items = value if isinstance(value, list) else [value]
    try:
        if not all(isinstance(each, str) and each.strip() for each in items):
            raise ValueError("it is neither a path in quotes nor a list of such paths")
        paths = [at_home(str(expanded(each, document.shown))) for each in items]
        return [os.path.join(os.path.dirname(document.path), each) for each in paths]
    except ValueError as error:
        why, _, hint = str(error).partition("; ")
    # Out of the block, so that no traceback shows more than the message.
    hint = hint or f'write {INCLUDE} = ["base.toml"]'
    _tell(report, place, UsageError(f"{place}: {INCLUDE}: {why}", hint))
    return []


def _tell(report: Report, place: Place, error: UnloaderError, key: str = INCLUDE) -> None:
    report(Mistake(error=error, place=place, key=key))
