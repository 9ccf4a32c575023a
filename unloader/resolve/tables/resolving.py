"""From the requests for several tables to resolved runs at one snapshot, with one open source.

Whatever can be known to be wrong with any of the tables is known before the first row is read, and
is told of all of them at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import PurePath
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.errors import PlanError
from partition_planner.several import estimated_bytes, unit_bytes
from unloader.errors import ConfigError, Interrupted, UnloaderError, translate
from unloader.events import Notice, Observer, PhaseStarted, silent
from unloader.model import Snapshot, SourceSpec
from unloader.placement.seating import SeatPlan, seat_request
from unloader.resolve.outputs.directories import directories_of
from unloader.resolve.patience import Patience
from unloader.resolve.planning import one_of_several
from unloader.resolve.preparation import Prepared, closing_after_failure, prepared_table
from unloader.resolve.resolution import Codec, new_run_id, resolved_outputs
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.tables.choosing import ChosenTable, chosen_tables
from unloader.resolve.tables.homes import home_of, one_directory
from unloader.resolve.tables.problems import TableProblem, each_once, told_at_once
from unloader.selection.asked import TablesRequest
from unloader.sources.abilities import check_where
from unloader.sources.base import Catalog
from unloader.sources.cancelling import cancelled_by, open_unless
from unloader.sources.many_tables import hold_tables
from unloader.storage.place_names import RealPlaces
from unloader.tuning.codec_choice import chosen
from writers.codecs.choice import Choice
from writers.model import Compression

T = TypeVar("T")


class OpenTables(Struct, frozen=True, kw_only=True):
    """Several resolved runs of one id; the catalog holds their snapshot in the context."""

    run_id: str
    runs: tuple[ResolvedRun, ...]
    """One for each table, in the order of the requests."""
    catalog: Catalog
    started: float
    """When the preparation began, by `time.perf_counter`."""
    problems: tuple[TableProblem, ...] = ()
    """Tables that are left out."""
    resumed_in: str = ""
    """The directory that those of all tables are in, where a broken run is gone on with."""


@contextmanager
def resolved_tables(
    asked: TablesRequest,
    *,
    seats: SeatPlan | None = None,
    stop: Callable[[], bool] = lambda: False,
    observe: Observer = silent,
) -> Iterator[OpenTables]:
    """Open the source, take one snapshot and decide everything for all tables.

    Args:
        asked: Which tables. Its options may leave out tables that cannot be unloaded, if other
            tables remain. A pattern that matches nothing is always an error.
        seats: As they were decided already; None decides them.
        stop: Asked several times a second until all is decided; True cancels what is going on.
        observe: Reports each step as it begins.

    Raises:
        Interrupted: `stop` returned True.
        SourceError: The source refused.
        PlanFailed: Some tables cannot be unloaded, for more than one kind of reason; where the kind
            is one, the error is of that.
    """
    started = time.perf_counter()
    run_id = new_run_id()
    first = asked.common
    seats = seats or seat_request(first)
    source = replace(first.source, session=replace(first.source.session, run_id=run_id))
    patience = Patience(retry=first.retry, run_id=run_id, stop=stop, observe=observe)
    resolving = _Resolving(
        asked=asked, source=source, seats=seats, run_id=run_id, observe=observe, stop=stop
    )
    step = "connecting"
    observe(PhaseStarted(phase="connecting"))

    def prepare() -> tuple[Catalog, _Found]:
        nonlocal step
        step = "connecting"
        catalog = open_unless(stop, source)
        step = "planning"
        with closing_after_failure(catalog), cancelled_by(stop, catalog):
            return catalog, resolving.resolve(catalog)

    # Nothing is decided yet: whatever a lost session had found out is found out again.
    catalog, found = patience.with_retries(lambda: step, prepare)
    with closing(catalog):
        goes_on = asked.options.on_failure == "continue" and found.runs
        if any(each.unmatched for each in found.problems) or (found.problems and not goes_on):
            raise told_at_once(found.problems, found.asked_for)
        for text in found.notices:
            observe(Notice(text=text))
        yield OpenTables(
            run_id=run_id,
            runs=found.runs,
            catalog=catalog,
            started=started,
            problems=found.problems,
        )


class _Found(Struct, frozen=True, kw_only=True):
    runs: tuple[ResolvedRun, ...]
    problems: tuple[TableProblem, ...]
    notices: tuple[str, ...]

    @property
    def asked_for(self) -> int:
        """Tables that were asked for, those that cannot be unloaded among them."""
        return len(self.runs) + len({each.table for each in self.problems})


class _Resolving(Struct, frozen=True, kw_only=True):
    """What is the same for all tables."""

    asked: TablesRequest
    source: SourceSpec
    seats: SeatPlan
    run_id: str
    observe: Observer
    stop: Callable[[], bool]
    tables: tuple[ChosenTable, ...] = ()
    """Once they are known."""

    def resolve(self, catalog: Catalog) -> _Found:
        """Decide all for all tables."""
        self.observe(PhaseStarted(phase="snapshot"))
        snapshot = catalog.snapshot(self.asked.common.consistency)
        self.observe(PhaseStarted(phase="table"))
        chosen = chosen_tables(catalog, self.asked.entries, self.observe)
        known = replace(self, tables=chosen.tables)
        runs, problems = known._decided(catalog, snapshot)
        if runs:
            # Whether there is a place for the manifest of the run is known before any row, too.
            home_of(self.asked.options.destination, runs)
        left_out = [TableProblem.earlier(table, why) for table, why in self.asked.left_out]
        return _Found(
            runs=runs,
            problems=each_once((*left_out, *chosen.problems, *problems)),
            notices=chosen.notices,
        )

    def _decided(
        self, catalog: Catalog, snapshot: Snapshot
    ) -> tuple[tuple[ResolvedRun, ...], list[TableProblem]]:
        """Return the runs of the tables, and what is wrong with the others."""
        self.observe(PhaseStarted(phase="planning"))
        problems: dict[int, TableProblem] = {}
        sizes = (estimated_bytes(each.table) for each in self.tables)
        size = unit_bytes(sizes, self.seats.parallelism)
        ready = self._each(
            range(len(self.tables)),
            problems,
            lambda number: self._prepared(catalog, snapshot, number, size),
        )
        self.observe(PhaseStarted(phase="locking"))
        self._hold(catalog, ready, problems)
        good = {number: each for number, each in ready.items() if number not in problems}
        codecs = self._codecs(good)
        runs = self._each(good, problems, lambda number: self._run(good[number], codecs[number]))
        problems.update(self._collisions(runs))
        in_order = [problems[number] for number in sorted(problems)]
        apart = [runs[number] for number in sorted(runs) if number not in problems]
        return self._seated(apart), in_order

    def _collisions(self, runs: Mapping[int, ResolvedRun]) -> Mapping[int, TableProblem]:
        """Return the tables whose directory is that of another one, or has it within."""
        there: dict[PurePath, tuple[int, str]] = {}
        found: dict[int, TableProblem] = {}

        def collide(number: int, other: int, place: str) -> None:
            table = self.tables[number]
            error = one_directory(runs[number], runs[other], place)
            problem = TableProblem(table=table.table.label, error=error, entry=table.entry)
            found.setdefault(number, problem)

        places = RealPlaces()
        taken = [
            (places.of(place), number)
            for number, run in runs.items()
            for output in run.outputs
            for place in directories_of(output.options)
        ]
        # The place of a store is compared as a path, too, and shown as it is.
        for place, number in taken:
            other, _ = there.setdefault(PurePath(place), (number, place))
            if other != number:
                collide(number, other, place)
                collide(other, number, place)

        @cache
        def next_above(above: str) -> tuple[int, str] | None:
            path = PurePath(above)
            return next((there[up] for up in (path, *path.parents) if up in there), None)

        for place, number in taken:
            around = next_above(os.path.dirname(place))
            if around is not None and around[0] != number:
                collide(number, *around)
        return found

    def _seated(self, runs: list[ResolvedRun]) -> tuple[ResolvedRun, ...]:
        """Return runs with the seats of all workers: they work for whichever table has units."""
        units = sum(len(run.plan.units) for run in runs)
        seating = self.seats.first(max(1, min(self.seats.parallelism, units)))
        return tuple(replace(run, seating=seating) for run in runs)

    def _prepared(self, catalog: Catalog, snapshot: Snapshot, number: int, size: int) -> Prepared:
        table = self.tables[number].table
        asked = self.tables[number].request
        request = one_of_several(asked, size)
        ready = prepared_table(request, self.source, catalog, snapshot, table, self.seats)
        return replace(ready, request=asked)

    def _hold(
        self,
        catalog: Catalog,
        ready: Mapping[int, Prepared],
        problems: dict[int, TableProblem],
    ) -> None:
        """Check all conditions, and keep what is to be read as it is, all tables together."""
        self._each(ready, problems, lambda number: check_where(catalog, ready[number].extract))
        good = [number for number in ready if number not in problems]
        held = [(ready[number].extract, ready[number].plan.selectors) for number in good]
        for number, error in zip(good, hold_tables(catalog, held, self.observe), strict=True):
            if error is None:
                continue
            # What may pass, such as a lock, is waited for again, unless the others need not wait.
            if error.retryable and self.asked.options.on_failure == "stop":
                raise error
            problems[number] = self._problem(number, error)

    def _codecs(self, ready: Mapping[int, Prepared]) -> Mapping[int, tuple[Codec, ...]]:
        """Return the codec of each output of each table; one that is to be measured is, on the
        largest of them."""
        codecs: dict[int, tuple[Codec, ...]] = {}
        measured: dict[object, Choice] = {}
        for number, each in sorted(ready.items(), key=lambda item: -_rows(item[1])):
            codecs[number] = tuple(self._codec(one, measured) for one in each.of_outputs())
        return codecs

    def _codec(self, ready: Prepared, measured: dict[object, Choice]) -> Codec:
        asked = ready.request.output.compression
        if isinstance(asked, Compression):
            return asked, None
        kind = (asked, type(ready.format))
        if kind not in measured:
            self.observe(PhaseStarted(phase="measuring"))
            measured[kind] = chosen(ready, asked, observe=self.observe, stop=self.stop)
        return measured[kind].compression, measured[kind]

    def _run(self, ready: Prepared, codecs: tuple[Codec, ...]) -> ResolvedRun:
        outputs = resolved_outputs(ready, self.run_id, lambda number, each: codecs[number])
        return ResolvedRun(
            run_id=self.run_id,
            request=ready.request,
            server_version=ready.catalog.server_version,
            extract=ready.extract,
            plan=ready.plan,
            outputs=outputs,
            topology=ready.topology,
            seating=ready.seating,
        )

    def _each(
        self,
        numbers: Iterable[int],
        problems: dict[int, TableProblem],
        do: Callable[[int], T],
    ) -> dict[int, T]:
        """Return what a step makes of each table; put down those that it cannot be done with."""
        found: dict[int, T] = {}
        for number in numbers:
            if self.stop():
                raise Interrupted("stopped by a signal before all tables were planned")
            try:
                found[number] = do(number)
            except (UnloaderError, PlanError) as error:
                known = translate(error) or error
                assert isinstance(known, UnloaderError)
                if known.retryable or isinstance(known, (Interrupted, ConfigError)):
                    raise
                problems[number] = self._problem(number, known)
        return found

    def _problem(self, number: int, error: UnloaderError) -> TableProblem:
        table = self.tables[number]
        return TableProblem(table=table.table.label, error=error, entry=table.entry)


def _rows(ready: Prepared) -> int:
    return sum(unit.rows or 0 for unit in ready.plan.units)
