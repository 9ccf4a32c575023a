"""Lets the parent hold up the fetch of a running attempt between two batches.

An order names its attempt: one that comes late, when the worker has gone on to another unit, holds
up nothing. What is fetched by then is encoded and written; the session stays open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from unloader.model import FetchOrder

_LOOK_SECONDS = 0.1


class Gate:
    """Closed for at most one attempt. Orders come from one thread, the fetch asks from another."""

    def __init__(self) -> None:
        """Begin open."""
        self._change = threading.Condition()
        self._closed_for: tuple[str, int] | None = None

    def take(self, order: object) -> None:
        """Obey an order; whatever else the parent tells is passed over."""
        if not isinstance(order, FetchOrder):
            return
        with self._change:
            self._closed_for = (order.unit, order.attempt) if order.paused else None
            self._change.notify_all()

    def pass_by(
        self, unit: str, attempt: int, waits: Callable[[bool], None], over: threading.Event
    ) -> None:
        """Return at once, or when the gate is opened for an attempt.

        Args:
            unit: Of the attempt.
            attempt: Its number.
            waits: Told True once if it has to wait, and False when the wait is over.
            over: Ends the wait.
        """
        mine = (unit, attempt)
        if self._closed_for != mine:
            return
        waits(True)
        with self._change:
            while self._closed_for == mine and not over.is_set():
                self._change.wait(_LOOK_SECONDS)
        waits(False)


GATE = Gate()
"""That of this process: a worker has one attempt at a time."""
