"""The tasks of measuring processes, their answers, and how several processes work in parallel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from numa.model import Finished, Lost, Raised
from unloader.engine.executor import LocalExecutor, NoPlaceLeft, failure_in
from unloader.errors import Interrupted, SourceError, error_of
from unloader.model import AttemptFailure

Answer = TypeVar("Answer")

ENTRY = "unloader.tuning.measuring_process:work"

_LOOK_SECONDS = 0.1
"""Between two questions whether to stop."""


class WriteSettings(Struct, frozen=True, kw_only=True):
    """How files were written: as the options of the run say."""

    overlap_buffer: int
    overlap_buffers: int
    checksum: str
    direct_io: bool


class WriteTask(Struct, frozen=True, kw_only=True):
    """Write one file as a worker would, and remove it."""

    directory: str
    """An existing one."""
    writing: WriteSettings
    bytes: int
    seconds: float
    """No buffer is begun after them."""


class Written(Struct, frozen=True, kw_only=True):
    """One file that was written and synced."""

    bytes: int
    began: float
    """By the monotonic clock, which all processes of a machine share."""
    ended: float


def measure_together(
    executor: LocalExecutor,
    tasks: Sequence[object],
    kind: type[Answer],
    *,
    patience_seconds: float,
    stop: Callable[[], bool],
) -> list[Answer]:
    """Return the answers to tasks, in their order, all of a kind.

    The tasks are sent at the same time, one to each process, once all of those are up. A process
    that has not answered after `patience_seconds` is ended. The error of the first task that failed
    is raised, or `Interrupted` if `stop`, which is asked several times a second, returns True.
    """
    overdue = AttemptFailure(
        error=SourceError.__name__,
        message=f"a measurement did not end within {patience_seconds:g} s",
        hint="try again, or measure less",
        retryable=False,
    )
    answers, at_work, deadline = dict[int, Answer](), dict[int, int](), math.inf
    executor.start(len(tasks))
    try:
        while len(answers) < len(tasks):
            if stop():
                raise Interrupted("stopped by a signal during the measurement")
            if time.monotonic() >= deadline:
                raise error_of(overdue)
            if deadline == math.inf and len(executor.places()) >= len(tasks):
                deadline = time.monotonic() + patience_seconds
                at_work = dict(zip(executor.places(), range(len(tasks)), strict=False))
                for place, at in at_work.items():
                    executor.send(place, tasks[at])
            for event in executor.events(_LOOK_SECONDS):
                if isinstance(event, NoPlaceLeft):
                    raise error_of(event.failure)
                if not isinstance(event, (Finished, Raised, Lost)):
                    continue
                hopeless = isinstance(event, Lost) and event.hopeless
                if event.worker in at_work or hopeless:
                    number = at_work.pop(event.worker, 0)
                    if (failure := failure_in(event)) is not None:
                        raise error_of(failure)
                    assert isinstance(event, Finished)
                    assert isinstance(event.result, kind)
                    answers[number] = event.result
    finally:
        if at_work:
            # A process in the middle of a task cannot do the next one.
            executor.stop(dict.fromkeys(at_work, overdue))
            executor.events(0.0)
    return [answers[number] for number in range(len(tasks))]
