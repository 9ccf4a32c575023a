"""Tasks on their way through the supervisor: taken late, tried again, each settled once.

Pure but for the iterable of the tasks: the time goes in with each call.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

# Of a second they make years; a thousand more would be no number any more.
_MOST_DOUBLINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at one task."""

    index: int
    """Of the task among all, from 0."""
    task: object
    number: int
    """1 for the first."""


class Backlog:
    """Hands out attempts: those due again first, then tasks that are new."""

    def __init__(
        self, tasks: Iterable[object], *, attempts: int, retry_seconds: float, most: int
    ) -> None:
        """Take the tasks; ask for none yet.

        Args:
            tasks: Asked for the next one only when somebody can work on it.
            attempts: Most attempts at a task.
            retry_seconds: Before the second attempt; doubled before each further one.
            most: Tasks that may be taken and not settled at the same time.
        """
        self._tasks = iter(tasks)
        self._attempts = attempts
        self._retry_seconds = retry_seconds
        self._most = most
        self._taken = 0
        self._settled = 0
        self._exhausted = False
        self._waiting: list[tuple[float, int, Attempt]] = []

    def take(self, now: float) -> Attempt | None:
        """Return what an idle worker does next, None if there is nothing at the moment.

        Whatever the iterable raises comes through.
        """
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[2]
        if self._exhausted or self._taken - self._settled >= self._most:
            return None
        try:
            task = next(self._tasks)
        except StopIteration:
            self._exhausted = True
            return None
        self._taken += 1
        return Attempt(index=self._taken - 1, task=task, number=1)

    def again(self, attempt: Attempt, now: float) -> bool:
        """Put a task back after a failed attempt; return whether it has another one."""
        if attempt.number >= self._attempts:
            return False
        due = now + self._retry_seconds * 2.0 ** min(attempt.number - 1, _MOST_DOUBLINGS)
        after = Attempt(index=attempt.index, task=attempt.task, number=attempt.number + 1)
        heapq.heappush(self._waiting, (due, attempt.index, after))
        return True

    def settle(self) -> None:
        """Note that a task has come to its end."""
        self._settled += 1

    def stop(self) -> tuple[Attempt, ...]:
        """Hand out nothing any more; return the last attempts at what was to be tried again."""
        self._exhausted, self._attempts = True, 0
        waiting, self._waiting = self._waiting, []
        return tuple(
            Attempt(index=index, task=attempt.task, number=attempt.number - 1)
            for _, index, attempt in sorted(waiting, key=lambda entry: entry[1])
        )

    @property
    def wanting(self) -> bool:
        """Whether there is, or may be, something to hand out."""
        return bool(self._waiting) or not self._exhausted

    @property
    def over(self) -> bool:
        """Whether every task has come to its end."""
        return self._exhausted and self._taken == self._settled

    @property
    def due(self) -> float | None:
        """When the next task is tried again; None if none waits for it."""
        return self._waiting[0][0] if self._waiting else None
