"""Holding a finished run over several tables against its manifest, table by table."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from unloader.errors import OutputFailed, PartialUnload, SourceError, VerifyMismatch
from unloader.events import Event, Notice, Observer, Verified
from unloader.manifest.model import TableEntry, TablesManifest
from unloader.manifest.read import (
    digest_at_end,
    is_finished_home,
    is_intact,
    manifest_data,
    parse_manifest,
    parse_tables_manifest,
    read_manifest,
)
from unloader.model import SourceSpec
from unloader.nouns import are, counted
from unloader.resolve.tables.homes import recorded_left_out, recorded_tables
from unloader.storage.model import MANIFEST, RUN_RECORD
from unloader.storage.opening import storage_at
from unloader.storage.paths import PlacePath, path_of, relative
from unloader.verification.finished_run import Checks, ask_source, check_level, verify
from unloader.verification.source import OpenSources, SourceState

_SHOWN_TABLES = 5
_DEPTH = 4
"""Levels below the home at which other runs are looked for; `{schema}` and `{table}` make two."""


def verify_either(
    destination: PlacePath, source: SourceSpec | None, observe: Observer, checks: Checks
) -> dict[str, Any]:
    """Check the finished run in a directory, whether it is over one table or over several.

    As `unloader.verification.finished_run.verify` otherwise.
    """
    for run in storage_at(str(destination)).complete(str(destination)):
        for text in run.messages:
            observe(Notice(text=text))
    if is_finished_home(destination):
        return verify_tables(destination, source, observe, checks)
    record = _record_of_unfinished(str(destination))
    if record:
        raise _checked_unfinished(destination, record, source, observe, checks)
    _check_finished(destination)
    return verify(destination, source, observe, checks)


def _check_finished(place: PlacePath) -> None:
    """Refuse a directory without a manifest, where it is known what to do instead.

    Raises:
        OutputFailed: Finished runs are below it, or a run there is not finished.
    """
    storage = storage_at(str(place))
    with suppress(OSError):
        if MANIFEST in storage.names(str(place)):
            return
        below = storage.places_below(str(place), _DEPTH)
        finished = [each for each in below if MANIFEST in storage.names(each)]
        if finished:
            raise OutputFailed(
                f"{place} has no finished run: {MANIFEST} does not exist, but there are "
                f"{len(finished)} finished runs below it",
                f"verify each of them, such as: unloader verify {shlex.quote(finished[0])}",
            )
        who = storage.who_was_here(str(place), counted=False)
        if who is not None and who.run_id:
            status = f"unloader status {shlex.quote(str(place))}"
            raise OutputFailed(
                f"run {who.run_id} in {place} is not finished: {MANIFEST} does not exist",
                f"wait until the run ends; its progress: {status}"
                if who.is_running
                else f"to see whether it can be resumed: {status}",
            )


def _record_of_unfinished(place: str) -> bytes:
    """Return the record of a run over several tables that has not come to its end; else nothing."""
    try:
        record = storage_at(place).record(place, RUN_RECORD)
        finished = MANIFEST in storage_at(place).names(place)
    except OSError:
        return b""  # Whoever reads the manifest says so.
    return b"" if finished or not recorded_tables(record, place) else record


def _checked_unfinished(
    home: PlacePath, record: bytes, source: SourceSpec | None, observe: Observer, checks: Checks
) -> PartialUnload:
    """Check the tables that a run has published so far; return the error that names the others.

    Raises:
        VerifyMismatch: A published table is not as the run has written it.
    """
    place = shlex.quote(str(home))
    entries: list[TableEntry] = []
    missing: list[str] = []
    for table in recorded_tables(record, str(home)):
        found = [_published(home, each, table.run_id) for each in table.homes]
        entries += [each for each in found if each is not None]
        if None in found:
            missing.append(table.name or "a query")
    answers, differing = _checked(home, entries, source, observe, checks)
    of = len(entries) + len(missing)
    if differing:
        raise _mismatch(home, differing, of)
    left_out = recorded_left_out(record)
    named = [*missing, *(f"{name} (left out)" for name in left_out)]
    more = [f"and {len(named) - _SHOWN_TABLES} more"] if len(named) > _SHOWN_TABLES else []
    who = storage_at(str(home)).who_was_here(str(home), counted=False)
    hint = f"continue the run with: unloader resume {place}"
    if who is not None and who.is_running:
        hint = f"wait until the run ends; its progress: unloader status {place}"
    elif not missing:
        hint = (
            "unload the tables that were left out in another run; remove the record of this run "
            f"with: unloader clean {place}"
        )
    return PartialUnload(
        f"the run of {counted(of + len(left_out), 'table')} in {home} is not complete: "
        f"{len(answers)} {are(len(answers))} published with unchanged files; not published: "
        f"{', '.join(named[:_SHOWN_TABLES] + more)}",
        hint,
    )


def _published(home: PlacePath, directory: str, run_id: str) -> TableEntry | None:
    """Return the entry of a table that an unfinished run has published; None if it has not."""
    place = path_of(directory)
    try:
        data = manifest_data(place)
        manifest = parse_manifest(data, place / MANIFEST)
    except OutputFailed:
        return None
    if manifest.run_id != run_id:
        return None
    return TableEntry(
        table=manifest.table,
        route=manifest.route.name if manifest.route else None,
        directory=relative(directory, str(home)),
        status="complete",
        files=manifest.totals.files,
        bytes=manifest.totals.bytes,
        digest=digest_at_end(data),
    )


def verify_tables(
    home: PlacePath, source: SourceSpec | None, observe: Observer, checks: Checks
) -> dict[str, Any]:
    """Check each table of a finished run, and that each is still the one of the run.

    Finished runs in the directory that are not among its tables are reported: a table that is not
    unloaded any more leaves what an earlier run has written of it. They are a difference where
    `checks` are strict.

    Raises:
        VerifyMismatch: Something differs; the message names the tables.
        OutputFailed: The directory cannot be read.
        SourceError: The source refused.
    """
    manifest = _manifest(home)
    answers, found = _checked(home, manifest.tables, source, observe, checks, manifest.options.to)
    extra = _others(home, manifest)
    if extra and checks.strict:
        found.update((place, "it is not a table of this run") for place in extra)
    elif extra:
        observe(Notice(text=_extra_text(extra)))
    if found:
        raise _mismatch(home, found, len(manifest.tables))
    return _answer(home, manifest, answers, extra)


def _checked(
    home: PlacePath,
    entries: Sequence[TableEntry],
    source: SourceSpec | None,
    observe: Observer,
    checks: Checks,
    to: str = "",
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the answer for each table that is whole, and what is wrong with the others.

    Args:
        home: The directory of all tables.
        entries: Of the tables that are complete.
        source: As in `verify_tables`, and what follows it.
        observe: Likewise.
        checks: Likewise.
        to: The `--to` of the run; "" is not compared with that of the tables.
    """
    progress = _Progress(entries=entries, observe=observe)
    said = _said(home, entries, source, checks, progress)
    found: dict[str, str] = {}
    answers: list[dict[str, Any]] = []
    for entry in entries:
        name = label_of(entry)
        progress.begin(name)
        try:
            _check_same(home, entry)
            _check_below(home, entry, to)
            known = said.get(entry.directory)
            answer = verify(home / entry.directory, source, progress.tell, checks, known)
        except (VerifyMismatch, OutputFailed) as error:
            found[name] = error.message.removeprefix(f"{home / entry.directory}: ")
        else:
            answers.append({"table": name, **answer})
        progress.end(entry)
    return answers, found


