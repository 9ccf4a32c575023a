"""Files in one or several directories, all of them published or none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unloader.errors import Interrupted
from unloader.events import DirectoryFilled, Event, Notice, Observer, silent
from unloader.manifest.build import FinishedUnit, journal_entry
from unloader.manifest.file_check import check_file
from unloader.model import OutputTask
from unloader.request.file_names import check_distinct
from unloader.resolve.naming import Naming
from unloader.resolve.resolved import ResolvedRun
from unloader.resolve.stripes import stripes
from unloader.run.outputs.base import MakeManifest, Stop
from unloader.run.outputs.headers import Headers
from unloader.run.schedule import Assignment
from unloader.storage.directories.run_directories import Move, RunDirectories
from writers.files.direct_io import refusal


class FileOutput:
    """Directories with files; see `unloader.run.outputs.base.RunOutput`."""

    in_order = False

    def __init__(self, run: ResolvedRun) -> None:
        """Take the directories.

        Raises:
            OutputFailed: One cannot be had; see `RunDirectories`.
        """
        output = run.output.options
        self._output = run.output
        self._one = output.file_per == "table"
        self._headers = Headers(run.extract, run.output.format)
        self._units = {unit.id: unit for unit in run.plan.units}
        self._naming = Naming.of(run, output.file_name, one=self._one)
        self._stripes = stripes(run.plan, len(output.destinations))
        self._filled: dict[int, tuple[int, int]] = {}
        self._directories = RunDirectories(
            [Path(each) for each in output.destinations],
            overwrite=output.overwrite,
            run_id=run.run_id,
        )
        self._tell: Observer = silent

    def begin(self, observe: Observer, stop: Stop) -> None:
        """Check that all final names are free and differ; report what earlier runs left."""
        self._tell = observe
        for text in self._directories.notices:
            observe(Notice(text=text))
        names = self._naming.first_names(tuple(self._units.values()))
        check_distinct(names.values())
        self._directories.check_names((self._stripes[unit], name) for unit, name in names.items())
        if self._output.options.direct_io:
            self._check_direct(observe)

    def task(self, assignment: Assignment) -> OutputTask:
        """Return the staging directory, and a name unique to the attempt."""
        staged = self._staged(self._stripes[assignment.unit.id])
        return OutputTask(
            spec=self._output.spec(str(staged)),
            stem=_stem(assignment),
            header=self._headers.of_task(not self._one),
            writes_header=not self._one,
        )

    def check(self) -> None:
        """Do nothing: workers find out themselves."""

    def filter_event(self, event: Event) -> tuple[Event, ...]:
        """Let an event pass."""
        return (event,)

    def not_repeatable(self, unit: str) -> str:
        """Return that every attempt can be repeated."""
        return ""

    def record(self, unit: FinishedUnit) -> Event | None:
        """Write the journal; with several directories return how full the unit's is."""
        number = self._stripes[unit.result.unit]
        self._directories.record(journal_entry(replace(unit, directory=number)))
        if len(self._directories.all) == 1:
            return None
        units, size = self._filled.get(number, (0, 0))
        size += sum(file.bytes for file in unit.result.files)
        self._filled[number] = (units + 1, size)
        path = str(self._directories.all[number].path)
        return DirectoryFilled(directory=path, units=units + 1, bytes=size)

    def discard(self, assignment: Assignment) -> None:
        """Remove what a broken attempt has staged."""
        self._directories.discard(_stem(assignment))

    def read_back(self, units: Sequence[FinishedUnit], stop: Stop) -> None:
        """Read every staged file again; see `RunOutput`."""
        for unit in units:
            staged = self._staged(self._stripes[unit.result.unit])
            for file in unit.result.files:
                _check_stop(stop)
                spec = self._output.spec(str(staged))
                check_file(staged / file.path, file, spec, header=not self._one)

    def publish(
        self, units: Sequence[FinishedUnit], manifest: MakeManifest, stop: Stop
    ) -> dict[str, Any]:
        """Give all files their final names, the manifest last."""
        _check_stop(stop)
        moves: list[Move] = []
        published = []
        for finished in self._merged(units, stop) if self._one else units:
            unit = self._units[finished.result.unit]
            number = self._stripes[unit.id]
            finals = []
            for part, file in enumerate(finished.result.files):
                name = self._naming.name(unit, part)
                moves.append(Move(directory=number, staged=file.path, final=name))
                finals.append(replace(file, path=name))
            published.append(replace(finished, finals=tuple(finals), directory=number))
        # From here on a signal comes too late.
        _check_stop(stop)
        document = manifest(published, self._listed())
        for text in self._directories.publish(moves, document):
            self._tell(Notice(text=text))
        return document

    def abandon(self, manifest: dict[str, Any] | None) -> None:
        """Keep what is staged with a partial manifest, or leave no trace."""
        self._directories.abandon(manifest)

    def already_delivered(self) -> str:
        """Return that nothing has left."""
        return ""

    def next_step(self) -> str:
        """Return where finished units are, and what becomes of them."""
        staged = " and ".join(str(each.staged) for each in self._directories.all)
        return f"run again, which starts anew; until then the finished units are in {staged}"

    def close(self) -> None:
        """Release the directories."""
        self._directories.close()

    def _check_direct(self, observe: Observer) -> None:
        """Say once where files will go through the page cache after all."""
        for directory in self._directories.all:
            why = refusal(directory.staged)
            if why is not None:
                text = f"{directory.path}: no direct I/O, {why}; files are written normally"
                observe(Notice(text=text))

    def _staged(self, number: int) -> Path:
        return self._directories.all[number].staged

    def _listed(self) -> tuple[str, ...]:
        several = len(self._directories.all) > 1
        return tuple(os.path.abspath(each.path) for each in self._directories.all if several)

    def _merged(self, ordered: Sequence[FinishedUnit], stop: Stop) -> list[FinishedUnit]:
        """Return the units with the joined file as the first one's, which begins the table."""
        from writers.files.merge import merge_files

        staged = self._directories.first.staged
        spec = self._output.spec(str(staged))
        files = [file for unit in ordered for file in unit.result.files]
        joined = merge_files(
            files, spec, "table", header=self._headers.table(), check=lambda: _check_stop(stop)
        )
        first, *others = ordered
        return [
            replace(first, result=replace(first.result, files=(joined,))),
            *(replace(unit, result=replace(unit.result, files=())) for unit in others),
        ]


def _check_stop(stop: Stop) -> None:
    if stop():
        raise Interrupted("stopped by a signal before the files had their final names")


def _stem(assignment: Assignment) -> str:
    return f"{assignment.unit.id}-a{assignment.attempt}"
