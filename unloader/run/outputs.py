"""The output of a run: the protocol, and outputs that keep nothing.

A run asks where each attempt writes, reports what became of it, and at the end publishes or
abandons everything. It never asks what kind of place the output goes to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.errors import Interrupted, UsageError
from unloader.events import Event, Notice, Observer, UnitFailed
from unloader.manifest.model import Manifest, RouteRecord
from unloader.model import FinishedUnit, OutputTask
from unloader.resolve.places import Naming
from unloader.resolve.resolved import ResolvedTable
from unloader.run.journal import Progress
from unloader.storage.place_names import NULL_ROWS, pipe_template
from unloader.storage.storage_protocol import LiveStorage
from unloader.storage.stream_relay import FROM_THE_START, Stream
from writers.files.syncing import Steps
from writers.model import ParquetFormat, TextFormat

Stop = Callable[[], bool]
"""Asked several times a second; True ends the run."""


def check_stop(stop: Stop, when: str) -> None:
    """Raise Interrupted if the user asks for the end."""
    if stop():
        raise Interrupted(f"stopped by a signal {when}")


def continued(hint: str, step: str) -> str:
    """Return the advice on a broken run: what mends it, then how to go on.

    Args:
        hint: What mends it.
        step: The command that continues the run, with a verb before it.
    """
    hint = hint.rstrip(". ")
    if "--" in hint:
        # `resume` takes no options of the run.
        return f"{hint}; to change an option, start a new run with --overwrite; otherwise {step}"
    return f"{hint}; then {step}"


class WrittenRoute(Struct, frozen=True, kw_only=True):
    """One route of several, as its manifest describes it."""

    run: ResolvedTable
    """As if it were the only one."""
    record: RouteRecord
    not_compared: tuple[str, ...] | None = None
    """Columns whose values could not be compared, each with the reason; None if none were."""


class MakeManifest(Protocol):
    """Makes the manifest of the written files."""

    def __call__(
        self,
        units: Sequence[FinishedUnit],
        directories: tuple[str, ...] = (),
        route: WrittenRoute | None = None,
    ) -> Manifest:
        """Return it.

        Args:
            units: The finished units; in a complete run their files have final names.
            directories: Where there are several.
            route: The written route, where it is not the whole run.
        """


class RunOutput:
    """What one table of a run writes; its places are given back by `close`.

    By default a method does nothing. `tasks`, `publishing` and `next_step` have no default.
    """

    is_kept = False
    """The written data can be read again."""
    in_order = False
    """The units must come one after the other, in table order, through one worker."""
    name = ""
    """The place, in messages."""

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The manifests of the published routes of several; else empty."""
        return ()

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Check all names and get ready for the first unit, before anything is read.

        Raises:
            OutputFailed: Something is in the way, or no reader opens the pipe.
            Interrupted: `stop` returned True during a wait.
        """

    def keep(self, name: str, data: bytes) -> None:
        """Write a record of the run where its files go, durably; nowhere if nothing is kept.

        Args:
            name: One of `unloader.storage.storage_protocol.RECORDS`.
            data: The whole record; replaces the previous one.

        Raises:
            WriteError: It could not be written.
        """

    def progress(self, tick: Callable[[], None]) -> Progress:
        """Return the finished part of a resumed run, after each file is read and confirmed.

        Called once, after `begin`. Unconfirmed files are removed.

        Args:
            tick: Called several times a second; an error that it raises comes through.
        """
        return Progress()

    def live(self) -> LiveStorage | None:
        """Return where others see the run and can end it; None if nothing is kept."""
        return None

    def tasks(self, unit: WorkUnit, attempt: int) -> tuple[OutputTask, ...]:
        """Return where and how an attempt writes; called just before it is handed out."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise OutputFailed if the place is lost; called several times a second."""

    def shown_event(self, event: Event) -> Event:
        """Return an event of the run as it is displayed."""
        return event

    def not_repeatable(self) -> str:
        """Return why a failed attempt cannot be repeated; empty if it can."""
        return ""

    def record(self, unit: FinishedUnit) -> Event | None:
        """Put a finished unit on record; return the event that follows from it, if any."""
        return None

    def failed(self, unit: str, attempt: int, message: str) -> None:
        """Put a failed attempt on record."""

    def discard(self, unit: str, attempt: int) -> None:
        """Remove what a failed attempt may have left."""

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> tuple[str, ...]:
        """Read every file again, and compare it with what its writer reported and with the values.

        Returns:
            The columns whose values the files do not show in full, each with the reason.

        Raises:
            VerifyMismatch: One differs.
            Interrupted: `stop` returned True.
            UsageError: Nothing is kept.
        """
        raise UsageError(f"the output to {self.name} cannot be read back", "use --verify count")

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Make the output final, in steps; return the manifest.

        Args:
            units: All of them, in table order.
            manifest: Makes the manifest once the files have final names.
            stop: Asked before anything is final; True ends the run.
            then: Takes the manifest once all is final, and must not raise. If the process dies
                before it has returned, `resume` still knows the run and does it again.
        """
        raise NotImplementedError

    def abandon(self, units: Sequence[FinishedUnit], manifest: MakeManifest | None) -> None:
        """End a failed run: keep what may be of use later, or leave no trace.

        Args:
            units: The finished units.
            manifest: Makes the manifest of a partial run; None leaves no trace.
        """

    def already_delivered(self) -> str:
        """Return what of a failed run has reached a reader and is not valid; empty if nothing."""
        return ""

    def next_step(self, *, resumable: bool) -> str:
        """Return the user's next step once the cause of a failed run is mended.

        Args:
            resumable: The source can read at the run's snapshot again.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release the places to others."""


