"""What the program can do, as functions: the command line is one caller of them among others.

Every function takes plain data, returns plain data and raises only `UnloaderError`s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numa.model import Seat, Topology
from partition_planner.errors import PlanError
from partition_planner.model import Plan, TableInfo
from partition_planner.simulate import Simulation, simulate
from unloader.codecs.model import SampleBudget
from unloader.errors import PlanFailed, UnloaderError, translate
from unloader.events import Observer, PhaseStarted, SettingUsed, silent
from unloader.model import (
    ReadColumn,
    Request,
    SeatOptions,
    SourceSpec,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.resolve.preparation import Prepared, prepared
from unloader.sources.projection import OutputNeeds, choose, encodes_of
from unloader.sources.registry import source_of
from writers.codecs.choice import Choice
from writers.model import Compression, TextFormat

if TYPE_CHECKING:
    from unloader.codecs.choice import CodecReport
    from unloader.placement.topology import Survey

PLAN_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """One table, and what would become of its columns."""

    table: TableInfo
    columns: tuple[ReadColumn, ...]
    """As CSV with the default dialect."""
    parquet_columns: tuple[ReadColumn, ...]
    missing_privileges: tuple[str, ...]
    server_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """Exactly what `unload` would do."""

    plan: Plan
    table: TableInfo
    columns: tuple[ReadColumn, ...]
    statements: dict[str, str]
    """Unit id to the SELECT that reads it, or several one after the other, with `;` between."""
    seats: tuple[Seat, ...]
    topology: Topology
    """The machine that the seats are on."""
    memory_policy: str
    simulation: Simulation
    notices: tuple[str, ...]
    places: dict[str, str] = field(default_factory=dict)
    """Unit id to the file or pipe that it would go to; empty without a destination."""
    compression: Compression = field(default_factory=Compression)
    choice: Choice | None = None
    """How a preset came to the compression; None where it was named."""

    def to_json(self) -> dict[str, Any]:
        """Return the plan file: `run` needs its plan, the rest is for the reader."""
        from unloader.placement.topology import seat_json

        return {
            "format_version": PLAN_VERSION,
            "plan": self.plan.to_json(),
            "statements": self.statements,
            "columns": [
                {
                    "name": column.name,
                    "source_type": column.source_type,
                    "output_type": column.output_type,
                    "note": column.note,
                }
                for column in self.columns
            ],
            "seats": [seat_json(seat) for seat in self.seats],
            "places": self.places,
            "notices": list(self.notices),
            "compression_choice": self.choice.to_json() if self.choice else None,
        }


def list_tables(source: SourceSpec) -> tuple[TableSummary, ...]:
    """Return the tables and views of a source, by schema and name.

    Raises:
        UnloaderError: ConfigError for a missing driver, SourceError if the source refused.
    """
    with _translated():
        catalog = source_of(source.kind).open_catalog(source)
        try:
            return catalog.tables()
        finally:
            catalog.close()


def describe(
    source: SourceSpec, table: TableName, as_text: tuple[str, ...] = ()
) -> TableDescription:
    """Return a table's columns, partitions and what each column would become.

    Raises:
        UnloaderError: SourceError if there is no such table or no right to read it.
    """
    with _translated():
        catalog = source_of(source.kind).open_catalog(source)
        try:
            info = catalog.describe(table)
            readings = catalog.readings(info, None, ValueOptions())
            encodes = encodes_of(catalog)
            csv, parquet = (
                choose(readings, (OutputNeeds(text=text),), as_text=as_text, encodes=encodes)
                for text in (TextFormat(), None)
            )
            return TableDescription(
                table=info,
                columns=csv.columns,
                parquet_columns=parquet.columns,
                missing_privileges=catalog.missing_privileges(info),
                server_version=catalog.server_version,
            )
        finally:
            catalog.close()


def plan(job: Request, *, observe: Observer = silent) -> PlannedRun:
    """Return what `unload` would do with the job: units, statements, seats, predicted balance.

    Reads a sample of the rows if the job's codec is to be chosen by measuring.

    Raises:
        UnloaderError: As `unload` would before it starts its workers.
    """
    from unloader.resolve.output_places import places

    with _translated(), prepared(job, observe=observe) as ready:
        chosen = _with_codec(ready.job, ready, observe).output
        return PlannedRun(
            plan=ready.plan,
            table=ready.plan.table,
            columns=ready.extract.projection.columns,
            statements={
                unit.id: ";\n".join(
                    ready.catalog.selector_sql(ready.extract, each) for each in unit.selectors
                )
                for unit in ready.plan.units
            },
            seats=ready.seating.seats,
            topology=ready.topology,
            memory_policy=ready.seating.memory_policy,
            simulation=simulate(ready.plan, max(1, len(ready.seating.seats))),
            notices=ready.seating.notices,
            places=places(replace(job, output=chosen), ready.extract, ready.plan),
            compression=chosen.output.compression,
            choice=chosen.choice,
        )


def measure_codecs(
    job: Request,
    *,
    budget: SampleBudget,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> CodecReport:
    """Return what each codec does to a sample of the job's rows, and what it makes of a run.

    Args:
        job: As for `unload`; of its destination only the disk is measured, and where it is empty
            that of the current directory.
        budget: How much the sample may take.
        observe: Told what happens; called in this thread.
        stop: Asked several times a second; True ends the measuring.

    Raises:
        UnloaderError: One of the tree in `unloader.errors`, by what went wrong.
    """
    from unloader.codecs.choice import report

    with _translated(), prepared(job, stop, observe) as ready:
        observe(PhaseStarted(phase="measuring"))
        return report(ready.job, ready, budget=budget, stop=stop)


def job_from_plan(document: Mapping[str, Any], job: Request) -> Request:
    """Return the job with the plan of a plan file in place of one made anew.

    Raises:
        PlanFailed: The document is no plan file, of another version, or was edited.
    """
    if document.get("format_version") != PLAN_VERSION or "plan" not in document:
        raise PlanFailed(
            "this is not a plan file of this version", "make one with: unloader plan --output"
        )
    try:
        return replace(job, plan=Plan.from_json(document["plan"]))
    except PlanError as error:
        raise translate(error) or UnloaderError(str(error)) from error


def unload(
    job: Request, *, observe: Observer = silent, stop: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Unload a table or query into files; return the manifest.

    Args:
        job: What, where and how.
        observe: Told what happens; called in this thread.
        stop: Asked several times a second; True ends the run cleanly.

    Raises:
        UnloaderError: One of the tree in `unloader.errors`, by what went wrong.
    """
    from unloader.run.processes import crew
    from unloader.run.unloading import run

    job = _named(job)
    with _translated(), crew(job) as pool:
        _tell_settings(job, observe)
        with prepared(job, stop, observe) as ready:
            job = _with_codec(ready.job, ready, observe, stop)
            return run(job, ready, pool, observe=observe, stop=stop)


