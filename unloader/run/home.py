"""The directory around those of several tables: its record, its status, its manifest.

A run of one table has no such directory, nor has a run whose output is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.json import encode
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.manifest.read import read_index
from unloader.model import TablesOptions
from unloader.redaction import redact
from unloader.resolve.broken_run import first_of_tables
from unloader.resolve.tables.homes import LeftOut, TablesRecord, is_dropped, recorded_tables
from unloader.storage.base import RunStorage
from unloader.storage.model import RUN_RECORD, Claim
from unloader.storage.opening import storage_at
from unloader.storage.paths import real
from writers.objects.location import is_location

if TYPE_CHECKING:
    from unloader.model import TablesOptions
    from unloader.resolve.resolved import ResolvedRun
    from unloader.resolve.tables.problems import TableProblem
    from unloader.resolve.tables.resolving import OpenTables


def with_what_it_replaces(options: TablesOptions, home: str) -> TablesOptions:
    """Return the options with the broken runs in whose place the run is.

    With `{run_id}` or on another day the run has a directory of its own and replaces nothing.
    """
    if not options.replaces or options.home or is_dropped(home):
        return options
    with suppress(OSError, OutputFailed):
        record = storage_at(home).record(home, RUN_RECORD)
        if first_of_tables(record, home).run_id in options.replaces:
            return options
    return replace(options, replaces=())


class Abandoned(Struct, frozen=True, kw_only=True):
    """The directories of the tables of a dead run in whose home another one begins.

    That home says nothing about them any more, so they are cleared: nothing could resume them.
    """

    places: tuple[tuple[str, str], ...] = ()
    """Each with the id of the run that had it."""

    @classmethod
    def in_home(cls, home: str, runs: Sequence[ResolvedRun]) -> Abandoned:
        """Return those of which the new run takes none, before it takes the home.

        Args:
            home: The directory of all tables.
            runs: Of the tables of the new run.
        """
        storage = storage_at(home)
        try:
            who = storage.who_was_here(home, counted=False)
            tables = recorded_tables(storage.record(home, RUN_RECORD), home) if who else ()
        except OSError:
            return cls()  # It cannot be taken either.
        own = {real(place) for run in runs for place in run.directories}
        return cls(
            places=tuple(
                (place, table.run_id)
                for table in tables
                for place in table.directories
                if real(place) not in own
            )
        )

    def clear(self) -> None:
        """Remove what the dead run has staged in them; called once the new run is on record."""
        for place, run_id in self.places:
            with suppress(OSError, OutputFailed):
                storage = storage_at(place)
                who = storage.who_was_here(place, counted=False)
                if who is not None and who.run_id == run_id and not who.is_running:
                    storage.clear((place,), dry_run=False)
                    if not is_location(place):
                        os.rmdir(place)


def take_home(place: str, run_id: str, options: TablesOptions, *, resumed: bool) -> RunStorage:
    """Take the directory; the caller closes it.

    Where a run that has died is read again at a new snapshot, its record stays until that of the
    new run is written: a kill between the two leaves what can be gone on with.

    Raises:
        OutputFailed: Another run has it, or it holds a finished run that is not to be replaced.
    """

    def is_of_it(record: bytes) -> bool:
        try:
            return first_of_tables(record, place).run_id == run_id
        except OutputFailed:
            return False

    return storage_at(place).take(
        Claim(
            places=(place,),
            run_id=run_id,
            overwrite=options.overwrite,
            read_index=read_index,
            resumed=resumed,
            is_record_of_it=is_of_it,
            keeps_record=bool(options.replaces),
            shared=True,
        )
    )


class NoHome:
    """Takes the records that such a directory would have, and keeps none."""

    def keep(self, name: str, data: bytes) -> None:
        """Do nothing."""

    def marks(self) -> tuple[str, ...]:
        """Return nothing that would be gone with the run."""
        return ()

    def commit(
        self,
        files: tuple[Any, ...],
        manifest: bytes,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Do what follows a run."""
        then()

    def abandon(self, manifest: bytes | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def tables_record(
    resolved: OpenTables, options: TablesOptions, home: str, problems: Sequence[TableProblem]
) -> bytes:
    """Return the record, without any statement of a session, which may hold a password."""
    record = TablesRecord(
        tables=tuple(Raw(run.record()) for run in resolved.runs),
        home=home,
        options=Raw(encode(options)),
        left_out=tuple(
            LeftOut(
                table=each.table,
                error=type(each.error).__name__,
                why=redact(each.error.message),
            )
            for each in problems
        ),
    )
    return encode(record) + b"\n"