class Headers:
    """The header of a run's files, encoded once, when it is first needed.

    That is while the workers start, which takes as long as the import of the encoder.
    """

    def __init__(self, run: ResolvedTable) -> None:
        """Take the facts that determine the header."""
        self._written, self._format = run.written, run.output.format
        self._made: bytes | None = None

    def of_task(self, writes_header: bool) -> bytes:
        """Return what a task must be given: on the batch route the writer makes its own."""
        return self.table() if self._written.route == "encoded" and writes_header else b""

    def table(self) -> bytes:
        """Return preamble and header line; empty for Parquet."""
        if self._made is None:
            self._made = b""
            if isinstance(self._format, TextFormat):
                from writers.text.text_writer import start_of_names

                names = tuple(column.name for column in self._written.columns)
                self._made = start_of_names(names, self._format)
        return self._made


def task_of(run: ResolvedTable, stem: str, stream: str = "") -> OutputTask:
    """Return a task without its header, into a stream if one is given."""
    return OutputTask(
        spec=replace(run.output.spec(""), stream=stream),
        stem=stem,
        encryption=run.output.options.encryption,
        transform=run.output.task_transform,
        filter=run.output.options.filter,
    )


def _publishing_nothing(
    name: str,
    units: Sequence[FinishedUnit],
    manifest: MakeManifest,
    then: Callable[[Manifest], None],
) -> Manifest:
    """Return the manifest of units that went to a place that keeps nothing."""
    gone = [
        replace(unit, files=tuple(replace(file, path=name) for file in unit.files))
        for unit in units
    ]
    document = manifest(gone, ())
    then(document)
    return document


