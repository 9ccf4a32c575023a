"""The protocol between the engine and the executors of its tasks.

An executor has places. Each takes one task at a time and answers with events of its worker. Where a
place is (a process on this machine, one elsewhere, this very process), how a task gets there and
how the end of a process is noticed is the executor's alone. It never repeats a task: that is for
the engine.

The events of a task are the objects that its process sent, as `numa.model` declares them. For each
task sent, one of `Finished`, `Raised` or `Lost` comes for its place, after all the messages of the
task. A place that was lost takes no task until it is `Ready` again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from numa.model import Finished, Lost, Raised, WorkerEvent
from unloader.errors import WorkerLost, internal_failure
from unloader.events import Notice
from unloader.model import AttemptFailure
from unloader.placement.evidence import Evidence, WorkerEvidence, without_numbers


class NoPlaceLeft(Struct, frozen=True, kw_only=True):
    """No place will ever be ready again."""

    failure: AttemptFailure


ExecutorEvent: TypeAlias = WorkerEvent | Notice | NoPlaceLeft


def failure_in(event: Finished | Raised | Lost) -> AttemptFailure | None:
    """Return why the attempt at a place has failed; None if it has succeeded.

    A task may return its failure. The failure of a place that was stopped is the given reason.
    """
    if isinstance(event, Raised):
        return internal_failure(event.kind, event.message, event.traceback)
    found = event.result if isinstance(event, Finished) else event.cause
    if isinstance(found, AttemptFailure):
        return found
    if isinstance(event, Finished):
        return None
    return AttemptFailure(
        error=WorkerLost.__name__,
        message=f"worker {event.worker} was lost: {event.detail}",
        hint=WorkerLost.usual_hint,
        retryable=True,
    )


class EventQueue(list[ExecutorEvent]):
    """Events that an executor has yet to hand to the engine, in order."""

    def __init__(self, events: Iterable[ExecutorEvent] = (), *, noted: Iterable[str] = ()) -> None:
        """Begin with some events; `noted` are lines that the user has read already."""
        super().__init__(events)
        self._noted = {without_numbers(text) for text in noted}

    def note(self, text: str) -> None:
        self.append(Notice(text=text))

    def note_once(self, text: str | None) -> None:
        """Add a line, if there is one and no line before differs from it in numbers alone."""
        if text and without_numbers(text) not in self._noted:
            self._noted.add(without_numbers(text))
            self.note(text)

    def take(self) -> Sequence[ExecutorEvent]:
        found = tuple(self)
        self.clear()
        return found


class Executor(Protocol):
    """Carries out tasks, one a place. Used from one thread."""

    def use(self, places: int, of: int) -> None:
        """Make the first `places` ready, and be prepared for `of` places; see `start`.

        Raises:
            ConfigError: The system refuses a place.
        """

    def start(self, places: int) -> None:
        """Make the first `places` ready if they are not; none is given up for that."""

    def places(self) -> Collection[int]:
        """Return the places that can take a task now."""

    def send(self, place: int, task: object) -> None:
        """Give one of `places` a task; returns immediately. All that goes wrong is an event."""

    def tell(self, place: int, payload: object) -> None:
        """Send the task at a place a payload while it runs.

        Nothing happens if the task has ended or does not listen.
        """

    def events(self, timeout_seconds: float) -> Sequence[ExecutorEvent]:
        """Return the events that have come; wait for the first one up to `timeout_seconds`."""

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """End the tasks at these places, by force; nothing of them runs on when this returns.

        Args:
            reasons: By place, the failure with which the end of its task is reported.
        """

    def finish(self) -> Sequence[ExecutorEvent]:
        """Look at the places a last time, when all work is done; return the last notes."""

    def pids(self) -> Mapping[int, int]:
        """Return the process of each place that has one on this machine."""
        return {}

    def worker(self, place: int) -> WorkerEvidence:
        """Return the evidence about the worker at a place."""

    def evidence(self) -> Evidence:
        """Return the evidence about all places."""

    def close(self) -> None:
        """End everything and give all back. May be called again."""
