"""Files in one or several directories, all of them published or none."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.errors import OutputFailed, VerifyMismatch
from unloader.events import DirectoryFilled, Event, Notice, Observer, silent
from unloader.manifest.model import Manifest
from unloader.manifest.read import digest_at_end, manifest_bytes, read_index, read_manifest
from unloader.model import COMPARING, FinishedUnit, OutputTask
from unloader.request.name_templates import check_distinct
from unloader.resolve.places import Naming, stripes
from unloader.resolve.resolved import ResolvedTable, of_output
from unloader.run.journal import (
    Progress,
    compacted,
    failed_line,
    read_journal,
    staged_line,
    started_line,
    without,
)
from unloader.run.outputs import Headers, MakeManifest, RunOutput, Stop, check_stop, task_of
from unloader.secrets.encryption_keys import with_keys
from unloader.storage.place_names import absolute, is_kept, path_of
from unloader.storage.storage_lookup import storage_at, unreadable
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    Claim,
    LiveStorage,
    Move,
    RunStorage,
    Staging,
)
from unloader.verification.files import (
    TABLE,
    Advance,
    CheckedFile,
    Fetched,
    Reading,
    check_file,
    fetched_of,
    in_parallel,
    read_files,
    some_of,
)
from writers.content.sums import total
from writers.errors import StoreFailed, Superseded, WriteError
from writers.files.direct_io import refusal
from writers.files.syncing import Steps
from writers.model import ContentSums, FinalNames, OutputSpec
from writers.objects.location import is_location

_BEFORE = "before the files had their final names"

_SYNCED_FROM_BYTES = 1024 * 1024
"""Smaller files of one of many tables are synced by the parent, many at a time: the worker would
wait longer for the disk than it takes to write them (guess)."""


class FileOutput(RunOutput):
    """Directories with files, or prefixes of an object store."""

    is_kept = True

    def __init__(self, run: ResolvedTable, *, resumed: bool = False, home: str = "") -> None:
        """Find the names of all files; the directories are taken by `take`.

        Args:
            run: The run to write.
            resumed: An earlier process of the run may have staged some units there.
            home: See `Claim.home`.

        Raises:
            ConfigError: A file name is too long, or two files would have one.
        """
        output = run.output.options
        self._run, self._output = run, run.output
        self._one = output.file_per == "table"
        self._written = run.written
        self._parallelism = len(run.seating.seats)
        self._headers = Headers(run)
        self._units = {unit.id: unit for unit in run.plan.units}
        self._naming = Naming.of(run, output.file_name, one=self._one)
        self._stripes = stripes(run.plan, len(output.destinations))
        self._filled: dict[int, tuple[int, int]] = {}
        self._joined: Sequence[FinishedUnit] = ()
        self._resumed = resumed
        self._synced_from = _SYNCED_FROM_BYTES if home else 0
        self._first_names = self._naming.first_names(run.plan.units)
        check_distinct(self._first_names.values())
        self._claim = Claim(
            places=output.destinations,
            run_id=run.run_id,
            overwrite=output.overwrite,
            read_index=read_index,
            resumed=resumed,
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
        """Read the journal and every staged file; remove unconfirmed files."""
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

    def tasks(self, unit: WorkUnit, attempt: int) -> tuple[OutputTask, ...]:
        """Return the staging directory, and a name unique to the attempt."""
        # On record before any process can write under this name: the next process of a run that
        # was killed does not use it again.
        self._storage.append(JOURNAL, started_line(unit.id, attempt))
        staging = self._storage.staging(self._stripes[unit.id])
        task = task_of(self._run, _stem(unit.id, attempt))
        spec = replace(
            self._output.spec(staging.directory),
            min_free_bytes=self._output.options.min_free_bytes,
            synced_from_bytes=self._synced_from,
            # All parts are read again to be joined.
            stays_cached=self._one,
            finals=self._finals(unit, staging),
        )
        header = self._headers.of_task(not self._one)
        return (replace(task, spec=spec, header=header, writes_header=not self._one),)

    def _finals(self, unit: WorkUnit, staging: Staging) -> FinalNames | None:
        """Return where a unit's files are uploaded to, where they are not staged."""
        if not staging.finals:
            return None
        return FinalNames(place=staging.finals, name=self._naming.of_unit(unit))

    def check(self) -> None:
        """Look whether a place was lost; what cannot be written, workers find out themselves."""
        self._storage.check()

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

    def failed(self, unit: str, attempt: int, message: str) -> None:
        """Write it into the journal, unless what failed is the disk."""
        if self._taken is None:
            return
        with suppress(OutputFailed):
            self._storage.append(JOURNAL, failed_line(unit, attempt, message))

    def _fill(self, unit: FinishedUnit) -> Event | None:
        """Return how full the unit's directory is, where there are several."""
        if len(self._storage.places) == 1:
            return None
        number = self._stripes[unit.unit]
        units, size = self._filled.get(number, (0, 0))
        size += sum(file.bytes for file in unit.files)
        self._filled[number] = (units + 1, size)
        directory = self._storage.places[number]
        return DirectoryFilled(directory=directory, units=units + 1, bytes=size)

    def discard(self, unit: str, attempt: int) -> None:
        """Remove what a broken attempt has staged."""
        if self._taken is not None:
            self._taken.discard(_stem(unit, attempt))

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
            # A damaged part must not be joined: a new checksum would hide the damage.
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
        found = read_files(files, reading, self._observe, lambda: check_stop(stop, _BEFORE))
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
        check_stop(stop, _BEFORE)
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
        check_stop(stop, _BEFORE)
        document = manifest(published, self._listed())
        data = manifest_bytes(document)
        document = replace(document, digest=digest_at_end(data))
        told = yield from self._storage.committing(moves, data, lambda: then(document))
        for text in told:
            self._observe(Notice(text=text))
        return document

    def abandon(self, units: Sequence[FinishedUnit], manifest: MakeManifest | None) -> None:
        """Keep the staged files with a partial manifest, or remove all traces."""
        if self._taken is not None:
            self._taken.abandon(None if manifest is None else manifest_bytes(manifest(units)))

    def next_step(self, *, resumable: bool) -> str:
        """Return how to go on with the finished units, or where they are if that cannot be."""
        if resumable:
            return f"continue with: unloader resume {shlex.quote(self._storage.places[0])}"
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

        return with_keys(spec, self._output.options.encryption)

    def _check_direct(self, observe: Observer) -> None:
        """Say once where files will go through the page cache after all."""
        for place, staging in zip(self._storage.places, self._stagings(), strict=True):
            why = _no_direct_io(staging.directory)
            if why is not None:
                text = f"{place}: no direct I/O, {why}; files are written normally"
                observe(Notice(text=text))

    def _stagings(self) -> list[Staging]:
        return [self._storage.staging(number) for number in range(len(self._storage.places))]

    def _listed(self) -> tuple[str, ...]:
        places = self._storage.places
        return tuple(map(absolute, places)) if len(places) > 1 else ()

    def _part(self, unit: FinishedUnit) -> str:
        return TABLE if self._one else f"unit {unit.unit}"

    def _contents(self, units: Sequence[FinishedUnit]) -> dict[str, ContentSums]:
        """Return the checksums of the fetched data, by the part whose files hold it."""
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
            check=lambda: check_stop(stop, _BEFORE),
            read=lambda name: self._storage.staged_file(0, name),
        )
        first, *others = ordered
        return [
            replace(first, files=(joined,)),
            *(replace(unit, files=()) for unit in others),
        ]


