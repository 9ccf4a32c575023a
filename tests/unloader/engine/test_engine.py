"""The one loop over processes: results once, losses made good, ends clean."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from long_tests import OTHER_ROUTES
from processes.engine_runs import ENTRY, RecordedWork, engine_of, run_locally, run_over, unbound

from numa.model import ProcessLimits
from partition_planner.model import WorkUnit
from unloader.engine.executor import LocalExecutor
from unloader.engine.schedule import Attempt
from unloader.errors import Interrupted
from unloader.model import AttemptFailure


@pytest.fixture(autouse=True)
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where hanging workers leave their process ids; none may be alive after the test."""
    place = tmp_path / "pids"
    place.mkdir()
    monkeypatch.setenv("ENGINE_TASKS", str(place))
    yield place
    assert not any(psutil.pid_exists(int(path.name)) for path in place.iterdir())


def test_many_units_few_workers() -> None:
    """Each result arrives once, from the place that was given the unit, in any order."""
    ids = [f"ok-{number:03}" for number in range(200)]
    work = RecordedWork()
    engine = engine_of(work, *ids)
    run_locally(engine, 3)
    assert Counter(result.unit for result in work.results) == Counter(ids)
    assert engine.failure is None
    assert engine.schedule.over
    assert work.discarded == []
    assert sorted(work.begun) == sorted(work.done)
    assert {unit for unit, _ in work.begun} == set(ids) == set(work.messages)


def test_tasks_are_made_when_a_place_can_have_them() -> None:
    """However many units there are, no task waits: a task is made only when its unit begins."""
    work = RecordedWork()
    engine = engine_of(work, *(f"ok-{number}" for number in range(50)))
    made: list[str] = []

    def task(attempt: Attempt[WorkUnit]) -> object:
        made.append(attempt.unit.id)
        assert len(made) - len(work.done) <= 2
        return attempt

    work.task = task  # type: ignore[method-assign]
    run_locally(engine, 2)
    assert len(made) == 50


def test_failed_attempts_are_discarded_and_repeated() -> None:
    """A unit that fails once is done at its second attempt; the first one's files are removed."""
    work = RecordedWork()
    run_locally(engine_of(work, "flaky-1", "ok-1", "flaky-2"), 2)
    attempts = {result.unit: result.attempt for result in work.results}
    assert attempts == {"flaky-1": 2, "ok-1": 1, "flaky-2": 2}
    assert sorted(work.discarded) == [("flaky-1", 1), ("flaky-2", 1)]
    assert all(seconds == 0.01 for _, seconds in work.failures)


def test_a_worker_that_dies_costs_one_attempt_of_one_unit() -> None:
    """Its seat gets a new process; the units of the others are not read again."""
    ids = ("mortal-1", "mortal-2", "ok-1", "ok-2", "ok-3")
    work = RecordedWork()
    run_locally(engine_of(work, *ids), 2)
    assert Counter(result.unit for result in work.results) == Counter(ids)
    assert sorted(work.discarded) == [("mortal-1", 1), ("mortal-2", 1)]
    assert [failure.error for failure, _ in work.failures] == ["WorkerLost"] * 2
    assert all("was lost: killed by SIGKILL" in failure.message for failure, _ in work.failures)


def test_a_unit_that_kills_every_worker_is_given_up() -> None:
    """After its last attempt the run continues without it and names it."""
    work = RecordedWork()
    engine = engine_of(work, "die-1", "ok-1", "ok-2", retries=1)
    run_locally(engine, 2)
    assert sorted(result.unit for result in work.results) == ["ok-1", "ok-2"]
    assert set(engine.schedule.given_up) == {"die-1"}
    assert work.discarded == [("die-1", 1), ("die-1", 2)]
    assert engine.failure is None


