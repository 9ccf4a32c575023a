"""What the program can do, as functions: the command line is one caller of them among others.

Every function takes plain data, returns plain data and raises only `UnloaderError`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partition_planner.model import TableInfo
from partition_planner.simulate import Simulation, simulate
from unloader.codecs.model import SampleBudget
from unloader.errors import UnloaderError, translate
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import (
    EncryptionOptions,
    ReadColumn,
    Request,
    SeatOptions,
    SecretReference,
    SourceSpec,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.resolve.preparation import prepared
from unloader.resolve.resolved import ResolvedRun
from unloader.sources.projection import OutputNeeds, choose, encodes_of
from unloader.sources.registry import source_of
from writers.model import TextFormat

if TYPE_CHECKING:
    from unloader.ceilings.model import Ceilings
    from unloader.checking.model import Checked
    from unloader.checking.schema_tables import SchemaTable
    from unloader.codecs.choice import CodecReport
    from unloader.placement.topology import Survey
    from unloader.preflight.model import Budget
    from unloader.report.model import RunReport
    from unloader.report.of_tables import TablesReport
    from unloader.report.sweep_model import SweepPage
    from unloader.resolve.tables.planned import PlannedTables
    from unloader.selection.asked import AskedTables, TablesRequest
    from unloader.sizing.model import Question, Sizing
    from unloader.status.ending import StoppedRun
    from unloader.status.reading import RunStatus
    from unloader.status.setting import ChangedRun
    from unloader.status.wishes import Wish
    from unloader.transforms.model import MaskingKey
    from unloader.verification.finished_run import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """One table, and what would become of its columns."""

    table: TableInfo
    columns: tuple[ReadColumn, ...]
    """As CSV with the default dialect."""
    parquet_columns: tuple[ReadColumn, ...]
    missing_privileges: tuple[str, ...]
    server_version: str


FOR_THE_READER = (
    "statements",
    "columns",
    "seats",
    "places",
    "notices",
    "compression_choice",
    "job",
    "job_digest",
    "routes",
)
"""Keys of a plan file beside those of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """Exactly what `unload` would do, and what follows from it for the reader."""

    run: ResolvedRun
    statements: dict[str, str]
    """Unit id to the SELECT that reads it, or several one after the other, with `;` between."""
    simulation: Simulation
    places: dict[str, str] = field(default_factory=dict)
    """Unit id to the file or pipe that it would go to; empty without a destination."""

    def to_json(self) -> dict[str, Any]:
        """Return the plan file: the run, which `unload` takes again, and more for the reader."""
        return {**self.run.without_secrets().to_json(), **self._for_the_reader()}

    def _for_the_reader(self) -> dict[str, Any]:
        from unloader.placement.topology import seat_json
        from unloader.resolve.outputs.one import routes_json

        run = self.run
        return {
            "statements": self.statements,
            "columns": [
                {
                    "name": column.name,
                    "source_type": column.source_type,
                    "output_type": column.output_type,
                    "note": column.note,
                    **_changes(column.lossless),
                }
                for column in run.written.columns
            ],
            "seats": [seat_json(seat) for seat in run.seating.seats],
            "places": self.places,
            "notices": list(run.seating.notices),
            "compression_choice": run.output.choice.to_json() if run.output.choice else None,
            **({"routes": routes_json(run)} if run.request.routes is not None else {}),
        }


def _changes(lossless: bool | str) -> dict[str, str]:
    """Return the word for a column that is changed on purpose."""
    return {"values": lossless} if isinstance(lossless, str) else {}


def list_tables(source: SourceSpec, observe: Observer = silent) -> tuple[TableSummary, ...]:
    """Return the tables and views of a source, by schema and name.

    Raises:
        UnloaderError: ConfigError for a missing driver, SourceError if the source refused.
    """
    with _translated():
        observe(PhaseStarted(phase="connecting"))
        catalog = source_of(source.kind).open_catalog(source)
        try:
            observe(PhaseStarted(phase="table"))
            return catalog.tables()
        finally:
            catalog.close()


