"""The program as functions: the command line is one caller of them among others.

    request                                         the request of one table or query
    list_tables, schema_tables, describe, plan      what would be read, and in which form
    unload, finished, interrupted, resume           runs
    batches                                         rows as Arrow batches, without files
    verify, merge, clean                            existing runs

Every function takes plain data, returns plain data and raises only `UnloaderError`s.

In all of them, `observe` is called with each event in the calling thread. `stop` is asked several
times a second; True ends the work in an orderly way. A destination, a place or a directory is a
path or a location of an object store, as it was given to `unload`. It may be on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from partition_planner.model import WorkUnit
from unloader.errors import OutputFailed, SourceError, UsageError, translated
from unloader.events import Observer, PhaseStarted, silent
from unloader.manifest.model import answer
from unloader.model import (
    ClusterOptions,
    EncryptionOptions,
    OutputOptions,
    Request,
    SecretReference,
    Selection,
    SourceSpec,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.nouns import listed
from unloader.request.locations import parse_source
from unloader.request.names import matching, parse_table, typed
from unloader.resolve.choosing import check_as_text
from unloader.resolve.places import home_of, places
from unloader.resolve.resolution import resolved
from unloader.resolve.resolved import ResolvedTable, routes_json
from unloader.resolve.resuming import find_broken_run
from unloader.retention import clear
from unloader.run import starting
from unloader.selection.asked import TablesRequest
from unloader.sources.base import Catalog, ReadAgain, read_again, unit_batches
from unloader.sources.readings import OutputNeeds, choose
from unloader.sources.registry import KINDS, source_of, url_form
from unloader.storage.place_names import AnyPlace, path_of
from writers.model import ParquetFormat, TextFormat

if TYPE_CHECKING:
    from unloader.selection.listing import TableProblem
    from unloader.sources.base import RowBatch
    from unloader.transforms.model import MaskingKey
    from unloader.verification.finished import Level

Stop = Callable[[], bool]


_SHOWN = 20
"""An error lists at most this number of schemas."""

FOR_THE_READER = (
    *("statements", "columns", "seats", "places", "notices", "compression_choice"),
    *("job", "job_digest", "routes"),
)
"""Keys of a plan file beside the run's keys."""


class PlannedRun(Struct, frozen=True, kw_only=True):
    """Exactly what `unload` would do, and what follows from it for the reader."""

    tables: tuple[ResolvedTable, ...]
    problems: tuple[TableProblem, ...] = ()
    """Of tables that would be left out."""
    home: str = ""
    """The directory of a run over several tables; empty if the output has no place."""
    statements: dict[str, str]
    """For the only table: unit id to the SELECT that reads it, or several with `;` between."""

    @property
    def run(self) -> ResolvedTable:
        return self.tables[0]

    @property
    def units(self) -> int:
        return sum(len(run.plan.units) for run in self.tables)

    def to_json(self) -> dict[str, Any]:
        """Return the plan file: the run, which `unload` takes again, and more for the reader."""
        run = self.run
        columns = [
            {
                **_fields(column, "name", "source_type", "output_type", "note"),
                # A word for a column that is changed on purpose.
                **({"values": column.lossless} if isinstance(column.lossless, str) else {}),
            }
            for column in run.written.columns
        ]
        return {
            **run.without_secrets().to_json(),
            "statements": self.statements,
            "columns": columns,
            "seats": to_builtins(run.seating.seats),
            "places": places(run),
            "notices": list(run.seating.notices),
            "compression_choice": to_builtins(run.output.choice),
            **({"routes": routes_json(run)} if run.request.routes is not None else {}),
        }


