"""The work units of all tables of a run, as the engine works on them.

Tasks go out, results and progress come back. What becomes of a failed attempt depends on more than
the failure: the snapshot may be lost with the source, an output may be unable to take a unit twice,
and a table that fails may or may not end the run. All of that is decided here.

Small tables are handed out in bundles: one task and one answer for several, which cost more than
most small tables take to be read. The units that a failed bundle has not finished are tried again
table by table. So one table's failure stays with that table, and the other tables are only read
once more.

Workers in the middle of a unit look for disk space before they write more
(`writers.files.disk_space`), and report their waits. The parent looks at all directories, and
pauses the whole run if one is full.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from numa.model import Finished, Lost, Raised
from partition_planner.model import WorkUnit
from unloader.engine.engine import Work
from unloader.engine.executor import Executor
from unloader.engine.schedule import Attempt, Schedule, Verdict
from unloader.errors import (
    OutputFailed,
    SnapshotGone,
    SourceError,
    UnloaderError,
    WorkerLost,
    failure_of,
    is_a,
    translate,
)
from unloader.events import (
    Notice,
    Observer,
    Tick,
    UnitAdvanced,
    UnitFailed,
    UnitFinished,
    UnitStarted,
)
from unloader.model import (
    COMPARING,
    AttemptFailure,
    BoundSeat,
    Bundle,
    Extract,
    FinishedUnit,
    Preload,
    UnitResult,
    UnitTask,
)
from unloader.nouns import counted
from unloader.resolve.resolved import ResolvedTable
from unloader.run.concurrency import RunSteering
from unloader.run.outputs import check_stop
from unloader.run.table import RunState, Table
from unloader.storage.storage_lookup import storage_at
from writers.files.disk_space import enough_bytes, free_bytes

_BYTES_PER_ROW = 128
"""Guess, for tables whose rows alone are known to the source."""

MOST_UNITS = 16
"""In a bundle. All of them are read again if the worker is lost (guess)."""
MOST_BYTES = 8 * 1024 * 1024
"""Of all units of a bundle, in the source: some tenths of a second (guess)."""
_LEAST_BUNDLES = 8
"""For each worker, so that all of them end at about the same time (guess)."""


class TableUnit(Struct, frozen=True, kw_only=True):
    table: int
    unit: WorkUnit
    others: tuple[TableUnit, ...] = ()
    """Of other tables, which the same worker does after this one; see `bundled`."""

    @property
    def id(self) -> str:
        return f"{self.table}.{self.unit.id}"

    @property
    def parts(self) -> tuple[TableUnit, ...]:
        """Each part of several parts; empty for a whole unit."""
        return (replace(self, others=()), *self.others) if self.others else ()


def size_of(unit: WorkUnit) -> float:
    """Return the bytes of a unit, by its rows where only these are known; infinite if unknown."""
    if unit.bytes is None and unit.rows is None:
        return math.inf
    return unit.bytes or (unit.rows or 0) * _BYTES_PER_ROW


def largest_first(units: Iterable[TableUnit]) -> list[TableUnit]:
    """Return units as they are handed out: unknown sizes first, such as views, then the largest."""
    return sorted(units, key=lambda each: -size_of(each.unit))


def bundled(units: Sequence[TableUnit], able: Container[int], workers: int) -> Iterator[TableUnit]:
    """Yield units in their order; small ones of `able` tables bring others with them."""

    def is_small(each: TableUnit) -> bool:
        return size_of(each.unit) <= MOST_BYTES // 2 and each.table in able

    most = max(1, min(MOST_UNITS, sum(map(is_small, units)) // (_LEAST_BUNDLES * workers)))
    bundle: list[TableUnit] = []
    for each in units:
        fits = sum(size_of(one.unit) for one in (*bundle, each)) <= MOST_BYTES
        if bundle and not (is_small(each) and fits and len(bundle) < most):
            yield replace(bundle[0], others=tuple(bundle[1:]))
            bundle = []
        if is_small(each):
            bundle.append(each)
        else:
            yield each
    if bundle:
        yield replace(bundle[0], others=tuple(bundle[1:]))


class Units(Work[TableUnit]):
    """The work units of all tables; `unloader.run.run` has the tables that are done."""

    def __init__(self, state: RunState, executor: Executor) -> None:
        self.state, self.executor = state, executor
        self.schedule: Schedule[TableUnit]
        self.steering: RunSteering
        self.units_left = Counter[int]()
        """Units that are not done, by the number of the table."""
        self.room: RoomWatch | None = None
        """Whether the disks have room; None does not look."""
        self._working = 0
        """How many workers the source lets work, once it has refused one; 0 before."""
        self._driven: dict[int, Extract] = {}
        """What the driver alone decodes, by the number of the table."""
        self._began: dict[str, float] = {}
        """When the attempts began that are finished and not on record yet, by unit.

        The worker's own seconds say when: its process may have had to be started first, and it may
        have begun before this process noted that it had been given the attempt. So no attempt
        begins before the end of the one before it.
        """

    def done(self, table: Table) -> None:
        """Take a table when its last unit is on record."""
        raise NotImplementedError

    def report(self, table: Table) -> None:
        """Take a table that is published, has failed, or waits for the others."""
        raise NotImplementedError

    def collect(self, timeout_seconds: float = 0.0) -> None:
        """Take up the tables that other threads have finished; called several times a second."""
        raise NotImplementedError

    def task(self, attempt: Attempt[TableUnit]) -> object:
        tasks: Bundle = {}
        for number, each in enumerate(_each_of(attempt)):
            table = self._table(each)
            request, unit = table.run.request, each.unit.unit
            if table.failure is not None:
                continue
            try:
                task = UnitTask(
                    unit=unit,
                    attempt=attempt.attempt,
                    extract=self._driven.get(table.number, table.run.extract),
                    outputs=table.tasks(unit, attempt.attempt),
                    fetch_bytes=request.fetch_bytes,
                    checksums=request.verify in COMPARING,
                    drops_outputs=request.on_route_failure == "drop",
                    # An order that comes late must not hold up another table's unit with this id.
                    name=attempt.unit.id,
                )
            except (UnloaderError, OSError) as error:
                self._spoiled(each, error)
            else:
                tasks[number] = task
        if not tasks:
            # The place waits for a task: this one does nothing, and its answer is not a result.
            return Preload(source_kind=self._table(attempt).run.extract.source.kind)
        return tasks

    def check(self) -> None:
        self.state.live(Tick())
        if self.state.is_single:
            # The manifests of several tables have no samples. Their places are looked at as they
            # are published.
            table = self.state.tables[0]
            table.history.look()
            table.check()
        self.collect()
        check_stop(self.state.live.stop, "before all work units were done")
        if self.room is not None:
            self.room.check()

    def may_start(self) -> bool:
        return self.room is None or self.room.has_room()

    def steer(self, executor: Executor, now: float) -> bool:
        return self.steering.turn(self.schedule, executor, now)

    def is_released(self, event: Finished | Raised | Lost) -> bool:
        if not self.steering.is_released(event.worker):
            return False
        self.schedule.vacated(event.worker)
        return True

    def note(self, text: str) -> None:
        self.state.live(Notice(text=text))

    def limited(self, places: int, *, raises: bool) -> None:
        workers = counted(len(self.state.tables[0].run.seating.seats), "worker")
        if self._working and places > self._working:
            self.note(f"one more worker opens a session: {places} of {workers} now work")
        else:
            later = "another attempt follows later" if raises else "further attempts are not made"
            self.note(
                f"the database accepts no more sessions: {places} of {workers} can continue; "
                f"{later}. Next: lower --parallelism, or raise the database's limit of sessions"
            )
        self._working = places

    def started(self, place: int, attempt: Attempt[TableUnit]) -> None:
        table, unit = self._table(attempt), attempt.unit.unit
        table.observe(
            UnitStarted(
                worker=place,
                unit=unit.id,
                partition=unit.partition,
                attempt=attempt.attempt,
                rows=unit.rows,
            )
        )

    def reported(self, place: int, attempt: Attempt[TableUnit], payload: object) -> None:
        assert isinstance(payload, tuple)
        number, advanced = payload
        assert isinstance(advanced, UnitAdvanced)
        table = self._table(_each_of(attempt)[number])
        if self.room is not None and advanced.waiting_for:
            self.room.worker_waits(advanced.waiting_for)
        self.steering.count.reached(place, advanced.rows)
        table.observe(advanced)

    def finished(self, place: int, attempt: Attempt[TableUnit], result: object) -> None:
        results: Mapping[int, UnitResult] = result if isinstance(result, dict) else {}
        later = sum(each.seconds for each in results.values())
        for number, each in enumerate(_each_of(attempt)):
            failure, found = self._table(each).failure, results.get(number)
            if found is None and failure is None:
                continue
            if number:
                self.started(place, each)
            if found is None:
                assert failure is not None
                self._failed(place, Verdict(assignment=each, retry_in_seconds=None), failure)
            else:
                # Its seconds are counted from the end of the bundle.
                size = sum(file.bytes + file.value_bytes for file in found.files)
                began = self._table(each).history.seconds() - later
                later -= found.seconds
                self._began[each.unit.id] = round(max(0.0, began), 4)
                if found.refused and not self._driven:
                    self._give_up_native(each, found.refused)
                self.steering.count.reached(place, found.rows, ends=True)
                self._table(each).observe(
                    UnitFinished(
                        worker=place,
                        unit=found.unit,
                        rows=found.rows,
                        bytes=size,
                        seconds=found.seconds,
                        result=found,
                    )
                )

    def _give_up_native(self, attempt: Attempt[TableUnit], refused: str) -> None:
        """Let the driver decode the rows of all units from here on."""
        self.note(
            f"unit {attempt.unit.unit.id}: the native fetch was given up: {refused}. "
            "The driver has read the unit, and fetches the rows from here on"
        )
        for table in self.state.tables:
            extract = table.run.extract
            session = replace(extract.source.session, fetch="tuples")
            source = replace(extract.source, session=session)
            self._driven[table.number] = replace(extract, source=source)

    def record(self, place: int, attempt: Attempt[TableUnit], result: object) -> None:
        """Hand finished units to the outputs of their tables; with its last one a table is done."""
        results: Mapping[int, UnitResult] = result if isinstance(result, dict) else {}
        again = []
        for number, each in enumerate(_each_of(attempt)):
            table, found = self._table(each), results.get(number)
            if found is None and table.failure is None:
                again.append(each.unit)
                continue
            if found is not None:
                worker, unit = self.executor.worker(place), each.unit.unit
                try:
                    table.record(
                        FinishedUnit(
                            **asdict(found),
                            partition=unit.partition,
                            partitions=unit.partitions,
                            seat=BoundSeat.of(worker.seat, worker.bound),
                            worker=worker.seat.worker,
                            started_s=self._began.pop(each.unit.id, None),
                        )
                    )
                except (UnloaderError, OSError) as error:
                    self._spoiled(each, error)
            self.units_left[table.number] -= 1
            if not self.units_left[table.number] and table.failure is None:
                self.done(table)
        if again:
            self.schedule.put_back(again, attempt.attempt)

    def overdue(self, place: int, attempt: Attempt[TableUnit], seconds: float) -> AttemptFailure:
        text = f"worker {place} made no progress with unit {attempt.unit.unit.id} for {seconds:g} s"
        self._table(attempt).observe(Notice(text=f"{text}: the worker is replaced"))
        lost = WorkerLost(
            f"worker {place} made no progress for {seconds:g} s (--stall-timeout)",
            "check why the source or the reader of the output waits",
        )
        return failure_of(lost)

    def judge(
        self, attempt: Attempt[TableUnit], failure: AttemptFailure
    ) -> tuple[AttemptFailure, bool]:
        """A failure is final where the snapshot or the output is lost."""
        table, lock = self._table(attempt), self.state.catalog_lock
        ends = self.state.options.on_failure != "continue"
        if not failure.retryable:
            return failure, ends

        def final(error: str, message: str, hint: str) -> AttemptFailure:
            return replace(failure, error=error, message=message, hint=hint, retryable=False)

        # A thread that uses the catalog notices the loss, too.
        if is_a(failure, SourceError) and lock.acquire(blocking=False):
            try:
                self.state.resolved.catalog.check_snapshot()
            except UnloaderError as error:
                kind = SnapshotGone if isinstance(error, SnapshotGone) else SourceError
                message = "; ".join(dict.fromkeys((failure.message, error.message)))
                return final(kind.__name__, message, error.hint), ends
            finally:
                lock.release()
        if why := table.outputs[0].not_repeatable():
            kind_name = OutputFailed.__name__ if is_a(failure, WorkerLost) else failure.error
            step = table.next_step(resumable=self.state.is_resumable)
            return final(kind_name, f"{failure.message}; {why}", step), ends
        return failure, ends

    def failed(self, place: int, verdict: Verdict[TableUnit], failure: AttemptFailure) -> None:
        """Report a failed attempt; if it was the last one of several tables, its table fails."""
        for each in _each_of(verdict.assignment):
            self._failed(place, replace(verdict, assignment=each), failure)
            if verdict.retry_in_seconds is None and not self.state.is_single:
                self.give_up(self._table(each), failure)

    def _failed(self, place: int, verdict: Verdict[TableUnit], failure: AttemptFailure) -> None:
        attempt = verdict.assignment
        table, unit = self._table(attempt), attempt.unit.unit.id
        self.steering.count.reached(place, 0, ends=True)
        table.failed(unit, attempt.attempt, failure.message)
        table.history.failed(place, unit, attempt.attempt, failure.message)
        table.observe(
            UnitFailed(
                worker=place,
                unit=unit,
                attempt=attempt.attempt,
                message=table.outputs[0].shown(failure.message),
                retry_in_seconds=verdict.retry_in_seconds,
                counted=verdict.counted,
            )
        )

    def _spoiled(self, attempt: Attempt[TableUnit], error: UnloaderError | OSError) -> None:
        """Drop a table with an unwritable journal, or raise the error if it ends the run."""
        known = translate(error)
        failure = failure_of(error)
        if self.state.options.on_failure != "continue" or not isinstance(known, UnloaderError):
            raise error
        self.give_up(self._table(attempt), failure)

    def give_up(self, table: Table, failure: AttemptFailure) -> None:
        """Record why a table has failed, and hand out none of its units any more."""
        if table.failure is None:
            table.failure = failure
            self.report(table)
        self.schedule.drop(lambda unit: unit.table == table.number and not unit.others)

    def discard(self, attempt: Attempt[TableUnit]) -> None:
        for each in _each_of(attempt):
            self._table(each).discard(each.unit.unit.id, each.attempt)

    def _table(self, attempt: Attempt[TableUnit]) -> Table:
        return self.state.tables[attempt.unit.table]


def _each_of(attempt: Attempt[TableUnit]) -> tuple[Attempt[TableUnit], ...]:
    return tuple(replace(attempt, unit=each) for each in attempt.unit.parts) or (attempt,)


_LOOK_SECONDS = 0.5
_HEARD_SECONDS = 5.0
"""A worker counts as waiting for this time after its last notice; it sends several a second."""


class RoomWatch(Struct, kw_only=True):
    """Whether the disks of a run have room; asked several times a second."""

    directories: Sequence[str]
    min_free_bytes: int
    pause_seconds: float
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    free: Callable[[str], int | None] = free_bytes
    """Bytes free in a directory; None if not known."""
    _looked: float = -math.inf
    _since: float | None = None
    _why: str = ""
    _heard: float = -math.inf
    _heard_of: str = ""

    def worker_waits(self, what: str) -> None:
        """Note what a worker waits for: a quota may be used up, which only a write finds out."""
        self._heard, self._heard_of = self.clock(), what

    def has_room(self) -> bool:
        if (now := self.clock()) - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._look(now)
        return self._since is None

    def check(self) -> None:
        """Raise OutputFailed if a disk was full for too long."""
        if self.has_room() or self._since is None:
            return
        waited = self.clock() - self._since
        if waited >= self.pause_seconds:
            for_so_long = f", for {waited:.0f} s" if self.pause_seconds else ""
            raise OutputFailed(f"{self._why}{for_so_long}", "free disk space there")

    def _look(self, now: float) -> None:
        wanted = self.min_free_bytes
        if self._since is not None:
            wanted = enough_bytes(self.min_free_bytes)
        why = ""
        for directory in self.directories:
            free = self.free(directory)
            if free is not None and free < wanted:
                least = _size(self.min_free_bytes)
                why = f"{directory} has {_size(free)} free, and --min-free is {least}"
                break
        if not why and now - self._heard < _HEARD_SECONDS:
            why = f"a worker waits for {self._heard_of}"
        self._why = why
        if not why:
            if self._since is not None:
                self.tell(
                    f"there is enough disk space again after {now - self._since:.0f} s: the run "
                    "continues"
                )
            self._since = None
        elif self._since is None:
            self._since = now
            if self.pause_seconds:
                self.tell(
                    f"{why}: the run waits for disk space, at most {self.pause_seconds:g} s "
                    "(--pause-timeout)"
                )


def _size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 10 * 2**30 else f"{size / 2**20:.1f} MiB"


def room_watch(
    own: Sequence[str], runs: Sequence[ResolvedTable], observe: Observer
) -> RoomWatch | None:
    """Return the watch of one directory of each disk, with the highest limit; None without one."""
    options = [output.options for run in runs for output in run.outputs]
    wanted = max((each.min_free_bytes for each in options), default=0)
    if not wanted:
        return None
    places = dict.fromkeys((*own, *(place for each in options for place in each.destinations)))
    disks: dict[int, str] = {}
    for place in places:
        disk = storage_at(place).disk(place)
        if disk is not None:
            disks.setdefault(*disk)
    return RoomWatch(
        directories=tuple(disks.values()),
        min_free_bytes=wanted,
        pause_seconds=max(each.pause_seconds for each in options),
        tell=lambda text: observe(Notice(text=text)),
    )
