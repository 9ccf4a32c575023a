"""The protocol between the engine and whatever carries out its tasks.

An executor has places. Each takes one task at a time and answers with events. Where a place is (a
process on this machine, one elsewhere, this very process), how a task gets there and how the end
of a process is noticed is the executor's alone. It never repeats a task: that is for the engine.

For each task sent, one of `Result`, `AttemptFailed` or `PlaceLost` comes for its place, after all
the messages of the task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from unloader.model import AttemptFailure
from unloader.placement.evidence import Evidence, WorkerEvidence


class PlaceReady(Struct, frozen=True, kw_only=True):
    """A place can take tasks: for the first time, or again after it was lost."""

    place: int


class Message(Struct, frozen=True, kw_only=True):
    """The task at a place has reported something."""

    place: int
    payload: object


class Result(Struct, frozen=True, kw_only=True):
    """The task at a place is done."""

    place: int
    value: object


class AttemptFailed(Struct, frozen=True, kw_only=True):
    """The task at a place has failed; the place itself is unharmed."""

    place: int
    failure: AttemptFailure


class PlaceLost(Struct, frozen=True, kw_only=True):
    """A place can take no task until it is ready again. A task that it was at has failed."""

    place: int
    failure: AttemptFailure
    """Why; of a place that was stopped, the failure that was given as the reason."""


class NoPlaceLeft(Struct, frozen=True, kw_only=True):
    """No place will ever be ready again."""

    failure: AttemptFailure


class Note(Struct, frozen=True, kw_only=True):
    """One line the user should know about the places."""

    text: str


ExecutorEvent: TypeAlias = (
    PlaceReady | Message | Result | AttemptFailed | PlaceLost | NoPlaceLeft | Note
)


class Executor(Protocol):
    """Carries out tasks, one a place. Used from one thread."""

    def resize(self, places: int) -> None:
        """Use so many places from now on, at most: those with the lowest numbers.

        Raises:
            ConfigError: The system refuses a place.
        """

    def begin_with(self, places: int, of: int) -> None:
        """Be ready to use so many places, of which these are the first; see `start`.

        Raises:
            ConfigError: The system refuses a place.
        """

    def start(self, places: int) -> None:
        """Make so many of the first places ready if they are not; none is given up for that.

        Raises:
            ConfigError: The system refuses a place.
        """

    def tell(self, place: int, payload: object) -> None:
        """Tell the task at a place something while it goes on; what it makes of it is its own.

        Nothing happens where there is no task any more, or one that hears nothing.
        """

    def places(self) -> Collection[int]:
        """Return the places that can take a task now."""

    def send(self, place: int, task: object) -> None:
        """Give one of `places` a task; returns at once. All that goes wrong is an event."""

    def events(self, timeout_seconds: float) -> Sequence[ExecutorEvent]:
        """Return the events that have come; wait for the first, about so long at most."""

    def stop(self, reasons: Mapping[int, AttemptFailure]) -> None:
        """End the tasks at these places, by force; nothing of them runs on when this returns.

        Args:
            reasons: By place, the failure with which the end of its task is reported.
        """

    def finish(self) -> Sequence[ExecutorEvent]:
        """Look at the places a last time, when all work is done; return the last notes."""

    def pids(self) -> Mapping[int, int]:
        """Return the process of each place that has one on this machine."""

    def worker(self, place: int) -> WorkerEvidence:
        """Return what is known of the worker at a place."""

    def evidence(self) -> Evidence:
        """Return what is known of all places."""

    def close(self) -> None:
        """End everything and give all back. May be called again."""
