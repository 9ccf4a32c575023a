"""Directories of tables that are taken while others are read, in a thread beside the run's own.

That is done only where nothing lies: what lies at a destination is looked at before the first row
is read. So whatever goes wrong here is the failure of one table. The record of the run is written
meanwhile, too. Until it is there nothing is published: whoever is killed before it has begun
nothing that a later process could not find, or would miss.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from unloader.run.tables.finishing import END_SECONDS, Ended
from unloader.run.tables.state import TableState

_BEFORE_RECORD = 64
"""Guess: so many tables are work for all workers while the record is made, which takes as long."""


class Later(Protocol):
    """An output whose places are taken by a call of their own."""

    def take(self) -> None:
        """Take them.

        Raises:
            OutputFailed: One cannot be taken.
        """


class Taking:
    """Takes the directories of tables in their order; what has become of them is asked for."""

    def __init__(
        self, outputs: Sequence[tuple[TableState, Later]], record: Callable[[], None]
    ) -> None:
        """Begin.

        Args:
            outputs: Those to be taken, in the order in which they are wanted.
            record: Puts the run on record; called once, in the thread if there is one.
        """
        self._outputs = outputs
        self._record = record
        self._ended: queue.SimpleQueue[Ended | BaseException | None] = queue.SimpleQueue()
        self._is_to_end = threading.Event()
        self.is_busy = True
        """Whether there is anything that `collect` has not returned yet."""
        self.is_recorded = False
        """Whether the run was on record when `collect` was last called."""
        self._thread = threading.Thread(target=self._take_all, name="taking", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # The system refuses any thread: then it is done here.
            self._take_all()

    def collect(self, timeout_seconds: float = 0.0) -> list[Ended]:
        """Return the tables that are taken since, and what went wrong with those that are not.

        Args:
            timeout_seconds: Wait so long for the first news.

        Raises:
            BaseException: The run could not be put on record.
        """
        found: list[Ended] = []
        wait = timeout_seconds
        while self.is_busy:
            try:
                ended = self._ended.get(timeout=wait) if wait else self._ended.get_nowait()
            except queue.Empty:
                break
            wait = 0.0
            if isinstance(ended, tuple):
                found.append(ended)
            elif ended is None:
                self.is_busy = not self.is_recorded
                self.is_recorded = True
            else:
                raise ended
        return found

    def close(self) -> None:
        """Take no further directory; wait for the one in hand, for as long as a server may take."""
        self._is_to_end.set()
        if self._thread.ident is not None:
            self._thread.join(END_SECONDS)

    def _take_all(self) -> None:
        for table, output in self._outputs[:_BEFORE_RECORD]:
            self._take(table, output)
        if self._is_to_end.is_set():
            return
        try:
            self._record()
        except BaseException as error:
            self._ended.put(error)
            return
        self._ended.put(None)
        for table, output in self._outputs[_BEFORE_RECORD:]:
            self._take(table, output)
        self._ended.put(None)

    def _take(self, table: TableState, output: Later) -> None:
        if self._is_to_end.is_set():
            return
        try:
            output.take()
        except BaseException as error:
            self._ended.put((table, error))
        else:
            self._ended.put((table, None))
