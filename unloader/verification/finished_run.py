"""Holding a finished run against its manifest, and against the source if one is given.

Comparison of a finished run with the log of its lakehouse table.

Maintenance of a table moves rows to other files and removes the files that a run wrote. That is not
damage. The log of the table names the operation.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from numa.topology import detect
from unloader.errors import ConfigError, OutputFailed, UsageError, VerifyMismatch
from unloader.events import Notice, Observer, PhaseStarted
from unloader.lakehouse.lake_formats import lake_format
from unloader.lakehouse.lake_runs import receipt
from unloader.lakehouse.table_commits import LaterChange, RunLog
from unloader.manifest.model import Manifest
from unloader.manifest.read import (
    directories_of,
    is_intact,
    manifest_data,
    parse_manifest,
)
from unloader.model import EncryptionOptions, LakeTable, SourceSpec
from unloader.nouns import are, counted
from unloader.storage.model import MANIFEST
from unloader.storage.opening import storage_at
from unloader.storage.paths import PlacePath
from unloader.verification.files import (
    NEW_RUN,
    CheckedFile,
    Fetched,
    FilesRead,
    Reading,
    differing,
    fetched_by,
    fetched_of,
    has_sums,
    part_of,
    read_files,
    some_of,
)
from unloader.verification.source import OpenSources, Question, SourceState, ask
from writers.errors import FormatError
from writers.model import PLAIN, Encryption, OutputSpec
from writers.registry import check

Level = Literal["count", "full", "source"]

_SHOWN_FILES = 5


class Checks(Struct, frozen=True, kw_only=True):
    """What is checked of a finished run, and how."""

    strict: bool = False
    """Files that are not of the run are a difference, and not only reported."""
    level: Level = "count"
    """count: files as a whole, and rows; full: also the values in them, as the run recorded them;
    source: as the source has them."""
    parallelism: int = 0
    """Files that are read at a time; 0 is as many as there are usable CPUs."""
    keys: EncryptionOptions | None = None
    """Where the keys of encrypted files are found; None is nowhere."""


def verify(
    destination: PlacePath,
    source: SourceSpec | None,
    observe: Observer,
    checks: Checks,
    said: Callable[[], SourceState] | None = None,
) -> dict[str, Any]:
    """Check every file of a finished run, and the row count where a source is given.

    A run that was cut short while it was published is brought to its end first.

    Each file is read as a whole: size, checksum, and the number of records counted by another
    reader than wrote it; of encrypted files that is counted only if the key is given. A file that
    a lakehouse table has replaced since, as its log says, may be missing. The source
    counts at the run's snapshot where that still exists, otherwise as it is now, and the answer
    says which. Files that are not of the run are reported, and are a difference where `checks` are
    strict.

    Args:
        destination: The directory of the manifest.
        source: None = the rows are not counted there.
        observe: Called with each event.
        checks: What is checked.
        said: Returns what the source has been found to say; None asks it.

    Raises:
        VerifyMismatch: Something differs; the message names the first differences.
        OutputFailed: There is no finished run in `destination`, and none that can be finished.
        SourceError: The source refused.
    """
    if checks.level == "source" and source is None:
        raise UsageError("--level source compares with a database", "give SOURCE after DEST")
    manifest = _finished_manifest(destination, observe)
    check_level(manifest, checks)
    spec = keyed_spec(_spec_of(destination, manifest), manifest, checks.keys)
    if not spec.encryption.is_readable:
        _check_unread(checks.level, keyed=spec.encryption.keyed, observe=observe)
    parallelism = checks.parallelism or detect().usable_cpus
    state = said() if said else ask_source(manifest, source, checks, observe)
    observe(PhaseStarted(phase="verifying"))
    fetched = _fetched(manifest, checks.level, state)
    reading = Reading(spec=spec, parallelism=parallelism, fetched=fetched)
    in_table = _in_table(destination, manifest, observe)
    missing = in_table.missing if in_table else ()
    read = _check_files(destination, manifest, reading, missing, observe)
    found = [*read.differences, *_source_differences(manifest, state, read, fetched)]
    found += in_table.differences if in_table else ()
    extra = _extra_files(destination, manifest)
    if extra and checks.strict:
        found.append(_extra_text(extra))
    elif extra:
        observe(Notice(text=_extra_text(extra)))
    if found:
        if extra and checks.strict and len(found) == 1:
            hint = f"move them away, or let the loader read the names in {MANIFEST}"
        elif state is not None and not state.at_snapshot and not read.differences:
            hint = (
                "if the source was changed after the run, start a new run to get the current "
                "rows. The files are as the run wrote them"
            )
        else:
            hint = in_table.hint if in_table else "unload the table again, or restore the files"
        raise VerifyMismatch(f"{destination}: {some_of(found)}", hint)
    not_compared = _not_compared(fetched, state)
    if missing and fetched is not None:
        not_compared.append(f"{', '.join(missing)}: missing, and not used by the table any more")
    answer = _answer(destination, manifest, state, checks.level, not_compared, extra)
    return answer | ({"table_log": in_table.to_json()} if in_table else {})


def _full_level(manifest: Manifest) -> str:
    """Return how the values of a run are checked that the source alone does not determine."""
    if has_sums(manifest):
        return "use --level full"
    return NEW_RUN


def check_level(manifest: Manifest, checks: Checks) -> None:
    """Check that a run can be compared with a source as it is asked for.

    Raises:
        UsageError: It cannot.
    """
    if checks.level == "source" and manifest.options.transform is not None:
        raise UsageError(
            "--level source compares with the source's values, but the run wrote other values: "
            "it masked or changed columns",
            _full_level(manifest),
        )
    if checks.level == "source" and manifest.options.filter is not None:
        raise UsageError(
            "--level source compares with all rows of the source, but the run had a filter",
            _full_level(manifest),
        )


def _finished_manifest(destination: PlacePath, observe: Observer) -> Manifest:
    """Return the manifest of a run, which is brought to its end first if it was cut short."""
    for run in storage_at(str(destination)).complete(str(destination)):
        for text in run.messages:
            observe(Notice(text=text))
    data = manifest_data(destination)
    try:
        return parse_manifest(data, destination / MANIFEST)
    except OutputFailed as error:
        if is_intact(data):
            raise  # Of another version of this program.
        # One that is not as it was written is a difference like any other.
        raise VerifyMismatch(error.message, error.hint) from error


def ask_source(
    manifest: Manifest,
    source: SourceSpec | None,
    checks: Checks,
    observe: Observer,
    sources: OpenSources | None = None,
) -> SourceState | None:
    """Return what the source says of the run; None if there is none to ask.

    Args:
        manifest: Of the run.
        source: See `verify`, as for what is raised.
        checks: Likewise.
        observe: Likewise.
        sources: The source, if others are compared with it, too.
    """
    if source is None:
        return None
    observe(PhaseStarted(phase="counting"))
    question = Question(
        manifest=manifest,
        source=source,
        values=checks.level == "source",
        parallelism=checks.parallelism or detect().usable_cpus,
    )
    if sources is not None:
        return ask(question, sources, observe)
    with OpenSources(observe) as alone:
        return ask(question, alone, observe)


def _answer(
    destination: PlacePath,
    manifest: Manifest,
    said: SourceState | None,
    level: Level,
    not_compared: list[str],
    extra: list[str],
) -> dict[str, Any]:
    """Return what is told of a run in which nothing differs."""
    return {
        "destination": str(destination),
        "run_id": manifest.run_id,
        "files": manifest.totals.files,
        "rows": manifest.totals.rows,
        "filtered_rows": manifest.verified.filtered_rows,
        "bytes": manifest.totals.bytes,
        "source_rows": said.rows if said else None,
        "snapshot": said.when if said else "not asked",
        "level": level,
        "not_compared": not_compared,
        "result": "ok",
        "differences": [],
        "extra_files": extra,
    }


def _check_unread(level: Level, *, keyed: bool, observe: Observer) -> None:
    """Say what cannot be checked of encrypted files without a key; refuse to if it is asked for."""
    if level != "count":
        raise ConfigError(
            f"the files are encrypted, but --level {level} reads the values in them",
            NO_KEY if keyed else "give the private key of a recipient: --decrypt-with FILE",
        )
    text = "the files are encrypted and no key is given, so the records in them are not counted"
    observe(Notice(text=text))


def _fetched(manifest: Manifest, level: Level, said: SourceState | None) -> Fetched | None:
    """Return what the values in the files are compared with, None if they are not looked at."""
    if level == "count":
        return None
    content = said.content if said else None
    if content is None or has_sums(manifest):
        return fetched_by(manifest)
    # The run recorded no checksums: the files are compared with the source as a whole.
    return fetched_of(content.schema, content.columns, {}, manifest.options.dialect)


def _source_differences(
    manifest: Manifest, said: SourceState | None, read: FilesRead, fetched: Fetched | None
) -> Iterator[str]:
    if said is None:
        return
    left_out = manifest.verified.filtered_rows or 0
    if said.rows != manifest.totals.rows + left_out:
        filtered = f" and {left_out:,} left out by a filter" if left_out else ""
        yield (
            f"the manifest has {counted(manifest.totals.rows, 'row')}{filtered}, but the source "
            f"counts {said.rows:,} ({said.when})"
        )
    elif said.content is not None and read.content is not None and fetched is not None:
        unhashed = {**fetched.left_out, **said.content.unhashed}
        places = ("in the files", f"in the source ({said.when})")
        yield from differing(
            read.content, said.content.sums, said.content.columns, places, unhashed
        )


def _not_compared(fetched: Fetched | None, said: SourceState | None) -> list[str]:
    content = said.content if said else None
    unhashed = content.unhashed.items() if content else ()
    names = content.columns if content else ()
    return [
        *(fetched.not_compared() if fetched else ()),
        *(f"{names[at]}: {why}" for at, why in unhashed),
    ]


def _extra_files(destination: PlacePath, manifest: Manifest) -> list[str]:
    """Return the files beside a run's own that a loader would take with them, in order.

    Those in `destination` by name, those in further directories of the run by path. Names that
    begin in `_` or `.` are ours, or hidden: loaders pass them over.
    """
    directories = directories_of(manifest, destination)
    own = {directories[file.directory] / name for name, file in manifest.files.items()}
    extra = []
    for directory in sorted({*directories, *(path.parent for path in own)}):
        with suppress(FileNotFoundError):  # That its files are missing is reported anyway.
            extra += [
                path.name if directory == destination else str(path)
                for path in _files_in(directory)
                if path not in own and path.name[0] not in "_."
            ]
    return extra


def _files_in(directory: PlacePath) -> list[PlacePath]:
    place = str(directory)
    return [directory / name for name in storage_at(place).names(place)]


def _extra_text(extra: list[str]) -> str:
    more = f" and {len(extra) - _SHOWN_FILES} more" if len(extra) > _SHOWN_FILES else ""
    return (
        "files that do not belong to this run are next to its files, where a loader may read them: "
        + ", ".join(extra[:_SHOWN_FILES])
        + more
    )


def _in_table(destination: PlacePath, manifest: Manifest, observe: Observer) -> RunInTable | None:
    """Return what a lakehouse table knows of the run; None if the run is not for such a table."""
    if manifest.lake_table is None:
        return None

    return run_in_table(manifest, manifest.lake_table, destination, observe)


def _check_files(
    destination: PlacePath,
    manifest: Manifest,
    reading: Reading,
    missing: Collection[str],
    observe: Observer,
) -> FilesRead:
    """Read the files of a run again, without those that may be missing."""
    written, directories = manifest.files, directories_of(manifest, destination)
    parts = {file.path: part_of(manifest, unit) for unit in manifest.units for file in unit.files}
    files = []
    for name, file in written.items():
        if name in missing:
            continue
        place = str(directories[file.directory])
        path = storage_at(place).file(place, name)
        files.append(CheckedFile(path=path, written=file, part=parts[name]))
    if reading.fetched is not None and (notice := reading.fetched.notice()):
        observe(Notice(text=notice))
    if missing and reading.fetched is not None:
        unknown = {parts[name] for name in missing}
        known = {part: sums for part, sums in reading.fetched.parts.items() if part not in unknown}
        reading = replace(reading, fetched=replace(reading.fetched, parts=known))
    found = read_files(files, reading, observe)
    if missing:
        found = replace(found, content=None)
    rows = sum(file.rows for file in written.values())
    if rows != manifest.totals.rows:
        text = f"the files have {counted(rows, 'row')}, but the totals have {manifest.totals.rows}"
        return replace(found, differences=(*found.differences, text))
    return found


def _spec_of(destination: PlacePath, manifest: Manifest) -> OutputSpec:
    options = manifest.options
    try:
        check(options.dialect, options.compression)
    except FormatError as error:
        raise OutputFailed(
            f"the options in {destination / MANIFEST} are damaged: {error!r}",
            "restore it, or unload again to another directory",
        ) from error
    return OutputSpec(
        directory=str(destination),
        format=options.dialect,
        compression=options.compression,
        encryption=public_part(manifest),
    )


NO_KEY = "give the key: --parquet-key-file FILE"
"""What to do where the Parquet key is missing."""


def public_part(manifest: Manifest) -> Encryption:
    """Return how the files of a run are encrypted, without a key."""
    record = manifest.options.encryption
    if record is None:
        return PLAIN
    return Encryption(recipients=record.recipients, keyed=record.method == "parquet")


def keyed_spec(spec: OutputSpec, manifest: Manifest, keys: EncryptionOptions | None) -> OutputSpec:
    """Return how files are read again: with the keys, where they are given.

    Raises:
        ConfigError: A key cannot be read, or is not that of these files.
        FormatError: The library that decrypts is missing.
    """
    record = manifest.options.encryption
    if record is None or keys is None:
        return spec
    known = replace(
        keys,
        recipients=record.recipients,
        key_name=record.key_name,
        key_proof=record.key_proof,
    )
    from unloader.secrets.encryption_keys import with_identities, with_parquet_key

    if record.method == "parquet":
        return with_parquet_key(spec, known) if keys.keyed else spec
    return with_identities(spec, known)


class RunInTable(Struct, frozen=True, kw_only=True):
    """A finished run as the table knows it that the run was for."""

    hint: str
    """What to do next if something differs. To unload again may add rows twice."""
    log: RunLog | None = None
    """None if the log cannot be read, or does not know the run."""
    missing: tuple[str, ...] = ()
    """Names of the run's files that are missing and that the table does not use."""
    differences: tuple[str, ...] = ()
    """Between the log and the manifest."""

    def to_json(self) -> dict[str, Any] | None:
        """Return the part of `verify`'s answer; None without a log."""
        if self.log is None:
            return None
        changes = [
            {
                "snapshot": change.snapshot or None,
                "operation": change.operation or None,
                "time": change.time or None,
                "keeps_rows": change.keeps_rows,
                "files": list(change.files),
                "removed_rows": change.removed_rows,
                "added_rows": change.added_rows,
            }
            for change in self.log.changes
        ]
        return {
            "rows": self.log.rows,
            "changes": changes,
            "missing_files": list(self.missing),
        }


