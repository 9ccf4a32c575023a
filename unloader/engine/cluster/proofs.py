"""What a machine must show before it reads units, and the orders that wait for that.

A task that comes before the machine has shown it is kept until it has. One that was refused does
none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from unloader.engine.cluster.orders import Prove, Proven, Send, Tell
from unloader.engine.executor import (
    AttemptFailed,
    Executor,
    ExecutorEvent,
    Message,
    PlaceLost,
    Result,
)
from unloader.model import AttemptFailure


class Proofs:
    """Those that one agent is asked for, one after the other. For one thread."""

    def __init__(self, tell: Callable[[Proven], None]) -> None:
        """Take what takes the outcome of those that the parent waits for."""
        self._tell = tell
        self._wanted: deque[Prove] = deque()
        self._at: int | None = None
        """The place whose process is at the first of them."""
        self._failed: tuple[Prove, AttemptFailure] | None = None
        """The last one that failed."""
        self._is_refused = False
        self._kept: list[Send | Tell] = []

    def want(self, order: Prove) -> None:
        """Have one done after those before it."""
        self._wanted.append(order)

    def keep(self, order: Send | Tell) -> bool:
        """Keep a task, or what is for one, if it has to wait; return whether it has."""
        waits = bool(self._wanted) or self._is_refused
        if waits:
            self._kept.append(order)
        return waits

    def go_on(self, executor: Executor) -> Sequence[Send | Tell]:
        """Give an idle process the next one; once there is none any more, return what was kept."""
        while self._wanted and self._at is None:
            if self._failed is not None and _is_same(self._failed[0], self._wanted[0]):
                self._end(self._failed[1])  # A server may count the logins that fail.
                continue
            place = min(executor.places(), default=None)
            if place is None:
                break
            self._at = place
            executor.send(place, self._wanted[0].task)
        if self._wanted or self._is_refused:
            return ()
        kept, self._kept = self._kept, []
        return kept

    def takes(self, event: ExecutorEvent) -> bool:
        """Return whether an event is of a proof alone, and take it then."""
        place = getattr(event, "place", None)
        if isinstance(event, PlaceLost):
            # Its task is lost with it, which the parent learns.
            self._kept = [each for each in self._kept if each.place != place]
            if place == self._at:
                self._at = None
            return False
        if place is None or place != self._at:
            return False
        if isinstance(event, Result | AttemptFailed):
            self._at = None
            self._end(event.failure if isinstance(event, AttemptFailed) else None)
        return isinstance(event, Message | Result | AttemptFailed)

    def look(self, places: Collection[int]) -> None:
        """Take note of which places have a process: one that was given up tells nothing more."""
        if self._at not in places:
            self._at = None

    def _end(self, failure: AttemptFailure | None) -> None:
        order = self._wanted.popleft()
        self._failed = None if failure is None else (order, failure)
        if order.is_awaited:
            self._is_refused = self._is_refused or failure is not None
            self._tell(Proven(failure))


def _is_same(one: Prove, other: Prove) -> bool:
    """Return whether two open the same session; each opens it before anything else."""
    mine, its = one.task, other.task
    return (mine.source, mine.snapshot) == (its.source, its.snapshot)
