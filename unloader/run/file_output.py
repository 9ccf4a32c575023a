"""Files in one or several directories, all of them published or none."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.costs import shares
from partition_planner.model import WorkUnit
from unloader.errors import OutputFailed, VerifyMismatch
from unloader.events import DirectoryFilled, Event, Notice, Observer, silent
from unloader.manifest.model import Manifest
from unloader.manifest.read import digest_at_end, manifest_bytes, read_index, read_manifest
from unloader.model import COMPARING, FinishedUnit, OutputTask
from unloader.request.name_templates import any_name, check_distinct
from unloader.resolve.places import Naming
from unloader.resolve.resolved import ResolvedTable
from unloader.run.journal import (
    Progress,
    compacted,
    failed_line,
    read_journal,
    staged_line,
    started_line,
)
from unloader.run.outputs import MakeManifest, RunOutput, Stop, check_stop
from unloader.secrets.encryption_keys import with_keys
from unloader.storage.place_names import absolute, is_kept, path_of
from unloader.storage.storage_lookup import storage_at, unreadable
from unloader.storage.storage_protocol import (
    JOURNAL,
    MANIFEST,
    Claim,
    LiveStorage,
    Move,
    Staging,
)
from writers.files.disk_space import why_not_direct
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

    def __init__(
        self,
        run: ResolvedTable,
        number: int = 0,
        route: str = "",
        *,
        resumed: bool = False,
        home: str = "",
    ) -> None:
        """Take the directories.

        Args:
            run: See `RunOutput`.
            number: See `RunOutput`.
            route: See `RunOutput`.
            resumed: An earlier process of the run may have staged some units there.
            home: See `Claim.home`.

        Raises:
            ConfigError: A file name is too long, or two files would have one.
            OutputFailed: A directory cannot be taken; see `RunDirectories`.
        """
        super().__init__(run, number, route)
        self.resumed = resumed
        output = run.output.options
        self._one = output.file_per == "table"
        self._units = {unit.id: unit for unit in run.plan.units}
        self._naming = Naming.of(run, output.file_name, one=self._one)
        self._stripes = shares(run.plan, len(output.destinations))
        self._filled: dict[int, tuple[int, int]] = {}
        self._joined: Sequence[FinishedUnit] = ()
        self._synced_from = _SYNCED_FROM_BYTES if home else 0
        units = run.plan.units[:1] if self._one else run.plan.units
        self._first_names = {unit.id: self._naming.name(unit) for unit in units}
        check_distinct(self._first_names.values())
        # Files are read again before they have final names: to compare or to join them.
        reads_staged = run.request.verify in COMPARING or self._one
        claim = Claim(
            places=output.destinations,
            run_id=run.run_id,
            overwrite=output.overwrite,
            read_index=read_index,
            resumed=resumed,
            home=home,
            mode=output.mode,
            owner_group=output.owner_group,
            names="" if reads_staged else any_name(output.file_name, self._naming.values),
        )
        self._observe: Observer = silent
        self._storage = storage_at(claim.places[0]).take(claim)

    def begin(self, observe: Observer, stop: Stop) -> None:
        self._observe = observe
        for text in self._storage.notices:
            observe(Notice(text=text))
        names = self._first_names.items()
        self._storage.check_names((self._stripes[unit], name) for unit, name in names)
        if not self.run.output.options.direct_io:
            return
        for place, staging in zip(self._storage.places, self._stagings(), strict=True):
            why = None
            if is_location(staging.directory):
                why = "it is in an object store"
            elif staging.directory:
                why = why_not_direct(Path(staging.directory))
            if why is not None:
                text = f"{place}: no direct I/O, {why}; files are written normally"
                observe(Notice(text=text))

    def keep(self, name: str, data: bytes) -> None:
        self._storage.keep(name, data)

    def progress(self, tick: Callable[[], None]) -> Progress:
        """Read the journal and every staged file; remove unconfirmed files."""
        if not self.resumed:
            return Progress()
        from unloader.verification.files import damaged_units

        found = read_journal(self._storage.recorded(JOURNAL))
        damaged = damaged_units(self._storage, found.finished, tick)
        for unit, wrong in damaged.items():
            text = f"unit {unit} was finished but is read again: {wrong}"
            self._observe(Notice(text=text))
        finished = {
            unit: each
            for unit, each in found.finished.items()
            if unit in self._units and unit not in damaged
        }
        kept = replace(found, finished=finished)
        files = [file for each in finished.values() for file in each.files]
        self._storage.discard_others(
            {(file.directory, file.path) for file in files if file.upload is None},
            {file.upload.id for file in files if file.upload is not None},
        )
        self._storage.keep(JOURNAL, compacted(kept))
        for each in finished.values():
            self._sync_later(each)
            self._fill(each)
        return kept

    def live(self) -> LiveStorage:
        return self._storage

    def tasks(self, unit: WorkUnit, attempt: int) -> tuple[OutputTask, ...]:
        """Return the staging directory, and a name unique to the attempt."""
        # On record before any process can write under this name: the next process of a run that
        # was killed does not use it again.
        self._storage.append(JOURNAL, started_line(unit.id, attempt))
        staging, finals = self._storage.staging(self._stripes[unit.id]), None
        if staging.finals:
            finals = FinalNames(place=staging.finals, name=self._naming.of_unit(unit))
        spec = replace(
            self.run.output.spec(staging.directory),
            min_free_bytes=self.run.output.options.min_free_bytes,
            synced_from_bytes=self._synced_from,
            # All parts are read again to be joined.
            stays_cached=self._one,
            finals=finals,
        )
        return (self.task(_stem(unit.id, attempt), spec, writes_header=not self._one),)

    def check(self) -> None:
        """Look whether a place was lost; what cannot be written, workers find out themselves."""
        self._storage.check()

    def record(self, unit: FinishedUnit) -> Event | None:
        """Write the journal; with several directories return how full the unit's is."""
        directory = self._stripes[unit.unit]
        files = tuple(replace(file, directory=directory) for file in unit.files)
        unit = replace(unit, files=files)
        if self._synced_from:
            self._sync_later(unit)
        self._storage.append(JOURNAL, staged_line(unit))
        return self._fill(unit)

    def _sync_later(self, unit: FinishedUnit) -> None:
        files = [file for file in unit.files if file.bytes < self._synced_from]
        if files:
            self._storage.sync_later((file.directory, file.path) for file in files)

    def failed(self, unit: str, attempt: int, message: str) -> None:
        """Write it into the journal, unless what failed is the disk."""
        with suppress(OutputFailed):
            self._storage.append(JOURNAL, failed_line(unit, attempt, message))

    def _fill(self, unit: FinishedUnit) -> Event | None:
        if len(self._storage.places) == 1:
            return None
        number = self._stripes[unit.unit]
        units, size = self._filled.get(number, (0, 0))
        size += sum(file.bytes for file in unit.files)
        self._filled[number] = (units + 1, size)
        directory = self._storage.places[number]
        return DirectoryFilled(directory=directory, units=units + 1, bytes=size)

    def discard(self, unit: str, attempt: int) -> None:
        self._storage.discard(_stem(unit, attempt))

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> tuple[str, ...]:
        # Imported here: few runs read their files again.
        from unloader.verification.files import (
            TABLE,
            CheckedFile,
            Fetched,
            fetched_of,
            read_files,
            some_of,
        )

        def part_of(unit: FinishedUnit) -> str:
            return TABLE if self._one else f"unit {unit.unit}"

        def compare(
            units: Sequence[FinishedUnit], fetched: Fetched | None, *, header: bool = True
        ) -> None:
            files = [
                CheckedFile(
                    path=self._storage.staged_file(self._stripes[unit.unit], file.path),
                    written=file,
                    header=header,
                    part=part_of(unit),
                )
                for unit in units
                for file in unit.files
            ]
            threads = len(self.run.seating.seats)
            differences, _ = read_files(
                files,
                self._keyed(""),
                threads,
                fetched,
                self._observe,
                lambda: check_stop(stop, _BEFORE),
            )
            if differences:
                raise VerifyMismatch(
                    some_of(differences), "unload the table again, and check the storage"
                )

        contents: dict[str, list[ContentSums]] = {}
        for unit in units:
            if unit.content is not None:
                contents.setdefault(part_of(unit), []).append(unit.content)
        fetched = fetched_of(
            self.written.schema,
            tuple(column.name for column in self.written.columns),
            {part: ContentSums.total(sums) for part, sums in contents.items()},
            self.run.output.format,
        )
        if notice := fetched.notice():
            self._observe(Notice(text=notice))
        if self._one:
            # A damaged part must not be joined: a new checksum would hide the damage.
            compare(units, None, header=False)
        compare(self._final(units, stop), fetched)
        return fetched.not_compared()

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
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
        places = tuple(map(absolute, self._storage.places))
        document = manifest(published, places if len(places) > 1 else ())
        data = manifest_bytes(document)
        document = replace(document, digest=digest_at_end(data))
        told = yield from self._storage.committing(moves, data, lambda: then(document))
        for text in told:
            self._observe(Notice(text=text))
        return document

    def abandon(self, manifest: Callable[[], Manifest] | None) -> None:
        self._storage.abandon(None if manifest is None else manifest_bytes(manifest()))

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
        self._storage.close()

    def _keyed(self, directory: str) -> OutputSpec:
        """Return what reads the files again, or writes one, in this process."""
        output = self.run.output
        spec, encryption = output.spec(directory), output.options.encryption
        return spec if encryption is None else with_keys(spec, encryption)

    def _stagings(self) -> list[Staging]:
        return [self._storage.staging(number) for number in range(len(self._storage.places))]

    def _final(self, ordered: Sequence[FinishedUnit], stop: Stop) -> Sequence[FinishedUnit]:
        """Return the units with the files that are published.

        If one file holds the table, it is joined once. It is listed as the first unit's file.
        """
        if self._one and not self._joined:
            from writers.files.merge import merge_files

            joined = merge_files(
                [file for unit in ordered for file in unit.files],
                self._keyed(self._storage.staging(0).directory),
                "table",
                header=self.header,
                check=lambda: check_stop(stop, _BEFORE),
                read=lambda name: self._storage.staged_file(0, name),
            )
            first, *others = ordered
            self._joined = [
                replace(first, files=(joined,)),
                *(replace(unit, files=()) for unit in others),
            ]
        return self._joined if self._one else ordered