def describe(
    source: SourceSpec,
    table: TableName,
    as_text: tuple[str, ...] = (),
    observe: Observer = silent,
) -> TableDescription:
    """Return a table's columns, partitions and what each column would become.

    Raises:
        UnloaderError: SourceError if there is no such table or no right to read it.
    """
    with _translated():
        observe(PhaseStarted(phase="connecting"))
        catalog = source_of(source.kind).open_catalog(source)
        try:
            observe(PhaseStarted(phase="table"))
            info = catalog.describe(table, observe)
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


def plan(request: Request, *, observe: Observer = silent) -> PlannedRun:
    """Return what `unload` would do: units, statements, seats, predicted balance.

    Reads a sample of the rows if the codec is to be chosen by measuring.

    Raises:
        UnloaderError: As `unload` would before it starts its workers.
    """
    from unloader.resolve.outputs.places import places
    from unloader.resolve.resolution import resolved

    with _translated(), resolved(request, observe=observe) as ready:
        run = ready.run
        return PlannedRun(
            run=run,
            statements={
                unit.id: ";\n".join(
                    ready.catalog.statement(run.extract, each) for each in unit.selectors
                )
                for unit in run.plan.units
            },
            simulation=simulate(run.plan, max(1, len(run.seating.seats))),
            places=places(run),
        )


def plan_tables(asked: TablesRequest, *, observe: Observer = silent) -> PlannedTables:
    """Return what `unload_tables` would do with each table.

    Raises:
        UnloaderError: As `unload_tables` would before it reads the first row.
    """
    from unloader.resolve.tables.planned import planned_tables

    with _translated():
        return planned_tables(asked, observe=observe)


def schema_tables(
    source: SourceSpec, schema: str | None = None, observe: Observer = silent
) -> tuple[SchemaTable, ...]:
    """Return the tables and views of one schema, by name.

    Args:
        source: The source.
        schema: As it was typed; None is the only one that has tables.
        observe: Called with each event, in this thread.

    Raises:
        UnloaderError: UsageError if there are several schemas and none is named, SourceError if
            there is no such schema or the source refused.
    """
    from unloader.checking.schema_tables import schema_tables as listed

    with _translated():
        observe(PhaseStarted(phase="connecting"))
        catalog = source_of(source.kind).open_catalog(source)
        try:
            observe(PhaseStarted(phase="table"))
            return listed(catalog, schema)
        finally:
            catalog.close()


