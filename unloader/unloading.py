"""One run from plan to published files: hand out, collect, count, check, publish.

Nothing appears under a final name before every unit is done and the row count agrees with the
source's own at the same snapshot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numa.pool import Pool
from partition_planner.model import WorkUnit
from unloader.cancelling import cancelled_by
from unloader.engine import Engine, Orders
from unloader.errors import (
    Interrupted,
    PartialUnload,
    SourceError,
    UnloaderError,
    VerifyMismatch,
    error_class,
    translate,
)
from unloader.events import Notice, Observer, PhaseStarted, RunStarted
from unloader.file_names import NameValues, check_distinct, file_name
from unloader.manifest import FinishedUnit, RunFacts, build_manifest, journal_entry
from unloader.model import Failure, JobSpec, OutputTask, Snapshot, UnitResult, UnitTask
from unloader.preparation import Prepared
from unloader.run_directory import RunDirectory
from unloader.schedule import Assignment, Schedule
from writers.model import OutputSpec, TextFormat, WrittenFile
from writers.read_back import read_back
from writers.registry import extension

logger = logging.getLogger(__name__)


def run(
    job: JobSpec,
    prepared: Prepared,
    pool: Pool,
    *,
    observe: Observer,
    stop: Callable[[], bool],
) -> dict[str, Any]:
    """Unload what is prepared into the job's destination; return the manifest.

    Args:
        job: What the user asked for.
        prepared: The job with its open source.
        pool: An open pool from `unloader.crew`.
        observe: Told what happens.
        stop: Asked several times a second.

    Raises:
        OutputFailed: The destination refused, or a value does not fit the format.
        SourceError: The source failed for good.
        PartialUnload: Some units failed after all attempts; what is done is kept in `_run`.
        VerifyMismatch: Rows written and rows counted by the source differ.
        Interrupted: `stop` returned True.
    """
    with RunDirectory(Path(job.output.destination), overwrite=job.output.overwrite) as directory:
        current = _Run(job=job, prepared=prepared, directory=directory, observe=observe)
        try:
            return current.execute(pool, stop)
        except BaseException as error:
            with suppress(UnloaderError, OSError):
                current.abandon()
            if isinstance(error, Exception) and (known := translate(error)):
                raise known from error
            raise


@dataclass(slots=True)
class _Run:
    """The state of one run in the parent."""

    job: JobSpec
    prepared: Prepared
    directory: RunDirectory
    observe: Observer
    run_id: str = ""
    source_rows: int | None = None
    verify_result: str = "not verified"
    _finished: dict[str, FinishedUnit] = field(default_factory=dict)
    _header: bytes | None = None
    _units: dict[str, WorkUnit] = field(default_factory=dict)

    def execute(self, pool: Pool, stop: Callable[[], bool]) -> dict[str, Any]:
        plan = self.prepared.plan
        self.run_id = self.job.source.session.run_id
        self._units = {unit.id: unit for unit in plan.units}
        names = [self._final_name(unit, self._part(0)) for unit in self._named_units()]
        check_distinct(names)
        self.directory.check_names(names)
        self.observe(
            RunStarted(
                run_id=self.run_id,
                table=self.prepared.extract.table.name,
                units=len(plan.units),
                workers=len(self.prepared.seating.seats),
                rows=_total(unit.rows for unit in plan.units),
                bytes=_total(unit.bytes for unit in plan.units),
                snapshot=_point(self.prepared.extract.snapshot),
                end_sessions_sql=self.prepared.catalog.end_sessions_sql(),
            )
        )
        if self.prepared.seating.notice:
            self.observe(Notice(text=self.prepared.seating.notice))
        self.observe(PhaseStarted(phase="unloading"))
        self._unload(pool, stop)
        self._verify(stop)
        _check_stop(stop)
        self.observe(PhaseStarted(phase="publishing"))
        return self._publish()

    def abandon(self) -> None:
        """Leave the finished units for later, or no trace where there are none."""
        partial = self._manifest(tuple(self._finished.values()), complete=False)
        self.directory.abandon(partial if self._finished else None)

    def _unload(self, pool: Pool, stop: Callable[[], bool]) -> None:
        seating = self.prepared.seating
        engine = Engine(
            schedule=Schedule(units=self.prepared.plan.units, retry=self.job.retry),
            orders=Orders(
                seats=seating.seats,
                stall_seconds=self.job.retry.stall_seconds,
                task=self._task,
                done=lambda worker, result: self._done(engine, worker, result),
                discard=lambda assignment: self.directory.discard(_stem(assignment)),
                fatal=self._fatal,
            ),
            observe=self.observe,
            stop=stop,
        )
        engine.run(pool)
        if engine.failure is not None:
            raise _raised(engine.failure)
        given_up = engine.schedule.given_up
        if given_up:
            raise self._partial(given_up)

    def _task(self, assignment: Assignment) -> UnitTask:
        spec = replace(self.job.output.output, directory=str(self.directory.staged))
        return UnitTask(
            unit=assignment.unit,
            attempt=assignment.attempt,
            extract=self.prepared.extract,
            outputs=(
                OutputTask(
                    spec=spec,
                    stem=_stem(assignment),
                    header=self._encoded_header(),
                    with_start=self.job.output.file_per == "unit",
                ),
            ),
            fetch_bytes=self.job.fetch_bytes,
        )

    def _done(self, engine: Engine, worker: int, result: UnitResult) -> None:
        unit = self._units[result.unit]
        finished = FinishedUnit(
            result=result,
            partition=unit.partition,
            seat=self.prepared.seating.seats[worker],
            bound=engine.bound.get(worker),
            finals=(),
        )
        self.directory.record(journal_entry(finished))
        self._finished[result.unit] = finished

    def _fatal(self, failure: Failure) -> Failure | None:
        """Return the failure that ends the run if the snapshot has gone with the source."""
        if not issubclass(error_class(failure.kind), SourceError):
            return None
        try:
            self.prepared.catalog.check_snapshot()
        except UnloaderError as error:
            both = dict.fromkeys((failure.message, error.message))
            return Failure(
                kind="SourceError",
                message="; ".join(both),
                hint=error.hint,
                retryable=False,
                traceback=failure.traceback,
            )
        return None

    def _partial(self, given_up: dict[str, Failure]) -> UnloaderError:
        unit, failure = next(iter(given_up.items()))
        if not self._finished:
            return _raised(failure)
        return PartialUnload(
            f"{len(given_up)} of {len(self._units)} work units failed, first {unit}: "
            f"{failure.message}",
            f"mend the cause ({failure.hint}) and run again with --overwrite; the finished units "
            f"are in {self.directory.staged}",
        )

    def _verify(self, stop: Callable[[], bool]) -> None:
        level = self.job.verify
        if level == "none":
            return
        self.observe(PhaseStarted(phase="counting"))
        written = sum(unit.result.rows for unit in self._finished.values())
        catalog = self.prepared.catalog
        with cancelled_by(stop, catalog):
            self.source_rows = catalog.count(self.prepared.extract, self.prepared.plan.units)
        consistent = self.job.consistency == "snapshot"
        if written != self.source_rows and consistent:
            raise VerifyMismatch(
                f"{written} rows were written, the source counts {self.source_rows} at the same "
                "snapshot",
                "run again; if it comes back, report it with the plan",
            )
        self.verify_result = "ok" if written == self.source_rows else "different, no snapshot"
        if level == "full":
            self.observe(PhaseStarted(phase="verifying"))
            self._read_back(stop)

    def _read_back(self, stop: Callable[[], bool]) -> None:
        spec = self.job.output.output
        for unit in self._finished.values():
            for file in unit.result.files:
                _check_stop(stop)
                with_start = self.job.output.file_per == "unit"
                check_file(self.directory.staged / file.path, file, spec, header=with_start)

    def _publish(self) -> dict[str, Any]:
        ordered = [self._finished[unit] for unit in sorted(self._finished)]
        if self.job.output.file_per == "table":
            ordered = self._merged(ordered)
        moves: list[tuple[str, str]] = []
        published = []
        for finished in ordered:
            finals = []
            for number, file in enumerate(finished.result.files):
                name = self._final_name(self._units[finished.result.unit], self._part(number))
                moves.append((file.path, name))
                finals.append(replace(file, path=name))
            published.append(replace(finished, finals=tuple(finals)))
        manifest = self._manifest(tuple(published), complete=True)
        self.directory.publish(moves, manifest)
        return manifest

    def _merged(self, ordered: list[FinishedUnit]) -> list[FinishedUnit]:
        """Return the units with the joined file as the first one's, which begins the table."""
        from writers.merge import merge_files

        spec = self.job.output.output
        files = [file for unit in ordered for file in unit.result.files]
        joined = merge_files(
            files,
            self.directory.staged,
            "table",
            spec.format,
            spec.compression,
            header=self._table_header(),
        )
        first, *others = ordered
        return [
            replace(first, result=replace(first.result, files=(joined,))),
            *(replace(unit, result=replace(unit.result, files=())) for unit in others),
        ]

    def _manifest(self, units: tuple[FinishedUnit, ...], *, complete: bool) -> dict[str, Any]:
        facts = RunFacts(
            run_id=self.run_id,
            job=self.job,
            extract=self.prepared.extract,
            plan=self.prepared.plan,
            server_version=self.prepared.catalog.server_version,
            seconds=time.perf_counter() - self.prepared.started,
            cpu_seconds=time.process_time()
            + sum(unit.result.cpu_seconds for unit in self._finished.values()),
            source_rows=self.source_rows,
            verify_result=self.verify_result,
        )
        return build_manifest(facts, units, complete=complete)

    def _named_units(self) -> tuple[WorkUnit, ...]:
        units = self.prepared.plan.units
        return units[:1] if self.job.output.file_per == "table" else units

    def _part(self, number: int) -> int | None:
        return number + 1 if self.job.output.output.file_size_bytes else None

    def _final_name(self, unit: WorkUnit, part: int | None) -> str:
        output, extract = self.job.output, self.prepared.extract
        taken_at = extract.snapshot.taken_at if extract.snapshot else ""
        return file_name(
            output.file_name,
            NameValues(
                schema=extract.table.schema or "",
                table=extract.table.name,
                partition=unit.partition or "",
                unit="" if output.file_per == "table" else unit.id,
                part=part,
                ext=extension(output.output.format, output.output.compression),
                date=taken_at[:10].replace("-", ""),
            ),
        )

    def _encoded_header(self) -> bytes:
        """Return what an encoded file begins with; made when first needed.

        That is while the workers start, who take as long as the import of the encoder.
        """
        if self._header is None:
            encoded = self.prepared.extract.projection.route == "encoded"
            per_unit = self.job.output.file_per == "unit"
            self._header = self._table_header() if encoded and per_unit else b""
        return self._header

    def _table_header(self) -> bytes:
        text = self.job.output.output.format
        if not isinstance(text, TextFormat):
            return b""
        from writers.text_writer import start_of_names

        names = [column.name for column in self.prepared.extract.projection.columns]
        return start_of_names(names, text)


