"""What a job file says, as plain data: values with their places, entries for tables and routes."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from unloader.errors import UnloaderError

EntryKind = Literal["table", "route"]


class Place(Struct, frozen=True, kw_only=True):
    """A place in a job file."""

    path: str
    line: int | None = None
    """Counted from 1; None where it is not known."""

    def __str__(self) -> str:
        """Return file and line as messages have them."""
        return self.path if self.line is None else f"{self.path}, line {self.line}"


class Given(Struct, frozen=True, kw_only=True):
    """One key with its value."""

    key: str
    """With underscores and in lower case."""
    value: Any
    """As TOML has it, with its variables replaced."""
    place: Place
    written: Any = None
    """As TOML has it, with the names of its variables."""
    entry: str = ""
    """The entry of the key, such as `[[table]] 2`; empty at the top."""
    is_default: bool = False
    """It stands in [defaults], and is passed over where it does not apply."""

    def where(self) -> str:
        """Return file, line and entry, for messages."""
        return f"{self.place}: {self.entry}" if self.entry else str(self.place)


class Entry(Struct, frozen=True, kw_only=True):
    """One [[table]], [[route]] or [[table.route]]."""

    kind: EntryKind
    number: int
    """Its number in the list, from 1, with the entries of included files first."""
    place: Place
    values: tuple[Given, ...] = ()
    name: str = ""
    """The name of a route; empty for a route without a name."""
    routes: tuple[Entry, ...] = ()
    """The routes of a table, which replace the routes of the job."""

    @property
    def label(self) -> str:
        """The entry as messages name it."""
        return f"[[{self.kind}]] {self.name or self.number}"


class JobFile(Struct, frozen=True, kw_only=True):
    """A job file with all that it includes."""

    path: str
    source: Given | None = None
    """The URL of the source."""
    values: tuple[Given, ...] = ()
    """What stands at the top or in [run]: of the run, and above all entries."""
    defaults: tuple[Given, ...] = ()
    """What stands in [defaults]: it counts where nothing else says anything."""
    tables: tuple[Entry, ...] = ()
    """Empty where the top alone says what is unloaded."""
    routes: tuple[Entry, ...] = ()
    """Of every table that has none of its own; empty where the top alone says where to."""


class Mistake(Struct, frozen=True, kw_only=True):
    """An error at one place of a job file."""

    error: UnloaderError
    """Its message names place, entry and key."""
    place: Place
    key: str = ""
    """With hyphens; empty where it is about no key, or the key may be a secret."""
    entry: str = ""
