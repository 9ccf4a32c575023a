"""Several outputs as one: each is written, counted, published and resumed as if it were alone.

An output has its own directory with its own record, journal and manifest. A unit is done when every
output that is to be written has it. An output that fails ends the run, or is dropped. A dropped
output publishes nothing and keeps its files for `resume`, and the other outputs continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.errors import (
    OutputFailed,
    PartialUnload,
    UnloaderError,
    VerifyMismatch,
    translate,
)
from unloader.events import Event, Notice, Observer, RouteFinished, silent
from unloader.failures import error_of, failure_of
from unloader.manifest.model import Manifest, OtherRoute, RouteRecord
from unloader.model import AttemptFailure, FinishedUnit, OutputResult, OutputTask
from unloader.nouns import counted
from unloader.resolve.resolved import ResolvedTable, of_output
from unloader.resolve.run_record import single_record
from unloader.run.file_output import left_of_output
from unloader.run.journal import Progress
from unloader.run.outputs import (
    MakeManifest,
    NullOutput,
    RunOutput,
    Stop,
    WrittenRoute,
    continued,
)
from unloader.storage.place_names import is_kept
from unloader.storage.storage_protocol import RUN_RECORD, LiveStorage
from writers.files.syncing import Steps

T = TypeVar("T")

OpenOutput = Callable[[ResolvedTable, bool], RunOutput]
"""Opens one output; True if an earlier process of the run may have staged units there."""


class RouteOutputs(RunOutput):
    """All outputs of a table that has several."""

    is_kept = True

    def __init__(
        self, run: ResolvedTable, open_one: OpenOutput, *, resumed: bool, one_of_many: bool = False
    ) -> None:
        """Take the places of all, or of none.

        Args:
            run: The run to write.
            open_one: Opens one output of the table.
            resumed: An earlier process of the run has begun it.
            one_of_many: The table is one of several.

        Raises:
            OutputFailed: One cannot be taken.
        """
        self._run = run
        self._one_of_many = one_of_many
        self._drops = run.request.on_route_failure == "drop"
        self._observe: Observer = silent
        self.routes: list[RouteState] = []
        with ExitStack() as taken:
            for number in range(len(run.outputs)):
                state = _opened(run, number, open_one, resumed=resumed)
                taken.callback(state.output.close)
                self.routes.append(state)
            self._taken = taken.pop_all()

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The manifests of the published routes."""
        return tuple(route.manifest for route in self.routes if route.manifest is not None)

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Check the names of all."""
        self._observe = observe
        for route in self._open():
            route.output.begin(observe, stop)

    def keep(self, name: str, data: bytes) -> None:
        """Keep a record in each directory: any of them resumes all routes."""
        for route in self._open():
            route.output.keep(name, data)

    def progress(self, tick: Callable[[], None]) -> Progress:
        """Return the units that all have; the others are read again for routes that lack them."""
        attempts: dict[str, int] = {}
        for route in self._open():
            if route.is_new and not self._one_of_many:
                route.output.keep(RUN_RECORD, single_record(self._run))
            found = route.output.progress(tick)
            route.finished.update(found.finished)
            for unit, attempt in found.attempts.items():
                attempts[unit] = max(attempt, attempts.get(unit, 0))
        return Progress(finished=self._done_by_all(), attempts=attempts)

    def live(self) -> LiveStorage | None:
        """Return the directories of all as one place."""
        storages = [storage for route in self._open() if (storage := route.output.live())]
        return AllPlaces(storages) if storages else None

    def tasks(self, unit: WorkUnit, attempt: int) -> tuple[OutputTask, ...]:
        """Return where each writes that does not have the unit yet."""
        lacking = [route for route in self._open() if unit.id not in route.finished]
        found: list[OutputTask] = []
        # Where the only one that lacked it was dropped, all take it again.
        for route in lacking or self._open():
            made = self._try(route, partial(route.output.tasks, unit, attempt)) or ()
            found += (replace(t, number=route.number, route=route.name) for t in made)
        return tuple(found)

    def check(self) -> None:
        """Check all."""
        for route in self._open():
            self._try(route, route.output.check)

    def record(self, unit: FinishedUnit) -> Event | None:
        """Record the part of a unit in each route; drop the routes that failed with it."""
        for result in unit.outputs or ():
            route = self.routes[result.number]
            if result.failure is not None:
                self._drop(route, result.failure)
            if not route.is_open:
                continue
            own = route.own(unit, result)
            event = self._try(route, partial(route.output.record, own))
            if route.is_open:
                route.finished[unit.unit] = own
            if event is not None:
                self._observe(event)
        return None

    def failed(self, unit: str, attempt: int, message: str) -> None:
        """Put a failed attempt on record with all."""
        for route in self._open():
            route.output.failed(unit, attempt, message)

    def discard(self, unit: str, attempt: int) -> None:
        """Remove what a broken attempt has staged, of each that did not have the unit before."""
        for route in self.routes:
            if route.manifest is None and not route.is_abandoned:
                route.output.discard(unit, attempt)

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> tuple[str, ...]:
        """Read the files of all again; the manifest of each records files that cannot be
        compared."""
        for route in self._open():
            if route.output.is_kept:
                own = self._of(route, units)
                route.not_compared = self._try(route, partial(route.output.read_back, own, stop))
        return ()

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Publish one after the other; return the manifest of the first.

        Raises:
            PartialUnload: Some were dropped; the others are published.
        """
        for route in self.routes:
            if route.is_open:
                make = _maker(manifest, partial(self._written, route))
                act = route.output.publishing(self._of(route, units), make, stop, then)
                try:
                    route.manifest = yield from act
                except Exception as error:
                    self._drop_for(route, error)
            elif route.manifest is not None:
                then(route.manifest)  # The process that published it may have died just there.
            # A route that an earlier process published is reported, too: it is a part of this run.
            if route.manifest is not None:
                self._observe(_finished(route, route.manifest))
        dropped = [route for route in self.routes if route.failure is not None]
        if dropped:
            raise self._partial(dropped)
        first = self.routes[0].manifest
        assert first is not None
        return first

    def abandon(self, units: Sequence[FinishedUnit], manifest: MakeManifest | None) -> None:
        """Keep the resumable part of each unpublished route, or remove all traces."""
        for route in self.routes:
            if route.manifest is not None or route.is_abandoned:
                continue
            route.is_abandoned = True
            make = None if manifest is None else _maker(manifest, partial(self._written, route))
            with suppress(UnloaderError, OSError):
                route.output.abandon(tuple(route.finished.values()), make)

    def next_step(self, *, resumable: bool) -> str:
        """Return how to go on with the first that is not published."""
        left = [route for route in self.routes if route.manifest is None and route.output.is_kept]
        return (left or self.routes)[0].output.next_step(resumable=resumable)

    def close(self) -> None:
        """Release the places of all."""
        self._taken.close()

    def _open(self) -> list[RouteState]:
        return [route for route in self.routes if route.is_open]

    def _of(self, route: RouteState, units: Sequence[FinishedUnit]) -> list[FinishedUnit]:
        return [route.finished[unit.unit] for unit in units]

    def _done_by_all(self) -> dict[str, FinishedUnit]:
        routes = self._open()
        return {
            unit: as_read([route.finished[unit] for route in routes])
            for unit in routes[0].finished
            if all(unit in route.finished for route in routes)
        }

    def _written(self, route: RouteState) -> WrittenRoute:
        record = RouteRecord(
            name=route.name,
            others=tuple(
                OtherRoute(name=each.name, to=each.directory)
                for each in self.routes
                if each is not route
            ),
            dropped=tuple(each.name for each in self.routes if each.failure is not None),
        )
        return WrittenRoute(run=route.run, record=record, not_compared=route.not_compared)

    def _try(self, route: RouteState, do: Callable[[], T]) -> T | None:
        """Do something for one route; where that is to be dropped, its failure is not the run's."""
        try:
            return do()
        except Exception as error:
            self._drop_for(route, error)
        return None

    def _drop_for(self, route: RouteState, error: Exception) -> None:
        """Go on without a route, where that is to be done.

        Raises:
            Exception: The error, where it is not.
        """
        known = translate(error) if self._drops else None
        if not isinstance(known, (OutputFailed, VerifyMismatch)):
            raise error
        self._drop(route, failure_of(error))

    def _drop(self, route: RouteState, failure: AttemptFailure) -> None:
        """Go on without a route.

        Raises:
            UnloaderError: Its failure, if it is the last one.
        """
        if route.failure is not None:
            return
        route.failure = failure
        if not self._open():
            raise error_of(failure)
        text = f"route {route.name} is abandoned: {failure.message}"
        self._observe(Notice(text=text))

    def _partial(self, dropped: Sequence[RouteState]) -> UnloaderError:
        named = "; ".join(
            f"route {each.name}: {each.failure.message}" for each in dropped if each.failure
        )
        done = [each for each in self.routes if each.manifest is not None]
        where = ", ".join(f"{each.name} in {each.directory}" for each in done)
        hint = next((each.failure.hint for each in dropped if each.failure), "")
        # Several tables are resumed together.
        return PartialUnload(
            f"{len(dropped)} of {counted(len(self.routes), 'route')} failed: {named}; complete: "
            f"{where}",
            hint if self._one_of_many else continued(hint, self.next_step(resumable=True)),
        )


