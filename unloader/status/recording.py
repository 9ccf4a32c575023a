"""Lets others see how far a run is, and end it, by way of where its files go.

A thread of its own writes the record and looks for the file that asks for the end: neither a slow
disk nor a long call of the run into its source holds up the other. That the record cannot be
written is told once and is no reason to fail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.json import encode

from unloader.errors import Interrupted, UnloaderError
from unloader.events import Event, Notice, Observer, PhaseStarted
from unloader.status.tally import Tally

if TYPE_CHECKING:
    from numa.model import Seat
    from unloader.status.model import ParallelismStatus
    from unloader.status.speeds import Speeds
    from unloader.status.wishes import Wish
    from unloader.storage.base import LiveStorage

FIRST_SECONDS, EVERY_SECONDS = 0.2, 1.0
"""Before the first record, which a run of a moment does not need, and between two."""

_PATIENCE_SECONDS = 5.0
"""How long the end of a run waits for a record that is being written to a storage that hangs."""

STOP_ASKED = "`unloader stop` was called: the work units in progress are stopped"


class LiveRun:
    """A run on its way: takes its events, shows what they add up to, and knows if it is to end."""

    def __init__(
        self,
        run_id: str,
        seats: Sequence[Seat],
        observe: Observer,
        asked: Callable[[], bool],
    ) -> None:
        """Begin to count.

        Args:
            run_id: The run.
            seats: Of its workers.
            observe: Gets all events, in the thread that brings them.
            asked: Tells whether the caller of the run asks for its end.
        """
        self._run_id, self._seats = run_id, tuple(seats)
        self._observe, self._asked = observe, asked
        self._tally = Tally(time.monotonic())
        self._tally.add(PhaseStarted(phase="planning"), time.monotonic())
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._sequence = 0
        self._speeds: Speeds | None = None
        self._notices: list[str] = []
        self._has_failed = False
        self.resumable: bool | None = None
        """Whether a later process can read at the same snapshot; None = not known yet."""
        self.snapshot_kept_until = ""
        """ISO 8601; empty if nobody keeps it."""
        self.stopped_by_others = False
        """The end was asked for by way of the storage."""
        self._wish_read = b""
        self._wishes: list[Wish] = []
        self.parallelism: ParallelismStatus | None = None
        """How many workers work now; replaced as a whole by whoever decides."""
        self._storage: LiveStorage | None = None
        self._thread: threading.Thread | None = None

    def record_in(self, storage: LiveStorage) -> None:
        """Begin to write the record to where others look for it; a stream has no such place."""
        self._storage = storage
        self._thread = threading.Thread(
            target=self._record, args=(storage,), name="status", daemon=True
        )
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Take an event into account and hand it on."""
        with self._lock:
            self._tally.add(event, time.monotonic())
        while self._notices:
            self._observe(Notice(text=self._notices.pop()))
        self._observe(event)

    def stop(self) -> bool:
        """Tell whether the run is to end; asked several times a second, from any thread."""
        return self._asked() or self.stopped_by_others

    def told_by(self, error: UnloaderError) -> UnloaderError:
        """Return an error with who asked for the end: whoever raised it knows of signals alone."""
        if not (isinstance(error, Interrupted) and self.stopped_by_others):
            return error
        message = error.message.replace("stopped by a signal", "stopped by `unloader stop`", 1)
        return Interrupted(message, error.hint)

    def wish(self) -> Wish | None:
        """Return what the run is asked to change, once."""
        return self._wishes.pop(0) if self._wishes else None

    def close(self, error: BaseException | None = None) -> None:
        """End the recording; may be called again.

        Args:
            error: What broke the run, which then shows once more how far it came.
        """
        self._over.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_SECONDS)
            if error is not None and self._storage is not None and not self._thread.is_alive():
                self._show(self._storage, error)

    def _record(self, storage: LiveStorage) -> None:
        wait = FIRST_SECONDS
        while not self._over.wait(wait):
            wait = EVERY_SECONDS
            if not self.stopped_by_others and storage.stop_asked():
                self._notices.append(STOP_ASKED)
                self.stopped_by_others = True
            self._look_for_wish(storage)
            self._show(storage)

    def _look_for_wish(self, storage: LiveStorage) -> None:
        found = storage.wish()
        if found == self._wish_read:
            return
        self._wish_read = found
        if found:
            from unloader.status.wishes import parse_wish

            wish = parse_wish(found)
            if wish is None:
                self._notices.append("the request to change the run cannot be read")
            else:
                self._wishes.append(wish)

    def _show(self, storage: LiveStorage, error: BaseException | None = None) -> None:
        # Imported here: a run of a moment does without.
        from unloader.status.snapshot import Process, snapshot_of
        from unloader.status.speeds import Speeds

        self._speeds = self._speeds or Speeds()
        self._sequence += 1
        process = Process(
            run_id=self._run_id,
            seats=self._seats,
            sequence=self._sequence,
            stopping=self.stop(),
            resumable=self.resumable,
            snapshot_kept_until=self.snapshot_kept_until,
            parallelism=self.parallelism,
            error=error,
            speeds=self._speeds,
        )
        with self._lock:
            status = snapshot_of(self._tally, process, time.monotonic())
        try:
            storage.show(encode(status))
        except OSError as trouble:
            if not self._has_failed:
                self._has_failed = True
                why = trouble.strerror or str(trouble)
                self._notices.append(f"`unloader status` cannot follow this run: {why}")