def run_in_table(
    manifest: Manifest, table: LakeTable, destination: PlacePath, observe: Observer
) -> RunInTable:
    """Read the log of a table about a finished run, and report operations on the run's files.

    Args:
        manifest: Of the run.
        table: The table that the run was for.
        destination: The directory of the run.
        observe: Called with a notice for each operation that took files of the run.
    """
    place = shlex.quote(str(destination))
    # A file without rows is never part of a table.
    names = [name for name, file in manifest.files.items() if file.rows]
    try:
        log = lake_format(table.kind).run_log(table, manifest.run_id, names)
    except (ConfigError, OutputFailed) as error:
        observe(Notice(text=f"the log of {table.name} is not compared: {error.message}"))
        return RunInTable(
            hint=f"{error.hint.rstrip('. ')}; then, before you unload again, compare the log: "
            f"unloader verify {place}"
        )
    if not log.is_known and not receipt(str(destination)):
        text = f"the log of {table.name} does not show that run {manifest.run_id} was committed"
        observe(Notice(text=text))
        return RunInTable(hint=f"look at the run with: unloader status {place}")
    for change in log.changes:
        observe(Notice(text=_text(change, manifest, table)))
    missing = _missing(manifest, log, destination)
    if missing:
        text = (
            f"{counted(len(missing), 'file')} of the run {are(len(missing))} missing, which is not "
            f"damage: {table.name} does not use {'it' if len(missing) == 1 else 'them'}"
        )
        observe(Notice(text=text))
    differences: list[str] = []
    if log.rows not in (None, manifest.totals.rows):
        differences.append(
            f"the manifest has {counted(manifest.totals.rows, 'row')}, but the log of {table.name} "
            f"has {counted(log.rows, 'row')} for the run"
        )
    first = "find out which program changed the log" if differences else "restore the files"
    return RunInTable(
        hint=f"{first}; before you unload again, remove the rows of run {manifest.run_id} from "
        f"{table.name}, or they are there twice",
        log=log,
        missing=missing,
        differences=tuple(differences),
    )


