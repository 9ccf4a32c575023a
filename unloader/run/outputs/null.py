"""Output that is dropped, to see how fast a run is without its destination.

`null:` encodes, compresses and sums up as ever, and drops the bytes. `null:rows` drops the rows as
they are fetched. Nothing is kept, so every attempt can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from unloader.engine.schedule import Assignment
from unloader.errors import UsageError
from unloader.events import Event, Observer
from unloader.manifest.model import Manifest
from unloader.model import FinishedUnit, OutputTask
from unloader.resolve.resolved import ResolvedRun
from unloader.run.journal import Progress
from unloader.run.outputs.base import MakeManifest, Stop
from unloader.run.outputs.headers import Headers
from unloader.storage.kinds import NULL_ROWS
from unloader.storage.streams.stream import FROM_THE_START
from writers.files.syncing import Steps


class NullOutput:
    """Nowhere; see `unloader.run.outputs.base.RunOutput`."""

    in_order = False
    manifests: tuple[Manifest, ...] = ()
    is_kept = False

    def __init__(self, run: ResolvedRun) -> None:
        """Take nothing."""
        self._name = run.output.options.destination
        self._spec = replace(run.output.spec(""), stream=os.devnull)
        self._encryption = run.output.options.encryption
        self._filter = run.output.options.filter
        self._transform = run.output.task_transform
        self._headers = Headers(run.written, run.output.format)

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Do nothing: nothing can be in the way."""

    def keep(self, name: str, data: bytes) -> None:
        """Do nothing: there is no place for a record."""

    def progress(self, tick: Callable[[], None]) -> Progress:
        """Return nothing: nothing is kept that could be gone on with."""
        return Progress()

    def live(self) -> None:
        """Return that there is no place where others could look."""

    def tasks(self, assignment: Assignment) -> tuple[OutputTask, ...]:
        """Return a device that takes everything."""
        task = OutputTask(
            spec=self._spec,
            stem=assignment.unit.id,
            header=self._headers.of_task(True),
            encryption=self._encryption,
            transform=self._transform,
            drops="rows" if self._name == NULL_ROWS else "bytes",
            filter=self._filter,
        )
        return (task,)

    def check(self) -> None:
        """Do nothing: nothing can be lost."""

    def shown_event(self, event: Event) -> Event:
        """Return the event."""
        return event

    def not_repeatable(self) -> str:
        """Return that every attempt can be repeated."""
        return ""

    def record(self, unit: FinishedUnit) -> Event | None:
        """Do nothing: there is no journal."""
        return None

    def failed(self, assignment: Assignment, message: str) -> None:
        """Do nothing: there is no record."""

    def discard(self, assignment: Assignment) -> None:
        """Do nothing: nothing is left."""

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> tuple[str, ...]:
        """Refuse: nothing is left to be read."""
        raise UsageError(f"the output to {self._name} cannot be read back", "use --verify count")

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Return the manifest of what was dropped."""
        dropped = [
            replace(unit, files=tuple(replace(file, path=self._name) for file in unit.files))
            for unit in units
        ]
        document = manifest(dropped, ())
        then(document)
        yield from ()  # Nothing is waited for.
        return document

    def abandon(self, units: Sequence[FinishedUnit], manifest: MakeManifest | None) -> None:
        """Do nothing: nothing is left."""

    def already_delivered(self) -> str:
        """Return that nothing has left."""
        return ""

    def next_step(self, *, resumable: bool) -> str:
        """Return that everything begins anew."""
        return FROM_THE_START

    def close(self) -> None:
        """Do nothing: nothing was taken."""
