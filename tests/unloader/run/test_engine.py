"""The loop over a real pool: results once, losses made good, ends clean."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from numa.errors import PoolError
from numa.model import Seat
from numa.pool import Pool
from partition_planner.model import WholeTable, WorkUnit
from unloader import api
from unloader.errors import ConfigError, Interrupted
from unloader.events import Event, Notice, UnitAdvanced, UnitFailed, UnitFinished, UnitStarted
from unloader.model import (
    Failure,
    OutputOptions,
    PlanOptions,
    Request,
    RetryOptions,
    SeatOptions,
    Selection,
    SourceSpec,
    UnitResult,
)
from unloader.request.names import parse_table
from unloader.run.engine import Engine, Orders
from unloader.run.schedule import Assignment, Schedule
from writers.model import TextFormat

ENTRY = "processes.engine_tasks:work"


@dataclass
class Case:
    """An engine over units of `engine_tasks`, and all that it told."""

    ids: tuple[str, ...]
    workers: int = 2
    retries: int = 3
    stall_seconds: float = 0.0
    worker_memory_bytes: int = 0
    stop: Callable[[], bool] = lambda: False
    fatal: Callable[[Assignment, Failure], Failure | None] = lambda assignment, failure: None
    results: list[UnitResult] = field(default_factory=list)
    discarded: list[tuple[str, int]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def engine(self) -> Engine:
        """Return the engine, ready to run."""
        units = tuple(WorkUnit(id=name, selectors=(WholeTable(),)) for name in self.ids)
        retry = RetryOptions(retries=self.retries, delay_seconds=0.01)
        return Engine(
            schedule=Schedule(units=units, retry=retry),
            orders=Orders(
                seats=seats(self.workers),
                stall_seconds=self.stall_seconds,
                worker_memory_bytes=self.worker_memory_bytes,
                task=lambda assignment: assignment,  # type: ignore[arg-type,return-value]
                done=lambda worker, result: self.results.append(result),
                discard=self._discard,
                fatal=self.fatal,
            ),
            observe=self.events.append,
            stop=self.stop,
        )

    def run(self, entry: str = ENTRY) -> Engine:
        """Run the engine over a pool of as many processes as workers."""
        engine = self.engine()
        with Pool(seats(self.workers), entry) as pool:
            engine.run(pool)
        return engine

    def heard(self, kind: type) -> list[Any]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def _discard(self, assignment: Assignment) -> None:
        self.discarded.append((assignment.unit.id, assignment.attempt))


def seats(count: int) -> tuple[Seat, ...]:
    """Return seats that bind nothing."""
    return tuple(Seat(worker=at, node=0, cpus=(), memory_node=None) for at in range(count))


@pytest.fixture(autouse=True)
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where hanging workers leave their process ids; none may be alive after the test."""
    place = tmp_path / "pids"
    place.mkdir()
    monkeypatch.setenv("ENGINE_TASKS", str(place))
    yield place
    assert not any(psutil.pid_exists(int(path.name)) for path in place.iterdir())


def test_many_units_few_workers() -> None:
    """Each result arrives once, from the worker that was given the unit, in whatever order."""
    case = Case(tuple(f"ok-{number:03}" for number in range(200)), workers=3)
    engine = case.run()
    assert Counter(result.unit for result in case.results) == Counter(case.ids)
    assert engine.failure is None
    assert engine.schedule.over
    assert set(engine.watch.bound) == {0, 1, 2}
    assert case.discarded == []
    given = {event.unit: event.worker for event in case.heard(UnitStarted)}
    assert given == {event.unit: event.worker for event in case.heard(UnitFinished)}
    assert {event.unit for event in case.heard(UnitAdvanced)} == set(case.ids)


def test_more_workers_than_units() -> None:
    """Workers without a unit wait and are ended with the rest."""
    case = Case(("ok-1",), workers=3)
    case.run()
    assert [result.unit for result in case.results] == ["ok-1"]


