"""The outputs of a table: files in directories, one stream, or nothing that is kept.

A run asks where each attempt writes, reports what became of it, and at the end publishes or
abandons everything. It never asks what kind of place the output goes to. The files in one or
several directories are all published, or none of them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from partition_planner.costs import shares
from partition_planner.model import WorkUnit
from unloader.errors import Interrupted, OutputFailed, UsageError, VerifyMismatch
from unloader.events import DirectoryFilled, Event, Notice, Observer, silent
from unloader.manifest.model import Manifest
from unloader.manifest.read import digest_at_end, manifest_bytes, read_index
from unloader.model import COMPARING, AttemptFailure, FinishedUnit, OutputTask
from unloader.redaction import redact
from unloader.request.name_templates import any_name, check_distinct, lob_name
from unloader.resolve.places import name_values, names_of, values_of
from unloader.resolve.resolved import ResolvedTable
from unloader.secrets.keys import with_keys
from unloader.storage.place_names import NULL_ROWS, absolute
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import JOURNAL, Claim, Move, RunStorage
from writers.files.disk_space import why_not_direct
from writers.files.syncing import Steps
from writers.model import ContentSums, FinalNames, LobColumn, OutputSpec, TextFormat
from writers.objects.location import is_location

# The journal of a run: what became of each attempt, a JSON object a line. `started` is written
# before the attempt is handed out, `staged` once its files are complete and synced. The last line
# of a unit holds its state. Lines that a power cut has torn or emptied do not count, nor do the
# lines after them: the unit is read again.


class _Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    event: Literal["started", "failed", "staged"]
    unit: str
    attempt: int
    at: str
    message: str = ""
    finished: FinishedUnit | None = None


_decoder = Decoder(_Line)


class Progress(Struct, frozen=True, kw_only=True):
    finished: dict[str, FinishedUnit] = field(default_factory=dict)
    """By id, in the order in which they were done."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Number of the last attempt that was handed out, by the unit's id."""


def line(
    event: Literal["started", "failed", "staged"],
    unit: str,
    attempt: int,
    message: str = "",
    finished: FinishedUnit | None = None,
) -> bytes:
    at, message = datetime.now(UTC).isoformat(timespec="milliseconds"), redact(message)
    found = _Line(
        event=event, unit=unit, attempt=attempt, at=at, message=message, finished=finished
    )
    return encode(found) + b"\n"


def staged_line(unit: FinishedUnit) -> bytes:
    return line("staged", unit.unit, unit.attempt, finished=unit)


def read_journal(data: bytes) -> Progress:
    """Return the progress that a journal shows, as far as the journal was written."""
    found = Progress()
    *lines, _ = data.split(b"\n")
    for each in lines:
        try:
            step = _decoder.decode(each)
        except (ValueError, RecursionError):
            break
        if (step.event == "staged") != (step.finished is not None):
            break
        found.attempts[step.unit] = max(step.attempt, found.attempts.get(step.unit, 0))
        if step.finished is not None:
            found.finished[step.unit] = step.finished
    return found


def compacted(progress: Progress) -> bytes:
    """Return a journal that contains no more than this progress."""
    others = (
        line("started", unit, attempt)
        for unit, attempt in progress.attempts.items()
        if unit not in progress.finished
    )
    return b"".join((*others, *map(staged_line, progress.finished.values())))


Stop = Callable[[], bool]

FROM_THE_START = "unload again from the start"

MakeManifest = Callable[[Sequence[FinishedUnit], tuple[str, ...]], Manifest]
"""Makes the manifest of finished units and of their directories, if there are several. In a
complete run the files of the units have final names."""

_BEFORE = "before the files had their final names"

