"""The record of a run, and the interrupted run that is read from it.

The record is `_run/run.json`: the resolved tables of a run, and what holds for all of them. It is
written before the first row is read. `resume` reads all of it, and may change options that no
record contains. `status`, `clean` and `verify` read only where the tables are, without a check of
the rest.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.json import Decoder, decode, encode
from msgspec.structs import replace

from numa.topology import detect
from unloader.errors import OutputFailed, PlanFailed, error_class
from unloader.lakehouse.lake_formats import absolute_name
from unloader.model import (
    COMPARING,
    ClusterOptions,
    EncryptionOptions,
    OutputOptions,
    Request,
    SecretReference,
    Setting,
    TablesOptions,
)
from unloader.placement.seating import automatic_parallelism
from unloader.redaction import redact
from unloader.request.name_templates import directory_name, has_fields
from unloader.resolve.places import directory_values, home_above
from unloader.resolve.resolved import (
    FORMAT_VERSION,
    ResolvedOutput,
    ResolvedTable,
    checked_version,
    with_key_places,
)
from unloader.secrets.encryption_keys import check_identities, check_key, identities
from unloader.selection.listing import TableProblem
from unloader.storage.place_names import absolute, path_of, real, relative
from unloader.storage.storage_lookup import storage_at, unreadable
from unloader.storage.storage_protocol import MANIFEST, RUN_RECORD, Storage
from unloader.transforms.masking_keys import masking_keys
from writers.objects.location import is_location

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey


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


class BrokenRun(Struct, frozen=True, kw_only=True):
    """A run that was stopped, failed or killed before all of it was published."""

    tables: tuple[ResolvedTable, ...]
    place: str
    """The directory of its record."""
    options: TablesOptions
    is_single: bool
    left_out: tuple[TableProblem, ...] = ()
    """Requested tables that could not be unloaded when the run began."""
    parallelism: int | None = None
    """Workers from now on; None is the number that the run had."""

    @property
    def first(self) -> ResolvedTable:
        """The first table: source and limits are the same for all tables."""
        return self.tables[0]

    @property
    def run_id(self) -> str:
        return self.first.run_id

    @property
    def request(self) -> Request:
        """The user's request; for several tables it names neither a table nor a query."""
        request = self.first.request
        if self.is_single:
            return request
        return replace(request, selection=replace(request.selection, table=None, query=None))

    def changed(self, change: Callable[[ResolvedTable], ResolvedTable]) -> BrokenRun:
        return replace(self, tables=tuple(map(change, self.tables)))

    def with_source(
        self, secret: SecretReference | None, session_sql: tuple[str, ...]
    ) -> BrokenRun:
        """Return the run with what no record may contain.

        Args:
            secret: Where the password is found now; None is where it was.

        Raises:
            OutputFailed: It had statements and these are not given, or others are given.
        """
        for run in self.tables:
            if run.withheld and not session_sql:
                raise OutputFailed(
                    f"run {run.run_id} had --session-sql, which may contain a password and is not "
                    "stored",
                    "give the same --session-sql again",
                )
            if session_sql and not run.is_session_sql(session_sql):
                raise OutputFailed(
                    f"run {run.run_id} had another --session-sql, or did not have one",
                    "give the --session-sql of that run, or start again with the command of the "
                    "run",
                )
        return self.changed(lambda run: run.with_source(secret, session_sql))

    def with_keys(self, *keys: EncryptionOptions | None) -> BrokenRun:
        """Return the run with the places where the keys of its files are found now.

        Args:
            keys: One for all outputs, or one for each output. None is where they were, and so is a
                key of kind none.

        Raises:
            OutputFailed: The run had another Parquet key.
            ConfigError: A key is invalid, or cannot be read.
        """

        def now(run: ResolvedTable) -> ResolvedTable:
            several = keys * len(run.outputs) if len(keys) == 1 else keys
            found: dict[int, EncryptionOptions] = {}
            for number, (output, given) in enumerate(zip(run.outputs, several, strict=True)):
                had = output.options.encryption
                if had is None:
                    continue
                own = had
                if given is not None:
                    own = replace(
                        had,
                        key=given.key if had.keyed and given.keyed else had.key,
                        identity=had.identity if given.identity.kind == "none" else given.identity,
                    )
                if len(run.outputs) > 1 and not check_key(own):
                    own = replace(own, key=had.key)  # It may be the key of another output.
                if not check_key(own):
                    raise OutputFailed(
                        f"run {run.run_id} had another Parquet key",
                        "give the key of that run, or start again with the command of the run",
                    )
                if own.recipients and run.request.verify in COMPARING:
                    check_identities(identities(own.identity), own.recipients)
                found[number] = own

            def placed(at: int, options: OutputOptions) -> OutputOptions:
                had = options.encryption
                if had is None or at not in found:
                    return options
                return replace(options, encryption=replace(found[at], key_proof=had.key_proof))

            return run.with_options(placed)

        return self.changed(now)

    def with_masking_keys(self, keys: tuple[MaskingKey, ...], *, same: bool = True) -> BrokenRun:
        """Return the run with the places where the keys of masks are found now.

        Args:
            same: Masked rows stay, so that the keys must be the same.

        Raises:
            ConfigError: A key is invalid, cannot be read, or differs from the key of the run.
        """

        def placed(_: int, options: OutputOptions) -> OutputOptions:
            had = options.transform
            transform = None if had is None else with_key_places(had, keys)
            return replace(options, transform=transform)

        def now(run: ResolvedTable) -> ResolvedTable:
            run, outputs = run.with_options(placed), []
            for each in run.outputs:
                had = each.transform
                if had is not None:
                    had = replace(had, options=with_key_places(had.options, keys))
                    if same:
                        masking_keys(had.options.keys)
                outputs.append(replace(each, transform=had))
            return replace(run, outputs=tuple(outputs))

        return self.changed(now)

    def with_parallelism(self, setting: Setting, workers: int | None) -> BrokenRun:
        """Return the run with another number of workers.

        Args:
            setting: For the manifest, in place of the setting of the run.
            workers: None is the number of usable cores of this machine.
        """
        workers = workers or automatic_parallelism(detect(), self.first.request.seats)

        def now(run: ResolvedTable) -> ResolvedTable:
            asked, known = run.request, run.request.concurrency
            others = tuple(each for each in asked.settings if each.name != setting.name)
            asked = replace(
                asked,
                limits=replace(asked.limits, parallelism=workers),
                settings=(*others, setting),
                concurrency=None if known is None else replace(known, adaptive=False),
            )
            return replace(run, request=asked)

        return replace(self.changed(now), parallelism=workers)

    def with_cluster(self, now: ClusterOptions | None) -> BrokenRun:
        """Return the run with workers elsewhere; None is where it had them."""
        if now is None or (now.address is None and now.security is None):
            return self
        had = self.first.request.cluster or ClusterOptions()
        if now.address is None:
            now = replace(had, security=now.security)
        elif now.security is None and now.address == had.address:
            now = had
        cluster = now if now.is_asked else None
        return self.changed(lambda run: replace(run, request=replace(run.request, cluster=cluster)))

    def requests_here(self) -> tuple[Request, ...]:
        """Return the request for each table, for a new run into the current places."""

        def here(own: OutputOptions, had: OutputOptions) -> OutputOptions:
            # Without its fields the directory does not show which runs are of this job.
            is_unknown = has_fields(own.destination) and had.lake_table is None
            return replace(
                own,
                # Each run has another place in a table.
                destination=had.lake_table.name if had.lake_table else had.destination,
                others=had.others,
                # A route that is published is replaced.
                overwrite=own.overwrite or is_finished(had.destination),
                keep=None if is_unknown else own.keep,
            )

        found = []
        for run in self.tables:
            asked, routes = run.request, run.request.routes
            if routes is not None:
                routes = tuple(
                    replace(route, output=here(route.output, each.options))
                    for route, each in zip(routes, run.outputs, strict=True)
                )
            output = routes[0].output if routes else here(asked.output, run.output.options)
            found.append(replace(asked, output=output, routes=routes))
        return tuple(found)

    def is_at(self, request: Request, today: str) -> bool:
        """Return whether the places of a single table are, or may be, the places of a request.

        Args:
            request: Of the same job.
            today: The value of `{date}` in it.
        """
        run, output = self.first, request.output
        if len(run.outputs) > 1:
            # One route may have no date in its directory, and be found on another day.
            values = replace(directory_values(run.extract, run.run_id), date=today)
            asked = [each.output.destinations for each in request.of_outputs()]
            return all(
                _real(directory_name(place, values) for place in places)
                == _real(had.options.destinations)
                for had, places in zip(run.outputs, asked, strict=True)
            )
        places, table = run.output.options.destinations, run.output.options.lake_table
        if table is not None:
            return table.name == absolute_name(output.destination)
        if any(map(has_fields, output.destinations)):
            return len(places) == len(output.destinations)
        return _real(places) == _real(output.destinations)