def check_file(path: Path, file: WrittenFile, spec: OutputSpec, *, header: bool) -> None:
    """Read a file again and hold it against what its writer said.

    Raises:
        VerifyMismatch: Size, checksum or number of records differ.
        WriteError: The file is missing or cannot be read.
    """
    shape = spec.format
    if isinstance(shape, TextFormat) and not header:
        shape = replace(shape, header=False)
    found = read_back(path, shape, spec.compression, rows=True)
    differences = [
        f"{what} {now} instead of {was}"
        for what, was, now in (
            ("size", file.bytes, found.bytes),
            ("checksum", file.checksum, found.checksum),
            ("rows", file.rows, file.rows if found.rows is None else found.rows),
        )
        if was != now
    ]
    if differences:
        raise VerifyMismatch(
            f"{path} has {', '.join(differences)}", "unload the table again, and check the storage"
        )


def _check_stop(stop: Callable[[], bool]) -> None:
    if stop():
        raise Interrupted("stopped by a signal before the files had their final names")


def _raised(failure: Failure) -> UnloaderError:
    error = error_class(failure.kind)(failure.message, failure.hint)
    if failure.traceback:
        logger.debug("in a worker:\n%s", failure.traceback)
    return error


def _stem(assignment: Assignment) -> str:
    return f"{assignment.unit.id}-a{assignment.attempt}"


def _point(snapshot: Snapshot | None) -> str:
    return "" if snapshot is None else f"{snapshot.kind} {snapshot.value}".strip()


def _total(values: Any) -> int | None:
    known = list(values)
    return None if any(value is None for value in known) else sum(known)