def _fields(record: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def request(
    source: str,
    to: str = "null:",
    *,
    table: str | None = None,
    query: str | None = None,
    format: Literal["csv", "parquet"] = "csv",
    parallelism: int | None = None,
    password_file: Path | None = None,
) -> Request:
    """Return the request of one table or query; `msgspec.structs.replace` sets its other fields.

    Args:
        source: The URL of the database, without a password.
        to: The destination as for `--to`.
        table: The name as for `--table`, without wildcards.
        query: A SELECT instead of a table.
        format: CSV of RFC 4180, or Parquet, with the default options.
        parallelism: Number of workers; None is the number of usable CPUs.
        password_file: The file with the password; else it is in UNLOADER_PASSWORD.
    """
    if (table is None) == (query is None):
        raise UsageError("a request names a table or a query", "give one of them")
    return Request(
        source=parse_source(source, KINDS, url_form, password_file),
        selection=Selection(table=None if table is None else parse_table(table), query=query),
        output=OutputOptions(
            destination=to, format=TextFormat() if format == "csv" else ParquetFormat()
        ),
        parallelism=parallelism,
    )


@contextmanager
def _opened(source: SourceSpec, observe: Observer) -> Iterator[Catalog]:
    with translated():
        observe(PhaseStarted(phase="connecting"))
        with closing(source_of(source.kind).open_catalog(source)) as catalog:
            observe(PhaseStarted(phase="table"))
            yield catalog


def list_tables(source: SourceSpec, observe: Observer = silent) -> tuple[TableSummary, ...]:
    """Return the tables and views of a source, by schema and name."""
    with _opened(source, observe) as catalog:
        return catalog.tables()


def schema_tables(
    source: SourceSpec, schema: str | None = None, observe: Observer = silent
) -> dict[str, TableSummary]:
    """Return the tables and views of a schema as it was typed, in the order of their names.

    The key is the name as an option takes it: with its schema, quoted where it is not plain. None
    is the only schema that has tables: if several have, it is a UsageError.
    """
    with _opened(source, observe) as catalog:
        tables, folding = catalog.tables(), catalog.capabilities.folding
    known = list(dict.fromkeys(table.schema or "" for table in tables))
    if not known:
        raise SourceError(
            "the source has no tables, or this user may not read them",
            "see them with: unloader describe",
        )
    shown = listed([typed(each, folding) for each in known], _SHOWN)
    wanted = known
    if schema is not None:
        name = parse_table(schema)
        if name.schema is not None:
            raise UsageError(
                "--schema is the name of a schema, not of a table", "leave out the other names"
            )
        wanted = list(matching(name.name, known, folding))
    if not wanted:
        raise SourceError(
            f"no schema {schema} has tables that this user may read", f"use one of: {shown}"
        )
    if len(wanted) > 1:
        raise UsageError(
            f"the source has tables in {len(known)} schemas, but a job file is made for one schema",
            f"give --schema with one of: {shown}",
        )
    return {
        ".".join(typed(part, folding) for part in (each.schema, each.name) if part): each
        for each in tables
        if (each.schema or "") == wanted[0]
    }


def describe(
    source: SourceSpec, table: TableName, as_text: tuple[str, ...] = (), observe: Observer = silent
) -> dict[str, Any]:
    """Return partitions, and columns with what each would become in CSV (rfc4180) and Parquet."""
    with _opened(source, observe) as catalog:
        info = catalog.describe(table, observe)
        check_as_text([column.name for column in info.columns], as_text)
        readings = catalog.readings(info, None, ValueOptions())
        csv, parquet = (
            choose(readings, (OutputNeeds(text=text),), as_text=as_text, encodes=catalog.encodes)
            for text in (TextFormat(), None)
        )
        return {
            "source": source.location,
            "server_version": catalog.server_version,
            **_fields(info, "schema", "name", "rows", "bytes", "ranges_from"),
            "columns": [
                {
                    **_fields(in_csv, "name", "source_type", "nullable"),
                    "csv": _fields(in_csv, "output_type", "lossless", "note"),
                    "parquet": _fields(in_parquet, "output_type", "lossless", "note"),
                }
                for in_csv, in_parquet in zip(csv.columns, parquet.columns, strict=True)
            ],
            "partitions": [
                _fields(each, "name", "position", "rows", "bytes") for each in info.partitions
            ],
            "missing_privileges": catalog.missing_privileges(info),
        }


def plan(
    asked: Request | TablesRequest, *, kept_with: Path | None = None, observe: Observer = silent
) -> PlannedRun:
    """Return what `unload` would do. A sample of the rows is read if the codec is to be measured.

    A snapshot that the request asks to keep is kept while the file `kept_with` exists.
    """
    asked = TablesRequest.one(asked) if isinstance(asked, Request) else asked
    with translated(), resolved(asked, observe=observe) as ready:
        run, home, statements = ready.tables[0], "", {}
        if kept_with is not None:
            ready.catalog.keep_until_gone((str(kept_with.absolute()),))
        if asked.is_single:
            statements = {
                unit.id: ";\n".join(
                    ready.catalog.statement(run.extract, each) for each in unit.selectors
                )
                for unit in run.plan.units
            }
        elif any(each.output.options.destination for each in ready.tables):
            home = home_of(asked.options.destination, ready.tables)
        return PlannedRun(
            tables=ready.tables, problems=ready.problems, home=home, statements=statements
        )


def planned_run(document: Mapping[str, Any]) -> ResolvedTable:
    """Return the run that a plan file holds, for `unload`; PlanFailed for another file."""
    return ResolvedTable.from_json(
        {key: value for key, value in document.items() if key not in FOR_THE_READER}
    )


@translated()
def unload(
    asked: Request | TablesRequest,
    *,
    planned: ResolvedTable | None = None,
    resume: bool = False,
    observe: Observer = silent,
    stop: Stop = lambda: False,
) -> dict[str, Any]:
    """Unload a table or a query, or several at one snapshot; return the manifest's JSON document.

    The document is a `Manifest` of `unloader.manifest.model`, a list of them under `routes` for
    several outputs, or a `TablesManifest` for several tables. Each table then has its own manifest.

    Args:
        asked: What, where and how. `TablesRequest.of` makes a run over several tables.
        planned: A run of one table that `plan` returned, whose units and codec are used.
        resume: Continue an interrupted run of the same job in the destination. A new run starts
            without one, or if its snapshot cannot be read any more; a notice reports it.

    Raises:
        UnloaderError: PartialUnload if some tables are not complete, although the others are.
    """
    asked = TablesRequest.one(asked) if isinstance(asked, Request) else asked
    begin = starting.resume_or_start if resume else starting.start
    return answer(begin(asked, planned, observe=observe, stop=stop))


def batches(asked: Request, observe: Observer = silent) -> Iterator[RowBatch]:
    """Yield the rows of a table or query at one snapshot, unit by unit, with the types of Parquet.

    This process reads them, without workers and files, in one session. The snapshot ends with the
    iterator. A batch takes up to `fetch_bytes` of memory. The number of rows is not compared with
    the source's count, and a unit that fails is not repeated.

    Raises:
        UnloaderError: OutputFailed if a unit must be read in another way after its first batch.
    """
    from writers.large_rows import LargeRow, collected  # Imports pyarrow.

    output = OutputOptions(destination="null:", format=ParquetFormat())
    asked = replace(asked, output=output, parallelism=1)
    with translated(), resolved(TablesRequest.one(asked), observe=observe) as ready:
        run = ready.tables[0]
        source = run.extract.source
        with closing(source_of(source.kind).open_reader(source, run.extract.snapshot)) as reader:
            for unit in run.plan.units:

                def begun(unit: WorkUnit = unit) -> tuple[Any, Iterator[Any]]:
                    found = unit_batches(reader, run.extract, unit, batch_bytes=asked.fetch_bytes)
                    return next(found, None), found

                batch, rest = read_again(begun)
                try:
                    while batch is not None:
                        yield collected(batch) if isinstance(batch, LargeRow) else batch
                        batch = next(rest, None)
                except ReadAgain as error:
                    raise OutputFailed(
                        f"unit {unit.id} must be read again in another way, but the caller already "
                        "has some of its rows",
                        "unload the table to files, where unloader can read the unit again",
                    ) from error


@translated()
def finished(asked: Request | TablesRequest) -> dict[str, Any] | None:
    """Return the document of a finished run of the same job, or None.

    It is looked for where the run would go. With `{date}`, and for a table of a lakehouse, it is a
    run of today (UTC). Nothing is changed, and the source is not opened.
    """
    asked = TablesRequest.one(asked) if isinstance(asked, Request) else asked
    found = starting.finished(asked)
    return None if found is None else answer(found)


@translated()
def interrupted(destination: AnyPlace) -> Request | None:
    """Return the request of an interrupted run in a directory, or None; for several tables without
    their names. If the run is active, or cannot be read, the error is OutputFailed."""
    broken = find_broken_run(str(destination))
    return None if broken is None else broken.request


@translated()
def resume(
    destination: AnyPlace,
    *,
    secret: SecretReference | None = None,
    session_sql: tuple[str, ...] = (),
    parallelism: int | None = None,
    cluster: ClusterOptions | None = None,
    new_snapshot: bool = False,
    keys: EncryptionOptions | None = None,
    masking_keys: tuple[MaskingKey, ...] = (),
    observe: Observer = silent,
    stop: Stop = lambda: False,
) -> dict[str, Any]:
    """Continue a run that was stopped, failed or killed; return the manifest's JSON document.

    The same rows are read at the same snapshot. Units that were done are kept, once their files
    were read again and have the recorded checksums. Of a run that is finished the manifest is
    returned. Tables that are published already are not read again.

    Args:
        destination: Any directory of the run; for a run over several tables, the directory above
            all of them.
        secret: Where the password is found now; None is where it was.
        session_sql: The first statements of the sessions; no record holds them.
        parallelism: 0 is the number of usable cores, None is as the run had it.
        cluster: The new cluster of the workers; its empty fields keep the run's values.
        new_snapshot: Read everything again at a new snapshot, with the options of the run.
        keys: Where the keys of encrypted files are found now; None is where they were.
        masking_keys: Where keys of masks are found now; the others are where they were.

    Raises:
        UnloaderError: SnapshotGone if the snapshot cannot be read any more.
    """
    return answer(
        starting.resume(
            str(destination),
            secret=secret,
            session_sql=session_sql,
            parallelism=parallelism,
            cluster=cluster,
            new_snapshot=new_snapshot,
            keys=keys,
            masking_keys=masking_keys,
            observe=observe,
            stop=stop,
        )
    )


@translated()
def verify(
    destination: AnyPlace,
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
        destination: The directory of the manifest; of a run over several tables, each is checked.
        source: None = the rows are not counted there.
        level: count reads files as a whole. full also compares the checksums of their values with
            the run's record, and source compares them with checksums that the source computes.
        strict: Files that are not of the run are a difference, and not only reported.
        parallelism: Files that are read at a time; 0 is as many as there are usable CPUs.
        keys: Where the keys of encrypted files are found. Without them those are read as a whole.

    Raises:
        UnloaderError: VerifyMismatch if something differs.
    """
    from unloader.verification import finished

    checks = finished.Checks(
        source=source, level=level, strict=strict, parallelism=parallelism, keys=keys
    )
    return finished.verify(path_of(destination), checks, observe)


@translated()
def merge(destination: AnyPlace) -> dict[str, Any]:
    """Put the parts of a plan in the destination together under one manifest, which is returned."""
    from unloader.merging import merge as merged

    return answer((merged(path_of(destination)),))


@translated()
def clean(directories: Sequence[AnyPlace], *, dry_run: bool = False) -> dict[str, Any]:
    """Remove, or only list, what runs that died have left unpublished in directories."""
    return clear([str(directory) for directory in directories], dry_run=dry_run).to_json()