def verify(
    destination: Path,
    source: SourceSpec | None = None,
    *,
    strict: bool = False,
    observe: Observer = silent,
) -> dict[str, Any]:
    """Check a finished run's files against its manifest, and its count against a source.

    Args:
        destination: The directory of the manifest.
        source: None = the rows are not counted there.
        strict: Files that are not of the run are a difference, and not only told.
        observe: Told what goes on.

    Raises:
        UnloaderError: VerifyMismatch if something differs.
    """
    from unloader.manifest.verify import verify as check

    with _translated():
        return check(destination, source, observe, strict=strict)


def clean(directories: Sequence[Path], *, dry_run: bool = False) -> dict[str, Any]:
    """Remove what runs that died have left unpublished in directories; return what that was.

    Args:
        directories: As they were given to `unload`.
        dry_run: Change nothing, and return what would be removed.

    Raises:
        UnloaderError: OutputFailed if a run is writing there, or the file system refused.
    """
    from unloader.storage.opening import storage_at

    with _translated():
        places = [str(directory) for directory in directories]
        return storage_at(next(iter(places), "")).clear(places, dry_run=dry_run).to_json()


def topology(
    options: SeatOptions,
    *,
    parallelism: int = 0,
    tree: Path | None = None,
    allowed_cpus: frozenset[int] | None = None,
) -> Survey:
    """Return a machine's NUMA nodes and the seats that so many workers would get on it.

    Args:
        options: How workers are placed.
        parallelism: Number of workers; 0 = all CPUs that may be used at once.
        tree: Another machine's folder laid out as /sys/devices/system, or a file that
            `recorded_machine` made of one; None = this machine.
        allowed_cpus: Only these CPUs; None = all of the tree, or all that we may use here.

    Raises:
        UnloaderError: ConfigError if the files, the nodes, the CPUs or the device are not there.
    """
    from unloader.placement.topology import survey

    with _translated():
        return survey(options, parallelism=parallelism, tree=tree, allowed_cpus=allowed_cpus)


def recorded_machine(tree: Path | None = None) -> str:
    """Return the files that describe a machine as one text, for `topology` to read elsewhere.

    Args:
        tree: As for `topology`.

    Raises:
        UnloaderError: ConfigError if there are no such files.
    """
    from unloader.placement.topology import recording

    with _translated():
        return recording(tree)


def _tell_settings(job: Request, observe: Observer) -> None:
    for setting in job.settings:
        if setting.effect != "none":
            observe(
                SettingUsed(
                    name=setting.name,
                    value=setting.value,
                    origin=setting.origin,
                    selects=setting.effect == "selects",
                    from_variable=setting.from_variable,
                    text=setting.text,
                )
            )


def _with_codec(
    job: Request, ready: Prepared, observe: Observer, stop: Callable[[], bool] = lambda: False
) -> Request:
    if job.output.preset is None:
        return job
    from unloader.codecs.choice import with_codec

    observe(PhaseStarted(phase="measuring"))
    return with_codec(job, ready, observe=observe, stop=stop)


def _named(job: Request) -> Request:
    """Return the job with an id of its own, which the source's sessions carry from the start."""
    run_id = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{os.urandom(3).hex()}"
    return replace(
        job, source=replace(job.source, session=replace(job.source.session, run_id=run_id))
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except UnloaderError:
        raise
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error
