"""From TOML to a `JobFile`: which keys and entries there are, each mistake with its place.

include = ["base.toml"]     other files, which this one overrides
shown-variables = ["NIGHT"] variables that values may have: what they hold is shown and recorded
source = "..."              and every option of `run`: of the whole run, and above all entries
[run]                       the same
[defaults]                  values where nothing else says anything
[[table]]                   one table each, with the options of a table and of a route
[[table.route]]             one output each of that table
[[route]]                   one output each of every table that has none of its own
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from unloader.errors import UnloaderError, UsageError
from unloader.request.job.including import INCLUDE, Document, Report, documents
from unloader.request.job.layers import SUBJECT
from unloader.request.job.model import Entry, EntryKind, Given, JobFile, Mistake, Place
from unloader.request.job.sections import Section, are_tables, key_of
from unloader.request.job.values import meaning, wrong_kind
from unloader.request.job.variables import SHOWN, expanded
from unloader.request.option import Option
from unloader.request.refused_values import without_subject
from unloader.request.settings import ROUTE_NAME

SOURCE, NAME, RUN, DEFAULTS = "source", "name", "run", "defaults"
TABLE: EntryKind = "table"
ROUTE: EntryKind = "route"


def read_job(
    path: Path, options: Sequence[Option], report: Report, others: Collection[str] = ()
) -> JobFile:
    """Return a job file with all that it includes.

    Args:
        path: The file.
        options: Those of `run`.
        report: Takes each mistake; what is wrong is left out of the result.
        others: Keys of options that stand on the command line alone.

    Raises:
        ConfigError: The file cannot be read or is not TOML.
    """
    reader = _Reader(options=tuple(options), report=report, others=frozenset(others))
    for document in documents(path, report):
        reader.take(document)
    return reader.job(str(path))


class _Reader(Struct, kw_only=True):
    """Collects what the documents say."""

    options: tuple[Option, ...]
    report: Report
    others: frozenset[str]
    shown: frozenset[str] = frozenset()
    """The variables that any of the files declares as fit to be shown."""
    source: Given | None = None
    values: dict[str, Given] = field(default_factory=dict)
    defaults: dict[str, Given] = field(default_factory=dict)
    tables: list[Entry] = field(default_factory=list)
    routes: list[Entry] = field(default_factory=list)

    def take(self, document: Document) -> None:
        """Take what stands in one file; it overrides what was there before."""
        self.shown |= document.shown
        top = Section(
            document=document,
            options=self.options,
            scope="run",
            own=(INCLUDE, key_of(SHOWN), SOURCE),
            others=self.others,
        )
        found: dict[str, Given] = {}
        defaults: dict[str, Given] = {}
        for written, value in document.content.items():
            key = key_of(written)
            if key == RUN and isinstance(value, dict):
                self._take_all(replace(top, path=(written,), own=(SOURCE,)), value, found)
            elif key == DEFAULTS and isinstance(value, dict):
                inner = replace(top, path=(written,), own=(), is_default=True)
                self._take_all(inner, value, defaults)
            elif key in get_args(EntryKind) and are_tables(value):
                if document.counts_entries:
                    self._take_entries(top, written, value)
            elif key in (RUN, DEFAULTS, ROUTE) or (key == TABLE and isinstance(value, dict)):
                self.report(_wrong_table(top, written))
            elif key not in (INCLUDE, key_of(SHOWN)):
                self._take_key(top, written, value, found)
        self.source = found.pop(SOURCE, self.source)
        self.values.update(found)
        self.defaults.update(defaults)

    def job(self, path: str) -> JobFile:
        """Return what all files say together, with the variables replaced."""
        said = JobFile(
            path=path,
            source=self.source,
            values=tuple(self.values.values()),
            defaults=tuple(self.defaults.values()),
            tables=tuple(self.tables),
            routes=tuple(self.routes),
        )
        for mistake in mistakes_between(said):
            self.report(mistake)
        return replace(
            said,
            source=None if self.source is None else self._expanded(self.source, self.shown),
            values=self._finished(said.values),
            defaults=self._finished(said.defaults),
            tables=tuple(map(self._entry, said.tables)),
            routes=tuple(map(self._entry, said.routes)),
        )

    def _take_entries(self, top: Section, written: str, value: list[dict[str, Any]]) -> None:
        kind: EntryKind = TABLE if key_of(written) == TABLE else ROUTE
        entries = self.tables if kind == TABLE else self.routes
        for at, each in enumerate(value):
            entry = Entry(kind=kind, number=len(entries) + 1, place=top.place(written))
            entries.append(self._read_entry(top, entry, (written, at), each))

    def _read_entry(
        self, around: Section, bare: Entry, path: tuple[str | int, ...], value: dict[str, Any]
    ) -> Entry:
        """Return an entry with all that stands below it."""
        name = value.get(NAME)
        if bare.kind == ROUTE and isinstance(name, str) and ROUTE_NAME.fullmatch(name):
            bare = replace(bare, name=name)
        section = replace(
            around,
            scope=bare.kind,
            path=path,
            entry=", ".join(filter(None, (around.entry, bare.label))),
            own=(NAME,) if bare.kind == ROUTE else (ROUTE,),
        )
        found: dict[str, Given] = {}
        routes: list[Entry] = []
        for written, each in value.items():
            key = key_of(written)
            if key == ROUTE and bare.kind == TABLE and are_tables(each):
                for at, inner in enumerate(each):
                    route = Entry(kind=ROUTE, number=at + 1, place=section.place(written))
                    routes.append(self._read_entry(section, route, (*path, written, at), inner))
            elif key == ROUTE and bare.kind == TABLE:
                self.report(_wrong_table(section, written))
            elif key == NAME and bare.kind == ROUTE:
                if not bare.name:
                    self.report(_wrong_name(section, written))
            else:
                self._take_key(section, written, each, found)
        place = around.document.place(*path)
        return replace(bare, place=place, values=tuple(found.values()), routes=tuple(routes))

    def _take_all(
        self, section: Section, values: Mapping[str, Any], found: dict[str, Given]
    ) -> None:
        for written, value in values.items():
            self._take_key(section, written, value, found)

    def _take_key(
        self, section: Section, written: str, value: Any, found: dict[str, Given]
    ) -> None:
        """Take one key with its value, or report what is wrong with it."""
        key, opposite = key_of(written), False
        if (mistake := section.wrong_key(written, value)) is not None:
            self.report(mistake)
            return
        known = section.known()
        if key in known:
            option, opposite = known[key]
            key = option.key
            if wrong := wrong_kind(option, value):
                text = f"the key {written.replace('_', '-')!r} is {wrong}"
                hint = f"give it {option.kind.expected}"
                self.report(section.mistake(written, text, hint))
                return
        if key in found:
            text = f"the key {written!r} is given twice"
            self.report(section.mistake(written, text, "remove one of the two"))
            return
        found[key] = Given(
            key=key,
            value=not value if opposite else value,
            place=section.place(written),
            entry=section.entry,
            is_default=section.is_default,
        )

    def _entry(self, entry: Entry) -> Entry:
        return replace(
            entry,
            values=self._finished(entry.values),
            routes=tuple(map(self._entry, entry.routes)),
        )

    def _finished(self, values: Iterable[Given]) -> tuple[Given, ...]:
        """Return values with their variables replaced; those that mean nothing are left out."""
        known = {option.key: option for option in self.options}
        found = []
        for given in values:
            option = known[given.key]
            shown = None if option.secret else self.shown
            replaced = self._expanded(given, shown) if option.expands else given
            if replaced is not None and self._means_something(option, replaced):
                found.append(replaced)
        return tuple(found)

    def _expanded(self, given: Given, shown: frozenset[str] | None) -> Given | None:
        try:
            return replace(given, value=expanded(given.value, shown), written=given.value)
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
        # Out of the block, as a traceback would show an error in it with the refused value.
        name = given.key.replace("_", "-")
        self._tell(given, UsageError(f"{given.where()}: the key {name!r}: {message}", hint))
        return None

    def _means_something(self, option: Option, given: Given) -> bool:
        try:
            meaning(option, given.value)
        except ValueError as error:
            why = without_subject(f"{error}.")
        else:
            return True
        place = f"{given.place}, {given.entry}" if given.entry else str(given.place)
        text = f"invalid value for the key {option.name!r} of {place}: {why}"
        self._tell(given, UsageError(text, "see unloader run --help"))
        return False

    def _tell(self, given: Given, error: UnloaderError) -> None:
        key = given.key.replace("_", "-")
        self.report(Mistake(error=error, place=given.place, key=key, entry=given.entry))


def _wrong_table(section: Section, written: str) -> Mistake:
    """Return the mistake of a table where a list of them belongs, or the other way round."""
    key = key_of(written)
    if key in get_args(EntryKind):
        text, hint = "is not a list of tables", f"begin each entry with a line [[{key}]]"
    else:
        text, hint = "is not a table, or more than one", f"write its keys below one line [{key}]"
    return section.mistake(written, f"{written!r} {text}", hint)


def _wrong_name(section: Section, written: str) -> Mistake:
    return section.mistake(
        written,
        "the name of a route is not a plain word in quotes",
        "use letters, digits, dots, hyphens and underscores",
    )


def mistakes_between(job: JobFile) -> Iterator[Mistake]:
    """Yield what is wrong with the names of routes, and with who says what is unloaded."""
    yield from _names(job.routes)
    for table in job.tables:
        yield from _names(table.routes)
        if not any(given.key in (*SUBJECT, "schema") for given in table.values):
            yield _mistake(table.place, "it names neither a table nor a query", entry=table.label)
    for given in job.values if job.tables else ():
        if given.key in SUBJECT:
            text = f"the key {given.key!r} does not apply beside [[table]], which names the tables"
            yield _mistake(given.place, text, key=given.key)


def _names(routes: Sequence[Entry]) -> Iterator[Mistake]:
    """Yield each route that has the name of another one beside it."""
    seen: set[str] = set()
    for each in routes:
        if each.name in seen:
            text = "another route has the same name"
            yield _mistake(each.place, text, key="name", entry=each.label)
        seen.update(filter(None, (each.name,)))


def _mistake(place: Place, text: str, *, key: str = "", entry: str = "") -> Mistake:
    hint = (
        "give each its own name" if key == "name" else "write table or query below each [[table]]"
    )
    where = f"{place}: {entry}" if entry else str(place)
    return Mistake(error=UsageError(f"{where}: {text}", hint), place=place, key=key, entry=entry)
