"""The outputs of a table: what each is asked during a run, and outputs that keep nothing.

A run asks where each attempt writes, reports what became of it, and at the end publishes or
abandons everything. It never asks what kind of place the output goes to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.errors import Interrupted, UsageError
from unloader.events import Event, Notice, Observer, UnitFailed
from unloader.manifest.model import Manifest
from unloader.model import AttemptFailure, FinishedUnit, OutputTask
from unloader.resolve.places import Naming
from unloader.resolve.resolved import ResolvedTable
from unloader.run.journal import Progress
from unloader.storage.place_names import NULL_ROWS, pipe_template
from unloader.storage.storage_protocol import LiveStorage
from unloader.storage.stream_relay import FROM_THE_START, Stream
from writers.files.syncing import Steps
from writers.model import OutputSpec, ParquetFormat, TextFormat

Stop = Callable[[], bool]

MakeManifest = Callable[[Sequence[FinishedUnit], tuple[str, ...]], Manifest]
"""Makes the manifest of finished units and of their directories, if there are several. In a
complete run the files of the units have final names."""


def check_stop(stop: Stop, when: str) -> None:
    if stop():
        raise Interrupted(f"stopped by a signal {when}")


def continued(hint: str, step: str) -> str:
    """Return the advice on a broken run: what mends it, then the command that continues it."""
    hint = hint.rstrip(". ")
    if "--" in hint:
        # `resume` takes no options of the run.
        return f"{hint}; to change an option, start a new run with --overwrite; otherwise {step}"
    return f"{hint}; then {step}"


class RunOutput:
    """One output of a table; its places are given back by `close`.

    By default it keeps nothing, and a method does nothing.
    """

    is_kept = False
    """The written data can be read again."""
    in_order = False
    """The units must come one after the other, in table order, through one worker."""
    name = ""
    """The place, in messages."""

    def __init__(self, run: ResolvedTable, number: int = 0, route: str = "") -> None:
        """Take nothing yet.

        Args:
            run: The table, as if this output were the only one.
            number: Among the outputs of the table, from 0.
            route: Its name, if the table has several outputs.
        """
        self.run, self.number, self.route = run, number, route
        self.destination = run.output.options.destination
        """Where its manifest goes."""
        self.written = run.written
        self.resumed = False
        """An earlier process of the run may have staged some units there."""
        self.finished: dict[str, FinishedUnit] = {}
        """Its units that are done, by their ids."""
        self.failure: AttemptFailure | None = None
        """Why it was dropped, while the other outputs are written."""
        self.manifest: Manifest | None = None
        self.not_compared: tuple[str, ...] | None = None
        """Columns whose values could not be compared, each with the reason; None if none were."""

    @property
    def is_open(self) -> bool:
        return self.failure is None and self.manifest is None

    @cached_property
    def header(self) -> bytes:
        """Preamble and header line; empty for Parquet.

        It is first needed while the workers start, which takes as long as the encoder's import.
        """
        if not isinstance(self.run.output.format, TextFormat):
            return b""
        from writers.text.text_writer import start_of_names

        names = tuple(column.name for column in self.written.columns)
        return start_of_names(names, self.run.output.format)

    def task(self, stem: str, spec: OutputSpec, *, writes_header: bool = True) -> OutputTask:
        """Return a task; on the batch route the writer makes the header."""
        output = self.run.output
        with_header = writes_header and self.written.route == "encoded"
        return OutputTask(
            spec=spec,
            stem=stem,
            header=self.header if with_header else b"",
            writes_header=writes_header,
            encryption=output.options.encryption,
            transform=output.task_transform,
            number=self.number,
            filter=output.options.filter,
            route=self.route,
        )

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Check all names and get ready for the first unit, before anything is read.

        Raises:
            OutputFailed: Something is in the way, or no reader opens the pipe.
            Interrupted: `stop` returned True during a wait.
        """

    def keep(self, name: str, data: bytes) -> None:
        """Write one of the `RECORDS` where the files go, durably; it replaces the previous one.

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
        return ()

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
            manifest: Makes the manifest once the files have final names.
            then: Takes the manifest once all is final, and must not raise. If the process dies
                before it has returned, `resume` still knows the run and does it again.
        """
        yield from ()  # Nothing is waited for.
        gone = [
            replace(unit, files=tuple(replace(file, path=self.name) for file in unit.files))
            for unit in units
        ]
        document = manifest(gone, ())
        then(document)
        return document

    def abandon(self, manifest: Callable[[], Manifest] | None) -> None:
        """End a failed run: keep what may be of use later, or leave no trace."""

    def already_delivered(self) -> str:
        """Return what of a failed run has reached a reader and is not valid; empty if nothing."""
        return ""

    def next_step(self, *, resumable: bool) -> str:
        """Return the user's next step once the cause of a failed run is mended.

        Args:
            resumable: The source can read at the run's snapshot again.
        """
        return FROM_THE_START

    def close(self) -> None:
        """Release the places to others."""


