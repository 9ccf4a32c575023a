"""The record of a run in `_run/run.json`: its resolved tables, and what holds for all of them.

It is written before the first row is read. `resume` reads all of it. `status`, `clean` and `verify`
read only where the tables are, without a check of the rest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Raw, Struct
from msgspec.json import Decoder, decode, encode
from msgspec.structs import replace

from unloader.errors import OutputFailed, PlanFailed, error_class
from unloader.model import TablesOptions
from unloader.redaction import redact
from unloader.resolve.resolved import FORMAT_VERSION, ResolvedTable, checked_version
from unloader.selection.listing import TableProblem
from unloader.storage.place_names import absolute, path_of, real, relative
from unloader.storage.storage_protocol import RUN_RECORD, Storage
from writers.objects.location import is_location


class UnusableRecord(OutputFailed):
    """The record of an interrupted run cannot be read by this version of the program."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """A table that was requested, and that could not be unloaded when the run began."""

    table: str
    error: str
    why: str


class RecordedTable(Struct, frozen=True, kw_only=True):
    """The part of a resolved table that is read without a check of the rest."""

    name: str
    """With its schema; empty for a query."""
    directories: tuple[str, ...]
    """The directories of each output, the directory of the manifest first."""
    homes: tuple[str, ...]
    """The directories of manifests: one for each output."""
    units: int
    run_id: str
    """The run that wrote the record. A later run that died early may have taken the home since."""


class RunRecord(Struct, frozen=True, kw_only=True):
    """The `RUN_RECORD` of a run. Each of `tables` has the format version, too."""

    format_version: int
    listed: tuple[RecordedTable, ...]
    tables: tuple[Raw, ...]
    home: str
    options: Raw
    """`TablesOptions`: read after the version of the tables is known."""
    is_single: bool
    left_out: tuple[LeftOut, ...] = ()

    def read(self, place: str) -> tuple[ResolvedTable, ...]:
        """Return the resolved tables.

        Raises:
            UnusableRecord: Another version has written them, or they were damaged or edited.
        """
        return tuple(_read(each, place) for each in self.tables)

    def asked(self, place: str) -> TablesOptions:
        try:
            return _OPTIONS.decode(self.options)
        except (ValueError, RecursionError) as error:
            raise unusable(place, f"its options are not as expected: {error}") from error

    def problems(self) -> tuple[TableProblem, ...]:
        return tuple(
            TableProblem.earlier(each.table, each.why, error_class(each.error))
            for each in self.left_out
        )


# Made in the thread that imports: msgspec 0.22 crashes the process if two threads decode a type for
# the first time at the same time.
_OPTIONS, _RECORD = Decoder(TablesOptions), Decoder(RunRecord)
_RUN = Decoder(ResolvedTable)
"""Never called: `ResolvedTable.from_json` converts to the type that it prepares."""


def record_of(
    runs: Sequence[ResolvedTable],
    home: str,
    options: TablesOptions,
    problems: Sequence[TableProblem] = (),
    *,
    is_single: bool,
) -> bytes:
    """Return the record of a run, without a statement of a session: it may have a password.

    Raises:
        ConfigError: A name, such as the current directory's, is not text in UTF-8.
    """
    left_out = tuple(
        LeftOut(table=each.table, error=type(each.error).__name__, why=redact(each.error.message))
        for each in problems
    )
    record = RunRecord(
        listed=tuple(
            RecordedTable(
                name="" if run.extract.query is not None else run.extract.table.label,
                directories=tuple(
                    place for output in run.outputs for place in output.options.destinations
                ),
                homes=tuple(output.options.destination for output in run.outputs),
                units=len(run.plan.units),
                run_id=run.run_id,
            )
            for run in runs
        ),
        tables=tuple(Raw(run.record()) for run in runs),
        home=home,
        format_version=FORMAT_VERSION,
        options=Raw(encode(options)),
        is_single=is_single,
        left_out=left_out,
    )
    return encode(record) + b"\n"


def single_record(run: ResolvedTable) -> bytes:
    """Return the record of the run of a single table; see `record_of`."""
    output = run.request.output
    options = TablesOptions(destination=output.destination, overwrite=output.overwrite)
    return record_of((run,), run.output.options.destination, options, is_single=True)


def read_record(record: bytes, place: str) -> RunRecord:
    """Return a record.

    Raises:
        UnusableRecord: It is damaged, or another version has written it.
    """
    try:
        version = decode(record, type=dict[str, Raw]).get("format_version", b"null")
        checked_version({"format_version": decode(version)})
        found = _RECORD.decode(record)
    except PlanFailed as error:
        raise unusable(place, error.message) from error
    except (ValueError, RecursionError) as error:
        raise unusable(place, str(error)) from error
    if not found.tables:
        raise unusable(place, "it has no table")
    return found


def first_of(record: bytes, place: str) -> ResolvedTable:
    """Return the first table of a record; see `read_record`."""
    return _read(read_record(record, place).tables[0], place)


def _known(record: bytes) -> RunRecord | None:
    """Return a record without a check of its tables; None if it cannot be read."""
    with suppress(ValueError, RecursionError):
        return _RECORD.decode(record)
    return None


def options_of(record: bytes) -> TablesOptions:
    found = _known(record)
    with suppress(ValueError, RecursionError):
        return _OPTIONS.decode(found.options if found else b"")
    return TablesOptions(destination="")


def is_of_tables(record: bytes) -> bool:
    """Return whether a `RUN_RECORD` is the record of a run over several tables."""
    found = _known(record)
    return found is not None and not found.is_single


def recorded_tables(record: bytes, home: str, *, single: bool = False) -> tuple[RecordedTable, ...]:
    """Return the tables of a run over several tables; none if the record is not of such a run.

    Args:
        single: Return a single table, too.
    """
    found = _known(record)
    if found is None or (found.is_single and not single):
        return ()
    recorded = found.home

    def now(places: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(directory_now(place, recorded, home) for place in places)

    return tuple(
        replace(each, directories=now(each.directories), homes=now(each.homes))
        for each in found.listed
    )


def recorded_left_out(record: bytes) -> tuple[str, ...]:
    """Return the names of the tables that a run left out before the first row, by its record."""
    found = _known(record)
    return tuple(each.table for each in found.left_out) if found else ()


def table_in(storage: Storage, home: str, place: str) -> RecordedTable | None:
    """Return the table of a run whose directory a place is; None if that is not known."""
    here, tables = real(place), recorded_tables(storage.record(home, RUN_RECORD), home)
    return next((each for each in tables if here in map(real, each.directories)), None)


def directory_now(directory: str, recorded: str, home: str) -> str:
    """Return where a directory of a table is now.

    Args:
        directory: As it was written when the run began, perhaps relative to another directory.
        recorded: The home when the run began.
        home: The home now; it may have been moved.
    """
    within = relative(directory, recorded)
    if is_location(home):
        return str(path_of(home) / within) if within != "." else home
    return os.path.join(absolute(home), within)


def unusable(place: str, why: str) -> UnusableRecord:
    """Return the error of a record that cannot be used."""
    return UnusableRecord(
        f"the record of the run that was interrupted in {place} cannot be used: {why}",
        "start again with the command of the run; if another version of unloader began it, that "
        "version can resume it",
    )


def _read(table: Raw, place: str) -> ResolvedTable:
    try:
        return ResolvedTable.from_json(decode(table))
    except PlanFailed as error:
        raise unusable(place, error.message) from error
    except (ValueError, RecursionError) as error:
        raise unusable(place, str(error)) from error
