"""Finding the run that has died at a destination, and what it was to do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.json import Decoder, decode
from msgspec.structs import replace

from numa.topology import detect
from unloader.errors import OutputFailed, PlanFailed, error_class
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
from unloader.request.directory_names import directory_name, has_fields
from unloader.resolve.homes import (
    TablesRecord,
    directory_now,
    home_above,
    is_of_tables,
)
from unloader.resolve.places import directory_values
from unloader.resolve.resolved import ResolvedRun
from unloader.selection.problems import TableProblem
from unloader.storage.place_names import absolute, real
from unloader.storage.storage_lookup import storage_at, unreadable
from unloader.storage.storage_protocol import MANIFEST, RUN_RECORD

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey

# Built before threads use them: msgspec crashes when two threads first decode a type together.
_OPTIONS, _RECORD = Decoder(TablesOptions), Decoder(TablesRecord)
_RUN = Decoder(ResolvedRun)
"""Never called: `ResolvedRun.from_json` converts to the type that it prepares."""


class UnusableRecord(OutputFailed):
    """A run was broken off, and this program cannot go on with what it has on record."""


class BrokenTable(Struct, frozen=True, kw_only=True):
    """One table of a run that was stopped, failed or killed."""

    run: ResolvedRun
    places: tuple[str, ...]
    """Where its files go, the one of the manifest first, as they are found now."""
    parallelism: int | None = None
    """Workers from now on; None is as it had."""

    def with_source(
        self, secret: SecretReference | None, session_sql: tuple[str, ...]
    ) -> BrokenTable:
        """Return the same with what no record of a run may hold.

        Args:
            secret: Where the password is found now; None is where it was.
            session_sql: The statements of the run's sessions, if it had any.

        Raises:
            OutputFailed: It had statements and these are not given, or others are.
        """
        run = self.run
        if run.withheld and not session_sql:
            raise OutputFailed(
                f"run {run.run_id} had --session-sql, which may contain a password and is not "
                "stored",
                "give the same --session-sql again",
            )
        if session_sql and not run.is_session_sql(session_sql):
            raise OutputFailed(
                f"run {run.run_id} had another --session-sql, or did not have one",
                "give the --session-sql of that run, or start again with the command of the run",
            )
        return replace(self, run=run.with_source(secret, session_sql))

    def with_keys(self, keys: EncryptionOptions | None) -> BrokenTable:
        """Return the same with where the keys of its files are found now.

        Args:
            keys: Of kind none is where they were; None is the same for both.

        Raises:
            OutputFailed: The run had another Parquet key.
            ConfigError: A key cannot be read, or is none.
        """
        return self.with_keys_of([keys] * len(self.run.outputs))

    def with_keys_of(self, keys: Sequence[EncryptionOptions | None]) -> BrokenTable:
        """Return the same with where the keys of each of its outputs are found; see `with_keys`."""
        run = self.run
        for number, (output, now) in enumerate(zip(run.outputs, keys, strict=True)):
            if output.options.encryption is not None:
                run = run.with_encryption(self._keys_of(output.options.encryption, now), number)
        return self if run is self.run else replace(self, run=run)

    def _keys_of(self, had: EncryptionOptions, keys: EncryptionOptions | None) -> EncryptionOptions:
        """Return where the keys of one output are found now; see `with_keys`."""
        from unloader.secrets.encryption_keys import check_identities, check_key, identities

        found = _found_now(had, keys)
        if len(self.run.outputs) > 1 and not check_key(found):
            found = replace(found, key=had.key)  # It may be the key of another output.
        if not check_key(found):
            raise OutputFailed(
                f"run {self.run.run_id} had another Parquet key",
                "give the key of that run, or start again with the command of the run",
            )
        if found.recipients and self.run.request.verify in COMPARING:
            check_identities(identities(found.identity), found.recipients)
        return found

    def with_masking_keys(self, keys: tuple[MaskingKey, ...], *, same: bool = True) -> BrokenTable:
        """Return the same with where the keys of masks are found now.

        Args:
            keys: Those that are not where they were.
            same: Rows that are masked already stay, so that the keys must be the same.

        Raises:
            ConfigError: A key cannot be read, is none, or is another one than the run had.
        """
        run = self.run.with_masking_keys(keys)
        had = [output.transform.options.keys for output in run.outputs if output.transform]
        if same and any(had):
            from unloader.transforms.masking_keys import masking_keys

            masking_keys(key for each in had for key in each)
        return replace(self, run=run)

    def with_parallelism(self, setting: Setting, workers: int | None) -> BrokenTable:
        """Return the same with another number of workers than the run had.

        Args:
            setting: For the manifest, in place of that of the run.
            workers: None is the number of usable cores of this machine.
        """
        asked = self.run.request
        workers = workers or automatic_parallelism(detect(), asked.seats)
        others = tuple(each for each in asked.settings if each.name != setting.name)
        limits = replace(asked.limits, parallelism=workers)
        known = asked.concurrency
        known = None if known is None else replace(known, adaptive=False)
        settings = (*others, setting)
        asked = replace(asked, limits=limits, settings=settings, concurrency=known)
        return replace(self, run=replace(self.run, request=asked), parallelism=workers)

    def with_concurrency(self, known: ConcurrencyOptions | None) -> BrokenTable:
        """Return the same with other limits on the number of workers than the run had."""
        asked = replace(self.run.request, concurrency=known)
        return replace(self, run=replace(self.run, request=asked))

    def with_cluster(self, now: ClusterOptions | None) -> BrokenTable:
        """Return the same with workers elsewhere than the run had; None is where it had them."""
        if now is None or (now.address is None and now.security is None):
            return self
        had = self.run.request.cluster or ClusterOptions()
        if now.address is None:
            now = replace(had, security=now.security)
        elif now.security is None and now.address == had.address:
            now = had
        asked = replace(self.run.request, cluster=now if now.is_asked else None)
        return replace(self, run=replace(self.run, request=asked))

    def request_here(self) -> Request:
        """Return what was asked, for a new run into the places as they are now."""
        first, *others = self.places
        asked = self.run.request
        if asked.routes is not None and len(asked.routes) > 1:
            return self._routes_here(asked)
        table = self.run.output.options.lake_table
        if table is not None:
            return replace(asked, output=replace(asked.output, destination=table.name))
        output = replace(asked.output, destination=first, others=tuple(others))
        if has_fields(asked.output.destination):
            # Which other runs are of the same job is said by the fields, which are gone.
            output = replace(output, keep=None)
        return replace(asked, output=output)

    def _routes_here(self, asked: Request) -> Request:
        """Return the same for several routes; those that are published are replaced."""
        routes = tuple(
            replace(
                route,
                output=replace(
                    route.output,
                    destination=_asked_place(output.options),
                    others=output.options.others,
                    overwrite=route.output.overwrite or is_finished(output.options.destination),
                    # As above: the fields are gone.
                    keep=None if has_fields(route.output.destination) else route.output.keep,
                ),
            )
            for route, output in zip(asked.routes or (), self.run.outputs, strict=True)
        )
        return replace(asked, output=routes[0].output, routes=routes)

    def is_at(self, request: Request, today: str) -> bool:
        """Return whether the places are those of a request, or may be one run's of those.

        Args:
            request: Of the same job.
            today: What `{date}` stands for in it.
        """
        if len(self.run.outputs) > 1:
            return self._has_routes_at(request, today)
        output = request.output
        table = self.run.output.options.lake_table
        if table is not None:
            return table.name == absolute_name(output.destination)
        if any(map(has_fields, output.destinations)):
            return len(self.places) == len(output.destinations)
        return _real(self.places) == _real(output.destinations)

    def _has_routes_at(self, request: Request, today: str) -> bool:
        """Return whether each route goes where the one of a request would go in this run.

        One route may have no date in its directory, and be found on another day.
        """
        values = replace(directory_values(self.run.extract, self.run.run_id), date=today)
        for had, asked in zip(self.run.outputs, request.of_outputs(), strict=True):
            now = [directory_name(each, values) for each in asked.output.destinations]
            if _real(now) != _real(had.options.destinations):
                return False
        return True


class BrokenRun(Struct, frozen=True, kw_only=True):
    """A run that was stopped, failed or killed before all of it was published."""

    tables: tuple[BrokenTable, ...]
    place: str
    """The directory of its record: that of the only table, or the one around several tables."""
    options: TablesOptions | None = None
    """Of several tables; None for one table, whose directory has the record."""
    left_out: tuple[TableProblem, ...] = ()
    """Tables that were asked for, too, and could not be unloaded when the run began."""

    @property
    def first(self) -> BrokenTable:
        """Any of its tables: source and limits are the same for all."""
        return self.tables[0]

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.first.run.run_id

    @property
    def request(self) -> Request:
        """What was asked for; of several tables it names no table and no query."""
        request = self.first.run.request
        if self.options is None:
            return request
        return replace(request, selection=replace(request.selection, table=None, query=None))

    def changed(self, change: Callable[[BrokenTable], BrokenTable]) -> BrokenRun:
        """Return the same with a change to each of its tables."""
        return replace(self, tables=tuple(map(change, self.tables)))


def _asked_place(output: OutputOptions) -> str:
    """Return the place of an output as it is asked for: a table lies elsewhere for each run."""
    return output.destination if output.lake_table is None else output.lake_table.name


def _real(places: Iterable[str]) -> list[str]:
    return [real(each) for each in places]


def find_broken_run(destination: str) -> BrokenRun | None:
    """Return the run that has died at a destination; None if there is none.

    Args:
        destination: Any place of a run of one table; of several tables the directory around theirs.

    Raises:
        OutputFailed: It goes on, or cannot be read.
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
        record = storage.record(places[0], RUN_RECORD)
    except OSError as error:
        raise unreadable(destination, error) from error
    if not record:
        return None
    if is_of_tables(record):
        return _of_several(record, destination, who.run_id)
    run = read_run(record, places[0])
    if len(run.outputs) > 1:
        _check_not_moved(destination, run)
    return BrokenRun(tables=(BrokenTable(run=run, places=places),), place=places[0])


