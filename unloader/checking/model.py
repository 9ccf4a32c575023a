"""What is known of runs before they begin."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from unloader.errors import UnloaderError
from unloader.model import ReadColumn

About = Literal["run", "source", "table", "where", "to"]
"""What an error is about: the whole run, its source, one table, its condition, its destination."""


class Problem(Struct, frozen=True, kw_only=True):
    """One reason why a run would end with an error."""

    error: UnloaderError
    about: About
    entry: int | None = None
    """Number of the entry that it is about, from 0; None is all of them."""


class CheckedOutput(Struct, frozen=True, kw_only=True):
    """One table as one output would have it."""

    entry: int
    """Number of the entry that asks for it, from 0."""
    table: str
    """Its name in the database, as it was typed where it was not found."""
    columns: tuple[ReadColumn, ...] = ()
    rows: int | None = None
    """Estimated."""
    bytes: int | None = None
    """Estimated, in the source."""
    units: int | None = None
    places: tuple[str, ...] = ()
    """Where it goes; the fields in names are filled in as they would be now."""
    notices: tuple[str, ...] = ()


class Checked(Struct, frozen=True, kw_only=True):
    """All that is known of some outputs."""

    outputs: tuple[CheckedOutput, ...]
    problems: tuple[Problem, ...]
    server_version: str = ""
    notices: tuple[str, ...] = ()
