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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import replace

from unloader.errors import UnloaderError, UsageError
from unloader.request.job.documents import (
    INCLUDE,
    SHOWN,
    Document,
    Report,
    documents,
    expanded,
)
from unloader.request.job.entries import SUBJECT, Entry, EntryKind, Given, JobFile, Mistake, Place
from unloader.request.option import Option, Scope, of_scope
from unloader.request.settings import PASSWORD_KEYS, ROUTE_NAME, at_home, without_subject

SOURCE, NAME, RUN, DEFAULTS = "source", "name", "run", "defaults"
TABLE: EntryKind = "table"
ROUTE: EntryKind = "route"


def keys_of(options: Iterable[Option]) -> dict[str, tuple[Option, bool]]:
    """Return each key of some options, with its option and whether it says the opposite."""
    return {key: (each, key != each.key) for each in options for key in each.keys}


def key_of(written: str) -> str:
    """Return a key as it is known here, however it is written."""
    return written.replace("-", "_").lower()


def as_given(option: Option, value: Any) -> Any:
    """Return a value of a file in the form that the command line takes it in."""
    if isinstance(value, float):
        return str(value)  # As it is written: 12.5 must not become the whole number 12.
    if option.multiple:
        # The items of a list are names already; only text is cut at its commas.
        return [tuple(map(str, value))] if isinstance(value, list) else [value]
    return value


def meaning(option: Option, given: Given) -> Any:
    """Return the meaning of a key with its value; of a repeated option, all its items.

    Raises:
        UsageError: It means nothing.
    """
    value = as_given(option, given.value)
    why = ""
    try:
        if option.multiple:
            found = tuple(item for each in value for item in option.kind.read(each))
            return tuple(map(at_home, found)) if option.kind.is_path else found
        read = option.kind.read(value)
        return at_home(read) if option.kind.is_path else read
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
    """Return a job file with all that it includes.

    Args:
        path: The file.
        options: The options of `run`.
        report: Takes each mistake; the result has no wrong keys and values.
        others: Keys of options that only the command line has.

    Raises:
        ConfigError: The file cannot be read or is not TOML.
    """
    reader = _Reader(options=tuple(options), report=report, others=frozenset(others))
    for document in documents(path, report):
        reader.take(document)
    return reader.job(str(path))


class _Section(Struct, frozen=True, kw_only=True):
    """One table of a file, and the keys that it may have."""

    document: Document
    scope: Scope
    path: tuple[str | int, ...] = ()
    entry: str = ""
    is_default: bool = False
    own: tuple[str, ...] = ()
    """Keys of the grammar, which are not options."""

    def mistake(self, written: str, text: str, hint: str, *, named: bool = True) -> Mistake:
        """Return the mistake of a key; `named` if the key may be shown."""
        key = written.replace("_", "-") if named else ""
        place = self.document.place(*self.path, written)
        return _mistake(place, text, hint, key=key, entry=self.entry)


def _mistake(place: Place, text: str, hint: str, *, key: str = "", entry: str = "") -> Mistake:
    where = f"{place}: {entry}" if entry else str(place)
    return Mistake(error=UsageError(f"{where}: {text}", hint), place=place, key=key, entry=entry)


