"""Files in one or several directories, all of them published or none."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.engine.schedule import Assignment
from unloader.errors import Interrupted, OutputFailed, VerifyMismatch
from unloader.events import DirectoryFilled, Event, Notice, Observer, silent
from unloader.manifest.model import Manifest
from unloader.manifest.read import digest_at_end, manifest_bytes, read_index
from unloader.model import COMPARING, FinishedUnit, OutputTask
from unloader.request.file_names import check_distinct
from unloader.resolve.outputs.naming import Naming
from unloader.resolve.outputs.stripes import stripes
from unloader.resolve.resolved import ResolvedRun
from unloader.run.journal import (
    Progress,
    compacted,
    failed_line,
    read_journal,
    staged_line,
    started_line,
    without,
)
from unloader.run.outputs.base import MakeManifest, Stop
from unloader.run.outputs.headers import Headers
from unloader.run.staged_files import damaged_units
from unloader.storage.base import LiveStorage, RunStorage
from unloader.storage.model import JOURNAL, Claim, Move, Staging
from unloader.storage.opening import storage_at
from unloader.verification.files import (
    TABLE,
    CheckedFile,
    Fetched,
    Reading,
    fetched_of,
    read_files,
    some_of,
)
from writers.content.sums import total
from writers.files.direct_io import refusal
from writers.files.syncing import Steps
from writers.model import ContentSums, FinalNames, OutputSpec
from writers.objects.location import is_location

_SYNCED_FROM_BYTES = 1024 * 1024
"""Smaller files of one of many tables are synced by the parent, many at a time: the worker would
wait longer for the disk than it takes to write them (guess)."""


class FileOutput:
    """Directories with files; see `unloader.run.outputs.base.RunOutput`."""

    in_order = False
    manifests: tuple[Manifest, ...] = ()
    is_kept = True

    def __init__(
        self, run: ResolvedRun, resumed_in: tuple[str, ...] = (), *, home: str = ""
    ) -> None:
        """Find the names of all files; the directories are taken by `take`.

        Args:
            run: What is to be written.
            resumed_in: The directories in which a broken run is gone on with; empty for none.
            home: See `Claim.home`.

        Raises:
            ConfigError: A file name is too long, or two files would have one.
        """
        output = run.output.options
        self._output = run.output
        self._one = output.file_per == "table"
        self._written = run.written
        self._parallelism = len(run.seating.seats)
        self._headers = Headers(run.written, run.output.format)
        self._units = {unit.id: unit for unit in run.plan.units}
        self._naming = Naming.of(run, output.file_name, one=self._one)
        self._stripes = stripes(run.plan, len(output.destinations))
        self._filled: dict[int, tuple[int, int]] = {}
        self._joined: Sequence[FinishedUnit] = ()
        self._resumed = bool(resumed_in)
        self._synced_from = _SYNCED_FROM_BYTES if home else 0
        self._first_names = self._naming.first_names(run.plan.units)
        check_distinct(self._first_names.values())
        self._claim = Claim(
            places=resumed_in or output.destinations,
            run_id=run.run_id,
            overwrite=output.overwrite,
            read_index=read_index,
            resumed=self._resumed,
            home=home,
            mode=output.mode,
            owner_group=output.owner_group,
            names="" if _reads_staged(run) else self._naming.pattern(),
        )
        self._taken: RunStorage | None = None
        self._observe: Observer = silent

    def take(self) -> None:
        """Take the directories; before that nothing is kept, and `begin` comes after it.

        Raises:
            OutputFailed: One cannot be taken; see `RunDirectories`.
        """
        self._taken = storage_at(self._claim.places[0]).take(self._claim)

    @property
    def _storage(self) -> RunStorage:
        assert self._taken is not None
        return self._taken

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Check that all final names are free; report what earlier runs left."""
        self._observe = observe
        for text in self._storage.notices:
            observe(Notice(text=text))
        names = self._first_names.items()
        self._storage.check_names((self._stripes[unit], name) for unit, name in names)
        if self._output.options.direct_io:
            self._check_direct(observe)

    def keep(self, name: str, data: bytes) -> None:
        """Write the record into the first directory's `_run`."""
        self._storage.keep(name, data)

    def progress(self, tick: Callable[[], None]) -> Progress:
        """Read the journal, and every staged file; remove what is not confirmed."""
        if not self._resumed:
            return Progress()
        found = read_journal(self._storage.recorded(JOURNAL))
        strangers = found.finished.keys() - self._units.keys()
        damaged = damaged_units(self._storage, found.finished, tick)
        for unit, wrong in damaged.items():
            text = f"unit {unit} was finished but is read again: {wrong}"
            self._observe(Notice(text=text))
        kept = without(found, strangers | damaged.keys())
        files = [file for each in kept.finished.values() for file in each.files]
        self._storage.discard_others(
            {(file.directory, file.path) for file in files if file.upload is None},
            {file.upload.id for file in files if file.upload is not None},
        )
        self._storage.keep(JOURNAL, compacted(kept))
        for each in kept.finished.values():
            self._sync_later(each)
            self._fill(each)
        return kept

    def live(self) -> LiveStorage:
        """Return the storage."""
        return self._storage

    def tasks(self, assignment: Assignment) -> tuple[OutputTask, ...]:
        """Return the staging directory, and a name unique to the attempt."""
        # On record before any process can write under this name: the next process of a run that
        # was killed does not use it again.
        self._storage.append(JOURNAL, started_line(assignment.unit.id, assignment.attempt))
        staging = self._storage.staging(self._stripes[assignment.unit.id])
        task = OutputTask(
            spec=replace(
                self._output.spec(staging.directory),
                min_free_bytes=self._output.options.min_free_bytes,
                synced_from_bytes=self._synced_from,
                # All parts are read again to be joined.
                stays_cached=self._one,
                finals=self._finals(assignment.unit, staging),
            ),
            stem=_stem(assignment.unit.id, assignment.attempt),
            header=self._headers.of_task(not self._one),
            writes_header=not self._one,
            encryption=self._output.options.encryption,
            transform=self._output.task_transform,
            filter=self._output.options.filter,
        )
        return (task,)

    def _finals(self, unit: WorkUnit, staging: Staging) -> FinalNames | None:
        """Return where a unit's files are uploaded to, where they are not staged."""
        if not staging.finals:
            return None
        return FinalNames(place=staging.finals, name=self._naming.of_unit(unit))

    def check(self) -> None:
        """Look whether a place was lost; what cannot be written, workers find out themselves."""
        self._storage.check()

    def shown_event(self, event: Event) -> Event:
        """Return the event."""
        return event

    def not_repeatable(self) -> str:
        """Return that every attempt can be repeated."""
        return ""

    def record(self, unit: FinishedUnit) -> Event | None:
        """Write the journal; with several directories return how full the unit's is."""
        directory = self._stripes[unit.unit]
        files = tuple(replace(file, directory=directory) for file in unit.files)
        unit = replace(unit, files=files)
        self._sync_later(unit)
        self._storage.append(JOURNAL, staged_line(unit))
        return self._fill(unit)

    def _sync_later(self, unit: FinishedUnit) -> None:
        """Have the files synced that the unit's worker has not."""
        files = [file for file in unit.files if file.bytes < self._synced_from]
        if files:
            self._storage.sync_later((file.directory, file.path) for file in files)

    def failed(self, assignment: Assignment, message: str) -> None:
        """Write it into the journal, unless what failed is the disk."""
        if self._taken is None:
            return
        line = failed_line(assignment.unit.id, assignment.attempt, message)
        with suppress(OutputFailed):
            self._storage.append(JOURNAL, line)

    def _fill(self, unit: FinishedUnit) -> Event | None:
        """Return how full the unit's directory is, where there are several."""
        if len(self._storage.places) == 1:
            return None
        number = self._stripes[unit.unit]
        units, size = self._filled.get(number, (0, 0))
        size += sum(file.bytes for file in unit.files)
        self._filled[number] = (units + 1, size)
        directory = self._storage.places[number].name
        return DirectoryFilled(directory=directory, units=units + 1, bytes=size)

    def discard(self, assignment: Assignment) -> None:
        """Remove what a broken attempt has staged."""
        if self._taken is not None:
            self._taken.discard(_stem(assignment.unit.id, assignment.attempt))

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> tuple[str, ...]:
        """Read every file that is to be published again; see `RunOutput`."""
        fetched = fetched_of(
            self._written.schema,
            tuple(column.name for column in self._written.columns),
            self._contents(units),
            self._output.format,
        )
        if notice := fetched.notice():
            self._observe(Notice(text=notice))
        if self._one:
            # What is wrong with a part is not to be joined, nor to be hidden by a new checksum.
            self._compare(units, None, stop, header=False)
        self._compare(self._final(units, stop), fetched, stop)
        return fetched.not_compared()

    def _compare(
        self,
        units: Sequence[FinishedUnit],
        fetched: Fetched | None,
        stop: Stop,
        *,
        header: bool = True,
    ) -> None:
        files = [
            CheckedFile(
                path=self._storage.staged_file(self._stripes[unit.unit], file.path),
                written=file,
                header=header,
                part=self._part(unit),
            )
            for unit in units
            for file in unit.files
        ]
        spec = self._keyed(self._output.spec(""))
        reading = Reading(spec=spec, parallelism=self._parallelism, fetched=fetched)
        found = read_files(files, reading, self._observe, lambda: _check_stop(stop))
        if found.differences:
            raise VerifyMismatch(
                some_of(found.differences), "unload the table again, and check the storage"
            )

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Give all files their final names, the manifest last."""
        _check_stop(stop)
        moves: list[Move] = []
        published = []
        for finished in self._final(units, stop):
            unit = self._units[finished.unit]
            number = self._stripes[unit.id]
            finals = []
            for part, file in enumerate(finished.files):
                name = self._naming.name(unit, part)
                moves.append(Move(place=number, staged=file.path, final=name, upload=file.upload))
                finals.append(replace(file, path=name, directory=number, upload=None))
            published.append(replace(finished, files=tuple(finals)))
        # From here on a signal comes too late.
        _check_stop(stop)
        document = manifest(published, self._listed())
        data = manifest_bytes(document)
        document = replace(document, digest=digest_at_end(data))
        told = yield from self._storage.committing(moves, data, lambda: then(document))
        for text in told:
            self._observe(Notice(text=text))
        return document

    def abandon(self, units: Sequence[FinishedUnit], manifest: MakeManifest | None) -> None:
        """Keep what is staged with a partial manifest, or leave no trace."""
        if self._taken is not None:
            self._taken.abandon(None if manifest is None else manifest_bytes(manifest(units)))

    def already_delivered(self) -> str:
        """Return that nothing has left."""
        return ""

    def next_step(self, *, resumable: bool) -> str:
        """Return how to go on with the finished units, or where they are if that cannot be."""
        if resumable:
            return f"continue with: unloader resume {shlex.quote(self._storage.places[0].name)}"
        staged = " and ".join(each.label for each in self._stagings())
        return (
            "run again, which starts from the beginning; until then the finished units are "
            f"in {staged}"
        )

    def close(self) -> None:
        """Release the directories."""
        if self._taken is not None:
            self._taken.close()

    def _keyed(self, spec: OutputSpec) -> OutputSpec:
        """Return what reads the files again, or writes one, in this process."""
        if self._output.options.encryption is None:
            return spec
        from unloader.secrets.encryption_keys import with_keys

        return with_keys(spec, self._output.options.encryption)

    def _check_direct(self, observe: Observer) -> None:
        """Say once where files will go through the page cache after all."""
        for place, staging in zip(self._storage.places, self._stagings(), strict=True):
            why = _no_direct_io(staging.directory)
            if why is not None:
                text = f"{place.name}: no direct I/O, {why}; files are written normally"
                observe(Notice(text=text))

    def _stagings(self) -> list[Staging]:
        return [self._storage.staging(number) for number in range(len(self._storage.places))]

    def _listed(self) -> tuple[str, ...]:
        several = len(self._storage.places) > 1
        return tuple(place.address for place in self._storage.places if several)

    def _part(self, unit: FinishedUnit) -> str:
        return TABLE if self._one else f"unit {unit.unit}"

    def _contents(self, units: Sequence[FinishedUnit]) -> dict[str, ContentSums]:
        """Return the checksums of what was fetched, by the part whose files hold it."""
        found: dict[str, list[ContentSums]] = {}
        for unit in units:
            if unit.content is not None:
                found.setdefault(self._part(unit), []).append(unit.content)
        return {part: total(contents) for part, contents in found.items()}

    def _final(self, ordered: Sequence[FinishedUnit], stop: Stop) -> Sequence[FinishedUnit]:
        """Return the units with the files that are published: where there is one, joined once."""
        if not self._one:
            return ordered
        self._joined = self._joined or self._merged(ordered, stop)
        return self._joined

    def _merged(self, ordered: Sequence[FinishedUnit], stop: Stop) -> list[FinishedUnit]:
        """Return the units with the joined file as the first one's, which begins the table."""
        from writers.files.merge import merge_files

        spec = self._keyed(self._output.spec(self._storage.staging(0).directory))
        files = [file for unit in ordered for file in unit.files]
        joined = merge_files(
            files,
            spec,
            "table",
            header=self._headers.table(),
            check=lambda: _check_stop(stop),
            read=lambda name: self._storage.staged_file(0, name),
        )
        first, *others = ordered
        return [
            replace(first, files=(joined,)),
            *(replace(unit, files=()) for unit in others),
        ]


def _no_direct_io(directory: str) -> str | None:
    """Return why what is staged in a directory cannot be written directly, None where it can."""
    if is_location(directory):
        return "it is in an object store"
    return refusal(Path(directory)) if directory else None


def _reads_staged(run: ResolvedRun) -> bool:
    """Return whether files are read again before they have final names: to compare or join them."""
    return run.request.verify in COMPARING or run.output.options.file_per == "table"


def _check_stop(stop: Stop) -> None:
    if stop():
        raise Interrupted("stopped by a signal before the files had their final names")


def _stem(unit: str, attempt: int) -> str:
    return f"{unit}-a{attempt}"
