"""Job files: the content of a night, in TOML.

include = ["base.toml"]     other files, which this one overrides
shown-variables = ["NIGHT"] variables that values may have: their contents are shown and recorded
source = "..."              and every option of `run`: of the whole run, and above all entries
[run]                       the same
[defaults]                  values of keys that are not set elsewhere
[[table]]                   one table each, with the options of a table and of a route
[[table.route]]             one output each of that table
[[route]]                   one output each of every table without separate routes

`read_job` reads a file and its included files into a `JobFile`: plain frozen data in which each
value has its file and line. `JobFile.values_of` returns the values for one table and one route.
Each mistake is given to the caller, who raises the first one or lists all.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from unloader.errors import ConfigError, UnloaderError, UsageError
from unloader.redaction import holds_secret, is_secret, learn
from unloader.request.option import Option, Scope, of_scope
from unloader.request.settings import PASSWORD_KEYS, ROUTE_NAME, at_home, without_subject
from writers.files.regular import read_regular

INCLUDE, SHOWN = "include", "shown-variables"
SOURCE, NAME, RUN, DEFAULTS = "source", "name", "run", "defaults"
EntryKind = Literal["table", "route"]
TABLE: EntryKind = "table"
ROUTE: EntryKind = "route"

SUBJECT = ("table", "query", "tables_from")
"""If an entry has one of these keys, the other keys are not taken from above."""

KeyPath = tuple[str | int, ...]
"""Keys from the top down; a list of tables is followed by the number of a table, from 0."""


class Place(Struct, frozen=True, kw_only=True):
    path: str
    line: int | None = None
    """Counted from 1; None where it is not known."""

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}, line {self.line}"


class Mistake(Struct, frozen=True, kw_only=True):
    error: UnloaderError
    """Its message names place, entry and key."""
    place: Place
    key: str = ""
    """With hyphens; empty where it is about no key, or the key may be a secret."""
    entry: str = ""


Report = Callable[[Mistake], None]
"""Takes one mistake; may raise it, which ends the reading."""


class Given(Struct, frozen=True, kw_only=True):
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

    def meaning(self, option: Option) -> Any:
        """Return the meaning of the value for the option of its key, or raise UsageError."""
        try:
            return option.read(as_given(option, self.value))
        except ValueError as error:
            why = without_subject(f"{error}.")
        # Out of the block, so that no traceback shows the refused value.
        place = f"{self.place}, {self.entry}" if self.entry else str(self.place)
        raise UsageError(
            f"invalid value for the key {option.name!r} of {place}: {why}",
            "see unloader run --help",
        )


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
    path: str
    source: Given | None
    values: tuple[Given, ...]
    """Keys at the top or in [run]: of the run, and above all entries."""
    defaults: tuple[Given, ...]
    tables: tuple[Entry, ...]
    """Empty if the keys at the top name the tables."""
    routes: tuple[Entry, ...]
    """Routes of each table without separate routes; empty if the top names the output."""

    def values_of(self, table: Entry | None = None, route: Entry | None = None) -> dict[str, Given]:
        """Return values by key; a route overrides the table, the top, and [defaults]."""
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
        """Return the one route of a table, which may not narrow its selection; None without or with
        several."""
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


def as_given(option: Option, value: Any) -> Any:
    """Return a value of a file in the form that the command line takes it in."""
    if option.multiple:
        # The items of a list are names already; only text is cut at its commas.
        return [tuple(map(str, value))] if isinstance(value, list) else [value]
    return value


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
FORM = re.compile(r"\$(?P<literal>\$\{)|\$\{(?P<inside>[^{}]*)(?P<end>\})?")
_INSIDE = re.compile(rf"(?P<name>{_NAME})(?::-(?P<default>.*))?", re.DOTALL)


def expanded(
    value: Any, shown: Collection[str] | None, environ: Mapping[str, str] = os.environ
) -> Any:
    """Return a value with the variables in its texts replaced; keys of tables stay as they are.

    `$${` is `${` itself. An empty variable counts as one that is not set. Only the variables in
    `shown` may be used. With None, the text is never shown: any variable may be used, and its
    content is hidden from now on. A variable that means nothing is a ValueError for the user.
    """
    if isinstance(value, list):
        return [expanded(each, shown, environ) for each in value]
    if isinstance(value, dict):
        return {key: expanded(each, shown, environ) for key, each in value.items()}
    if not isinstance(value, str):
        return value

    def replaced(form: re.Match[str]) -> str:
        if form["literal"]:
            return "${"
        inside = _INSIDE.fullmatch(form["inside"])
        if not form["end"] or inside is None:
            # The text is not shown: it may be a secret.
            raise ValueError(
                "a ${ does not begin a variable; write ${NAME}, ${NAME:-default}, or $${ for ${ "
                "itself"
            )
        name, text = inside["name"], environ.get(inside["name"], "")
        if shown is None:
            learn(text)
        elif is_secret(name) or holds_secret(text):
            raise ValueError(
                f"the variable {name} holds a secret, and values of a job file are shown and "
                "recorded; use password-file or another place of passwords"
            )
        elif name not in shown:
            raise ValueError(
                f"the variable {name} may hold a secret, and values of a job file are shown and "
                f'recorded; if others may see it, write shown-variables = ["{name}"] at the top of '
                "the file, or add the name to that list"
            )
        if any("\ud800" <= each <= "\udfff" for each in text):
            raise ValueError(f"the variable {name} holds bytes that are not text")
        if not text and inside["default"] is None:
            raise ValueError(
                f"the variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        return text or inside["default"]

    return FORM.sub(replaced, value)


class _Section(Struct, frozen=True, kw_only=True):
    """A table of a job file: the file itself, [run], [defaults] or an entry."""

    file: str
    content: dict[str, Any]
    lines: dict[KeyPath, int]
    counts_entries: bool
    """False where the same file is included a second time: its keys count again, being the later
    ones, and its tables are there already."""
    shown: frozenset[str]
    """The variables that this file, or one that includes it, declares as fit to be shown."""
    scope: Scope = "run"
    keys: KeyPath = ()
    """The keys that lead to it; empty for the file itself."""
    entry: str = ""
    is_default: bool = False

    def place(self, *keys: str | int) -> Place:
        """Return the place of a key, or of the innermost table around it whose line is known."""
        path = (*self.keys, *keys)
        while path and path not in self.lines:
            path = path[:-1]
        return Place(path=self.file, line=self.lines.get(path))

    def mistake(
        self,
        written: str,
        text: str,
        hint: str,
        *,
        key: str | None = None,
        kind: type[UnloaderError] = UsageError,
    ) -> Mistake:
        """Return the mistake of a key; `key` is empty if the key may be a secret."""
        place = self.place(written)
        error = kind(f"{f'{place}: {self.entry}' if self.entry else place}: {text}", hint)
        key = written.replace("_", "-") if key is None else key
        return Mistake(error=error, place=place, key=key, entry=self.entry)


def read_job(
    path: Path, options: Sequence[Option], report: Report, others: Collection[str] = ()
) -> JobFile:
    """Return a job file with all that it includes, without the keys and values that are reported.

    `others` are keys that only the command line has. A file that is not TOML is a ConfigError.
    """
    files = tuple(_files(str(path), report, set()))
    reader = _Reader(tuple(options), report, others)
    top: dict[str, Given] = {}
    defaults: dict[str, Given] = {}
    entries: dict[str, list[Entry]] = {TABLE: [], ROUTE: []}
    for file in files:
        found: dict[str, Given] = {}
        unless: dict[str, Given] = {}
        for written, value in file.content.items():
            key = _key_of(written)
            if key in (RUN, DEFAULTS) and isinstance(value, dict):
                section = replace(file, keys=(written,), is_default=key == DEFAULTS)
                for inner, each in value.items():
                    reader.take(section, inner, each, unless if section.is_default else found)
            elif key in entries and _are_tables(value):
                for at, each in enumerate(value if file.counts_entries else ()):
                    kind, number = (TABLE if key == TABLE else ROUTE), len(entries[key]) + 1
                    entries[key].append(reader.entry(file, kind, number, (written, at), each))
            elif key in (RUN, DEFAULTS, ROUTE) or (key == TABLE and isinstance(value, dict)):
                reader.wrong_table(file, written)
            elif key not in (INCLUDE, _key_of(SHOWN)):
                reader.take(file, written, value, found)
        top.update(found)
        defaults.update(unless)

    def wrong(place: Place, text: str, hint: str, entry: str = "", key: str = "") -> None:
        error = UsageError(f"{place}: {f'{entry}: ' if entry else ''}{text}", hint)
        report(Mistake(error=error, place=place, key=key, entry=entry))

    tables, routes = entries[TABLE], entries[ROUTE]
    for several in (routes, *(table.routes for table in tables)):
        for at, each in enumerate(several):
            if each.name and each.name in [before.name for before in several[:at]]:
                text, hint = "another route has the same name", "give each its own name"
                wrong(each.place, text, hint, each.label, NAME)
    hint = "write table or query below each [[table]]"
    for table in tables:
        if not any(given.key in (*SUBJECT, "schema") for given in table.values):
            wrong(table.place, "it names neither a table nor a query", hint, table.label)
    for given in top.values() if tables else ():
        if given.key in SUBJECT:
            text = f"the key {given.key!r} does not apply beside [[table]], which names the tables"
            wrong(given.place, text, hint, key=given.key)
    shown = frozenset(name for file in files for name in file.shown)
    source = top.pop(SOURCE, None)
    return JobFile(
        path=str(path),
        source=next(iter(reader.finished([source] if source else [], shown)), None),
        values=reader.finished(top.values(), shown),
        defaults=reader.finished(defaults.values(), shown),
        tables=reader.finished_entries(tables, shown),
        routes=reader.finished_entries(routes, shown),
    )


def _files(
    path: str,
    report: Report,
    seen: set[str],
    around: tuple[str, ...] = (),
    shown: frozenset[str] = frozenset(),
) -> Iterator[_Section]:
    """Yield all files that a job file includes, and the file itself; later ones override."""
    text, content = _read_toml(path)
    names, written = _items(content, SHOWN)
    valid = all(isinstance(each, str) and re.fullmatch(_NAME, each) for each in names)
    real = os.path.realpath(path)
    file = _Section(
        file=path,
        content=content,
        lines=_lines_of(text),
        counts_entries=real not in seen,
        shown=shown.union(names) if valid else shown,
    )
    seen.add(real)
    if not valid:
        why = f"{SHOWN}: it is not a list of names of variables"
        report(file.mistake(written, why, f'write {SHOWN} = ["NAME"]', key=SHOWN))
    around = (*around, path)
    circle = [os.path.realpath(each) for each in around]
    items, written = _items(content, INCLUDE)
    for item in items:
        kind: type[UnloaderError] = UsageError
        try:
            if not isinstance(item, str) or not item.strip():
                raise ValueError("it is neither a path in quotes nor a list of such paths")
            # From where this process is.
            inner = os.path.join(os.path.dirname(path), at_home(str(expanded(item, file.shown))))
            if (again := os.path.realpath(inner)) in circle:
                first = circle.index(again)
                way = ", which includes ".join((*around[first + 1 :], inner))
                raise ValueError(
                    f"files include each other in a circle: {around[first]} includes {way}; "
                    "remove one of these includes"
                )
            # A mistake inside the file has its own place.
            yield from _files(inner, report, seen, around, file.shown)
            continue
        except ConfigError as error:
            why, hint, kind = error.message, error.hint, ConfigError
        except ValueError as error:
            why, _, hint = str(error).partition("; ")
        hint = hint or f'write {INCLUDE} = ["base.toml"]'
        report(file.mistake(written, f"{INCLUDE}: {why}", hint, key=INCLUDE, kind=kind))
    yield file


def _read_toml(path: str) -> tuple[str, dict[str, Any]]:
    why, hint = "", "correct the file"
    try:
        # Editors of Windows begin the file with a mark of the byte order.
        text = read_regular(Path(path), follow=True).decode().removeprefix("\ufeff")
        return text, tomllib.loads(text)
    except OSError as error:
        why, hint = f"cannot be read: {error.strerror}", "check the path"
    except UnicodeDecodeError:
        why, hint = "is not UTF-8 text", "save it as UTF-8"
    except RecursionError:
        why = "is not TOML: it is nested too deeply"
    except ValueError as error:
        # The parser may repeat a key or a character, maybe a secret: only the place is shown.
        place = re.search(r"at (line \d+, column \d+|end of document)", str(error))
        where = f" at {place[1].replace('end of document', 'its end')}" if place else ""
        why = f"is not TOML{where}"
        hint = "correct it: KEY = VALUE on each line, texts in double quotes, each key once"
    raise ConfigError(f"the job file {path} {why}", hint)


_LONG_TEXT = re.compile(r"\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}", re.DOTALL)
_WORD = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[\w-]+)"""
_LINE = re.compile(rf"\s*(\[*)\s*({_WORD}(?:\s*\.\s*{_WORD})*)\s*([\]=])")