class _Reader(Struct, kw_only=True):
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
        """Take the content of one file; it overrides the files before."""
        self.shown |= document.shown
        grammar = (INCLUDE, key_of(SHOWN))
        top = _Section(document=document, scope="run", own=(*grammar, SOURCE))
        found: dict[str, Given] = {}
        defaults: dict[str, Given] = {}
        for written, value in document.content.items():
            key = key_of(written)
            if key in (RUN, DEFAULTS) and isinstance(value, dict):
                is_default = key == DEFAULTS
                section = replace(
                    top, path=(written,), own=() if is_default else (SOURCE,), is_default=is_default
                )
                for inner, each in value.items():
                    self._take_key(section, inner, each, defaults if is_default else found)
            elif key in (TABLE, ROUTE) and _are_tables(value):
                kind: EntryKind = TABLE if key == TABLE else ROUTE
                entries = self.tables if kind == TABLE else self.routes
                for at, each in enumerate(value if document.counts_entries else ()):
                    entry = self._entry_of(top, kind, len(entries) + 1, (written, at), each)
                    entries.append(entry)
            elif key in (RUN, DEFAULTS, ROUTE) or (key == TABLE and isinstance(value, dict)):
                self.report(_wrong_table(top, written))
            elif key not in grammar:
                self._take_key(top, written, value, found)
        self.source = found.pop(SOURCE, self.source)
        self.values.update(found)
        self.defaults.update(defaults)

    def job(self, path: str) -> JobFile:
        """Return the content of all files together, with the variables replaced."""
        for mistake in self._mistakes_between():
            self.report(mistake)
        return JobFile(
            path=path,
            source=None if self.source is None else self._expanded(self.source, self.shown),
            values=self._finished(self.values.values()),
            defaults=self._finished(self.defaults.values()),
            tables=tuple(map(self._finished_entry, self.tables)),
            routes=tuple(map(self._finished_entry, self.routes)),
        )

    def _entry_of(
        self,
        around: _Section,
        kind: EntryKind,
        number: int,
        path: tuple[str | int, ...],
        value: dict[str, Any],
    ) -> Entry:
        """Return an entry with its values and routes."""
        name, is_route, document = value.get(NAME), kind == ROUTE, around.document
        named = is_route and isinstance(name, str) and ROUTE_NAME.fullmatch(name) is not None
        bare = Entry(
            kind=kind,
            number=number,
            name=str(name) if named else "",
            place=document.place(*path),
        )
        section = replace(
            around,
            scope=kind,
            path=path,
            entry=", ".join(filter(None, (around.entry, bare.label))),
            own=(NAME,) if is_route else (ROUTE,),
        )
        found: dict[str, Given] = {}
        routes: list[Entry] = []
        for written, each in value.items():
            key = key_of(written)
            if key == ROUTE and not is_route:
                if not _are_tables(each):
                    self.report(_wrong_table(section, written))
                    continue
                for at, inner in enumerate(each):
                    place = (*path, written, at)
                    routes.append(self._entry_of(section, ROUTE, at + 1, place, inner))
            elif key != NAME or not is_route:
                self._take_key(section, written, each, found)
            elif not named:
                text = "the name of a route is not a plain word in quotes"
                hint = "use letters, digits, dots, hyphens and underscores"
                self.report(section.mistake(written, text, hint))
        return replace(bare, values=tuple(found.values()), routes=tuple(routes))

    def _take_key(
        self, section: _Section, written: str, value: Any, found: dict[str, Given]
    ) -> None:
        """Take one key with its value, or report the mistake."""
        key, opposite = key_of(written), False
        known = keys_of(of_scope(self.options, section.scope))
        mistake = None if key in section.own else self._wrong_key(section, written, value, known)
        if mistake is None and key in known:
            option, opposite = known[key]
            key = option.key
            try:
                # A date or a number in place of text would pass for its own text, which need not
                # be the text that was meant.
                convert(value, option.kind.toml)
            except ValidationError as error:
                wrong = f"{str(error)[:1].lower()}{str(error)[1:]}"
                text = f"the key {written.replace('_', '-')!r}: {wrong}"
                mistake = section.mistake(written, text, f"give it {option.kind.expected}")
        if mistake is None and key in found:
            text = f"the key {written!r} is given twice"
            mistake = section.mistake(written, text, "remove one of the two")
        if mistake is not None:
            self.report(mistake)
            return
        found[key] = Given(
            key=key,
            value=not value if opposite else value,
            place=section.document.place(*section.path, written),
            entry=section.entry,
            is_default=section.is_default,
        )

    def _wrong_key(
        self, section: _Section, written: str, value: Any, known: Mapping[str, Any]
    ) -> Mistake | None:
        """Return the mistake of a key in this section; None if it may be there."""
        key = key_of(written)
        if key in PASSWORD_KEYS:
            error = UsageError(
                f"{section.document.path} holds a password, where backups and version control "
                "find it",
                "use the key password-file, or set UNLOADER_PASSWORD",
            )
            place = section.document.place(*section.path, written)
            return Mistake(error=error, place=place, entry=section.entry)
        if key in known:
            return None
        # A key that does not look like the name of an option may be a secret.
        may_be_shown = re.fullmatch("[A-Za-z]+([-_][A-Za-z]+)*", written) is not None
        unshown = "it has an unknown key or table"
        tables = value if isinstance(value, list) else [value]
        if any(isinstance(each, dict) for each in tables):
            shown = f"unknown table [{written}]" if may_be_shown else unshown
            hint = "write its keys at the top of the file, or below a line [run]"
            return section.mistake(written, shown, hint, named=False)
        elsewhere = keys_of(self.options).get(key)
        if elsewhere is not None:
            is_table = elsewhere[0].scope == "table"
            owner = "a table, and not to one of its routes"
            owner = owner if is_table else f"the whole run, and not to one {section.scope}"
            hint = "below [[table]], or at the top" if is_table else "at the top of the file"
            text = f"the key {written!r} belongs to {owner}"
            return section.mistake(written, text, f"write it {hint}")
        if key in self.others:
            text = f"a job file holds options of run, not {written}"
            hint = f"give --{key.replace('_', '-')} on the command line"
            return section.mistake(written, text, hint)
        names = [name.replace("_", "-") for name in (*known, *section.own)]
        near = get_close_matches(written.replace("_", "-").lower(), names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "use one of: " + ", ".join(sorted(names))
        shown = f"unknown key {written!r}" if may_be_shown else unshown
        return section.mistake(written, shown, hint, named=may_be_shown)

    def _mistakes_between(self) -> Iterator[Mistake]:
        """Yield mistakes in the names of routes, and in the choice of tables."""
        for routes in (self.routes, *(table.routes for table in self.tables)):
            for at, each in enumerate(routes):
                if each.name and each.name in [before.name for before in routes[:at]]:
                    text, hint = "another route has the same name", "give each its own name"
                    yield _mistake(each.place, text, hint, key=NAME, entry=each.label)
        hint = "write table or query below each [[table]]"
        for table in self.tables:
            if not any(given.key in (*SUBJECT, "schema") for given in table.values):
                text = "it names neither a table nor a query"
                yield _mistake(table.place, text, hint, entry=table.label)
        for given in self.values.values() if self.tables else ():
            if given.key in SUBJECT:
                text = f"the key {given.key!r} does not apply beside [[table]], which names the "
                yield _mistake(given.place, f"{text}tables", hint, key=given.key)

    def _finished_entry(self, entry: Entry) -> Entry:
        return replace(
            entry,
            values=self._finished(entry.values),
            routes=tuple(map(self._finished_entry, entry.routes)),
        )

    def _finished(self, values: Iterable[Given]) -> tuple[Given, ...]:
        """Return values with their variables replaced, without values that mean nothing."""
        known = {option.key: option for option in self.options}
        found = []
        for given in values:
            option = known[given.key]
            shown = None if option.secret else self.shown
            replaced = self._expanded(given, shown) if option.expands else given
            if replaced is None:
                continue
            try:
                meaning(option, replaced)
                found.append(replaced)
            except UsageError as error:
                self._report(given, error)
        return tuple(found)

    def _expanded(self, given: Given, shown: frozenset[str] | None) -> Given | None:
        try:
            return replace(given, value=expanded(given.value, shown), written=given.value)
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
        # Out of the block, so that no traceback shows the refused value.
        name = given.key.replace("_", "-")
        self._report(given, UsageError(f"{given.where()}: the key {name!r}: {message}", hint))
        return None

    def _report(self, given: Given, error: UnloaderError) -> None:
        key = given.key.replace("_", "-")
        self.report(Mistake(error=error, place=given.place, key=key, entry=given.entry))


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) for e in value)


def _wrong_table(section: _Section, written: str) -> Mistake:
    """Return the mistake of a table where a list of them belongs, or the other way round."""
    key = key_of(written)
    if key in (TABLE, ROUTE):
        text, hint = "is not a list of tables", f"begin each entry with a line [[{key}]]"
    else:
        text, hint = "is not a table, or more than one", f"write its keys below one line [{key}]"
    return section.mistake(written, f"{written!r} {text}", hint)
