"""Checks a finished run against its manifests, and against the source if one is given.

A run has one table or several, and a table may have several outputs. Each output is checked in the
same way: `_Table` here. Only the words of the result and of the errors differ: a run of one table
has no list of tables.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from numa.topology import detect
from unloader.errors import (
    ConfigError,
    OutputFailed,
    PartialUnload,
    SourceError,
    UsageError,
    VerifyMismatch,
)
from unloader.events import Event, Notice, Observer, PhaseStarted, Verified
from unloader.lakehouse.lake_runs import run_in_table
from unloader.manifest.model import Manifest, TableEntry, TablesManifest
from unloader.manifest.read import (
    digest_at_end,
    directories_of,
    is_intact,
    manifest_data,
    parse_run,
    read_manifest,
)
from unloader.model import EncryptionOptions, SourceSpec
from unloader.nouns import are, counted, listed
from unloader.resolve.resolved import RecordedTable, recorded_left_out, recorded_tables
from unloader.secrets.keys import with_identities, with_parquet_key
from unloader.selection.listing import TRY_AGAIN
from unloader.storage.place_names import PlacePath, path_of, relative
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, RUN_RECORD
from unloader.verification.files import (
    NEW_RUN,
    TABLE,
    CheckedFile,
    differing,
    fetched_by,
    fetched_of,
    has_sums,
    read_files,
    some_of,
)
from unloader.verification.source import OpenSources, SourceState, ask
from writers.errors import FormatError
from writers.files.publish import INDEX
from writers.files.read_back import listed as lines_of
from writers.model import Encryption, OutputSpec
from writers.registry import check

Level = Literal["count", "full", "source"]

_SHOWN = 5

_LOADED = "where a loader may read them"

_DEPTH = 4
"""Levels below a home at which other runs are looked for; `{schema}` and `{table}` make two."""


class Checks(Struct, frozen=True, kw_only=True):
    source: SourceSpec | None = None
    """Counts the rows, too; None asks no source."""
    strict: bool = False
    """Files that do not belong to the run are a difference, and not only reported."""
    level: Level = "count"
    """count: files as a whole, and rows; full: also the values in them, as the run recorded them;
    source: as the source has them."""
    parallelism: int = 0
    """Files that are read at a time; 0 is the number of usable CPUs."""
    keys: EncryptionOptions | None = None
    """Where the keys of encrypted files are found; None is nowhere."""

    @property
    def threads(self) -> int:
        """Files that are read at a time."""
        return self.parallelism or detect().usable_cpus


class _Table(Struct, kw_only=True):
    name: str
    """With its schema and its output, for messages; empty if the run has only this one."""
    place: PlacePath
    manifest: Manifest
    spec: OutputSpec
    """How the files are read: with the keys, where they are given."""
    state: SourceState | None = None
    """The answer of the source about it; None until it was asked."""
    refused: str = ""
    """Why the source cannot count its rows, for example because it was dropped."""


def verify(destination: PlacePath, checks: Checks, observe: Observer) -> dict[str, Any]:
    """Check every file of a finished run, and the row counts where a source is given.

    Each file is read as a whole, and its records are counted by another reader than the code that
    wrote it; of encrypted files only with the key. The source counts at the snapshot of the run
    where that still exists, otherwise as it is now. A run that was interrupted while it was
    published is completed first; `PartialUnload` is for one with several tables that goes on.
    """
    if checks.level == "source" and checks.source is None:
        raise UsageError("--level source compares with a database", "give SOURCE after DEST")
    _finish_publication(destination, observe)
    storage, place = storage_at(str(destination)), str(destination)
    tables: tuple[RecordedTable, ...] = ()
    is_missing = False
    with suppress(OSError):  # The reader of the manifest reports it.
        is_missing = MANIFEST not in storage.names(place)
        record = storage.record(place, RUN_RECORD) if is_missing else b""
        tables = recorded_tables(record, place)
    if tables:
        left_out = recorded_left_out(record)
        quoted = shlex.quote(str(destination))
        entries: list[TableEntry] = []
        missing: list[str] = []
        for table in tables:
            published = []
            for directory in table.homes:
                with suppress(OutputFailed):
                    manifest = read_manifest(path_of(directory))
                    if manifest.run_id == table.run_id:
                        published.append(
                            TableEntry(
                                table=manifest.table,
                                route=manifest.route.name if manifest.route else None,
                                directory=relative(directory, str(destination)),
                                status="complete",
                                digest=manifest.digest,
                            )
                        )
            entries += published
            if len(published) < len(table.homes):
                missing.append(table.name or "a query")
        answers, differing, uncounted = _checked_tables(destination, entries, checks, observe)
        of = len(entries) + len(missing)
        if differing or uncounted:
            raise _mismatch(destination, differing, uncounted, of)
        named = [*missing, *(f"{name} (left out)" for name in left_out)]
        who = storage_at(str(destination)).who_was_here(str(destination), counted=False)
        hint = f"continue the run with: unloader resume {quoted}"
        if who is not None and who.is_running:
            hint = f"wait until the run ends; its progress: unloader status {quoted}"
        elif not missing:
            hint = TRY_AGAIN
        raise PartialUnload(
            f"the run of {counted(of + len(left_out), 'table')} in {destination} is not complete: "
            f"{len(answers)} {are(len(answers))} published with unchanged files; not published: "
            f"{listed(named, _SHOWN)}",
            hint,
        )
    if is_missing:
        with suppress(OSError):
            if below := _finished_below(destination):
                raise OutputFailed(
                    f"{place} has no finished run: {MANIFEST} does not exist, but "
                    f"{counted(len(below), 'finished run')} {are(len(below))} below it",
                    f"verify each of them, such as: unloader verify {shlex.quote(below[0])}",
                )
            who = storage.who_was_here(place, counted=False)
            if who is not None and who.run_id:
                status = f"unloader status {shlex.quote(place)}"
                raise OutputFailed(
                    f"run {who.run_id} in {place} is not finished: {MANIFEST} does not exist",
                    f"wait until the run ends; its progress: {status}"
                    if who.is_running
                    else f"to see whether it can be resumed: {status}",
                )
    run = _parsed(manifest_data(destination), destination)
    if isinstance(run, Manifest):
        alone = _opened("", destination, run, checks)
        _ask_source([alone], checks, observe, {})
        return _checked_table(alone, checks, observe)
    answers, found, uncounted = _checked_tables(
        destination, run.tables, checks, observe, to=run.options.to
    )
    ours = {str(destination / entry.directory) for entry in run.tables} | {place}
    # Finished runs in the home that are not of its tables.
    extra = [each for each in _finished_below(destination) if each not in ours]
    if extra and checks.strict:
        found.update((each, "it is not a table of this run") for each in extra)
    elif extra:
        known = "finished runs that do not belong to this run are next to its tables"
        observe(Notice(text=f"{known}, {_LOADED}: {listed(extra, _SHOWN)}"))
    if found or uncounted:
        raise _mismatch(destination, found, uncounted, len(run.tables))
    totals = run.totals
    is_counted = all(each["source_rows"] is not None for each in answers)

    def of_each(key: str, known: Collection[str] = ()) -> list[str]:
        return [
            f"{each['table']}: {text}"
            for each in answers
            for text in each[key]
            if text not in known
        ]

    selected = [each.text for each in run.settings if each.effect == "selects"]
    return {
        "destination": place,
        "run_id": run.run_id,
        "files": totals.files,
        "rows": totals.rows,
        "filtered_rows": totals.filtered_rows,
        "bytes": totals.bytes,
        # The source has as many rows as each table of the run, or the table would differ.
        "source_rows": totals.rows + (totals.filtered_rows or 0) if is_counted else None,
        "snapshot": ", ".join(sorted({each["snapshot"] for each in answers})),
        "level": answers[0]["level"] if answers else "count",
        "selected_by": [*selected, *of_each("selected_by", selected)],
        "not_compared": of_each("not_compared"),
        "result": "ok",
        "differences": [],
        "extra_files": of_each("extra_files"),
        "table_count": totals.tables,
        "tables": answers,
        "extra_tables": extra,
    }


def _finish_publication(place: PlacePath, observe: Observer) -> None:
    for run in storage_at(str(place)).complete(str(place)):
        for text in run.messages:
            observe(Notice(text=text))


def _finished_below(place: PlacePath) -> list[str]:
    storage = storage_at(str(place))
    below = storage.places_below(str(place), _DEPTH)
    return [each for each in below if MANIFEST in storage.names(each)]


def _parsed(data: bytes, place: PlacePath) -> Manifest | TablesManifest:
    try:
        return parse_run(data, place / MANIFEST)
    except OutputFailed as error:
        if is_intact(data):
            raise
        raise VerifyMismatch(error.message, error.hint) from error


def _checked_tables(
    home: PlacePath, entries: Sequence[TableEntry], checks: Checks, observe: Observer, to: str = ""
) -> tuple[list[dict[str, Any]], dict[str, str], dict[str, str]]:
    """Return answers of whole tables, errors of others, and whole tables without a count."""
    found: dict[str, str] = {}
    uncounted: dict[str, str] = {}
    answers: list[dict[str, Any]] = []
    tables: list[_Table] = []
    for entry in entries:
        name, place = entry.directory, home / entry.directory
        if entry.table is not None:
            name = ".".join(filter(None, (entry.table.schema, entry.table.name)))
            name += f" ({entry.route})" if entry.route else ""
        with _collected(name, place, found):
            _finish_publication(place, _naming(name, observe))
            data = manifest_data(place)
            manifest = _parsed(data, place) if digest_at_end(data) == entry.digest else None
            if not isinstance(manifest, Manifest):
                raise VerifyMismatch(
                    f"{place / MANIFEST} is not the manifest that this run wrote: the table was "
                    "unloaded again, or the file was changed",
                    "unload all tables again, or restore the directory",
                )
            if entry.directory.startswith("../") and to in [
                each.value for each in manifest.settings if each.name == "to"
            ]:
                raise VerifyMismatch(
                    f"the files are in {place} instead of {home}", "unload all tables again"
                )
            tables.append(_opened(name, place, manifest, checks))
    _ask_source(tables, checks, observe, found)
    of = replace(
        Verified(done=0, of=sum(each.manifest.totals.files for each in tables), what="files"),
        of_bytes=sum(each.manifest.totals.bytes for each in tables),
    )
    files_only = replace(checks, level="count" if checks.level == "source" else checks.level)
    for table in tables:
        if table.name not in found:
            with _collected(table.name, table.place, found):
                tell = _naming(table.name, observe, of)
                if table.refused:
                    _checked_table(table, files_only, tell)
                    uncounted[table.name] = table.refused
                else:
                    answer = _checked_table(table, checks, tell)
                    answers.append({"table": table.name, **answer})
        totals = table.manifest.totals
        of = replace(of, done=of.done + totals.files, bytes=of.bytes + totals.bytes)
    return answers, found, uncounted


@contextmanager
def _collected(name: str, place: PlacePath, found: dict[str, str]) -> Iterator[None]:
    """Collect the differences of one of several tables; name the table in any other error."""
    try:
        yield
    except (VerifyMismatch, OutputFailed) as error:
        if not name:
            raise
        found[name] = error.message.removeprefix(f"{place}: ")
    except (UsageError, ConfigError) as error:
        if not name:
            raise
        raise type(error)(f"{name}: {error.message}", error.hint) from error


def _naming(name: str, observe: Observer, before: Verified | None = None) -> Observer:
    """Return an observer that names the table in notices, and counts the files of all tables."""

    def tell(event: Event) -> None:
        if isinstance(event, Notice):
            event = Notice(text=f"{name}: {event.text}")
        elif isinstance(event, Verified) and event.what == "files" and before is not None:
            event = replace(before, done=before.done + event.done, bytes=before.bytes + event.bytes)
        observe(event)

    return tell


def _opened(name: str, place: PlacePath, manifest: Manifest, checks: Checks) -> _Table:
    """Return what is known of a table before its source and files are looked at."""
    asked, own_values = manifest.options, ""
    if checks.level == "source" and asked.transform is not None:
        own_values = (
            "the source's values, but the run wrote other values: it masked or changed columns"
        )
    elif checks.level == "source" and asked.lob_files:
        own_values = "the source's values, but values of the run are in packed files"
    elif checks.level == "source" and asked.filter is not None:
        own_values = "all rows of the source, but the run had a filter"
    if own_values:
        raise UsageError(
            f"--level source compares with {own_values}",
            "use --level full" if has_sums(manifest) else NEW_RUN,
        )
    try:
        check(asked.dialect, asked.compression)
    except FormatError as error:
        raise OutputFailed(
            f"the options in {place / MANIFEST} are damaged: {error!r}",
            "restore it, or unload again to another directory",
        ) from error
    spec = OutputSpec(directory=str(place), format=asked.dialect, compression=asked.compression)
    record = asked.encryption
    if record is not None:
        keyed = record.method == "parquet"
        spec = replace(spec, encryption=Encryption(recipients=record.recipients, keyed=keyed))
        if checks.keys is not None and (checks.keys.keyed or not keyed):
            keys = replace(
                checks.keys,
                recipients=record.recipients,
                key_name=record.key_name,
                key_proof=record.key_proof,
            )
            spec = with_parquet_key(spec, keys) if keyed else with_identities(spec, keys)
    if not spec.encryption.is_readable and checks.level != "count":
        raise ConfigError(
            f"the files are encrypted, but --level {checks.level} reads the values in them",
            "give the key: --parquet-key-file FILE"
            if spec.encryption.keyed
            else "give the private key of a recipient: --decrypt-with FILE",
        )
    return _Table(name=name, place=place, manifest=manifest, spec=spec)


def _ask_source(
    tables: Sequence[_Table], checks: Checks, observe: Observer, found: dict[str, str]
) -> None:
    """Ask the source about all tables, in one state of it, before any file is read.

    A snapshot that is held while files are read could be held for hours. Each table gets its
    `state` or `refused`; `found` gets the errors of one of several tables.
    """
    if checks.source is None:
        return
    # Several tables are described together.
    keys = [] if len(tables) == 1 else [each.manifest.table for each in tables]
    named = {(each.schema or "", each.name) for each in keys if each}
    with closing(OpenSources(observe, named)) as sources:
        for table in tables:
            observe(PhaseStarted(phase="counting"))
            tell = _naming(table.name, observe) if table.name else observe
            with _collected(table.name, table.place, found):
                try:
                    table.state = ask(
                        table.manifest,
                        checks.source,
                        sources,
                        tell,
                        values=checks.level == "source",
                        parallelism=checks.threads,
                    )
                except SourceError as error:
                    if not table.name or error.retryable or sources.refused:
                        raise
                    table.refused = error.message


def _unlisted(index: CheckedFile, folder: PlacePath) -> list[str]:
    """Return the paths of files in a folder of large objects that its index does not list."""

    def below(place: PlacePath) -> Iterator[PlacePath]:
        places, names = storage_at(str(place)).look(str(place))
        yield from (place / name for name in names)
        for name in places:
            yield from below(place / name)

    # Names are kept only where there are more files than values and the index.
    if sum(1 for _ in below(folder)) <= index.written.values + 1:
        return []
    known = {folder / each.name for each in lines_of(index.path)} | {folder / INDEX}
    return [str(path) for path in below(folder) if path not in known]


def _checked_table(table: _Table, checks: Checks, observe: Observer) -> dict[str, Any]:
    place, manifest, state = table.place, table.manifest, table.state
    if not table.spec.encryption.is_readable:
        text = "the files are encrypted and no key is given, so the records in them are not counted"
        observe(Notice(text=text))
    observe(PhaseStarted(phase="verifying"))
    content = state.content if state else None
    fetched = None
    if checks.level != "count" and content is not None and not has_sums(manifest):
        # The run recorded no checksums: the files are compared with the source as a whole.
        fetched = fetched_of(content.schema, content.columns, {}, manifest.options.dialect)
    elif checks.level != "count":
        fetched = fetched_by(manifest)
    in_table = None
    if manifest.lake_table is not None:
        in_table = run_in_table(manifest, manifest.lake_table, place, observe)
    missing = in_table.missing if in_table else ()
    written, directories = manifest.files, directories_of(manifest, place)
    one_file = manifest.options.file_per == "table"
    parts = {
        file.path: TABLE if one_file else unit.unit
        for unit in manifest.units
        for file in unit.files
    }
    files = []
    for name, file in written.items():
        home = str(directories[file.directory])
        opened = partial(storage_at(home).file, home)
        if name not in missing:
            files.append(
                CheckedFile(path=opened(name), written=file, part=parts[name], opened=opened)
            )
    compared = fetched
    if missing and fetched is not None:
        unknown = {parts[name] for name in missing}
        known = {part: sums for part, sums in fetched.parts.items() if part not in unknown}
        compared = replace(fetched, parts=known)
    differences, read = read_files(files, table.spec, checks.threads, compared, observe)
    rows = sum(file.rows for file in written.values())
    if rows != manifest.totals.rows:
        differences.append(
            f"the files have {counted(rows, 'row')}, but the totals have {manifest.totals.rows}"
        )
    found = list(differences)
    left_out = manifest.verified.filtered_rows or 0
    if state is not None and state.rows != manifest.totals.rows + left_out:
        filtered = f" and {left_out:,} left out by a filter" if left_out else ""
        found.append(
            f"the manifest has {counted(manifest.totals.rows, 'row')}{filtered}, but the source "
            f"counts {state.rows:,} ({state.when})"
        )
    elif state and content and read and fetched and not missing:
        places = ("in the files", f"in the source ({state.when})")
        unhashed = {**fetched.left_out, **content.left_out}
        found += differing(read, content.parts[TABLE], content.columns, places, unhashed)
    found += in_table.differences if in_table else ()
    # The other files next to the run's files that a loader would read, in order. Loaders ignore
    # names that begin with `_` or `.`.
    own = {directories[file.directory] / name for name, file in written.items()}
    folders = {directories[each.written.directory] / each.written.path: each for each in files}
    extra = []
    for directory in sorted({*directories, *(path.parent for path in own)}):
        index = folders.get(directory / INDEX)
        with suppress(FileNotFoundError):  # Its missing files are reported anyway.
            if index is not None and directory not in directories:
                # Only an undamaged index lists its files.
                extra += [] if differences else _unlisted(index, directory)
                continue
            for name in storage_at(str(directory)).names(str(directory)):
                path = directory / name
                if path not in own and path.name[0] not in "_.":
                    extra.append(path.name if directory == place else str(path))
    text = "files that do not belong to this run are next to its files"
    extra_text = f"{text}, {_LOADED}: {listed(extra, _SHOWN)}"
    if extra and checks.strict:
        found.append(extra_text)
    elif extra:
        observe(Notice(text=extra_text))
    if found:
        hint = in_table.hint if in_table else "unload the table again, or restore the files"
        if extra and checks.strict and len(found) == 1:
            hint = f"move them away, or let the loader read the names in {MANIFEST}"
        elif state is not None and not state.at_snapshot and not differences:
            hint = (
                "if the source was changed after the run, start a new run to get the current "
                "rows. The files are as the run wrote them"
            )
        raise VerifyMismatch(f"{place}: {some_of(found)}", hint)
    not_compared = list(fetched.not_compared()) if fetched else []
    if content is not None:
        not_compared += content.not_compared()
    if missing and fetched is not None:
        not_compared.append(f"{', '.join(missing)}: missing, and not used by the table any more")
    answer: dict[str, Any] = {
        "destination": str(place),
        "run_id": manifest.run_id,
        "files": manifest.totals.files,
        "rows": manifest.totals.rows,
        "filtered_rows": manifest.verified.filtered_rows,
        "bytes": manifest.totals.bytes,
        "source_rows": state.rows if state else None,
        "snapshot": state.when if state else "not asked",
        "level": checks.level,
        "selected_by": [each.text for each in manifest.settings if each.effect == "selects"],
        "not_compared": not_compared,
        "result": "ok",
        "differences": [],
        "extra_files": extra,
    }
    if in_table is not None:
        log = None
        if in_table.log is not None:
            # What the log has forgotten is an empty text there.
            changes = [
                {name: None if value == "" else value for name, value in to_builtins(each).items()}
                for each in in_table.log.changes
            ]
            missing_files = list(missing)
            log = {"rows": in_table.log.rows, "changes": changes, "missing_files": missing_files}
        answer["table_log"] = log
    return answer


def _mismatch(
    home: PlacePath, found: dict[str, str], uncounted: dict[str, str], of: int
) -> VerifyMismatch:
    texts, hints = [], []
    if found:
        texts.append(
            f"{len(found)} of {counted(of, 'table')} {are(len(found))} not as the run wrote "
            f"{'it' if len(found) == 1 else 'them'}: {_named(found)}"
        )
        hints.append(
            "unload these tables again, or restore their files; the other tables are unchanged"
        )
    if uncounted:
        texts.append(
            f"the source cannot count the rows of {len(uncounted)} of {counted(of, 'table')}, "
            f"whose files are as the run wrote them: {_named(uncounted)}"
        )
        hints.append("to verify the files alone, leave SOURCE out")
    return VerifyMismatch(f"{home}: {'; '.join(texts)}", "; ".join(hints))


def _named(tables: dict[str, str]) -> str:
    named = [f"{name}: {why.rstrip('. ')}" for name, why in tables.items()][:_SHOWN]
    if more := list(tables)[_SHOWN:]:
        named.append(f"and {len(more)} more: {', '.join(more)}")
    return "; ".join(named)