def _missing(manifest: Manifest, log: RunLog, destination: PlacePath) -> tuple[str, ...]:
    unused = {name for change in log.changes for name in change.files}
    present: frozenset[str] = frozenset()
    with suppress(FileNotFoundError):
        present = frozenset(storage_at(str(destination)).names(str(destination)))
    return tuple(
        name
        for name, file in manifest.files.items()
        if name not in present and (name in unused or not file.rows)
    )


def _text(change: LaterChange, manifest: Manifest, table: LakeTable) -> str:
    """Return in words what an operation did to the run's files."""
    files = counted(len(change.files), "file")
    rows = counted(sum(manifest.files[name].rows for name in change.files), "row")
    if not change.snapshot and not change.operation:
        return (
            f"{table.name} does not use {files} of the run with {rows} any more; its log no "
            "longer shows which operation replaced or removed them"
        )
    details = ", ".join(filter(None, (change.operation, change.time)))
    who = " ".join(filter(None, ("snapshot", change.snapshot, details and f"({details})")))
    both = ""
    if change.removed_rows is not None and change.added_rows is not None:
        both = (
            f": it removed files with {counted(change.removed_rows, 'row')} and added files with "
            f"{counted(change.added_rows, 'row')}"
        )
    if change.keeps_rows:
        return (
            f"{who} has replaced {files} of the run with {rows} by other files, without a change "
            f"of the table's rows{both}"
        )
    return f"{who} has removed {files} of the run with {rows} from {table.name}{both}"