def test_a_failure_beyond_retry_ends_the_run() -> None:
    """Nothing is begun after it; what still runs is ended and discarded."""
    work = RecordedWork()
    engine = engine_of(work, "hang-1", "final-1", "ok-1")
    run_locally(engine, 2)
    assert engine.failure is not None
    assert engine.failure.error == "OutputFailed"
    assert work.results == []
    assert set(work.discarded) == {("hang-1", 1), ("final-1", 1)}
    assert "ok-1" not in dict(work.begun)


def test_the_caller_can_declare_a_failure_fatal() -> None:
    """A failure that might be retried ends the run if the caller declares it fatal."""
    gone = AttemptFailure(error="SourceError", message="snapshot gone", hint="", retryable=False)
    work = RecordedWork(fatal=lambda attempt, failure: gone)
    engine = engine_of(work, "flaky-1", "ok-1")
    run_locally(engine, 1)
    assert engine.failure == gone
    assert work.results == []


def test_an_exception_in_a_worker_is_a_fault_of_the_program() -> None:
    """It is not retried, and comes with its traceback."""
    engine = engine_of(RecordedWork(), "raise-1")
    run_locally(engine, 1)
    assert engine.failure is not None
    assert engine.failure.error == "UnloaderError"
    assert "ZeroDivisionError: by intent" in engine.failure.message
    assert "engine_tasks.py" in engine.failure.traceback


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize("limit", ["stall_seconds", "attempt_seconds"])
def test_an_attempt_that_passes_a_limit_is_stopped(limit: str) -> None:
    """Without a message, or without an end, for too long it uses up one of its attempts."""
    work = RecordedWork()
    engine = engine_of(work, "hang-1", "ok-1", retries=1, **{limit: 0.5})
    run_locally(engine, 2)
    assert set(engine.schedule.given_up) == {"hang-1"}
    assert [result.unit for result in work.results] == ["ok-1"]
    assert [failure.message for failure, _ in work.failures] == ["hang-1 passed 0.5 s"] * 2


@pytest.mark.long(OTHER_ROUTES)
def test_a_slow_caller_makes_no_attempt_late() -> None:
    """What waits in the pipes while the caller records a result is not held against its worker."""
    work = RecordedWork()
    engine = engine_of(work, "ok-1", "chatter-1", retries=0, stall_seconds=300)
    record, slow = work.record, 0.0

    def slowly(place: int, attempt: Attempt[WorkUnit], result: object) -> None:
        nonlocal slow
        slow += 1000
        record(place, attempt, result)

    work.record = slowly  # type: ignore[method-assign]
    engine.clock = lambda: time.monotonic() + slow
    run_locally(engine, 2)
    assert {result.unit for result in work.results} == {"ok-1", "chatter-1"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's memory")
def test_a_worker_that_has_grown_is_replaced_between_units() -> None:
    """It costs no attempt; its notice names the memory, and the new process starts small."""
    ids = ("grow-1", "grow-2", "ok-1", "grow-3")
    work = RecordedWork()
    engine = engine_of(work, *ids)
    with closing(
        LocalExecutor(unbound(1), ENTRY, ProcessLimits(memory_bytes=100 << 20))
    ) as executor:
        run_over(engine, executor, 1)
        assert [each.restarts for each in executor.evidence().workers] == [1]
    assert [(result.unit, result.attempt) for result in work.results] == [(id, 1) for id in ids]
    assert work.discarded == []
    assert [text.partition(" holds ")[2].partition(", ")[2] for text in work.notes] == [
        "more than --worker-memory 100MiB: the worker is replaced"
    ]


def test_stop_ends_busy_workers_and_discards_their_work(hanging: Path) -> None:
    """The stop is noticed while workers are busy; their processes are gone when it is raised."""
    work = RecordedWork(stop=lambda: len(list(hanging.iterdir())) == 2)
    engine = engine_of(work, "hang-1", "hang-2", "ok-1")
    with closing(LocalExecutor(unbound(2), ENTRY)) as executor:
        with pytest.raises(Interrupted):
            run_over(engine, executor, 2)
        assert not any(psutil.pid_exists(int(path.name)) for path in hanging.iterdir())
    assert sorted(work.discarded) == [("hang-1", 1), ("hang-2", 1)]


def test_an_error_of_the_caller_ends_busy_workers() -> None:
    """The caller's exception is raised, and no worker continues to write."""
    work = RecordedWork()
    engine = engine_of(work, "ok-1", "hang-1")

    def full(place: int, attempt: Attempt[WorkUnit], result: object) -> None:
        raise OSError("journal cannot be written")

    work.record = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="journal"):
        run_locally(engine, 2)
    assert set(work.discarded) <= {("hang-1", 1)}


