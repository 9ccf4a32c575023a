"""From TOML to a `JobFile`: which keys and entries there are, each mistake with its place.

include = ["base.toml"]     other files, which this one overrides
shown-variables = ["NIGHT"] variables that values may have: their contents are shown and recorded
source = "..."              and every option of `run`: of the whole run, and above all entries
[run]                       the same
[defaults]                  values of keys that are not set elsewhere
[[table]]                   one table each, with the options of a table and of a route
[[table.route]]             one output each of that table
[[route]]                   one output each of every table without separate routes
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from unloader.errors import UsageError
from unloader.request.job.documents import (
    INCLUDE,
    SHOWN,
    Document,
    Mistake,
    Place,
    Report,
    documents,
    expanded,
    key_of,
    mistake,
)
from unloader.request.option import Option, Scope, of_scope
from unloader.request.settings import PASSWORD_KEYS, ROUTE_NAME, without_subject

EntryKind = Literal["table", "route"]
SOURCE, NAME, RUN, DEFAULTS = "source", "name", "run", "defaults"
TABLE: EntryKind = "table"
ROUTE: EntryKind = "route"

SUBJECT = ("table", "query", "tables_from")
"""If an entry has one of these keys, the other keys are not taken from above."""


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
    """It is in [defaults], and is ignored where it does not apply."""

    def where(self) -> str:
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
        return f"[[{self.kind}]] {self.name or self.number}"


class JobFile(Struct, frozen=True, kw_only=True):
    """A job file with all that it includes."""

    path: str
    source: Given | None = None
    """The URL of the source."""
    values: tuple[Given, ...] = ()
    """Keys at the top or in [run]: of the run, and above all entries."""
    defaults: tuple[Given, ...] = ()
    """Keys in [defaults], which count if a key is not set elsewhere."""
    tables: tuple[Entry, ...] = ()
    """Empty if the keys at the top name the tables."""
    routes: tuple[Entry, ...] = ()
    """Routes of each table without separate routes; empty if the top names the output."""

    def values_of(self, table: Entry | None = None, route: Entry | None = None) -> dict[str, Given]:
        """Return the values for a table and a route, by their keys.

        A route overrides its table, a table the top of the file, and the top [defaults].
        """
        found: dict[str, Given] = {}
        entries = (each.values for each in (table, route) if each is not None)
        for layer in (self.defaults, self.values, *entries):
            if any(given.key in SUBJECT for given in layer):
                found = {key: given for key, given in found.items() if key not in SUBJECT}
            found.update((given.key, given) for given in layer)
        return found

    def routes_of(self, table: Entry | None) -> tuple[Entry, ...]:
        """Return the routes of a table; empty if its only output is described above."""
        return (table.routes if table is not None else ()) or self.routes

    def only_route(self, table: Entry | None) -> Entry | None:
        """Return the one route of a table; None if it has several, or no route.

        Raises:
            UsageError: The route would narrow the selection of the table.
        """
        routes = self.routes_of(table)
        if len(routes) != 1:
            return None
        above = {given.key for given in (*self.values, *(table.values if table else ()))}
        for given in routes[0].values:
            if given.key in above & {"columns", "exclude", "where"}:
                raise UsageError(
                    f"{given.where()}: the key {given.key!r} is also set above the route, and rows "
                    "are selected once",
                    "write it in one of the two places",
                )
        return routes[0]


def keys_of(options: Iterable[Option]) -> dict[str, tuple[Option, bool]]:
    """Return each key of some options, with its option and whether it says the opposite."""
    return {key: (each, key != each.key) for each in options for key in each.keys}


def as_given(option: Option, value: Any) -> Any:
    """Return a value of a file in the form that the command line takes it in."""
    if option.multiple:
        # The items of a list are names already; only text is cut at its commas.
        return [tuple(map(str, value))] if isinstance(value, list) else [value]
    return value


def meaning(option: Option, given: Given) -> Any:
    """Return the meaning of a key with its value, or raise UsageError."""
    try:
        return option.read(as_given(option, given.value))
    except ValueError as error:
        why = without_subject(f"{error}.")
    # Out of the block, so that no traceback shows the refused value.
    place = f"{given.place}, {given.entry}" if given.entry else str(given.place)
    raise UsageError(
        f"invalid value for the key {option.name!r} of {place}: {why}", "see unloader run --help"
    )


def read_job(
    path: Path, options: Sequence[Option], report: Report, others: Collection[str] = ()
) -> JobFile:
    """Return a job file with all that it includes, without the keys and values that are reported.

    Args:
        others: Keys of options that only the command line has.

    Raises:
        ConfigError: The file cannot be read or is not TOML.
    """
    files = documents(path, report)
    reader = _Reader(tuple(options), report, frozenset(others))
    shown: frozenset[str] = frozenset()
    source: Given | None = None
    values: dict[str, Given] = {}
    defaults: dict[str, Given] = {}
    entries: dict[str, list[Entry]] = {TABLE: [], ROUTE: []}
    for document in files:
        shown |= document.shown
        top = _Section(document)
        found: dict[str, Given] = {}
        unless: dict[str, Given] = {}
        for written, value in document.content.items():
            key = key_of(written)
            if key in (RUN, DEFAULTS) and isinstance(value, dict):
                section = replace(top, path=(written,), is_default=key == DEFAULTS)
                for inner, each in value.items():
                    reader.take(section, inner, each, unless if section.is_default else found)
            elif key in entries and _are_tables(value):
                for at, each in enumerate(value if document.counts_entries else ()):
                    kind, number = (TABLE if key == TABLE else ROUTE), len(entries[key]) + 1
                    entries[key].append(reader.entry(top, kind, number, (written, at), each))
            elif key in (RUN, DEFAULTS, ROUTE) or (key == TABLE and isinstance(value, dict)):
                reader.wrong_table(top, written)
            elif key not in (INCLUDE, key_of(SHOWN)):
                reader.take(top, written, value, found)
        source = found.pop(SOURCE, source)
        values.update(found)
        defaults.update(unless)

    tables, routes = entries[TABLE], entries[ROUTE]
    for several in (routes, *(table.routes for table in tables)):
        for at, each in enumerate(several):
            if each.name and each.name in [before.name for before in several[:at]]:
                text, hint = "another route has the same name", "give each its own name"
                report(mistake(each.place, text, hint, key=NAME, entry=each.label))
    hint = "write table or query below each [[table]]"
    for table in tables:
        if not any(given.key in (*SUBJECT, "schema") for given in table.values):
            text = "it names neither a table nor a query"
            report(mistake(table.place, text, hint, entry=table.label))
    for given in values.values() if tables else ():
        if given.key in SUBJECT:
            text = f"the key {given.key!r} does not apply beside [[table]], which names the tables"
            report(mistake(given.place, text, hint, key=given.key))
    return JobFile(
        path=str(path),
        source=next(iter(reader.finished([source] if source else [], shown)), None),
        values=reader.finished(values.values(), shown),
        defaults=reader.finished(defaults.values(), shown),
        tables=tuple(reader.finished_entry(each, shown) for each in tables),
        routes=tuple(reader.finished_entry(each, shown) for each in routes),
    )


class _Section(Struct, frozen=True):
    """One table of a file, and what its keys are about."""

    document: Document
    scope: Scope = "run"
    path: tuple[str | int, ...] = ()
    entry: str = ""
    is_default: bool = False


class _Reader(Struct):
    """Takes keys and entries, and reports their mistakes."""

    options: tuple[Option, ...]
    report: Report
    others: frozenset[str]

    def entry(
        self,
        around: _Section,
        kind: EntryKind,
        number: int,
        path: tuple[str | int, ...],
        value: dict[str, Any],
    ) -> Entry:
        """Return an entry with its values and routes."""
        name, is_route = value.get(NAME), kind == ROUTE
        named = is_route and isinstance(name, str) and ROUTE_NAME.fullmatch(name) is not None
        place = around.document.place(*path)
        bare = Entry(kind=kind, number=number, name=str(name) if named else "", place=place)
        label = ", ".join(filter(None, (around.entry, bare.label)))
        section = replace(around, scope=kind, path=path, entry=label)
        found: dict[str, Given] = {}
        routes: list[Entry] = []
        for written, each in value.items():
            key = key_of(written)
            if key == ROUTE and not is_route:
                if _are_tables(each):
                    routes += (
                        self.entry(section, ROUTE, at + 1, (*path, written, at), inner)
                        for at, inner in enumerate(each)
                    )
                else:
                    self.wrong_table(section, written)
            elif key != NAME or not is_route:
                self.take(section, written, each, found)
            elif not named:
                text = "the name of a route is not a plain word in quotes"
                hint = "use letters, digits, dots, hyphens and underscores"
                self.wrong(section, written, text, hint)
        return replace(bare, values=tuple(found.values()), routes=tuple(routes))

    def take(self, section: _Section, written: str, value: Any, found: dict[str, Given]) -> None:
        """Take one key with its value, or report the mistake."""
        key, opposite = key_of(written), False
        known = keys_of(of_scope(self.options, section.scope))
        own = [SOURCE] if section.scope == "run" and not section.is_default else []
        if key in known:
            option, opposite = known[key]
            key = option.key
            try:
                # A date or a number in place of text would pass for its own text, which need not
                # be the text that was meant.
                convert(value, option.kind.toml)
            except ValidationError as error:
                wrong = f"{str(error)[:1].lower()}{str(error)[1:]}"
                text = f"the key {written.replace('_', '-')!r}: {wrong}"
                self.wrong(section, written, text, f"give it {option.kind.expected}")
                return
        elif key not in own:
            self._unknown(section, written, value, known, own)
            return
        if key in found:
            text = f"the key {written!r} is given twice"
            self.wrong(section, written, text, "remove one of the two")
            return
        found[key] = Given(
            key=key,
            value=not value if opposite else value,
            place=section.document.place(*section.path, written),
            entry=section.entry,
            is_default=section.is_default,
        )

    def _unknown(
        self,
        section: _Section,
        written: str,
        value: Any,
        known: Mapping[str, Any],
        own: Sequence[str],
    ) -> None:
        """Report a key that may not be in this section."""
        key = key_of(written)
        if key in PASSWORD_KEYS:
            error = UsageError(
                f"{section.document.path} holds a password, where backups and version control "
                "find it",
                "use the key password-file, or set UNLOADER_PASSWORD",
            )
            place = section.document.place(*section.path, written)
            self.report(Mistake(error=error, place=place, entry=section.entry))
            return
        # A key that does not look like the name of an option may be a secret.
        named = re.fullmatch("[A-Za-z]+([-_][A-Za-z]+)*", written) is not None
        unshown = "it has an unknown key or table"
        elsewhere = keys_of(self.options).get(key)
        if any(isinstance(each, dict) for each in (value if isinstance(value, list) else [value])):
            text = f"unknown table [{written}]" if named else unshown
            hint, named = "write its keys at the top of the file, or below a line [run]", False
        elif elsewhere is not None:
            of_table = elsewhere[0].scope == "table"
            owner = f"the whole run, and not to one {section.scope}"
            owner = "a table, and not to one of its routes" if of_table else owner
            text, named = f"the key {written!r} belongs to {owner}", True
            hint = f"write it {'below [[table]], or ' if of_table else ''}at the top of the file"
        elif key in self.others:
            text, named = f"a job file holds options of run, not {written}", True
            hint = f"give --{key.replace('_', '-')} on the command line"
        else:
            grammar: dict[str, list[str]] = {
                "run": [INCLUDE, SHOWN, *own],
                TABLE: [ROUTE],
                ROUTE: [NAME],
            }
            at_top = section.scope == "run" and section.path
            more = [*known, *(own if at_top else grammar[section.scope])]
            names = [name.replace("_", "-") for name in more]
            near = get_close_matches(written.replace("_", "-").lower(), names, n=1, cutoff=0.5)
            every = "use one of: " + ", ".join(sorted(names))
            hint = f"did you mean {near[0]!r}?" if near else every
            text = f"unknown key {written!r}" if named else unshown
        self.wrong(section, written, text, hint, named=named)

    def wrong(
        self, section: _Section, written: str, text: str, hint: str, *, named: bool = True
    ) -> None:
        """Report the mistake of a key; `named` if the key may be shown."""
        key = written.replace("_", "-") if named else ""
        place = section.document.place(*section.path, written)
        self.report(mistake(place, text, hint, key=key, entry=section.entry))

    def wrong_table(self, section: _Section, written: str) -> None:
        """Report a table where a list of them belongs, or the other way round."""
        key = key_of(written)
        text, hint = "is not a table, or more than one", f"write its keys below one line [{key}]"
        if key in (TABLE, ROUTE):
            text, hint = "is not a list of tables", f"begin each entry with a line [[{key}]]"
        self.wrong(section, written, f"{written!r} {text}", hint)

    def finished_entry(self, entry: Entry, shown: frozenset[str]) -> Entry:
        return replace(
            entry,
            values=self.finished(entry.values, shown),
            routes=tuple(self.finished_entry(each, shown) for each in entry.routes),
        )

    def finished(self, values: Iterable[Given], shown: frozenset[str]) -> tuple[Given, ...]:
        """Return values with their variables replaced, without values that mean nothing."""
        known = {option.key: option for option in self.options}
        found = []
        for given in values:
            option = known.get(given.key)  # None for the source.
            name = given.key.replace("_", "-")
            try:
                if option is None or option.expands:
                    secret = option is not None and option.secret
                    value = expanded(given.value, None if secret else shown)
                    given = replace(given, value=value, written=given.value)
                if option is not None:
                    meaning(option, given)
                found.append(given)
            except ValueError as error:
                text, _, hint = str(error).partition("; ")
                text = f"the key {name!r}: {text}"
                self.report(mistake(given.place, text, hint, key=name, entry=given.entry))
            except UsageError as error:
                self.report(Mistake(error=error, place=given.place, key=name, entry=given.entry))
        return tuple(found)


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) for e in value)