def test_failed_attempts_are_discarded_and_repeated() -> None:
    """A unit that fails once is done at its second attempt; what the first left is removed."""
    case = Case(("flaky-1", "ok-1", "flaky-2"))
    case.run()
    attempts = {result.unit: result.attempt for result in case.results}
    assert attempts == {"flaky-1": 2, "ok-1": 1, "flaky-2": 2}
    assert sorted(case.discarded) == [("flaky-1", 1), ("flaky-2", 1)]
    assert all(event.retry_in_seconds == 0.01 for event in case.heard(UnitFailed))


def test_a_worker_that_dies_costs_one_attempt_of_one_unit() -> None:
    """Its seat gets a new process; the units of the others are not read again."""
    case = Case(("mortal-1", "mortal-2", "ok-1", "ok-2", "ok-3"))
    case.run()
    assert Counter(result.unit for result in case.results) == Counter(case.ids)
    assert sorted(case.discarded) == [("mortal-1", 1), ("mortal-2", 1)]
    assert all("was lost" in event.message for event in case.heard(UnitFailed))


def test_a_unit_that_kills_every_worker_is_given_up() -> None:
    """After its last attempt the run goes on without it and says which it was."""
    case = Case(("die-1", "ok-1", "ok-2"), retries=1)
    engine = case.run()
    assert sorted(result.unit for result in case.results) == ["ok-1", "ok-2"]
    assert set(engine.schedule.given_up) == {"die-1"}
    assert case.discarded == [("die-1", 1), ("die-1", 2)]
    assert engine.failure is None


def test_a_failure_beyond_retry_ends_the_run() -> None:
    """Nothing is begun after it; what still runs is ended and discarded."""
    case = Case(("hang-1", "final-1", "ok-1"))
    engine = case.run()
    assert engine.failure is not None
    assert engine.failure.kind == "OutputFailed"
    assert case.results == []
    assert set(case.discarded) == {("hang-1", 1), ("final-1", 1)}
    assert "ok-1" not in {event.unit for event in case.heard(UnitStarted)}


def test_the_caller_can_declare_a_failure_fatal() -> None:
    """A failure that might be retried ends the run if the caller says that it must."""
    verdict = Failure(kind="SourceError", message="the snapshot is gone", hint="", retryable=False)
    case = Case(("flaky-1", "ok-1"), workers=1, fatal=lambda assignment, failure: verdict)
    engine = case.run()
    assert engine.failure == verdict
    assert case.results == []


def test_an_exception_in_a_worker_is_a_fault_of_the_program() -> None:
    """It is not retried, and comes with its traceback."""
    engine = Case(("raise-1",)).run()
    assert engine.failure is not None
    assert engine.failure.kind == "UnloaderError"
    assert "ZeroDivisionError: by intent" in engine.failure.message
    assert "engine_tasks.py" in engine.failure.traceback


def test_a_stalled_worker_is_replaced() -> None:
    """Without a word for too long its process is ended; the unit uses up its attempts."""
    case = Case(("hang-1", "ok-1"), retries=1, stall_seconds=0.5)
    engine = case.run()
    assert set(engine.schedule.given_up) == {"hang-1"}
    assert [result.unit for result in case.results] == ["ok-1"]
    notices = [event.text for event in case.heard(Notice)]
    assert sum("made no progress with unit hang-1 for 0.5 s" in text for text in notices) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's memory")
def test_a_worker_that_has_grown_is_replaced_between_units() -> None:
    """It costs no attempt; its notice names what it held, and the new process starts small."""
    case = Case(("grow-1", "grow-2", "ok-1", "grow-3"), workers=1, worker_memory_bytes=100 << 20)
    engine = case.run()
    assert [(result.unit, result.attempt) for result in case.results] == [
        (unit, 1) for unit in case.ids
    ]
    assert case.discarded == []
    told = [event.text for event in case.heard(Notice)]
    assert [text.partition(" holds ")[2].partition(", ")[2] for text in told] == [
        "more than --worker-memory 100MiB: it is replaced"
    ]
    assert "after unit grow-2" in told[0]
    assert engine.restarts == {0: 1}