def test_early_workers_are_taken_over_and_surplus_ones_ended() -> None:
    """Processes that run already keep their seats; those without a seat of the run are ended."""
    work = RecordedWork()
    engine = engine_of(work, "ok-1", "ok-2", "ok-3")
    with closing(LocalExecutor(unbound(4), ENTRY, warm_up="get ready")) as executor:
        executor.use(3, 3)
        while len(executor.places()) < 3:
            executor.events(60.0)
        before = executor.pids()
        run_over(engine, executor, 2)
        assert {worker: executor.pids()[worker] for worker in (0, 1)} == {
            worker: before[worker] for worker in (0, 1)
        }
        assert set(executor.pids()) == {0, 1}
        assert not psutil.pid_exists(before[2])
    assert Counter(result.unit for result in work.results) == Counter(["ok-1", "ok-2", "ok-3"])


def test_workers_that_never_start_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no process lives long enough to be ready, the run fails and reports how they ended."""
    (tmp_path / "cannot_start.py").write_text("import os; os._exit(7)")
    monkeypatch.syspath_prepend(tmp_path)
    work = RecordedWork()
    engine = engine_of(work, "ok-1", "ok-2")
    run_locally(engine, 1, "cannot_start:work")
    assert work.results == []
    assert engine.failure is not None
    assert "exit status 7" in engine.failure.message


def refuse_processes(monkeypatch: pytest.MonkeyPatch) -> RecordedWork:
    """Return work at whose first failure the system begins to refuse every process."""
    return RecordedWork(
        on_failure=lambda: monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    )


@pytest.mark.usefixtures("new_interpreters")
def test_a_system_that_refuses_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a lost worker cannot be replaced the others do its work, and one line says why."""
    ids = ("mortal-1", *(f"ok-{number}" for number in range(5)))
    work = refuse_processes(monkeypatch)
    run_locally(engine_of(work, *ids), 2)
    assert Counter(result.unit for result in work.results) == Counter(ids)
    (told,) = work.notes
    assert "cannot be started" in told


@pytest.mark.usefixtures("new_interpreters")
def test_a_system_that_refuses_every_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no worker can start, the run ends with the system's own words."""
    work = refuse_processes(monkeypatch)
    engine = engine_of(work, "mortal-1", "ok-1")
    run_locally(engine, 1)
    assert work.results == []
    assert engine.failure is not None
    assert engine.failure.error == "ConfigError"
    assert "nonexistent" in engine.failure.message
    assert engine.failure.hint


@pytest.mark.usefixtures("new_interpreters")
def test_a_worker_that_dies_between_two_units_costs_nothing() -> None:
    """A process that is gone when its result is read is not given the next unit, but replaced."""
    work = RecordedWork()
    engine = engine_of(work, "last-1", "ok-1", "ok-2")
    with closing(LocalExecutor(unbound(1), ENTRY)) as executor:

        def wait(attempt: Attempt[WorkUnit]) -> None:
            if attempt.unit.id == "last-1":
                # Its result and its end then come in one. A process is a zombie as soon as its first
                # thread has ended; it can be waited for when all have, and its pipe is closed.
                os.waitid(os.P_PID, executor.pids()[0], os.WEXITED | os.WNOWAIT)

        work.on_start = wait
        run_over(engine, executor, 1)
    assert [(result.unit, result.attempt) for result in work.results] == [
        ("last-1", 1),
        ("ok-1", 1),
        ("ok-2", 1),
    ]
