"""The work units of all tables of a run, as the engine works on them.

What is done with a unit is in `unloader.run.unit_work`. Here is which table it is of, which units
go to a worker together, and what becomes of the others where one table fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.engine.engine import Work
from unloader.engine.schedule import Assignment, Attempt, Verdict
from unloader.errors import UnloaderError, translate
from unloader.events import (
    Event,
    Notice,
    Observer,
    PhaseStarted,
    RouteFinished,
    Tick,
    UnitsKept,
)
from unloader.failures import failure_of
from unloader.model import (
    AttemptFailure,
    BundleResult,
    BundleTask,
    Preload,
    UnitResult,
    UnitTask,
)
from unloader.run.concurrency.opening import RunSteering
from unloader.run.room import RoomWatch
from unloader.run.state import RunState, TableState
from unloader.run.telling import size_of
from unloader.run.unit_work import UnitWork

if TYPE_CHECKING:
    from unloader.engine.concurrency.steering import Steering


class TableUnit(Struct, frozen=True, kw_only=True):
    """A unit, and the number of its table."""

    table: int
    unit: WorkUnit
    others: tuple[TableUnit, ...] = ()
    """Of other tables, which the same worker does after this one; see `bundles`."""

    @property
    def id(self) -> str:
        """Tell the unit from those of all tables."""
        return f"{self.table}.{self.unit.id}"

    @property
    def tables(self) -> tuple[int, ...]:
        """The numbers of all tables that it has a unit of."""
        return (self.table, *(each.table for each in self.others))

    @property
    def parts(self) -> tuple[TableUnit, ...]:
        """Each of several by itself; nothing where there are no others."""
        return (replace(self, others=()), *self.others) if self.others else ()


def largest_first(units: Iterable[TableUnit]) -> list[TableUnit]:
    """Return units in the order in which they are handed out; of equals, as they come.

    A worker that ends leaves none idle as long as there is a further unit, so what is left at the
    end are small ones: no large one is begun when the others have nothing more to do. One of which
    the source knows no size, such as a view, may be the largest of all.
    """
    return sorted(units, key=lambda each: (is_known(each.unit), -size_of(each.unit)))


def is_known(unit: WorkUnit) -> bool:
    """Return whether the source knows the size of a unit, about."""
    return unit.bytes is not None or unit.rows is not None


@dataclass(slots=True, kw_only=True)
class TablesWork(Work[TableUnit]):
    """The units of all tables of a run."""

    state: RunState
    stop: Callable[[], None]
    """Raises Interrupted if the user asked for the end."""
    concurrency: RunSteering
    works: Mapping[int, UnitWork]
    """Of each table that is not complete, by its number."""
    on_done: Callable[[TableState], None]
    """Takes a table when its last unit is on record."""
    on_failed: Callable[[TableState], None]
    """Takes a table when it has failed."""
    room: RoomWatch | None = None
    """Whether the disks have room; None does not look."""
    drop: Callable[[Callable[[TableUnit], bool]], None] = lambda units: None
    """Takes units out of the schedule."""
    collect: Callable[[], None] = lambda: None
    """Takes what has become of tables since; called several times a second."""
    put_back: Callable[[Sequence[TableUnit], int], None] = lambda units, attempt: None
    """Has the schedule try units again, of which an attempt has come to nothing."""
    _left: Counter[int] = field(default_factory=Counter)
    """Units that are not done, by the number of the table."""

    @property
    def tables(self) -> Sequence[TableState]:
        """All tables."""
        return self.state.tables

    @property
    def goes_on(self) -> bool:
        """Whether a table that fails does not end the run."""
        return self.state.options.on_failure == "continue"

    def __post_init__(self) -> None:
        """Count the units."""
        for table in self.tables:
            self._left[table.number] = 0 if table.is_over else len(table.run.units_left())

    def task(self, attempt: Attempt[TableUnit]) -> object:
        """Return the task of an attempt."""
        kind = self._work_of(attempt).extract.source.kind
        tasks = [
            (number, task)
            for number, each in enumerate(_each_of(attempt))
            if (task := self._task(each, attempt.unit.id)) is not None
        ]
        if not tasks:
            # The place waits for a task: this one does nothing, and its answer is no result.
            return Preload(source_kind=kind)
        return BundleTask(tasks=tuple(tasks)) if attempt.unit.others else tasks[0][1]

    def _task(self, attempt: Attempt[TableUnit], name: str) -> UnitTask | None:
        """Return the task of a single unit; None if its table has failed, maybe just for it."""
        if self.tables[attempt.unit.table].failure is not None:
            return None
        try:
            # An order that comes late must not hold up a unit of another table with the same id.
            return self._work_of(attempt).task(_of_table(attempt), name=name)
        except (UnloaderError, OSError) as error:
            self._spoiled(attempt, error)
            return None

    def check(self) -> None:
        """Let displays redraw; take up tables that are published; raise if the run is to end."""
        self.state.live(Tick())
        self.look()
        if self.state.alone is not None:
            self.tables[0].run.output.check()
        self.collect()
        self.stop()
        if self.room is not None:
            self.room.check()

    def look(self, *, at_once: bool = False) -> None:
        """Take a sample of how far the only table is; the manifests of several have none."""
        if self.state.alone is not None:
            self.works[0].history.look(at_once=at_once)

    def may_start(self) -> bool:
        """Return whether the disks have room for another unit."""
        return self.room is None or self.room.has_room()

    def steering(self) -> Steering[Any] | None:
        """Return what holds the run to a number of workers."""
        steered = self.concurrency.turn()
        return None if steered is None else steered.steering

    def note(self, text: str) -> None:
        """Tell the user a line."""
        self.state.live(Notice(text=text))

    def limited(self, places: int, *, raises: bool) -> None:
        """Tell that the source lets fewer workers work than there are, or one more again."""
        next(iter(self.works.values())).limited(places, raises=raises)

    def started(self, place: int, attempt: Attempt[TableUnit]) -> None:
        """Report a unit that a worker has taken."""
        self._work_of(attempt).started(place, _of_table(attempt))

    def reported(self, place: int, attempt: Attempt[TableUnit], payload: object) -> None:
        """Tell how far a worker is."""
        if isinstance(payload, tuple):  # Of a bundle.
            number, payload = payload
            attempt = _each_of(attempt)[number]
        self._work_of(attempt).reported(place, _of_table(attempt), payload)

    def finished(self, place: int, attempt: Attempt[TableUnit], result: object) -> None:
        """Report what is staged."""
        results = _results(result)
        later = sum(each.seconds for each in results.values())
        for number, each in enumerate(_each_of(attempt)):
            work, failure = self._work_of(each), self.tables[each.unit.table].failure
            of_table, found = _of_table(each), results.get(number)
            if found is None and failure is None:
                continue
            if number:
                work.started(place, of_table)
            if found is None:
                assert failure is not None
                given_up = Verdict(assignment=of_table, retry_in_seconds=None)
                work.failed(place, given_up, failure)
            else:
                later -= found.seconds
                work.finished(place, of_table, found, ago=later)

    def record(self, place: int, attempt: Attempt[TableUnit], result: object) -> None:
        """Hand finished units to the outputs of their tables; with its last one a table is done."""
        results = _results(result)
        again = []
        for number, each in enumerate(_each_of(attempt)):
            table, found = self.tables[each.unit.table], results.get(number)
            if found is None and table.failure is None:
                again.append(each.unit)
                continue
            if found is not None:
                try:
                    self._work_of(each).record(place, _of_table(each), found)
                except (UnloaderError, OSError) as error:
                    self._spoiled(each, error)
            self._left[table.number] -= 1
            if not self._left[table.number] and table.failure is None:
                self.on_done(table)
        if again:
            self.put_back(again, attempt.attempt)

    def overdue(self, place: int, attempt: Attempt[TableUnit], seconds: float) -> AttemptFailure:
        """Report a worker that makes no progress and is replaced."""
        return self._work_of(attempt).overdue(place, _of_table(attempt), seconds)

    def verdict_on(self, attempt: Attempt[TableUnit], failure: AttemptFailure) -> AttemptFailure:
        """Return the failure that ends the table if a further attempt cannot succeed."""
        return self._work_of(attempt).verdict_on(_of_table(attempt), failure)

    def ends_run(self, attempt: Attempt[TableUnit], failure: AttemptFailure) -> bool:
        """Return whether the failure of a table is that of the run."""
        return not self.goes_on

    def failed(self, place: int, verdict: Verdict[TableUnit], failure: AttemptFailure) -> None:
        """Report a failed attempt; where it was the last one its table has failed."""
        for each in _each_of(verdict.assignment):
            of_table = Verdict(
                assignment=_of_table(each),
                retry_in_seconds=verdict.retry_in_seconds,
                counted=verdict.counted,
            )
            self._work_of(each).failed(place, of_table, failure)
            if verdict.retry_in_seconds is None and self.state.alone is None:
                self._give_up(each, failure)

    def _spoiled(self, attempt: Attempt[TableUnit], error: UnloaderError | OSError) -> None:
        """Give a table up whose journal cannot be written, where the run goes on without it.

        Raises:
            UnloaderError: The error, where it does not.
        """
        known = translate(error)
        if not self.goes_on or not isinstance(known, UnloaderError):
            raise error
        self._give_up(attempt, failure_of(known))

    def _give_up(self, attempt: Attempt[TableUnit], failure: AttemptFailure) -> None:
        self.give_up(self.tables[attempt.unit.table], failure)

    def give_up(self, table: TableState, failure: AttemptFailure) -> None:
        """Put down why a table has failed, and hand out none of its units any more."""
        if table.failure is None:
            table.failure = failure
            self.on_failed(table)
        self.drop(lambda unit: unit.table == table.number and not unit.others)

    def discard(self, attempt: Attempt[TableUnit]) -> None:
        """Remove what a failed attempt may have left."""
        for each in _each_of(attempt):
            self._work_of(each).discard(_of_table(each))

    def _work_of(self, attempt: Attempt[TableUnit]) -> UnitWork:
        return self.works[attempt.unit.table]


def named(observe: Observer, table: str) -> Observer:
    """Return an observer for one of several tables: its units have the table's name to them.

    Phases, ticks, routes and kept units of a single table are not passed on: they are not those of
    the run.
    """

    def tell(event: Event) -> None:
        if isinstance(event, (PhaseStarted, RouteFinished, Tick, UnitsKept)):
            return
        unit = getattr(event, "unit", None)
        if isinstance(unit, str):
            event = replace(event, unit=f"{table}/{unit}")
        elif isinstance(event, Notice):
            event = Notice(text=f"{table}: {event.text}")
        observe(event)

    return tell


def _each_of(attempt: Attempt[TableUnit]) -> tuple[Attempt[TableUnit], ...]:
    """Return the attempt, or one for each unit of a bundle."""
    parts = attempt.unit.parts
    return tuple(replace(attempt, unit=each) for each in parts) if parts else (attempt,)


def _results(result: object) -> Mapping[int, UnitResult]:
    """Return what has come of the units of an attempt, by their number in it."""
    if isinstance(result, BundleResult):
        return dict(result.results)
    return {0: result} if isinstance(result, UnitResult) else {}


def _of_table(attempt: Attempt[TableUnit]) -> Assignment:
    return Attempt(
        unit=attempt.unit.unit,
        attempt=attempt.attempt,
        failures=attempt.failures,
        lost_at=attempt.lost_at,
    )