def _said(
    home: PlacePath,
    entries: Sequence[TableEntry],
    source: SourceSpec | None,
    checks: Checks,
    progress: _Progress,
) -> dict[str, Callable[[], SourceState]]:
    """Return what the source says of the tables, by their directories; all of it in one state.

    It is asked before any file is read: nobody wants a snapshot held for hours meanwhile. What is
    wrong with a table by itself is raised by its function; a table whose manifest cannot be read
    is left out.

    Raises:
        SourceError: It cannot be opened, or went away.
    """
    found: dict[str, Callable[[], SourceState]] = {}
    if source is None:
        return found
    keys = {(each.table.schema or "", each.table.name) for each in entries if each.table}
    with OpenSources(progress.observe, keys) as sources:
        for entry in entries:
            try:
                one = read_manifest(home / entry.directory)
            except OutputFailed:
                continue
            progress.begin(label_of(entry))
            check_level(one, checks)
            try:
                state = ask_source(one, source, checks, progress.tell, sources)
            except VerifyMismatch as error:
                found[entry.directory] = partial(_raised, error)
            except SourceError as error:
                if error.retryable or sources.refused:
                    raise
                # One that was dropped, say: it says nothing of the others.
                why = f"the source cannot count its rows: {error.message}"
                found[entry.directory] = partial(_raised, VerifyMismatch(why, error.hint))
            else:
                assert state is not None
                found[entry.directory] = partial(_returned, state)
    return found


def _raised(error: VerifyMismatch) -> NoReturn:
    raise error


def _returned(state: SourceState) -> SourceState:
    return state


def label_of(entry: TableEntry) -> str:
    """Return the name of a table and of its output, or the directory of a query."""
    if entry.table is None:
        return entry.directory
    name = ".".join(filter(None, (entry.table.schema, entry.table.name)))
    return f"{name} ({entry.route})" if entry.route else name