def _of_several(record: bytes, place: str, run_id: str) -> BrokenRun:
    """Return the run of several tables that has died at a place; see `find_broken_run`."""
    found = _recorded(record)
    if found is None:
        raise UnusableRecord(
            f"the record of run {run_id}, which was interrupted in {place}, is damaged",
            f"start again with the command of the run; unloader clean {place} removes its staged "
            "files",
        )
    runs = [read_run(each, place) for each in found.tables]
    try:
        options = _OPTIONS.decode(found.options)
    except (ValueError, RecursionError) as error:
        raise UnusableRecord(
            f"the record of the run that was interrupted in {place} cannot be used: its options "
            f"are not as expected: {error}",
            "start again with the command of the run",
        ) from error
    return BrokenRun(
        tables=tuple(_as_broken(each, found.home, place) for each in runs),
        options=options,
        place=place,
        left_out=tuple(
            TableProblem.earlier(each.table, each.why, error_class(each.error))
            for each in found.left_out
        ),
    )


def first_of_tables(record: bytes, place: str) -> ResolvedRun:
    """Return the first table of a record, as its run was to do it.

    Args:
        record: `RUN_RECORD` of a run over several tables.
        place: Where it was found; the error names it.

    Raises:
        UnusableRecord: Another version has written it, or it was damaged or edited.
    """
    return _first_in(_recorded(record), place)