def test_a_slow_start_is_no_stall() -> None:
    """A process that is not up yet is not held to --stall-timeout, which is about the unit."""
    case = Case(("ok-1", "ok-2"), retries=0, stall_seconds=1.5)
    engine = case.run("processes.engine_slow_start:work")
    assert not engine.schedule.given_up
    assert {result.unit for result in case.results} == {"ok-1", "ok-2"}


def test_stop_ends_busy_workers_and_discards_their_work(hanging: Path) -> None:
    """The stop is heard while workers are busy; their processes are gone when it is raised."""
    case = Case(("hang-1", "hang-2", "ok-1"), stop=lambda: len(list(hanging.iterdir())) == 2)
    engine = case.engine()
    with Pool(seats(2), ENTRY) as pool:
        with pytest.raises(Interrupted):
            engine.run(pool)
        assert not any(psutil.pid_exists(int(path.name)) for path in hanging.iterdir())
    assert sorted(case.discarded) == [("hang-1", 1), ("hang-2", 1)]


def test_an_error_of_the_caller_ends_busy_workers() -> None:
    """Whatever the caller raises comes out, and nobody goes on writing behind its back."""
    case = Case(("ok-1", "hang-1"))
    engine = case.engine()

    def full(worker: int, result: UnitResult) -> None:
        raise OSError("journal cannot be written")

    engine.orders = replace(engine.orders, done=full)
    with Pool(seats(2), ENTRY) as pool, pytest.raises(OSError, match="journal"):
        engine.run(pool)
    assert case.discarded == [("hang-1", 1)]


def test_early_workers_are_taken_over_and_surplus_ones_ended() -> None:
    """Processes that run already keep their seats; those without a seat of the run are ended."""
    case = Case(("ok-1", "ok-2", "ok-3"), workers=2)
    with Pool(seats(4), ENTRY) as pool:
        for worker in (0, 3):
            pool.start(worker)
            pool.assign(worker, "get ready")
        before = pool.pids()
        case.engine().run(pool)
        assert pool.pids()[0] == before[0]
        assert set(pool.pids()) == {0, 1}
        assert not psutil.pid_exists(before[3])
    assert Counter(result.unit for result in case.results) == Counter(case.ids)


def test_an_early_worker_that_died_is_replaced() -> None:
    """A process that is lost before it had a unit costs no attempt."""
    case = Case(("ok-1", "ok-2"), workers=1)
    with Pool(seats(1), ENTRY) as pool:
        pool.start(0)
        pool.assign(0, "get ready")
        os.kill(pool.pids()[0], signal.SIGKILL)
        case.engine().run(pool)
    assert [result.attempt for result in case.results] == [1, 1]


def test_workers_that_never_start_end_the_run() -> None:
    """Where no process lives long enough to say that it is ready, the run fails by itself."""
    case = Case(("ok-1", "ok-2"), workers=2, retries=1)
    with Pool(seats(2), "processes.engine_tasks:no_such_function") as pool:
        engine = case.engine()
        engine.run(pool)
    assert case.results == []
    failures = [engine.failure, *engine.schedule.given_up.values()]
    assert engine.failure is not None or set(engine.schedule.given_up) == set(case.ids)
    assert any(failure and "no_such_function" in failure.message for failure in failures)


def refuse_processes(case: Case, monkeypatch: pytest.MonkeyPatch) -> Callable[[Event], None]:
    """Return an observer that lets no process be started from the first failure on."""

    def observe(event: Event) -> None:
        case.events.append(event)
        if isinstance(event, UnitFailed):
            monkeypatch.setattr(sys, "executable", "/nonexistent/python")

    return observe