def check(
    entries: Sequence[AskedTables],
    *,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> Checked:
    """Return all that can be known of runs without reading rows, every problem at once.

    Args:
        entries: What is asked for; `AskedTables.of` makes one of a request. All have the same
            source.
        observe: Called with each event, in this thread.
        stop: Asked several times a second while the source is opened.
    """
    from unloader.checking.checking import check as look

    with _translated():
        return look(entries, observe=observe, stop=stop)


def measure_codecs(
    request: Request,
    *,
    budget: SampleBudget,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> CodecReport:
    """Return what each codec does to a sample of the rows, and what it makes of a run.

    Args:
        request: As for `unload`; of its destination only the disk is measured, or that of the
            current directory where it is empty.
        budget: How much the sample may take.
        observe: Called with each event, in this thread.
        stop: Asked several times a second; True ends the measuring.

    Raises:
        UnloaderError: One of the tree in `unloader.errors`, by what went wrong.
    """
    from unloader.codecs.choice import report

    with _translated(), prepared(request, stop, observe) as ready:
        observe(PhaseStarted(phase="measuring"))
        return report(ready, budget=budget, stop=stop)


def preflight(
    request: Request,
    budget: Budget,
    *,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> Ceilings:
    """Measure what disks, source, encoder and connection of a run can give; nothing is kept.

    Args:
        request: As for `unload`. The kind of its source may be empty, and so may its destination:
            what belongs to them is then left blank.
        budget: What is measured, and how much that may take.
        observe: Called with each event, in this thread.
        stop: Asked several times a second; True ends the measuring.

    Raises:
        UnloaderError: One of the tree in `unloader.errors`, by what went wrong.
    """
    from unloader.preflight.measuring import measure

    with _translated():
        return measure(request, budget, observe=observe, stop=stop)


def size(question: Question, *, files: tuple[str, ...], like_record: bool = False) -> Sizing:
    """Return how much machine an unload needs, or how long it takes, with the arithmetic.

    Args:
        question: The table, the time and the machine.
        files: What was measured: manifests, points of a sweep, ceilings.
        like_record: Take the rates of a published record, too.

    Raises:
        UnloaderError: UsageError if something is missing, ConfigError or OutputFailed if a file
            cannot be used.
    """
    from unloader.sizing.arithmetic import size as reckon
    from unloader.sizing.reading import basis_of

    with _translated():
        return reckon(question, basis_of(files, like_record=like_record))


def planned_run(document: Mapping[str, Any]) -> ResolvedRun:
    """Return the run that a plan file holds, for `unload`.

    Raises:
        PlanFailed: The document is no plan file, of another version, or was edited.
    """
    return ResolvedRun.from_json(
        {key: value for key, value in document.items() if key not in FOR_THE_READER}
    )


def unload(
    request: Request,
    *,
    planned: ResolvedRun | None = None,
    resume: bool = False,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Unload a table or query into files; return the manifest's JSON document.

    `unloader.manifest.model.from_json` makes types of it. Of a run with several routes it is a
    document with a list `routes` of them.

    Args:
        request: What, where and how.
        planned: A run that `plan` returned, whose units and codec are taken.
        resume: Go on with a run of the same job that was broken off in the destination. The run
            begins anew where there is none, where that was another job, and where its snapshot
            cannot be read any more; a notice says so.
        observe: Reports what happens; called in this thread.
        stop: Asked several times a second; True ends the run cleanly.

    Raises:
        UnloaderError: One of the tree in `unloader.errors`, by what went wrong.
    """
    from unloader.manifest.routes import answer
    from unloader.run.starting import resume_or_start, start

    with _translated():
        begin = resume_or_start if resume else start
        return answer(begin(request, planned, observe=observe, stop=stop))


def unload_tables(
    asked: TablesRequest,
    *,
    resume: bool = False,
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Unload several tables and queries at one snapshot; return the JSON document of the run.

    Each table has a directory and a manifest of its own, as if `unload` had written it. The run's
    own manifest lies in the directory that theirs are in; `unloader.manifest.tables.from_json`
    makes types of it.

    Args:
        asked: Which tables, and how; `TablesRequest.of` makes it of the requests for them.
        resume: As for `unload`, with a broken run of the same tables and patterns.
        observe: Reports what happens; called in this thread.
        stop: Asked several times a second; True ends the run cleanly.

    Raises:
        UnloaderError: PartialUnload if some of the tables are not complete, although the others
            are; and whatever `unload` raises.
    """
    from unloader.manifest.tables import to_json
    from unloader.run.starting import start_tables

    with _translated():
        if resume:
            from unloader.run.tables.resuming import resume_or_start_tables

            return to_json(resume_or_start_tables(asked, observe=observe, stop=stop))
        return to_json(start_tables(asked, observe=observe, stop=stop))


def resume(
    destination: Path,
    *,
    secret: SecretReference | None = None,
    session_sql: tuple[str, ...] = (),
    parallelism: int | None = None,
    new_snapshot: bool = False,
    keys: EncryptionOptions | None = None,
    masking_keys: tuple[MaskingKey, ...] = (),
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Go on with a run that was stopped, failed or killed; return the manifest's JSON document.

    Of a run over several tables that is the manifest of all; tables that are published already are
    not read again.

    The same rows are read at the same snapshot. Units that were done are kept, once their files
    were read again and have the recorded checksums. Of a run that is finished the manifest is
    returned.

    Args:
        destination: Any directory of the run; of one over several tables that of all of them.
        secret: Where the password is found now; None is where it was.
        session_sql: What the sessions ran first; no record holds it.
        parallelism: Number of workers from now on; 0 is the number of usable cores, None is as the
            run had it.
        new_snapshot: Read everything again at a new snapshot, with the options of the run.
        keys: Where the keys of encrypted files are found now; None is where they were.
        masking_keys: Where keys of masks are found now; the others are where they were.
        observe: Reports what happens; called in this thread.
        stop: Asked several times a second; True ends the run cleanly.

    Raises:
        UnloaderError: SnapshotGone if the snapshot cannot be read any more, OutputFailed if there
            is nothing to resume; and whatever `unload` raises.
    """
    from unloader.manifest import tables
    from unloader.manifest.routes import answer
    from unloader.run.starting import Resumption
    from unloader.run.tables.resuming import resume_either

    again = Resumption(
        secret=secret,
        session_sql=session_sql,
        parallelism=parallelism,
        new_snapshot=new_snapshot,
        keys=keys,
        masking_keys=masking_keys,
    )
    with _translated():
        done = resume_either(str(destination), again, observe=observe, stop=stop)
        if isinstance(done, tables.TablesManifest):
            return tables.to_json(done)
        return answer(done)


def interrupted(destination: Path) -> Request | None:
    """Return what the run was asked that was broken off in a directory; None if there is none.

    Of a run over several tables it is what was asked for all; it names no table and no query.

    Raises:
        UnloaderError: OutputFailed if that run goes on, or cannot be read.
    """
    from unloader.resolve.broken_run import find_broken_run
    from unloader.resolve.tables.broken import request_of_tables

    with _translated():
        broken = find_broken_run(str(destination))
        return request_of_tables(str(destination)) if broken is None else broken.run.request


def verify(
    destination: Path,
    source: SourceSpec | None = None,
    *,
    level: Level = "count",
    strict: bool = False,
    parallelism: int = 0,
    keys: EncryptionOptions | None = None,
    observe: Observer = silent,
) -> dict[str, Any]:
    """Check a finished run's files against its manifest, and its count against a source.

    Args:
        destination: The directory of the manifest. With that of a run over several tables each of
            them is checked.
        source: None = the rows are not counted there.
        level: count reads files as a whole; full also compares the values in them with the
            checksums that the run recorded, source with those that the source computes.
        strict: Files that are not of the run are a difference, and not only reported.
        parallelism: Files that are read at a time; 0 is as many as there are usable CPUs.
        keys: Where the keys of encrypted files are found. Without them those are read as a whole.
        observe: Called with each event, in this thread.

    Raises:
        UnloaderError: VerifyMismatch if something differs, ConfigError if a key is needed and not
            given.
    """
    from unloader.verification.finished_run import Checks
    from unloader.verification.finished_tables import verify_either

    with _translated():
        checks = Checks(level=level, strict=strict, parallelism=parallelism, keys=keys)
        return verify_either(destination, source, observe, checks)


def clean(directories: Sequence[Path], *, dry_run: bool = False) -> dict[str, Any]:
    """Remove what runs that died have left unpublished in directories; return what that was.

    Args:
        directories: As they were given to `unload`.
        dry_run: Change nothing, and return what would be removed.

    Raises:
        UnloaderError: OutputFailed if a run is writing there, or the file system refused.
    """
    from unloader.status.clearing import clear

    with _translated():
        return clear([str(directory) for directory in directories], dry_run=dry_run).to_json()


def keepers() -> dict[str, Any]:
    """Return the keepers of this user, each of which holds the snapshot of a run.

    Raises:
        UnloaderError: ConfigError if their records cannot be read.
    """
    from unloader.sources.postgres.keeping.listing import listed

    with _translated():
        return listed()


def end_keepers(run_id: str | None = None) -> dict[str, Any]:
    """End the keeper of a run, or all keepers that no run uses; return which, and those left.

    Args:
        run_id: None = of all runs.

    Raises:
        UnloaderError: UsageError if the run has no keeper or is going on, ConfigError if the keeper
            is on another machine.
    """
    from unloader.sources.postgres.keeping.listing import ended

    with _translated():
        return ended(run_id)


def status(destination: Path) -> RunStatus:
    """Return what is known of the runs at a destination: one that goes on, broke, or is finished.

    Args:
        destination: One of the directories that were given to `unload`, on any machine.

    Raises:
        UnloaderError: OutputFailed if it is not there or may not be read.
    """
    from unloader.status.reading import status_of

    with _translated():
        return status_of(str(destination))


def report(place: Path, *, ceilings: Path | None = None) -> RunReport | TablesReport | SweepPage:
    """Return what the page of a run or of a sweep shows.

    Args:
        place: The directory of a run that is finished or broke (of one table, or of all tables of a
            run), a manifest, or what
            `unloader sweep --json` wrote.
        ceilings: What `unloader preflight --save` wrote, to hold a sweep against.

    Raises:
        UnloaderError: OutputFailed if there is no manifest, or it is damaged; ConfigError if the
            sweep has no points.
    """
    from unloader.report.reading import report_at

    with _translated():
        return report_at(place, ceilings)


def report_of(manifest: dict[str, Any]) -> RunReport | TablesReport:
    """Return what the page of a run shows, from what `unload` or `unload_tables` returned."""
    from unloader.manifest import tables
    from unloader.manifest.model import from_json
    from unloader.manifest.routes import ROUTES
    from unloader.report.of_run import run_report
    from unloader.report.of_tables import tables_report

    if tables.is_of_tables(manifest):
        return tables_report(tables.from_json(manifest))
    if ROUTES in manifest:
        # Workers and units are those of all: the page shows them for the first.
        manifests = [from_json(each) for each in manifest[ROUTES]]
        return run_report(manifests[0], manifests)
    return run_report(from_json(manifest))


def sweep_report(document: dict[str, Any]) -> SweepPage:
    """Return what the page of a sweep shows, from its JSON document."""
    from unloader.report.of_sweep import sweep_report

    return sweep_report(document)


def report_page(report: RunReport | TablesReport | SweepPage) -> str:
    """Return the page of a report, in HTML.

    Raises:
        UnloaderError: ConfigError if a library is missing.
    """
    from unloader.report.pages import page_of

    return page_of(report)


def check_report(path: Path) -> None:
    """Find out whether a page can be made and written.

    Raises:
        UnloaderError: ConfigError if it cannot.
    """
    from unloader.report.writing import check

    check(path)


def write_report(path: Path, report: RunReport | TablesReport | SweepPage) -> None:
    """Write the page of a report into a file.

    Raises:
        UnloaderError: ConfigError if a library is missing, or the file system refused.
    """
    from unloader.report.writing import write

    write(path, report_page(report))


def runs(directory: Path, *, depth: int = 3) -> tuple[RunStatus, ...]:
    """Return what is known of all runs in a directory and so many levels below it.

    Raises:
        UnloaderError: OutputFailed if it is not there or may not be read.
    """
    from unloader.status.reading import statuses_below

    with _translated():
        return statuses_below(str(directory), depth)


def stop(
    destination: Path, *, timeout_seconds: float, stop: Callable[[], bool] = lambda: False
) -> StoppedRun:
    """Ask the run at a destination to end, as Ctrl-C would, and wait until it is over.

    Args:
        destination: One of the run's directories, on any machine.
        timeout_seconds: How long to wait at most; 0 does not wait.
        stop: Asked several times a second; True ends the waiting, not the run.

    Raises:
        UnloaderError: OutputFailed if no run is there or it does not end in that time.
    """
    from unloader.status.ending import stop_run

    with _translated():
        return stop_run(str(destination), timeout_seconds, stop)


def change(
    destination: Path,
    wish: Wish,
    *,
    timeout_seconds: float,
    stop: Callable[[], bool] = lambda: False,
) -> ChangedRun:
    """Change the number of workers of the run at a destination, or a limit on it.

    Args:
        destination: One of the run's directories, on any machine.
        wish: What is to change.
        timeout_seconds: How long to wait for the run's answer; 0 does not wait.
        stop: Asked several times a second; True ends the waiting.

    Raises:
        UnloaderError: OutputFailed if no run is there, it refuses, or does not answer in that time.
    """
    from unloader.status.setting import change_run

    with _translated():
        return change_run(str(destination), wish, timeout_seconds, stop)


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
