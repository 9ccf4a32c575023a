"""One stream for all work units: standard output, or one named pipe.

The units go one after the other, in table order, through one worker, so that what arrives is what
`--file-per table` would write. Nothing can be staged or taken back: an attempt is repeated as long
as nothing of it has left, and what is found wrong later only the exit status says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from unloader.engine.schedule import Assignment
from unloader.errors import UsageError
from unloader.events import Event, Notice, Observer, UnitFailed
from unloader.manifest.model import Manifest
from unloader.model import FinishedUnit, OutputTask
from unloader.resolve.outputs.naming import Naming
from unloader.resolve.resolved import ResolvedRun
from unloader.run.journal import Progress
from unloader.run.outputs.base import MakeManifest, Stop
from unloader.run.outputs.headers import Headers
from unloader.storage.kinds import pipe_template
from unloader.storage.streams.stream import FROM_THE_START, Patience, Stream
from writers.files.syncing import Steps
from writers.model import ParquetFormat


class StreamOutput:
    """Standard output or a named pipe; see `unloader.run.outputs.base.RunOutput`."""

    in_order = True
    manifests: tuple[Manifest, ...] = ()
    is_kept = False

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
                f"the plan has {len(plan.units)} work units, but one stream can contain only one "
                "Parquet file",
                "use --split none",
            )
        self._run = run
        self._headers = Headers(run.written, run.output.format)
        self._first_unit = min(unit.id for unit in plan.units)
        self._finished_bytes = 0
        self.name = "standard output"
        if pipe:
            folder, template = pipe_template(run.output.options.destination)
            naming = Naming.of(run, template, one=True)
            self.name = str(folder / naming.name(plan.units[0]))
        self._stream = Stream(self.name, is_pipe=pipe)

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Wait for the pipe's reader; see `RunOutput`."""
        self._stream.open(
            Patience(
                open_seconds=self._run.output.options.pipe_seconds,
                stall_seconds=self._run.request.retry.stall_seconds,
                stop=stop,
                notify=lambda text: observe(Notice(text=text)),
            )
        )

    def keep(self, name: str, data: bytes) -> None:
        """Do nothing: a stream has no place for a record."""

    def progress(self, tick: Callable[[], None]) -> Progress:
        """Return nothing: a run to a stream cannot be resumed."""
        return Progress()

    def live(self) -> None:
        """Return None: other processes cannot see the run."""

    def tasks(self, assignment: Assignment) -> tuple[OutputTask, ...]:
        """Return the way into the relay; the first unit begins with the header."""
        first = assignment.unit.id == self._first_unit
        task = OutputTask(
            spec=replace(self._run.output.spec(""), stream=self._stream.path),
            stem="stream",
            header=self._headers.of_task(first),
            writes_header=first,
            encryption=self._run.output.options.encryption,
            transform=self._run.output.task_transform,
            filter=self._run.output.options.filter,
        )
        return (task,)

    def check(self) -> None:
        """Raise OutputFailed if the reader has gone or the stream refused."""
        self._stream.check()

    def shown_event(self, event: Event) -> Event:
        """Return the event with the name that the user knows."""
        if isinstance(event, UnitFailed):
            message = event.message.replace(self._stream.path, self.name)
            event = replace(event, message=message)
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

    def failed(self, assignment: Assignment, message: str) -> None:
        """Do nothing: a stream has no record."""

    def discard(self, assignment: Assignment) -> None:
        """Do nothing: sent bytes cannot be taken back."""

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> tuple[str, ...]:
        """Refuse: nothing is left to be read."""
        raise UsageError(f"the output to {self.name} cannot be read back", "use --verify count")

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Pass the rest on and end the stream."""
        self._stream.finish()
        sent = [
            replace(unit, files=tuple(replace(file, path=self.name) for file in unit.files))
            for unit in units
        ]
        document = manifest(sent, ())
        then(document)
        yield from ()  # Nothing is waited for.
        return document

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
