"""An executor without processes: each task runs in the caller's own, one after the other.

For debuggers and for tests. The results are the same as from workers. Parallelism, seats and an end
for a task that hangs need a second process, so they are missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from numa.model import BindReport, Finished, Message, Ready, Seat
from unloader.engine.executor import EventQueue, ExecutorEvent
from unloader.failures import failure_of
from unloader.model import AttemptFailure
from unloader.placement.evidence import Evidence, WorkerEvidence

TaskFunction = Callable[[Any, Callable[[object], None]], object]


class InProcessExecutor:
    """One place, in this process. A task runs when its events are asked for."""

    def __init__(self, function: TaskFunction) -> None:
        """Take the function that does the tasks: `function(task, report)`, as a worker calls it."""
        self._function = function
        self._tasks: list[object] = []
        unbound = BindReport(cpus=None, memory_policy=None, note=None)
        self._events = EventQueue([Ready(worker=0, pid=os.getpid(), bound=unbound)])
        self._is_closed = False

    def use(self, places: int, of: int) -> None:
        """Change nothing: there is one place."""

    def start(self, places: int) -> None:
        """Change nothing: there is one place."""

    def tell(self, place: int, payload: object) -> None:
        """Do nothing: while a task runs no call can come."""

    def places(self) -> Collection[int]:
        """Return the one place while it has no task."""
        return () if self._tasks or self._is_closed else (0,)

    def send(self, place: int, task: object) -> None:
        """Keep the task until its events are asked for."""
        self._tasks.append(task)

    def events(self, timeout_seconds: float) -> Sequence[ExecutorEvent]:
        """Do the task that was sent; without one, wait."""
        if self._tasks:
            self._do(self._tasks[0])
        elif not self._events:
            time.sleep(timeout_seconds)
        return self._events.take()

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """Drop the task that was not begun."""
        if self._tasks and 0 in reasons:
            self._tasks.clear()
            self._events.append(Finished(worker=0, result=reasons[0]))

    def finish(self) -> Sequence[ExecutorEvent]:
        """Return nothing: there is nothing to look at."""
        return ()

    def pids(self) -> Mapping[int, int]:
        """Return nothing: it is the caller's."""
        return {}

    def worker(self, place: int) -> WorkerEvidence:
        """Return a seat that binds nothing."""
        seat = Seat(worker=place, node=0, cpus=(), memory_node=None)
        return WorkerEvidence(seat=seat, bound=None, residence=None)

    def evidence(self) -> Evidence:
        """Return the one worker, without measurements."""
        return Evidence(
            workers=(self.worker(0),),
            not_measured=("the work units were read by the parent process itself",),
        )

    def close(self) -> None:
        """Take no further task."""
        self._is_closed = True
        self._tasks.clear()

    def _do(self, task: object) -> None:
        def report(payload: object) -> None:
            self._events.append(Message(worker=0, payload=payload))

        try:
            value = self._function(task, report)
        except Exception as error:
            value = failure_of(error)
        self._tasks.clear()
        self._events.append(Finished(worker=0, result=value))
