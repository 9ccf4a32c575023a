"""One stream that takes all bytes of a run: standard output, or a named pipe.

Nothing is staged and nothing can be taken back: what a worker writes goes through the relay to the
reader. So it is `RunPlaces` and no `RunStorage`; see `unloader.storage.base`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from unloader.errors import Interrupted, OutputFailed
from unloader.storage.model import Move, Place, Staging
from unloader.storage.streams.fifo import Fifos, open_for_reader
from unloader.storage.streams.relay import Relay

FROM_THE_START = "unload again from the start"

_POLL_SECONDS = 0.1
_STDOUT = 1


class Patience(Struct, frozen=True, kw_only=True):
    """How long a stream waits for its reader, and what ends the wait."""

    open_seconds: float
    """Until a program opens the pipe; 0 sets no limit."""
    stall_seconds: float
    """While the reader takes nothing at the end; 0 sets no limit."""
    stop: Callable[[], bool]
    """Asked several times a second; True ends the wait."""
    notify: Callable[[str], None]
    """Takes messages for the user meanwhile."""


class Stream:
    """Standard output or a named pipe, taken by one run."""

    def __init__(self, name: str, *, is_pipe: bool) -> None:
        """Begin with nothing open.

        Args:
            name: The path of the pipe, or what standard output is called in messages.
            is_pipe: It is a named pipe.
        """
        self.places = (Place(name=name, address=name),)
        self._name = name
        self._is_pipe = is_pipe
        self._fifos = Fifos()
        self._relay: Relay | None = None
        self._patience: Patience | None = None

    def open(self, patience: Patience) -> None:
        """Open the stream; of a pipe wait for the reader.

        Raises:
            OutputFailed: No program opened it in time, or it cannot be opened.
            Interrupted: The wait was ended.
        """
        self._patience = patience
        self._relay = Relay(self._open_pipe(patience) if self._is_pipe else os.dup(_STDOUT))
        if not os.path.exists(self._relay.path):
            raise OutputFailed(
                f"{self._name} needs /proc, which this system does not have",
                "mount /proc, or give a directory with --to",
            )

    def staging(self, place: int) -> Staging:
        """Return the way into the relay."""
        assert self._relay is not None
        return Staging(label=self._name, stream=self._relay.path)

    @property
    def taken(self) -> int:
        """Bytes that workers have written."""
        return 0 if self._relay is None else self._relay.taken

    @property
    def passed(self) -> int:
        """Bytes that have reached the reader."""
        return 0 if self._relay is None else self._relay.passed

    def check(self) -> None:
        """Raise OutputFailed if the reader has gone or the stream refused."""
        failure = self._relay.failure if self._relay is not None else None
        if failure is None:
            return
        if isinstance(failure, BrokenPipeError):
            raise OutputFailed(
                f"the reader of {self._name} ended early, after {self.passed:,} bytes (EPIPE)",
                f"check why the reader ended, then {FROM_THE_START}",
            ) from failure
        raise OutputFailed(
            f"cannot write to {self._name}: {failure.strerror or failure}",
            f"fix the cause, then {FROM_THE_START}",
        ) from failure

    def commit(
        self,
        moves: Sequence[Move],
        manifest: bytes,
        then: Callable[[], None] = lambda: None,
    ) -> tuple[str, ...]:
        """Pass the rest on and end the stream; the reader gets no manifest.

        Raises:
            OutputFailed: The reader has gone, or takes nothing.
            Interrupted: The wait was ended.
        """
        assert self._relay is not None
        self._relay.finish()
        self._await_reader(self._relay)
        self.check()
        then()
        return ()

    def abandon(self, manifest: bytes | None) -> None:
        """Pass nothing on any more."""
        if self._relay is not None:
            self._relay.break_off()

    def close(self) -> None:
        """End the stream, and remove the pipe if it was made here."""
        self.abandon(None)
        self._fifos.close()

    def _open_pipe(self, patience: Patience) -> int:
        self._fifos.provide(Path(self._name))
        shown = False

        def waiting() -> None:
            nonlocal shown
            if patience.stop():
                raise Interrupted(
                    f"stopped by a signal while waiting for a reader of {self._name}",
                    FROM_THE_START,
                )
            if not shown:
                shown = True
                patience.notify(f"waiting for a reader of {self._name}")

        return open_for_reader(self._name, patience.open_seconds, waiting)

    def _await_reader(self, relay: Relay) -> None:
        patience = self._patience
        assert patience is not None
        limit = patience.stall_seconds
        passed, moved_at = relay.passed, time.monotonic()
        while relay.is_alive:
            relay.wait(_POLL_SECONDS)
            if patience.stop():
                raise Interrupted(
                    f"stopped by a signal while {self._name} was read", FROM_THE_START
                )
            if relay.passed != passed:
                passed, moved_at = relay.passed, time.monotonic()
            elif limit and time.monotonic() - moved_at > limit:
                raise OutputFailed(
                    f"the reader of {self._name} read nothing for {limit:g} s (--stall-timeout)",
                    f"check why the reader waits, then {FROM_THE_START}",
                )