def _stem(unit: str, attempt: int) -> str:
    return f"{unit}-a{attempt}"


class Left(Struct, frozen=True, kw_only=True):
    """The remains of one table."""

    what: Literal["all", "units", "nothing"]
    """All is complete, some units may be staged, or it was not begun."""
    outputs: tuple[Manifest | bool, ...] = ()
    """Of each output its manifest if it is published, else whether units may be staged there."""


def left_of(run: ResolvedTable) -> Left:
    """Return the remains of a table with all its outputs.

    The caller has completed interrupted publications.

    Raises:
        OutputFailed: A directory cannot be read.
    """
    found: list[Manifest | bool] = []
    for output in run.outputs:
        place, left = output.options.destination, False
        if not is_kept(output.options.destinations):
            found.append(left)
            continue
        storage = storage_at(place)
        try:
            if MANIFEST in storage.names(place):
                manifest = read_manifest(path_of(place))
                if manifest.run_id == run.run_id:
                    found.append(manifest)
                    continue
            who = storage.who_was_here(place, counted=False)
            left = who is not None and who.run_id == run.run_id
        except FileNotFoundError:
            pass
        except OSError as error:
            raise unreadable(place, error) from error
        found.append(left)
    kept = [
        each
        for each, output in zip(found, run.outputs, strict=True)
        if is_kept(output.options.destinations)
    ]
    what: Literal["all", "units", "nothing"] = "units" if any(kept) else "nothing"
    if kept and all(isinstance(each, Manifest) for each in kept):
        what = "all"
    return Left(what=what, outputs=tuple(found))