class NullOutput(RunOutput):
    """Output that is dropped, to see how fast a run is without its destination.

    `null:` encodes, compresses and computes checksums as usual, and drops the bytes. `null:rows`
    drops the rows as they are fetched. Every attempt can be repeated.
    """

    def __init__(self, run: ResolvedTable) -> None:
        """Take nothing."""
        self.name = run.output.options.destination
        self._run, self._headers = run, Headers(run)

    def tasks(self, unit: WorkUnit, attempt: int) -> tuple[OutputTask, ...]:
        """Return a device that takes everything."""
        task = task_of(self._run, unit.id, os.devnull)
        drops = "rows" if self.name == NULL_ROWS else "bytes"
        return (replace(task, header=self._headers.of_task(True), drops=drops),)

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Return the manifest of the dropped data."""
        yield from ()  # Nothing is waited for.
        return _publishing_nothing(self.name, units, manifest, then)

    def next_step(self, *, resumable: bool) -> str:
        """Return the advice to run again."""
        return FROM_THE_START


class StreamOutput(RunOutput):
    """One stream for all work units: standard output, or one named pipe.

    The units go one after the other, in table order, through one worker, so that what arrives is
    what `--file-per table` would write. Nothing can be staged or taken back: an attempt is repeated
    only if no byte of it was sent. Only the exit status reports later errors.
    """

    in_order = True

    def __init__(self, run: ResolvedTable, *, pipe: bool) -> None:
        """Take the stream.

        Args:
            run: It has one unit where the format cannot be sent in pieces.
            pipe: A named pipe, not standard output.

        Raises:
            UsageError: The plan has several units, and the format is Parquet.
        """
        plan = run.plan
        if isinstance(run.output.format, ParquetFormat) and len(plan.units) > 1:
            raise UsageError(
                f"the plan has {len(plan.units)} work units, but one stream can contain only one "
                "Parquet file",
                "use --split none",
            )
        self._run, self._headers = run, Headers(run)
        self._first_unit = min(unit.id for unit in plan.units)
        self._finished_bytes = 0
        self.name = "standard output"
        if pipe:
            folder, template = pipe_template(run.output.options.destination)
            self.name = str(folder / Naming.of(run, template, one=True).name(plan.units[0]))
        self._stream = Stream(self.name, is_pipe=pipe)

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Wait for the pipe's reader."""
        self._stream.open(
            open_seconds=self._run.output.options.pipe_seconds,
            stall_seconds=self._run.request.retry.stall_seconds,
            stop=stop,
            notify=lambda text: observe(Notice(text=text)),
        )

    def tasks(self, unit: WorkUnit, attempt: int) -> tuple[OutputTask, ...]:
        """Return the way into the relay; the first unit begins with the header."""
        first = unit.id == self._first_unit
        task = task_of(self._run, "stream", self._stream.path)
        return (replace(task, header=self._headers.of_task(first), writes_header=first),)

    def check(self) -> None:
        """Raise OutputFailed if the reader has gone or the stream refused."""
        self._stream.check()

    def shown_event(self, event: Event) -> Event:
        """Return the event with the name that the user knows."""
        if isinstance(event, UnitFailed):
            return replace(event, message=event.message.replace(self._stream.path, self.name))
        return event

    def not_repeatable(self) -> str:
        """Return why the running attempt cannot be repeated: the reader has bytes of it."""
        if self._stream.taken <= self._finished_bytes:
            return ""
        return (
            f"the attempt cannot be retried, because bytes of it were already sent to {self.name}"
        )

    def record(self, unit: FinishedUnit) -> Event | None:
        """Count what belongs to finished units."""
        self._finished_bytes += sum(file.bytes for file in unit.files)
        return None

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Pass the rest on and end the stream."""
        yield from ()  # Nothing is waited for.
        self._stream.finish()
        return _publishing_nothing(self.name, units, manifest, then)

    def abandon(self, units: Sequence[FinishedUnit], manifest: MakeManifest | None) -> None:
        """Pass nothing on any more."""
        self._stream.break_off()

    def already_delivered(self) -> str:
        """Return the warning about sent bytes."""
        sent = self._stream.passed
        return f"the {sent:,} bytes sent to {self.name} are not valid output" if sent else ""

    def next_step(self, *, resumable: bool) -> str:
        """Return the advice to run again."""
        return FROM_THE_START

    def close(self) -> None:
        """End the stream, and remove the pipe if it was made here."""
        self._stream.close()