def test_a_system_that_refuses_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a lost worker cannot be replaced the others do its work, and one line says why."""
    case = Case(("mortal-1", *(f"ok-{number}" for number in range(5))))
    engine = case.engine()
    engine.observe = refuse_processes(case, monkeypatch)
    with Pool(seats(2), ENTRY) as pool:
        engine.run(pool)
    assert Counter(result.unit for result in case.results) == Counter(case.ids)
    (told,) = [event.text for event in case.heard(Notice)]
    assert "cannot be started" in told
    assert engine.restarts.get(0, 0) == 0


def test_a_system_that_refuses_every_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody is left to do the work, the run ends with the system's own words."""
    case = Case(("mortal-1", "ok-1"), workers=1)
    engine = case.engine()
    engine.observe = refuse_processes(case, monkeypatch)
    with Pool(seats(1), ENTRY) as pool, pytest.raises(PoolError, match=r"nonexistent.*Next: "):
        engine.run(pool)
    assert case.results == []


@pytest.fixture
def job(tmp_path: Path) -> Request:
    """A job over forty partitions of a DuckDB file with three workers."""
    with closing(duckdb.connect(str(tmp_path / "t.db"))) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS k FROM range(4000)")
        connection.execute(
            "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, 't' AS table_name,"
            " 'p' || range AS partition_name, range AS position, range * 100 AS first_rowid,"
            " range * 100 + 99 AS last_rowid FROM range(40)"
        )
    return Request(
        source=SourceSpec(kind="duckdb", location=f"duckdb://{tmp_path}/t.db"),
        selection=Selection(table=parse_table("t")),
        output=OutputOptions(destination=str(tmp_path / "out"), format=TextFormat(header=False)),
        limits=PlanOptions(parallelism=3, split="partition"),
        seats=SeatOptions(numa="off"),
    )


def test_a_whole_run_of_many_units(job: Request) -> None:
    """Forty units by three workers: every row once, every unit one file and one entry."""
    manifest = api.unload(job)
    files = sorted(Path(job.output.destination).glob("*.csv"))
    assert [int(line) for path in files for line in path.read_text().split()] == [*range(4000)]
    assert len(files) == len(manifest["units"]) == 40
    assert manifest["verified"] == {"level": "count", "source_rows": 4000, "result": "ok"}


def workers() -> Iterator[psutil.Process]:
    """Yield the worker processes of a run in this process."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "numa.processes.member" in " ".join(child.cmdline()):
                yield child


def test_a_run_survives_the_death_of_its_workers(job: Request) -> None:
    """Workers killed in mid-run, whatever they are at, cost attempts and not rows."""
    killed: list[int] = []

    def kill(event: Event) -> None:
        if isinstance(event, UnitFinished) and len(killed) < 3:
            child = next(child for child in workers() if child.pid not in killed)
            child.kill()
            killed.append(child.pid)

    manifest = api.unload(replace(job, retry=RetryOptions(delay_seconds=0.01)), observe=kill)
    assert len(killed) == 3
    assert manifest["totals"]["rows"] == 4000
    files = sorted(Path(job.output.destination).glob("*.csv"))
    assert [int(line) for path in files for line in path.read_text().split()] == [*range(4000)]


def test_a_worker_that_dies_between_two_units_costs_nothing() -> None:
    """A process that is gone when its result is read is not given the next unit, but replaced."""
    case = Case(("last-1", "ok-1", "ok-2"), workers=1)
    engine = case.engine()
    with Pool(seats(1), ENTRY) as pool:

        def watch(event: Event) -> None:
            case.events.append(event)
            if isinstance(event, UnitStarted) and event.unit == "last-1":
                # Its result and its end then come in one.
                process = psutil.Process(pool.pids()[0])
                while process.status() != psutil.STATUS_ZOMBIE:
                    time.sleep(0.01)

        engine.observe = watch
        engine.run(pool)
    assert [(result.unit, result.attempt) for result in case.results] == [
        ("last-1", 1),
        ("ok-1", 1),
        ("ok-2", 1),
    ]


def test_a_missing_driver_is_named_with_the_command_that_brings_it(
    job: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the driver a run ends as a configuration error and leaves no directory."""
    # None in sys.modules is how the import system itself marks a module that cannot be had.
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    source = SourceSpec(kind="postgresql", location="postgresql://nobody@localhost/none")
    with pytest.raises(ConfigError, match=r"'asyncpg' is not installed.*unloader\[postgres\]"):
        api.unload(replace(job, source=source))
    assert not Path(job.output.destination).exists()