class NullOutput(RunOutput):
    """Output that is dropped, to see how fast a run is without its destination.

    `null:` encodes, compresses and computes checksums as usual, and drops the bytes. `null:rows`
    drops the rows as they are fetched. Every attempt can be repeated. It also takes the place of an
    output that an earlier process of the run has published.
    """

    def __init__(self, run: ResolvedTable, number: int = 0, route: str = "") -> None:
        super().__init__(run, number, route)
        self.name = self.destination

    def tasks(self, unit: WorkUnit, attempt: int) -> tuple[OutputTask, ...]:
        spec = replace(self.run.output.spec(""), stream=os.devnull)
        drops = "rows" if self.name == NULL_ROWS else "bytes"
        return (replace(self.task(unit.id, spec), drops=drops),)


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
        super().__init__(run)
        plan = run.plan
        if isinstance(run.output.format, ParquetFormat) and len(plan.units) > 1:
            raise UsageError(
                f"the plan has {len(plan.units)} work units, but one stream can contain only one "
                "Parquet file",
                "use --split none",
            )
        self._first_unit = min(unit.id for unit in plan.units)
        self._finished_bytes = 0
        self.name = "standard output"
        if pipe:
            folder, template = pipe_template(self.destination)
            self.name = str(folder / Naming.of(run, template, one=True).name(plan.units[0]))
        self._stream = Stream(self.name, is_pipe=pipe)

    def begin(self, observe: Observer, stop: Stop) -> None:
        self._stream.open(
            open_seconds=self.run.output.options.pipe_seconds,
            stall_seconds=self.run.request.retry.stall_seconds,
            stop=stop,
            notify=lambda text: observe(Notice(text=text)),
        )

    def tasks(self, unit: WorkUnit, attempt: int) -> tuple[OutputTask, ...]:
        spec = replace(self.run.output.spec(""), stream=self._stream.path)
        return (self.task("stream", spec, writes_header=unit.id == self._first_unit),)

    def check(self) -> None:
        self._stream.check()

    def shown_event(self, event: Event) -> Event:
        if isinstance(event, UnitFailed):
            return replace(event, message=event.message.replace(self._stream.path, self.name))
        return event

    def not_repeatable(self) -> str:
        if self._stream.taken <= self._finished_bytes:
            return ""
        return (
            f"the attempt cannot be retried, because bytes of it were already sent to {self.name}"
        )

    def record(self, unit: FinishedUnit) -> Event | None:
        self._finished_bytes += sum(file.bytes for file in unit.files)
        return None

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        self._stream.finish()
        return (yield from super().publishing(units, manifest, stop, then))

    def abandon(self, manifest: Callable[[], Manifest] | None) -> None:
        self._stream.break_off()

    def already_delivered(self) -> str:
        sent = self._stream.passed
        return f"the {sent:,} bytes sent to {self.name} are not valid output" if sent else ""

    def close(self) -> None:
        self._stream.close()