def _real(places: Iterable[str]) -> list[str]:
    return [real(each) for each in places]


def find_broken_run(destination: str) -> BrokenRun | None:
    """Return the interrupted run at a destination, or None.

    Args:
        destination: Any place of a single table; of several tables the directory around theirs.

    Raises:
        OutputFailed: It is still running, or cannot be read.
        UnusableRecord: Another version has begun it, or its record was damaged.
    """
    storage = storage_at(destination)
    try:
        who = storage.who_was_here(destination, counted=False)
        if who is None or not who.places:
            return None
        if who.is_running:
            # A run over several tables is stopped as a whole.
            whole = home_above(storage, destination, who.run_id) or destination
            raise OutputFailed(
                f"run {who.run_id} is writing to {destination}, in process {who.pid}"
                + (f" on {who.host}" if who.host else ""),
                f"wait until it ends, or end it with: unloader stop {shlex.quote(whole)}",
            )
        places = who.places
        if len(places) == 1:
            places = (absolute(destination),)  # The only one may have been moved.
        elif real(destination) not in places:
            raise OutputFailed(
                f"{destination} is not where the run began; it also writes to "
                f"{' and '.join(places[1:])}",
                f"move it back to one of {', '.join(places)}",
            )
        data = storage.record(places[0], RUN_RECORD)
    except OSError as error:
        raise unreadable(destination, error) from error
    if not data:
        return None
    record = read_record(data, places[0])
    runs = record.read(places[0])
    place = places[0] if record.is_single else destination
    if record.is_single and len(runs[0].outputs) > 1:
        if real(destination) not in _real(runs[0].directories):
            # The other outputs would not be found.
            raise OutputFailed(
                f"{destination} is not where the run began; its routes write to "
                f"{' and '.join(runs[0].directories)}",
                "move it back to the place where the run began",
            )
    else:

        def now(output: ResolvedOutput) -> ResolvedOutput:
            had = here = output.options.destinations
            if not record.is_single:
                here = tuple(directory_now(each, record.home, place) for each in had)
            elif _real(places) != _real(had) or is_location(destination):
                here = places  # The same object store may have another endpoint now.
            first, *others = here
            options = replace(output.options, destination=first, others=tuple(others))
            return replace(output, options=options)

        runs = tuple(replace(run, outputs=tuple(map(now, run.outputs))) for run in runs)
    return BrokenRun(
        tables=runs,
        place=place,
        options=record.asked(place),
        is_single=record.is_single,
        left_out=record.problems(),
    )


def why_not_resumable(place: str, record: bytes = b"") -> str:
    """Return why the interrupted run at a place cannot be resumed; empty if it can be."""
    try:
        if is_of_tables(record):
            first_of(record, place)
        elif find_broken_run(place) is None:
            return "the record of its job is missing"
    except UnusableRecord as error:
        return error.message
    except OutputFailed:
        return ""  # It was resumed just now, or was moved.
    return ""


def is_finished(destination: str) -> bool:
    try:
        return MANIFEST in storage_at(destination).names(destination)
    except OSError:
        return False