_SYNCED_FROM_BYTES = 1024 * 1024
"""Smaller files of one of many tables are synced by the parent, many at a time: the worker would
wait longer for the disk than it takes to write them (guess)."""


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
    """One output of a table, which keeps nothing: `null:`, and the base of the outputs that do.

    `null:` encodes, compresses and computes checksums as usual, and drops the bytes. `null:rows`
    drops the rows as they are fetched. Every attempt can be repeated. A `RunOutput` also takes the
    place of an output that an earlier process of the run has published.
    """

    is_kept = False
    """The written data can be read again."""
    in_order = False
    """The units must come one after the other, in table order, through one worker."""
    resumed = False
    """An earlier process of the run may have staged some units there."""
    storage: RunStorage | None = None
    """Where others see the run and can end it; None if nothing is kept."""

    def __init__(self, run: ResolvedTable, number: int = 0, route: str = "") -> None:
        """Take a table with this output alone, its number of the table's, and its name if any."""
        self.run, self.number, self.route = run, number, route
        self.destination = run.output.options.destination
        """Where its manifest goes."""
        self.name = self.destination
        """The place, in messages."""
        self.written = run.written
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
        """Preamble and header line; made late, as the encoder's import takes long."""
        if not isinstance(self.run.output.format, TextFormat):
            return b""
        from writers.text.text_writer import start_of_names

        names = tuple(column.name for column in self.written.columns)
        return start_of_names(names, self.run.output.format)

    def _task(self, stem: str, spec: OutputSpec, *, writes_header: bool = True) -> OutputTask:
        """Return a task; on the batch route the writer makes the header."""
        output = self.run.output
        with_header = writes_header and self.written.route == "encoded"
        return OutputTask(
            spec=spec,
            stem=stem,
            header=self.header if with_header else b"",
            writes_header=writes_header,
            encryption=output.options.encryption,
            transform=output.options.transform,
            number=self.number,
            filter=output.options.filter,
            route=self.route,
        )

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Check all names and get ready, before anything is read."""

    def progress(self, tick: Callable[[], None]) -> Progress:
        """Return the confirmed part of a resumed run, and remove all other files. Called once."""
        return Progress()

    def task(self, unit: WorkUnit, attempt: int) -> OutputTask:
        """Return where and how an attempt writes; called just before it is handed out."""
        spec = replace(self.run.output.spec(""), stream=os.devnull)
        drops = "rows" if self.name == NULL_ROWS else "bytes"
        return replace(self._task(unit.id, spec), drops=drops)

    def check(self) -> None:
        """Raise OutputFailed if a place without a storage is lost; see `Table.check`."""

    def shown(self, message: str) -> str:
        """Return the message of a failed attempt as it is displayed."""
        return message

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
        """Compare every file with its record; return the columns left out, each with why."""
        raise UsageError(f"the output to {self.name} cannot be read back", "use --verify count")

    def publishing(
        self,
        units: Sequence[FinishedUnit],
        manifest: MakeManifest,
        stop: Stop,
        then: Callable[[Manifest], None],
    ) -> Steps[Manifest]:
        """Make the output final; `then` takes the manifest, and is repeated by `resume`."""
        yield from ()  # Nothing is waited for.
        document = manifest(
            [
                replace(unit, files=tuple(replace(file, path=self.name) for file in unit.files))
                for unit in units
            ],
            (),
        )
        then(document)
        return document

    def abandon(self, manifest: Callable[[], Manifest] | None) -> None:
        """End a failed run: keep what may be of use later, or leave no trace."""

    def already_delivered(self) -> str:
        """Return what of a failed run has reached a reader and is not valid; empty if nothing."""
        return ""

    def next_step(self, *, resumable: bool) -> str:
        """Return what the user does next; `resumable` if the snapshot can be read again."""
        return FROM_THE_START

    def close(self) -> None:
        """Release the places to others."""


class FileOutput(RunOutput):
    is_kept = True
    storage: RunStorage

    def __init__(
        self,
        run: ResolvedTable,
        number: int = 0,
        route: str = "",
        *,
        resumed: bool = False,
        home: str = "",
    ) -> None:
        """Take the directories; for `home` see `Claim`.

        Raises:
            ConfigError: A file name is too long, or two files would have one.
            OutputFailed: A directory cannot be taken; see `RunDirectories`.
        """
        super().__init__(run, number, route)
        self.resumed = resumed
        output = run.output.options
        self._one = output.file_per == "table"
        self._name_values = name_values(run)
        self._units = {unit.id: unit for unit in run.plan.units}
        self._stripes = shares(run.plan, len(output.destinations))
        self._filled: dict[int, tuple[int, int]] = {}
        self._joined: Sequence[FinishedUnit] = ()
        self._synced_from = _SYNCED_FROM_BYTES if home else 0
        units = run.plan.units[:1] if self._one else run.plan.units
        self._first_names = {unit.id: self._names(unit)(0) for unit in units}
        template, shared = output.file_name, self._name_values
        self._lobs = {
            unit.id: tuple(
                self._lob(name, lob_name(template, values_of(shared, unit), name))
                for name in run.output.lobs
            )
            for unit in run.plan.units
        }
        """The columns of each unit whose values go to other files."""
        lobs = [lob.file for each in self._lobs.values() for lob in each]
        check_distinct((*self._first_names.values(), *lobs))
        patterns = (
            any_name(template, shared),
            *(lob_name(template, shared, name, pattern=True) for name in run.output.lobs),
        )
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
            names=() if reads_staged else patterns,
        )
        self._observe: Observer = silent
        self.storage = storage_at(claim.places[0]).take(claim)

    def _names(self, unit: WorkUnit) -> Callable[[int], str]:
        template = self.run.output.options.file_name
        return names_of(template, self._name_values, None if self._one else unit)

    def _lob(self, column: str, file: str) -> LobColumn:
        template = self.run.output.lob_name
        if template is None:
            return LobColumn(name=column, file=file)
        folder = file.rpartition(".")[0]
        return LobColumn(name=column, file=folder, template=template)

    def begin(self, observe: Observer, stop: Stop) -> None:
        self._observe = observe
        for text in self.storage.notices:
            observe(Notice(text=text))
        names = self._first_names.items()
        lobs = ((unit, lob.file) for unit, found in self._lobs.items() for lob in found)
        self.storage.check_names((self._stripes[unit], name) for unit, name in (*names, *lobs))
        if not self.run.output.options.direct_io:
            return
        for place, staging in zip(self.storage.places, self._stagings(), strict=True):
            stored = "it is in an object store" if is_location(staging) else None
            why = stored or why_not_direct(Path(staging))
            if why is not None:
                text = f"{place}: no direct I/O, {why}; files are written normally"
                observe(Notice(text=text))

    def progress(self, tick: Callable[[], None]) -> Progress:
        if not self.resumed:
            return Progress()
        from unloader.verification.files import damaged_units

        found = read_journal(self.storage.recorded(JOURNAL))
        damaged = damaged_units(self.storage, found.finished, tick)
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
        self.storage.discard_others(
            # Of large objects with a file each the folder of their index.
            {(each.directory, each.path.partition("/")[0]) for each in files if not each.upload},
            {file.upload.id for file in files if file.upload is not None},
        )
        self.storage.keep(JOURNAL, compacted(kept))
        for each in finished.values():
            self._take(each)
        return kept

    def task(self, unit: WorkUnit, attempt: int) -> OutputTask:
        # On record before any process can write under this name: the next process of a run that
        # was killed does not use it again.
        self.storage.append(line("started", unit.id, attempt))
        number, finals = self._stripes[unit.id], None
        if self.storage.uploads_to_finals:
            place = self.storage.places[number]
            finals = FinalNames(place=place, name=self._names(unit))
        spec = replace(
            self.run.output.spec(self.storage.staging(number)),
            min_free_bytes=self.run.output.options.min_free_bytes,
            synced_from_bytes=self._synced_from,
            # All parts are read again to be joined.
            stays_cached=self._one,
            finals=finals,
        )
        task = self._task(f"{unit.id}-a{attempt}", spec, writes_header=not self._one)
        return replace(task, lobs=self._lobs[unit.id])

    def record(self, unit: FinishedUnit) -> Event | None:
        directory = self._stripes[unit.unit]
        files = tuple(replace(file, directory=directory) for file in unit.files)
        unit = replace(unit, files=files)
        filled = self._take(unit)
        self.storage.append(staged_line(unit))
        return filled

    def _take(self, unit: FinishedUnit) -> Event | None:
        """Have small files synced later; return how full one of several directories is."""
        files = [file for file in unit.files if file.bytes < self._synced_from]
        if files:
            self.storage.sync_later((file.directory, file.path) for file in files)
        if len(self.storage.places) == 1:
            return None
        number = self._stripes[unit.unit]
        units, size = self._filled.get(number, (0, 0))
        size += sum(file.bytes + file.value_bytes for file in unit.files)
        self._filled[number] = (units + 1, size)
        directory = self.storage.places[number]
        return DirectoryFilled(directory=directory, units=units + 1, bytes=size)

    def failed(self, unit: str, attempt: int, message: str) -> None:
        # What failed may be the disk.
        with suppress(OutputFailed):
            self.storage.append(line("failed", unit, attempt, message))

    def discard(self, unit: str, attempt: int) -> None:
        self.storage.discard(f"{unit}-a{attempt}")

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

        def compare(
            units: Sequence[FinishedUnit], fetched: Fetched | None, *, header: bool = True
        ) -> None:
            files = [
                CheckedFile(
                    path=self.storage.staged_file(self._stripes[unit.unit], file.path),
                    written=file,
                    header=header,
                    part=TABLE if self._one else f"unit {unit.unit}",
                    opened=partial(self.storage.staged_file, self._stripes[unit.unit]),
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
                part = TABLE if self._one else f"unit {unit.unit}"
                contents.setdefault(part, []).append(unit.content)
        fetched = fetched_of(
            self.written.schema,
            tuple(column.name for column in self.written.columns),
            {part: ContentSums.total(sums) for part, sums in contents.items()},
            self.run.output.format,
        )
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
        self._check_lob_names(units)
        moves: list[Move] = []
        published = []
        for finished in self._final(units, stop):
            unit = self._units[finished.unit]
            number = self._stripes[unit.id]
            finals = []
            lobs = {lob.name: lob.file for lob in self._lobs[unit.id]}
            # Packed files come after the files of rows, whose numbers they do not change.
            for part, file in enumerate(finished.files):
                name = lobs.get(file.column) or self._names(unit)(part)
                # The folder of an index is moved.
                staged, slash, index = file.path.partition("/")
                moves.append(Move(place=number, staged=staged, final=name, upload=file.upload))
                path = name + slash + index
                finals.append(replace(file, path=path, directory=number, upload=None))
            published.append(replace(finished, files=tuple(finals)))
        # From here on a signal comes too late.
        check_stop(stop, _BEFORE)
        places = tuple(map(absolute, self.storage.places))
        document = manifest(published, places if len(places) > 1 else ())
        data = manifest_bytes(document)
        document = replace(document, digest=digest_at_end(data))
        told = yield from self.storage.committing(moves, data, lambda: then(document))
        for text in told:
            self._observe(Notice(text=text))
        return document

    def _check_lob_names(self, units: Sequence[FinishedUnit]) -> None:
        """Raise OutputFailed if two rows name the file of a large object alike."""
        if not self.run.output.lob_name:
            return
        from writers.files.read_back import repeated_name
        from writers.lob_files import repeated

        for column in self.run.output.lobs:
            files = [file for unit in units for file in unit.files if file.column == column]
            indexes = [self.storage.staged_file(each.directory, each.path) for each in files]
            name = repeated_name(indexes, sum(each.values for each in files))
            if name is not None:
                error = repeated(column, name)
                raise OutputFailed(error.message, error.hint)

    def abandon(self, manifest: Callable[[], Manifest] | None) -> None:
        self.storage.abandon(None if manifest is None else manifest_bytes(manifest()))

    def next_step(self, *, resumable: bool) -> str:
        if resumable:
            return f"continue with: unloader resume {shlex.quote(self.storage.places[0])}"
        staged = " and ".join(self._stagings())
        return (
            "run again, which starts from the beginning; until then the finished units are "
            f"in {staged}"
        )

    def close(self) -> None:
        self.storage.close()

    def _keyed(self, directory: str) -> OutputSpec:
        output = self.run.output
        spec, encryption = output.spec(directory), output.options.encryption
        return spec if encryption is None else with_keys(spec, encryption)

    def _stagings(self) -> list[str]:
        return [self.storage.staging(number) for number in range(len(self.storage.places))]

    def _final(self, ordered: Sequence[FinishedUnit], stop: Stop) -> Sequence[FinishedUnit]:
        """Return the units with the files to publish; a joined file is the first unit's."""
        if self._one and not self._joined:
            from writers.files.merge import merge_files

            joined = merge_files(
                [file for unit in ordered for file in unit.files if not file.column],
                self._keyed(self.storage.staging(0)),
                "table",
                header=self.header,
                check=lambda: check_stop(stop, _BEFORE),
                read=lambda name: self.storage.staged_file(0, name),
            )
            packed = [tuple(file for file in unit.files if file.column) for unit in ordered]
            packed[0] = (joined, *packed[0])
            self._joined = [
                replace(unit, files=files) for unit, files in zip(ordered, packed, strict=True)
            ]
        return self._joined if self._one else ordered