def _no_direct_io(directory: str) -> str | None:
    """Return why the staged files of a directory cannot be written directly, None where they
    can."""
    if is_location(directory):
        return "it is in an object store"
    return refusal(Path(directory)) if directory else None


def _reads_staged(run: ResolvedTable) -> bool:
    """Return whether files are read again before they have final names: to compare or join them."""
    return run.request.verify in COMPARING or run.output.options.file_per == "table"


def _stem(unit: str, attempt: int) -> str:
    return f"{unit}-a{attempt}"


MOST_THREADS = 8
"""Checksums and reads leave the interpreter; more threads than that no disk has use for."""


def damaged_units(
    storage: RunStorage, finished: Mapping[str, FinishedUnit], tick: Callable[[], None]
) -> dict[str, str]:
    """Return the units whose staged files differ from their report, with the damage.

    Each file is read as a whole, and its size and checksum are compared. An upload cannot be read:
    the sizes and checksums of its parts are compared.

    Args:
        storage: Where the files are staged.
        finished: By id.
        tick: Called several times a second; an error that it raises ends the check.
    """
    jobs = [partial(_damage, storage, unit) for unit in finished.values()]
    threads = min(MOST_THREADS, os.cpu_count() or 1)
    texts = in_parallel(jobs, threads, lambda done, amount: tick())
    return {name: wrong for name, wrong in zip(finished, texts, strict=True) if wrong}


def _damage(storage: RunStorage, unit: FinishedUnit, advance: Advance) -> str:
    """Return the damage to the files of a unit; empty for an intact unit."""
    for file in unit.files:
        try:
            if file.upload is not None:
                storage.compare_upload(file.directory, file.upload)
            else:
                check_file(storage.staged_file(file.directory, file.path), file, advance=advance)
        except StoreFailed as error:
            # A store that does not answer now reports nothing about its files.
            if not isinstance(error, Superseded):
                raise
            return error.message
        except (VerifyMismatch, WriteError) as error:
            return str(getattr(error, "message", error))
    return ""


class Left(Struct, frozen=True, kw_only=True):
    """The remains of one table."""

    what: Literal["all", "units", "nothing"]
    """All is complete, some units may be staged, or it was not begun."""
    manifests: tuple[Manifest, ...] = ()
    """Where all is complete: of each of its outputs that are directories."""


def left_of(run: ResolvedTable) -> Left:
    """Return the remains of a run over one table, with all its outputs.

    The caller has completed interrupted publications.

    Raises:
        OutputFailed: A directory cannot be read.
    """
    found = [
        left_of_output(of_output(run, number))
        for number, output in enumerate(run.outputs)
        if is_kept(output.options.destinations)
    ]
    kinds = {each.what for each in found}
    if kinds == {"all"}:
        return Left(what="all", manifests=tuple(one for each in found for one in each.manifests))
    return Left(what="nothing" if kinds <= {"nothing"} else "units")


def left_of_output(run: ResolvedTable) -> Left:
    """Return the remains of the only output of a run.

    The caller has completed interrupted publications.

    Raises:
        OutputFailed: The directory cannot be read.
    """
    place = run.output.options.destination
    storage = storage_at(place)
    try:
        if MANIFEST in storage.names(place):
            manifest = read_manifest(path_of(place))
            if manifest.run_id == run.run_id:
                return Left(what="all", manifests=(manifest,))
        who = storage.who_was_here(place, counted=False)
    except FileNotFoundError:
        return Left(what="nothing")
    except OSError as error:
        raise unreadable(place, error) from error
    return Left(what="units" if who is not None and who.run_id == run.run_id else "nothing")
