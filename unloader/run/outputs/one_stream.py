"""One stream for all work units: standard output, or one named pipe.

The units go one after the other, in table order, through one worker, so that what arrives is what
`--file-per table` would write. Nothing can be staged or taken back: an attempt is repeated as long
as nothing of it has left, and what is found wrong later is told by the exit status alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unloader.errors import Interrupted, OutputFailed, UsageError
from unloader.events import Event, Notice, Observer, UnitFailed
from unloader.manifest.build import FinishedUnit
from unloader.manifest.model import Manifest
from unloader.model import OutputTask
from unloader.resolve.naming import Naming
from unloader.resolve.resolved import ResolvedRun
from unloader.run.outputs.base import MakeManifest, Stop
from unloader.run.outputs.headers import Headers
from unloader.run.schedule import Assignment
from unloader.storage.kinds import pipe_template
from unloader.storage.streams.fifo import Fifos, open_for_reader
from unloader.storage.streams.relay import Relay
from writers.model import ParquetFormat

FROM_THE_START = "unload again from the start"

_POLL_SECONDS = 0.1
_STDOUT = 1


class StreamOutput:
    """Standard output or a named pipe; see `unloader.run.outputs.base.RunOutput`."""

    in_order = True

    def __init__(self, run: ResolvedRun, *, pipe: bool) -> None:
        """Take the stream.

        Args:
            run: Its units may not be several where the format cannot be sent in pieces.
            pipe: A named pipe, not standard output.

        Raises:
            UsageError: The plan has several units, and the format is Parquet.
        """
        plan = run.plan
        if isinstance(run.output.format, ParquetFormat) and len(plan.units) > 1:
            raise UsageError(
                f"the plan has {len(plan.units)} work units, and one stream is one Parquet file",
                "use --split none",
            )
        self._run = run
        self._headers = Headers(run.extract, run.output.format)
        self._first_unit = min(unit.id for unit in plan.units)
        self._fifos = Fifos()
        self._relay: Relay | None = None
        self._finished_bytes = 0
        self._is_pipe = pipe
        self.name = "standard output"
        if pipe:
            folder, template = pipe_template(run.output.options.destination)
            naming = Naming.of(run, template, one=True)
            self.name = str(folder / naming.name(plan.units[0]))

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Wait for the pipe's reader; see `RunOutput`."""
        self._relay = Relay(self._open_pipe(observe, stop) if self._is_pipe else os.dup(_STDOUT))
        if not os.path.exists(self._relay.path):
            raise OutputFailed(
                f"{self.name} needs /proc, which this system does not have",
                "mount it, or give a directory with --to",
            )

    def keep(self, name: str, data: bytes) -> None:
        """Do nothing: a stream has no place for a record."""

    def task(self, assignment: Assignment) -> OutputTask:
        """Return the way into the relay; the first unit begins with the header."""
        assert self._relay is not None
        first = assignment.unit.id == self._first_unit
        return OutputTask(
            spec=replace(self._run.output.spec(""), stream=self._relay.path),
            stem="stream",
            header=self._headers.of_task(first),
            writes_header=first,
        )

    def check(self) -> None:
        """Raise OutputFailed if the reader has gone or the stream refused."""
        failure = self._relay.failure if self._relay is not None else None
        if failure is None:
            return
        passed = self._relay.passed if self._relay is not None else 0
        if isinstance(failure, BrokenPipeError):
            raise OutputFailed(
                f"the reader of {self.name} ended early, after {passed:,} bytes (EPIPE)",
                f"check why it ended, then {FROM_THE_START}",
            ) from failure
        raise OutputFailed(
            f"cannot write to {self.name}: {failure.strerror or failure}",
            f"fix the cause, then {FROM_THE_START}",
        ) from failure

    def filter_event(self, event: Event) -> tuple[Event, ...]:
        """Let an event pass, under the name that the user knows."""
        if isinstance(event, UnitFailed) and self._relay is not None:
            event = replace(event, message=event.message.replace(self._relay.path, self.name))
        return (event,)

    def not_repeatable(self, unit: str) -> str:
        """Return why the running attempt cannot be repeated: something of it has left."""
        if self._relay is None or self._relay.taken <= self._finished_bytes:
            return ""
        return f"the attempt cannot be retried, because bytes of it have gone to {self.name}"

    def record(self, unit: FinishedUnit) -> Event | None:
        """Count what belongs to finished units."""
        self._finished_bytes += sum(file.bytes for file in unit.result.files)
        return None

    def discard(self, assignment: Assignment) -> None:
        """Do nothing: what has left cannot be taken back."""

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> None:
        """Refuse: nothing is left to be read."""
        raise UsageError(f"what went to {self.name} cannot be read back", "use --verify count")

    def publish(
        self, units: Sequence[FinishedUnit], manifest: MakeManifest, stop: Stop
    ) -> Manifest:
        """Pass the rest on and end the stream."""
        assert self._relay is not None
        self._relay.finish()
        self._await_reader(self._relay, stop)
        self.check()
        sent = [
            replace(unit, finals=tuple(replace(file, path=self.name) for file in unit.result.files))
            for unit in units
        ]
        return manifest(sent, ())

    def abandon(self, manifest: Manifest | None) -> None:
        """Pass nothing on any more."""
        if self._relay is not None:
            self._relay.break_off()

    def already_delivered(self) -> str:
        """Return what has been sent."""
        if self._relay is None or not self._relay.passed:
            return ""
        return f"the {self._relay.passed:,} bytes sent to {self.name} are not valid output"

    def next_step(self) -> str:
        """Return that everything begins anew."""
        return FROM_THE_START

    def close(self) -> None:
        """End the stream, and remove the pipe if it was made here."""
        if self._relay is not None:
            self._relay.break_off()
        self._fifos.close()

    def _open_pipe(self, observe: Observer, stop: Stop) -> int:
        self._fifos.provide(Path(self.name))
        shown = False

        def waiting() -> None:
            nonlocal shown
            if stop():
                raise Interrupted(
                    f"stopped by a signal while waiting for a reader of {self.name}", FROM_THE_START
                )
            if not shown:
                shown = True
                observe(Notice(text=f"waiting for a reader of {self.name}"))

        return open_for_reader(self.name, self._run.output.options.pipe_seconds, waiting)

    def _await_reader(self, relay: Relay, stop: Stop) -> None:
        limit = self._run.request.retry.stall_seconds
        passed, moved_at = relay.passed, time.monotonic()
        while relay.is_alive:
            relay.wait(_POLL_SECONDS)
            if stop():
                raise Interrupted(f"stopped by a signal while {self.name} was read", FROM_THE_START)
            if relay.passed != passed:
                passed, moved_at = relay.passed, time.monotonic()
            elif limit and time.monotonic() - moved_at > limit:
                raise OutputFailed(
                    f"the reader of {self.name} read nothing for {limit:g} s (--stall-timeout)",
                    f"check what it is waiting for, then {FROM_THE_START}",
                )
