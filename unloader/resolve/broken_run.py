"""Finding the interrupted run at a destination, and what a user may change before it continues."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from numa.topology import detect
from unloader.errors import OutputFailed
from unloader.lakehouse.lake_formats import absolute_name
from unloader.model import (
    COMPARING,
    ClusterOptions,
    ConcurrencyOptions,
    EncryptionOptions,
    OutputOptions,
    Request,
    SecretReference,
    Setting,
    TablesOptions,
)
from unloader.placement.seating import automatic_parallelism
from unloader.request.name_templates import directory_name, has_fields
from unloader.resolve.places import directory_values, home_above
from unloader.resolve.resolved import ResolvedTable
from unloader.resolve.run_record import (
    UnusableRecord,
    directory_now,
    first_of,
    is_of_tables,
    read_record,
)
from unloader.secrets.encryption_keys import check_identities, check_key, identities
from unloader.selection.listing import TableProblem
from unloader.storage.place_names import absolute, real
from unloader.storage.storage_lookup import storage_at, unreadable
from unloader.storage.storage_protocol import MANIFEST, RUN_RECORD
from unloader.transforms.masking_keys import masking_keys
from writers.objects.location import is_location

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey


class BrokenRun(Struct, frozen=True, kw_only=True):
    """A run that was stopped, failed or killed before all of it was published."""

    tables: tuple[ResolvedTable, ...]
    """One for each table, with its directories where they are now."""
    place: str
    """The directory of its record."""
    options: TablesOptions
    """Of the run as a whole."""
    is_single: bool
    """The meaning of `TablesRequest.is_single`."""
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
        """The id of the run."""
        return self.first.run_id

    @property
    def request(self) -> Request:
        """The user's request; for several tables it names neither a table nor a query."""
        request = self.first.request
        if self.is_single:
            return request
        return replace(request, selection=replace(request.selection, table=None, query=None))

    def changed(self, change: Callable[[ResolvedTable], ResolvedTable]) -> BrokenRun:
        """Return the run with a change to each of its tables."""
        return replace(self, tables=tuple(map(change, self.tables)))

    def with_source(
        self, secret: SecretReference | None, session_sql: tuple[str, ...]
    ) -> BrokenRun:
        """Return the run with what no record may contain.

        Args:
            secret: Where the password is found now; None is where it was.
            session_sql: The statements of the run's sessions, if it had any.

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
            for number, (output, key) in enumerate(zip(run.outputs, several, strict=True)):
                had = output.options.encryption
                if had is not None:
                    run = run.with_encryption(_checked_key(run, had, key), number)
            return run

        return self.changed(now)

    def with_masking_keys(self, keys: tuple[MaskingKey, ...], *, same: bool = True) -> BrokenRun:
        """Return the run with the places where the keys of masks are found now.

        Args:
            keys: Keys in new places.
            same: Masked rows stay, so that the keys must be the same.

        Raises:
            ConfigError: A key is invalid, cannot be read, or differs from the key of the run.
        """

        def now(run: ResolvedTable) -> ResolvedTable:
            run = run.with_masking_keys(keys)
            had = [output.transform.options.keys for output in run.outputs if output.transform]
            if same and any(had):
                masking_keys(key for each in had for key in each)
            return run

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

    def with_concurrency(self, known: ConcurrencyOptions | None) -> BrokenRun:
        """Return the run with other limits on the number of workers."""
        return self.changed(
            lambda run: replace(run, request=replace(run.request, concurrency=known))
        )

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
        return tuple(map(_request_here, self.tables))

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


def _request_here(run: ResolvedTable) -> Request:
    asked = run.request
    if asked.routes is not None and len(asked.routes) > 1:
        routes = tuple(
            replace(
                route,
                output=replace(
                    route.output,
                    destination=_asked_place(output.options),
                    others=output.options.others,
                    # A route that is published is replaced.
                    overwrite=route.output.overwrite or is_finished(output.options.destination),
                    # Without its fields the directory does not show which runs are of this job.
                    keep=None if has_fields(route.output.destination) else route.output.keep,
                ),
            )
            for route, output in zip(asked.routes, run.outputs, strict=True)
        )
        return replace(asked, output=routes[0].output, routes=routes)
    options = run.output.options
    output = replace(asked.output, destination=_asked_place(options), others=options.others)
    if has_fields(asked.output.destination) and options.lake_table is None:
        output = replace(output, keep=None)
    return replace(asked, output=output)


def _asked_place(output: OutputOptions) -> str:
    """Return the place of an output for a request: each run has another place in a table."""
    return output.destination if output.lake_table is None else output.lake_table.name


def _checked_key(
    run: ResolvedTable, had: EncryptionOptions, keys: EncryptionOptions | None
) -> EncryptionOptions:
    """Return where the keys of one output are found now; see `BrokenRun.with_keys`."""

    found = had
    if keys is not None:
        found = replace(
            had,
            key=keys.key if had.keyed and keys.keyed else had.key,
            identity=had.identity if keys.identity.kind == "none" else keys.identity,
        )
    if len(run.outputs) > 1 and not check_key(found):
        found = replace(found, key=had.key)  # It may be the key of another output.
    if not check_key(found):
        raise OutputFailed(
            f"run {run.run_id} had another Parquet key",
            "give the key of that run, or start again with the command of the run",
        )
    if found.recipients and run.request.verify in COMPARING:
        check_identities(identities(found.identity), found.recipients)
    return found


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
        places = _places_now(destination, who.places)
        data = storage.record(places[0], RUN_RECORD)
    except OSError as error:
        raise unreadable(destination, error) from error
    if not data:
        return None
    record = read_record(data, places[0])
    runs = record.read(places[0])
    if record.is_single:
        place = places[0]
        runs = (_moved(runs[0], destination, places),)
    else:
        place = destination
        runs = tuple(_moved_with_home(each, record.home, place) for each in runs)
    return BrokenRun(
        tables=runs,
        place=place,
        options=record.asked(place),
        is_single=record.is_single,
        left_out=record.problems(),
    )


def _places_now(destination: str, recorded: tuple[str, ...]) -> tuple[str, ...]:
    """Return where the places of a run are now: the only one may have been moved."""
    if len(recorded) == 1:
        return (absolute(destination),)
    if real(destination) not in recorded:
        raise OutputFailed(
            f"{destination} is not where the run began; it also writes to "
            f"{' and '.join(recorded[1:])}",
            f"move it back to one of {', '.join(recorded)}",
        )
    return recorded


def _moved(run: ResolvedTable, destination: str, places: Sequence[str]) -> ResolvedTable:
    """Return a single table with its directories where they are now.

    Raises:
        OutputFailed: One of several outputs was moved: the others would not be found.
    """
    if len(run.outputs) > 1:
        if real(destination) not in _real(run.directories):
            raise OutputFailed(
                f"{destination} is not where the run began; its routes write to "
                f"{' and '.join(run.directories)}",
                "move it back to the place where the run began",
            )
        return run
    options = run.output.options
    # The same object store may have another endpoint now.
    if _real(places) == _real(options.destinations) and not is_location(destination):
        return run
    first, *others = places
    options = replace(options, destination=first, others=tuple(others))
    return replace(run, outputs=(replace(run.output, options=options),))


def _moved_with_home(run: ResolvedTable, recorded: str, home: str) -> ResolvedTable:
    """Return one of several tables with its directories where they are now."""
    outputs = []
    for output in run.outputs:
        first, *others = (
            directory_now(each, recorded, home) for each in output.options.destinations
        )
        options = replace(output.options, destination=first, others=tuple(others))
        outputs.append(replace(output, options=options))
    return replace(run, outputs=tuple(outputs))


def why_not_resumable(place: str, record: bytes = b"") -> str:
    """Return why the interrupted run at a place cannot be resumed; empty if it can be.

    Args:
        place: Its directory; of several tables the directory around theirs.
        record: Its `RUN_RECORD`, if it was read already.
    """
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
    """Return whether a finished run is at a destination."""
    try:
        return MANIFEST in storage_at(destination).names(destination)
    except OSError:
        return False