class _Progress(Struct, kw_only=True):
    """How far the check of all tables is, from what is told of the one in hand."""

    entries: Sequence[TableEntry]
    observe: Observer
    _name: str = ""
    _files: int = 0
    _bytes: int = 0

    def begin(self, name: str) -> None:
        self._name = name

    def end(self, entry: TableEntry) -> None:
        self._files += entry.files or 0
        self._bytes += entry.bytes or 0

    def tell(self, event: Event) -> None:
        if isinstance(event, Notice):
            event = Notice(text=f"{self._name}: {event.text}")
        elif isinstance(event, Verified) and event.what == "files":
            event = replace(
                event,
                done=self._files + event.done,
                of=sum(each.files or 0 for each in self.entries),
                bytes=self._bytes + event.bytes,
                of_bytes=sum(each.bytes or 0 for each in self.entries),
            )
        self.observe(event)


def _manifest(home: PlacePath) -> TablesManifest:
    """Return the manifest; one that is not as it was written is a difference like any other."""
    data = manifest_data(home)
    try:
        return parse_tables_manifest(data, home / MANIFEST)
    except OutputFailed as error:
        if is_intact(data):
            raise  # Of another version of this program.
        raise VerifyMismatch(error.message, error.hint) from error


def _check_same(home: PlacePath, entry: TableEntry) -> None:
    """Check that the manifest of a table is the one that the run has written.

    Raises:
        VerifyMismatch: It is another one.
        OutputFailed: There is none.
    """
    place = home / entry.directory
    if digest_at_end(manifest_data(place)) != entry.digest:
        raise VerifyMismatch(
            f"{place / MANIFEST} is not the manifest that this run wrote: the table was unloaded "
            "again, or the file was changed",
            "unload all tables again, or restore the directory",
        )


def _check_below(home: PlacePath, entry: TableEntry, to: str) -> None:
    """Check that a table without a `to` of its own is in the directory of the run.

    Raises:
        VerifyMismatch: It is elsewhere, and a link to the run's directory leads to no file of it.
    """
    if not entry.directory.startswith("../"):
        return
    settings = read_manifest(home / entry.directory).settings
    if to in [each.value for each in settings if each.name == "to"]:
        raise VerifyMismatch(
            f"the files are in {home / entry.directory} instead of {home}",
            "unload all tables again",
        )


def _others(home: PlacePath, manifest: TablesManifest) -> list[str]:
    """Return the directories of finished runs in a home that are not of its tables."""
    ours = {str(home / entry.directory) for entry in manifest.tables} | {str(home)}
    storage = storage_at(str(home))
    return [
        place
        for place in storage.places_below(str(home), _DEPTH)
        if place not in ours and MANIFEST in storage.names(place)
    ]


def _extra_text(extra: list[str]) -> str:
    more = f" and {len(extra) - _SHOWN_TABLES} more" if len(extra) > _SHOWN_TABLES else ""
    return (
        "finished runs that do not belong to this run are next to its tables, where a loader may "
        "read them: " + ", ".join(extra[:_SHOWN_TABLES]) + more
    )


def _mismatch(home: PlacePath, found: dict[str, str], of: int) -> VerifyMismatch:
    named = [f"{name}: {why.rstrip('. ')}" for name, why in found.items()][:_SHOWN_TABLES]
    more = len(found) - len(named)
    if more:
        named.append(f"and {more} more: {', '.join(list(found)[_SHOWN_TABLES:])}")
    return VerifyMismatch(
        f"{home}: {len(found)} of {counted(of, 'table')} {are(len(found))} not as the run wrote "
        f"{'it' if len(found) == 1 else 'them'}: " + "; ".join(named),
        "unload these tables again, or restore their files; the other tables are unchanged",
    )


def _answer(
    home: PlacePath, manifest: TablesManifest, answers: list[dict[str, Any]], extra: list[str]
) -> dict[str, Any]:
    totals = manifest.totals
    is_counted = all(each["source_rows"] is not None for each in answers)
    snapshots = sorted({each["snapshot"] for each in answers})
    return {
        "destination": str(home),
        "run_id": manifest.run_id,
        "files": totals.files,
        "rows": totals.rows,
        "filtered_rows": totals.filtered_rows,
        "bytes": totals.bytes,
        # The source has as many rows as each table of the run, or the table would differ.
        "source_rows": totals.rows + (totals.filtered_rows or 0) if is_counted else None,
        "snapshot": ", ".join(snapshots),
        "level": answers[0]["level"] if answers else "count",
        "not_compared": list(_not_compared(answers)),
        "result": "ok",
        "differences": [],
        "extra_files": [f"{each['table']}: {n}" for each in answers for n in each["extra_files"]],
        "table_count": totals.tables,
        "tables": answers,
        "extra_tables": extra,
    }


def _not_compared(answers: list[dict[str, Any]]) -> Iterator[str]:
    for each in answers:
        yield from (f"{each['table']}: {text}" for text in each["not_compared"])