def options_of_tables(record: bytes) -> TablesOptions:
    """Return what a record says of its run as a whole; nothing, if it cannot be read."""
    found = _recorded(record)
    with suppress(ValueError, RecursionError):
        if found is not None:
            return _OPTIONS.decode(found.options)
    return TablesOptions(destination="")


def why_not_resumable(place: str, record: bytes = b"") -> str:
    """Return why the run that has died at a place cannot be resumed, as far as its record tells.

    Args:
        place: Its directory; that of all tables for several.
        record: Its `RUN_RECORD`, if it was read already.

    Returns:
        The reason; empty where it can be resumed.
    """
    try:
        if _recorded(record) is not None:
            first_of_tables(record, place)
        elif find_broken_run(place) is None:
            return "the record of its job is missing"
    except UnusableRecord as error:
        return error.message
    except OutputFailed:
        return ""  # It was resumed just now, or was moved.
    return ""


def _first_in(found: TablesRecord | None, place: str) -> ResolvedRun:
    return read_run(found.tables[0] if found is not None and found.tables else b"", place)


def _recorded(record: bytes) -> TablesRecord | None:
    """Return the record of a run over several tables; None if it is not one, or is damaged."""
    if not is_of_tables(record):
        return None
    try:
        return _RECORD.decode(record)
    except (ValueError, RecursionError):
        return None


def _as_broken(run: ResolvedRun, recorded: str, home: str) -> BrokenTable:
    """Return a table of the run, with its directories where they are now."""
    outputs = []
    for output in run.outputs:
        first, *others = (
            directory_now(each, recorded, home) for each in output.options.destinations
        )
        options = replace(output.options, destination=first, others=tuple(others))
        outputs.append(replace(output, options=options))
    run = replace(run, outputs=tuple(outputs))
    return BrokenTable(run=run, places=run.output.options.destinations)


def is_finished(destination: str) -> bool:
    """Return whether a finished run lies at a destination."""
    try:
        return MANIFEST in storage_at(destination).names(destination)
    except OSError:
        return False


def _found_now(had: EncryptionOptions, keys: EncryptionOptions | None) -> EncryptionOptions:
    if keys is None:
        return had
    return replace(
        had,
        key=keys.key if had.keyed and keys.keyed else had.key,
        identity=had.identity if keys.identity.kind == "none" else keys.identity,
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


def _check_not_moved(destination: str, run: ResolvedRun) -> None:
    """Refuse to go on with one of several routes elsewhere: the others would not be found."""
    begun = [real(each) for each in run.directories]
    if real(destination) not in begun:
        raise OutputFailed(
            f"{destination} is not where the run began; its routes write to "
            f"{' and '.join(run.directories)}",
            "move it back to the place where the run began",
        )


def read_run(record: bytes | Raw, place: str) -> ResolvedRun:
    """Return the run of a record.

    Args:
        record: `RUN_RECORD`, or that part of it of a run over several tables.
        place: Where it was found; the error names it.

    Raises:
        UnusableRecord: Another version has written it, or it was damaged or edited.
    """
    try:
        return ResolvedRun.from_json(decode(record))
    except PlanFailed as error:
        raise _unusable(place, error.message) from error
    except (ValueError, RecursionError) as error:
        raise _unusable(place, str(error)) from error


def _unusable(place: str, why: str) -> UnusableRecord:
    return UnusableRecord(
        f"the record of the run that was interrupted in {place} cannot be used: {why}",
        "start again with the command of the run; if another version of unloader began it, that "
        "version can resume it",
    )