def _opened(run: ResolvedTable, number: int, open_one: OpenOutput, *, resumed: bool) -> RouteState:
    """Return a route with its places taken, or with its manifest if it is published already."""
    own = of_output(run, number)
    name = (run.request.routes or ())[number].name
    if not resumed or not is_kept(own.output.options.destinations):
        return RouteState(number=number, name=name, run=own, output=open_one(own, False))
    left = left_of_output(own)
    if left.manifests:
        nothing, (manifest,) = NullOutput(own), left.manifests
        return RouteState(number=number, name=name, run=own, output=nothing, manifest=manifest)
    state = RouteState(
        number=number, name=name, run=own, output=open_one(own, left.what == "units")
    )
    state.is_new = left.what == "nothing"
    return state


def _finished(route: RouteState, manifest: Manifest) -> RouteFinished:
    totals = manifest.totals
    return RouteFinished(
        route=route.name,
        rows=totals.rows,
        bytes=totals.bytes,
        files=totals.files,
        directory=route.directory,
    )


def _maker(manifest: MakeManifest, written: Callable[[], WrittenRoute]) -> MakeManifest:
    """Return what makes the manifest of one route."""

    def make(
        units: Sequence[FinishedUnit],
        directories: tuple[str, ...] = (),
        route: WrittenRoute | None = None,
    ) -> Manifest:
        return manifest(units, directories, route or written())

    return make


