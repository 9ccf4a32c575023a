"""A named pipe for each work unit, which its worker writes to itself.

A reader must take the pipes as they come: as many at a time as there are workers, in plan order.
An attempt is repeated only while its pipe has no reader yet; the end of a broken one looks to the
reader like the end of the data, and only our exit status tells the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from unloader.engine.schedule import Assignment
from unloader.errors import UsageError
from unloader.events import Event, Notice, Observer, UnitAdvanced
from unloader.manifest.build import FinishedUnit
from unloader.manifest.model import Manifest
from unloader.model import OutputTask
from unloader.request.file_names import check_distinct
from unloader.resolve.outputs.naming import Naming
from unloader.resolve.resolved import ResolvedRun
from unloader.run.journal import Progress
from unloader.run.outputs.base import MakeManifest, Stop
from unloader.run.outputs.headers import Headers
from unloader.storage.kinds import pipe_template
from unloader.storage.streams.stream import FROM_THE_START
from unloader.storage.streams.unit_pipes import UnitPipes
from writers.files.syncing import Steps


class PipeOutput:
    """Named pipes; see `unloader.run.outputs.base.RunOutput`."""

    in_order = False
    manifests: tuple[Manifest, ...] = ()
    is_kept = False

    def __init__(self, run: ResolvedRun) -> None:
        """Work out the names.

        Raises:
            ConfigError: A name is too long, or two are one.
        """
        folder, template = pipe_template(run.output.options.destination)
        names = Naming.of(run, template, one=False).first_names(run.plan.units)
        check_distinct(names.values())
        self._paths = {unit: str(folder / name) for unit, name in names.items()}
        self._numbers = {unit: number for number, unit in enumerate(names)}
        self._output = run.output
        self._headers = Headers(run.written, run.output.format)
        self._pipes = UnitPipes(tuple(self._paths.values()))
        self._waiting: set[str] = set()
        self._opened: set[str] = set()

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Make the pipes that are not there."""
        self._pipes.provide()

    def keep(self, name: str, data: bytes) -> None:
        """Do nothing: a stream has no place for a record."""

    def progress(self, tick: Callable[[], None]) -> Progress:
        """Return nothing: what has left through a stream cannot be gone on with."""
        return Progress()

    def live(self) -> None:
        """Return that there is no place where others could look."""

    def tasks(self, assignment: Assignment) -> tuple[OutputTask, ...]:
        """Return the unit's pipe, whose reader the worker waits for."""
        staging = self._pipes.staging(self._numbers[assignment.unit.id])
        task = OutputTask(
            spec=replace(self._output.spec(staging.directory), stream=staging.stream),
            stem=assignment.unit.id,
            header=self._headers.of_task(True),
            encryption=self._output.options.encryption,
            transform=self._output.task_transform,
            reader_seconds=self._output.options.pipe_seconds,
            filter=self._output.options.filter,
        )
        return (task,)

    def check(self) -> None:
        """Check the pipes."""
        self._pipes.check()

    def filter_event(self, event: Event) -> tuple[Event, ...]:
        """Learn whose pipe has a reader; report once each that waits for one."""
        if isinstance(event, UnitAdvanced):
            if not event.waiting_for:
                self._opened.add(event.unit)
            elif event.unit not in self._waiting:
                self._waiting.add(event.unit)
                return Notice(text=f"waiting for a reader of {event.waiting_for}"), event
        return (event,)

    def not_repeatable(self, unit: str) -> str:
        """Return why an attempt cannot be repeated: its pipe has been opened."""
        if unit not in self._opened:
            return ""
        return f"the attempt cannot be retried, because {self._paths[unit]} was already opened"

    def record(self, unit: FinishedUnit) -> Event | None:
        """Do nothing: there is no journal."""
        return None

    def failed(self, assignment: Assignment, message: str) -> None:
        """Do nothing: there is no record."""

    def discard(self, assignment: Assignment) -> None:
        """Do nothing: what has left cannot be taken back."""

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> tuple[str, ...]:
        """Refuse: nothing is left to be read."""
        raise UsageError("the output to pipes cannot be read back", "use --verify count")

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Return the manifest: all has been read, or is in the hands of the system."""
        self._pipes.commit((), b"")
        sent = [
            replace(
                unit,
                finals=tuple(
                    replace(file, path=self._paths[unit.result.unit]) for file in unit.result.files
                ),
            )
            for unit in units
        ]
        document = manifest(sent, ())
        then(document)
        yield from ()  # Nothing is waited for.
        return document

    def abandon(self, units: Sequence[FinishedUnit], manifest: MakeManifest | None) -> None:
        """Leave the pipes as they are: what has left cannot be taken back."""
        self._pipes.abandon(None)

    def already_delivered(self) -> str:
        """Return what went through pipes."""
        if not self._opened:
            return ""
        first = self._paths[min(self._opened)]
        more = f" and {len(self._opened) - 1} more pipes" if len(self._opened) > 1 else ""
        return f"the data sent through {first}{more} is not valid output"

    def next_step(self, *, resumable: bool) -> str:
        """Return that everything begins anew."""
        return FROM_THE_START

    def close(self) -> None:
        """Remove the pipes made here."""
        self._pipes.close()