def _lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line of each table and of each key at the start of a line, counted from 1."""
    found: dict[KeyPath, int] = {}
    numbers: dict[KeyPath, int] = {}
    table: KeyPath = ()
    # A text of several lines may have lines that look like keys.
    plain = _LONG_TEXT.sub(lambda long: '""' + "\n" * long[0].count("\n"), text)
    for number, line in enumerate(plain.splitlines(), 1):
        match = _LINE.match(line)
        if match is None:
            continue
        brackets, words, end = match.groups()
        path: KeyPath = () if brackets else table
        for word in re.findall(_WORD, words):
            key = tomllib.loads(f"key = {word}")["key"] if word[0] in "\"'" else word
            path = (*path, key)
            path = (*path, numbers[path]) if path in numbers else path
        if brackets == "[[":
            path = path[:-1] if isinstance(path[-1], int) else path
            numbers[path] = numbers.get(path, -1) + 1
            path = (*path, numbers[path])
        if end == "]":
            table = path
        for length in range(1, len(path) + 1):
            found.setdefault(path[:length], number)
    return found


class _Reader(Struct):
    """Takes keys and entries, and reports their mistakes."""

    options: tuple[Option, ...]
    report: Report
    others: Collection[str]

    def entry(
        self, around: _Section, kind: EntryKind, number: int, keys: KeyPath, value: dict[str, Any]
    ) -> Entry:
        name, is_route = value.get(NAME), kind == ROUTE
        named = is_route and isinstance(name, str) and ROUTE_NAME.fullmatch(name) is not None
        bare = Entry(
            kind=kind, number=number, name=str(name) if named else "", place=around.place(*keys)
        )
        label = ", ".join(filter(None, (around.entry, bare.label)))
        section = replace(around, scope=kind, keys=(*around.keys, *keys), entry=label)
        found: dict[str, Given] = {}
        routes: list[Entry] = []
        for written, each in value.items():
            key = _key_of(written)
            if key == ROUTE and not is_route:
                if not _are_tables(each):
                    self.wrong_table(section, written)
                    continue
                for at, inner in enumerate(each):
                    routes.append(self.entry(section, ROUTE, at + 1, (written, at), inner))
            elif key != NAME or not is_route:
                self.take(section, written, each, found)
            elif not named:
                text = "the name of a route is not a plain word in quotes"
                hint = "use letters, digits, dots, hyphens and underscores"
                self.report(section.mistake(written, text, hint))
        return replace(bare, values=tuple(found.values()), routes=tuple(routes))

    def take(self, section: _Section, written: str, value: Any, found: dict[str, Given]) -> None:
        key, opposite = _key_of(written), False
        options = of_scope(self.options, section.scope)
        known = {each: option for option in options for each in option.keys}
        own = [SOURCE] if section.scope == "run" and not section.is_default else []
        if key in known:
            option = known[key]
            key, opposite = option.key, key != option.key
            try:
                # A date or a number in place of text would pass for its own text, which need not
                # be the text that was meant.
                convert(value, option.kind.toml)
            except ValidationError as error:
                wrong = f"{str(error)[:1].lower()}{str(error)[1:]}"
                text = f"the key {written.replace('_', '-')!r}: {wrong}"
                self.report(section.mistake(written, text, f"give it {option.kind.expected}"))
                return
        elif key not in own:
            self._unknown(section, written, value, [*known], own)
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

    def _unknown(
        self, section: _Section, written: str, value: Any, known: list[str], own: list[str]
    ) -> None:
        """Report a key that may not be in this section."""
        key = _key_of(written)
        if key in PASSWORD_KEYS:
            error = UsageError(
                f"{section.file} holds a password, where backups and version control find it",
                "use the key password-file, or set UNLOADER_PASSWORD",
            )
            self.report(Mistake(error=error, place=section.place(written), entry=section.entry))
            return
        # A key that does not look like the name of an option may be a secret.
        shown = re.fullmatch("[A-Za-z]+([-_][A-Za-z]+)*", written) is not None
        elsewhere = next((each for each in self.options if key in each.keys), None)
        if any(isinstance(each, dict) for each in (value if isinstance(value, list) else [value])):
            text = f"unknown table [{written}]" if shown else "it has an unknown key or table"
            hint, shown = "write its keys at the top of the file, or below a line [run]", False
        elif elsewhere is not None:
            of_table = elsewhere.scope == "table"
            owner = f"the whole run, and not to one {section.scope}"
            owner = "a table, and not to one of its routes" if of_table else owner
            text, shown = f"the key {written!r} belongs to {owner}", True
            hint = f"write it {'below [[table]], or ' if of_table else ''}at the top of the file"
        elif key in self.others:
            text, shown = f"a job file holds options of run, not {written}", True
            hint = f"give --{key.replace('_', '-')} on the command line"
        else:
            top = own if section.keys else [INCLUDE, SHOWN, *own]
            more: dict[str, list[str]] = {"run": top, TABLE: [ROUTE], ROUTE: [NAME]}
            every = (*known, *more[section.scope])
            names = sorted(name.replace("_", "-") for name in every)
            near = get_close_matches(written.replace("_", "-").lower(), names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"use one of: {', '.join(names)}"
            text = f"unknown key {written!r}" if shown else "it has an unknown key or table"
        self.report(section.mistake(written, text, hint, key=None if shown else ""))

    def wrong_table(self, section: _Section, written: str) -> None:
        """Report a table where a list of them belongs, or the other way round."""
        key = _key_of(written)
        text, hint = "is not a table, or more than one", f"write its keys below one line [{key}]"
        if key in (TABLE, ROUTE):
            text, hint = "is not a list of tables", f"begin each entry with a line [[{key}]]"
        self.report(section.mistake(written, f"{written!r} {text}", hint))

    def finished_entries(
        self, entries: Iterable[Entry], shown: frozenset[str]
    ) -> tuple[Entry, ...]:
        return tuple(
            replace(
                each,
                values=self.finished(each.values, shown),
                routes=self.finished_entries(each.routes, shown),
            )
            for each in entries
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
                    given.meaning(option)
                found.append(given)
                continue
            except ValueError as error:
                text, _, hint = str(error).partition("; ")
                wrong = UsageError(f"{given.where()}: the key {name!r}: {text}", hint)
            except UsageError as error:
                wrong = error
            self.report(Mistake(error=wrong, place=given.place, key=name, entry=given.entry))
        return tuple(found)


def _key_of(written: str) -> str:
    """Return a key as it is known here, however it is written."""
    return written.replace("-", "_").lower()


def _items(content: Mapping[str, Any], key: str) -> tuple[list[Any], str]:
    """Return the items of a list or of a single value, and the key as it is written."""
    for written, value in content.items():
        if _key_of(written) == _key_of(key):
            return value if isinstance(value, list) else [value], written
    return [], key


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) for e in value)