class AllPlaces:
    """Several places as one; see `unloader.storage.storage_protocol.LiveStorage`."""

    def __init__(self, storages: Sequence[LiveStorage]) -> None:
        """Take them; at least one."""
        self._storages = tuple(storages)

    def show(self, data: bytes) -> None:
        """Show it at each."""
        trouble = None
        for storage in self._storages:
            try:
                storage.show(data)
            except OSError as error:
                trouble = error
        if trouble is not None:
            raise trouble

    def marks(self) -> tuple[str, ...]:
        """Return the marks of all places."""
        return tuple(mark for storage in self._storages for mark in storage.marks())

    def stop_asked(self) -> bool:
        """Return whether a stop was requested at any place."""
        return any(storage.stop_asked() for storage in self._storages)

    def wish(self) -> bytes:
        """Return a request that was made at one of the places."""
        return next(filter(None, (storage.wish() for storage in self._storages)), b"")


class RouteState(Struct, kw_only=True):
    """One output of several."""

    number: int
    """Among the outputs of the run, from 0."""
    name: str
    run: ResolvedTable
    """As if it were the only output."""
    output: RunOutput
    is_new: bool = True
    """No earlier process of the run has begun it."""
    finished: dict[str, FinishedUnit] = field(default_factory=dict)
    """Its units that are done, by their ids."""
    failure: AttemptFailure | None = None
    """Why it was dropped."""
    manifest: Manifest | None = None
    """Once it is published."""
    not_compared: tuple[str, ...] | None = None
    is_abandoned: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it is to be written and published."""
        return self.failure is None and self.manifest is None

    @property
    def directory(self) -> str:
        """Where its manifest goes."""
        return self.run.output.options.destination

    def own(self, unit: FinishedUnit, result: OutputResult) -> FinishedUnit:
        """Return the route's part of a unit, as if the route were the only output."""
        return replace(
            unit,
            rows=result.rows,
            filtered=result.filtered,
            files=result.files,
            stages=result.stages,
            content=result.content,
            outputs=None,
        )


def as_read(units: Sequence[FinishedUnit]) -> FinishedUnit:
    """Return the parts of a unit in all routes as one finished unit."""
    first = units[0]
    files = tuple(file for unit in units for file in unit.files)
    return replace(first, rows=first.scanned, filtered=None, files=files, content=None)
