"""Interrupted runs: found by their record, with what no record contains, opened at their snapshot.

Two states of a table must never come together under one manifest. So the snapshot of a resumed run
has to be the recorded one, by kind and value, and each table has to be the planned one.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from numa.topology import detect
from partition_planner.model import PlanError
from unloader.errors import (
    Interrupted,
    OutputFailed,
    PlanFailed,
    SnapshotGone,
    UnloaderError,
    error_class,
    translate,
)
from unloader.events import Observer, PhaseStarted, silent
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
from unloader.request.name_templates import directory_name, has_fields
from unloader.resolve.choosing import chosen_tables
from unloader.resolve.places import directory_values, home_above, is_finished
from unloader.resolve.planning import check_fits, gone, source_at
from unloader.resolve.resolution import OpenRun, with_retries
from unloader.resolve.resolved import (
    ResolvedOutput,
    ResolvedTable,
    UnusableRecord,
    directory_now,
    first_of,
    is_of_tables,
    read_record,
    read_table,
    with_key_places,
)
from unloader.secrets.keys import check_identities, check_key, identities, masking_keys
from unloader.selection.asked import AskedTables
from unloader.selection.listing import TableProblem, lost_error
from unloader.sources.base import Catalog
from unloader.sources.questions import hold_tables
from unloader.sources.registry import cancelled_by, open_unless
from unloader.storage.place_names import absolute, real
from unloader.storage.storage_lookup import storage_at, unreadable
from unloader.storage.storage_protocol import RUN_RECORD
from writers.objects.location import is_location

if TYPE_CHECKING:
    from unloader.transforms.model import MaskingKey


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
        """Return the run with what no record may contain; without `secret` with its own."""
        for run in self.tables:
            if run.session_sql_proof and not session_sql:
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

        `keys` has one for all outputs, or one for each output. None is where they were, and so is a
        key of kind none. Raises OutputFailed for another Parquet key than the run's.
        """

        def own_of(
            run: ResolvedTable, output: ResolvedOutput, given: EncryptionOptions | None
        ) -> EncryptionOptions | None:
            had = output.options.encryption
            if had is None:
                return None
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
            return own

        def now(run: ResolvedTable) -> ResolvedTable:
            several = keys * len(run.outputs) if len(keys) == 1 else keys
            found = [
                own_of(run, output, given)
                for output, given in zip(run.outputs, several, strict=True)
            ]

            def placed(at: int, options: OutputOptions) -> OutputOptions:
                had, own = options.encryption, found[at]
                if had is None or own is None:
                    return options
                return replace(options, encryption=replace(own, key_proof=had.key_proof))

            return run.with_options(placed)

        return self.changed(now)

    def with_masking_keys(self, keys: tuple[MaskingKey, ...], *, same: bool = True) -> BrokenRun:
        """Return the run with the places where the keys of masks are found now.

        With `same`, masked rows stay, and ConfigError is raised if a key differs from the run's.
        """

        def placed(_: int, options: OutputOptions) -> OutputOptions:
            had = options.transform
            transform = None if had is None else with_key_places(had, keys)
            return replace(options, transform=transform)

        found = self.changed(lambda run: run.with_options(placed))
        for output in (output for run in found.tables if same for output in run.outputs):
            if output.options.transform is not None:
                masking_keys(output.options.transform.keys)
        return found

    def with_parallelism(self, setting: Setting, workers: int | None) -> BrokenRun:
        """Return the run with another number of workers, and a setting for its manifest."""
        workers = workers or automatic_parallelism(detect(), self.first.request.seats)

        def now(run: ResolvedTable) -> ResolvedTable:
            asked, known = run.request, run.request.concurrency
            others = tuple(each for each in asked.settings if each.name != setting.name)
            asked = replace(
                asked,
                parallelism=workers,
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

        def request_of(run: ResolvedTable) -> Request:
            return run.with_options(lambda at, own: here(own, run.outputs[at].options)).request

        return tuple(map(request_of, self.tables))

    def is_at(self, request: Request, today: str) -> bool:
        """Return whether a request today may have the places of the run of its single table."""
        run, output = self.first, request.output
        if len(run.outputs) > 1:
            # One route may have no date in its directory, and be found on another day.
            values = {**directory_values(run.extract, run.run_id), "date": today}
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
    """Return the interrupted run at a destination, or None; OutputFailed if it is still running.

    The destination is any place of a single table; of several tables the directory around theirs.
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
    runs = tuple(read_table(each, places[0]) for each in record.tables)
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
        options=record.options,
        is_single=record.is_single,
        left_out=tuple(
            TableProblem.earlier(name, why, error_class(kind))
            for name, kind, why in record.left_out
        ),
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


@contextmanager
def reopened(
    broken: BrokenRun,
    *,
    done: Callable[[ResolvedTable], bool] = lambda run: False,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> Iterator[OpenRun]:
    """Open the source of a run at the run's snapshot; tables that are `done` need not exist.

    Raises SnapshotGone if the source cannot go back to the snapshot, or some tables have changed
    and the other tables are not to be read without them.
    """
    started, first, runs = time.perf_counter(), broken.first, broken.tables
    observe(PhaseStarted(phase="connecting"))
    was, source = first.extract.snapshot, first.extract.source
    named = "" if was is None else f" ({was.kind} {was.value})"
    hint = (
        "read all rows again at a new snapshot: unloader resume "
        f"{shlex.quote(broken.place)} --new-snapshot"
    )
    with ExitStack() as opened:
        with gone(f"run {first.run_id}{named}", hint, SnapshotGone, PlanFailed):
            found_source = source if was is None else source_at(source, was)
            if found_source is None:
                raise SnapshotGone("this kind of source cannot go back to a snapshot")
            catalog = with_retries(
                first.request,
                first.run_id,
                "connecting",
                lambda: open_unless(stop, found_source),
                stop=stop,
                observe=observe,
            )
            opened.callback(catalog.close)
            with cancelled_by(stop, catalog):
                observe(PhaseStarted(phase="snapshot"))
                now = catalog.snapshot(first.request.consistency)
                if was is not None and not was.is_same(now):
                    raise SnapshotGone(f"the source is now at {now.kind} {now.value}".strip())
                left = [run for run in runs if not done(run)]
                found = _enter(left, catalog, observe, is_single=broken.is_single)
                lost = {id(left[number]): problem for number, problem in found.items()}
                goes_on = not broken.is_single and broken.options.on_failure == "continue"
                if lost and not (goes_on and len(lost) < len(runs)):
                    raise lost_error(tuple(lost.values()), len(runs))
        yield OpenRun(
            run_id=first.run_id,
            tables=tuple(run for run in runs if id(run) not in lost),
            catalog=catalog,
            started=started,
            options=broken.options,
            is_single=broken.is_single,
            problems=(*broken.left_out, *lost.values()),
            resumed_in=broken.place,
        )


def _enter(
    runs: Sequence[ResolvedTable], catalog: Catalog, observe: Observer, *, is_single: bool
) -> dict[int, TableProblem]:
    """Check that each table is the planned one, and hold it; return problems by number of the run.

    The list of several tables is read once, and their description is one request. The error of a
    single table is raised, and so are errors that concern all tables, or may pass.
    """
    problems: dict[int, TableProblem] = {}

    def refuse(number: int, failure: Exception) -> None:
        error = translate(failure) or failure
        assert isinstance(error, UnloaderError)
        if is_single or error.retryable or isinstance(error, (Interrupted, SnapshotGone)):
            raise error
        label = runs[number].extract.table.label
        problems.setdefault(number, TableProblem(table=label, error=error))

    observe(PhaseStarted(phase="table"))
    requests = [run.request for run in runs]
    entries = [
        AskedTables(request=each) if is_single else AskedTables.of(each) for each in requests
    ]
    tables, missing, _ = chosen_tables(catalog, entries, observe)
    for problem in missing:
        assert problem.entry is not None
        refuse(problem.entry, problem.error)
    good = {each.entry: each.table for each in tables if each.entry not in problems}
    for number, table in good.items():
        run = runs[number]
        try:
            check_fits(run.plan, table, run.request.selection.partitions)
            catalog.check_where(run.extract)
        except (UnloaderError, PlanError) as error:
            refuse(number, error)
    observe(PhaseStarted(phase="locking"))
    left = [number for number in good if number not in problems]
    extracts = [(runs[at].extract, runs[at].plan.selectors) for at in left]
    for number, held in zip(left, hold_tables(catalog, extracts, observe), strict=True):
        if held is not None:
            refuse(number, held)
    return problems
