"""The behaviour that the engine needs of its executor, and of the processes below it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from processes.engine_runs import ENTRY, unbound

from numa.model import Finished, Lost, Raised, Ready
from partition_planner.model import WholeTable, WorkUnit
from unloader.engine.executor import Executor, ExecutorEvent, LocalExecutor, failure_in
from unloader.engine.schedule import Attempt
from unloader.model import AttemptFailure

PATIENCE_SECONDS = 180.0
WHY = AttemptFailure(error="WorkerLost", message="by intent", hint="none", retryable=True)


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test leaves a child process or a descriptor."""
    monkeypatch.setenv("ENGINE_TASKS", str(tmp_path))
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    descriptors = psutil.Process().num_fds()
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= children
    assert psutil.Process().num_fds() <= descriptors


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    """An executor with its one place ready."""
    with closing(LocalExecutor(unbound(1), ENTRY)) as made:
        made.use(1, 1)
        assert isinstance(until(made, Ready)[-1], Ready)
        yield made


@pytest.fixture
def local() -> Iterator[LocalExecutor]:
    """Processes on two places, both ready."""
    with closing(LocalExecutor(unbound(2), ENTRY)) as made:
        made.use(2, 2)
        while len(made.places()) < 2:
            made.events(1.0)
        yield made


def until(executor: Executor, *kinds: type) -> list[ExecutorEvent]:
    """Return the events up to the first of these kinds."""
    found: list[ExecutorEvent] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(isinstance(event, kinds) for event in found):
        assert time.monotonic() < deadline, found
        found += executor.events(1.0)
    return found


def failure_of(events: list[ExecutorEvent]) -> AttemptFailure:
    """Return the failure with which a task has ended; its place may be ready since then."""
    end = next(each for each in reversed(events) if isinstance(each, Finished | Raised | Lost))
    failure = failure_in(end)
    assert failure is not None
    return failure


def ready_in(events: list[ExecutorEvent]) -> int:
    """Return the place that is ready, by the last of the events."""
    ready = events[-1]
    assert isinstance(ready, Ready)
    return ready.worker


def attempt(unit: str, number: int = 1) -> Attempt[WorkUnit]:
    """Return an attempt at a unit of `engine_tasks`."""
    return Attempt(unit=WorkUnit(id=unit, selectors=(WholeTable(),)), attempt=number)


def test_a_failure_is_data_and_harms_no_place(executor: Executor) -> None:
    """A failure that a task returns or raises arrives as data; the place does the next task."""
    executor.send(0, attempt("final-1"))
    failed = failure_of(until(executor, Finished))
    assert (failed.error, failed.retryable) == ("OutputFailed", False)
    executor.send(0, attempt("raise-1"))
    raised = failure_of(until(executor, Finished, Raised))
    assert (raised.error, raised.retryable) == ("UnloaderError", False)
    assert "ZeroDivisionError: by intent" in raised.message
    assert "engine_tasks.py" in raised.traceback
    executor.send(0, attempt("ok-1"))
    assert isinstance(until(executor, Finished)[-1], Finished)


def test_a_stopped_task_ends_with_the_reason_given(executor: Executor) -> None:
    """The end of a stopped task is reported once, and the place is ready for another."""
    executor.send(0, attempt("hang-1"))
    executor.stop({0: WHY})
    assert failure_of(until(executor, Finished, Lost)) == WHY
    while not executor.places():
        executor.events(1.0)
    executor.send(0, attempt("ok-1"))
    assert isinstance(until(executor, Finished)[-1], Finished)


def test_a_task_that_cannot_be_sent_is_its_own_failure(local: LocalExecutor) -> None:
    """It never begins, and its place takes another."""
    local.send(0, lambda: None)
    assert "cannot be pickled" in failure_of(until(local, Finished)).message
    assert sorted(local.places()) == [0, 1]


def test_a_lost_process_is_told_with_its_end(local: LocalExecutor) -> None:
    """Its place is lost with the task, then ready with a new process; the other place continues."""
    before = local.pids()
    local.send(1, attempt("die-1"))
    events = until(local, Lost)
    lost = failure_of(events)
    assert (lost.error, lost.retryable) == ("WorkerLost", True)
    assert "worker 1 was lost: killed by SIGKILL" in lost.message
    assert ready_in(until(local, Ready)) == 1
    assert local.pids()[0] == before[0]
    assert local.pids()[1] != before[1]
    assert local.evidence().workers[1].restarts == 1
