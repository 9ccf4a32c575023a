"""What would be read, and what would become of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from partition_planner.model import TableInfo
from partition_planner.simulate import Simulation, simulate
from unloader.errors import translated
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import ReadColumn, Request, SourceSpec, TableName, TableSummary, ValueOptions
from unloader.resolve.choosing import check_as_text
from unloader.resolve.places import home_of, places
from unloader.resolve.resolution import resolved
from unloader.resolve.resolved import ResolvedTable, routes_json
from unloader.selection.choice import AskedTables, TablesRequest
from unloader.sources.abilities import keep_until_gone
from unloader.sources.base import Catalog
from unloader.sources.projection import OutputNeeds, choose, encodes_of
from unloader.sources.registry import source_of
from writers.model import TextFormat

if TYPE_CHECKING:
    from unloader.checking import Checked, SchemaTable
    from unloader.selection.listing import TableProblem


class TableDescription(Struct, frozen=True, kw_only=True):
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
"""Keys of a plan file beside the run's keys."""


class PlannedRun(Struct, frozen=True, kw_only=True):
    """Exactly what `unload` would do, and what follows from it for the reader."""

    tables: tuple[ResolvedTable, ...]
    """One for each table that would be unloaded."""
    problems: tuple[TableProblem, ...] = ()
    """Of tables that would be left out."""
    home: str = ""
    """The directory of a run over several tables; empty if the output has no place."""
    statements: dict[str, str]
    """For the only table: unit id to the SELECT that reads it, or several with `;` between."""

    @property
    def run(self) -> ResolvedTable:
        """The only table."""
        return self.tables[0]

    @property
    def units(self) -> int:
        """The work units of all tables."""
        return sum(len(run.plan.units) for run in self.tables)

    @property
    def simulation(self) -> Simulation:
        """How the units of the only table would keep its workers busy."""
        return simulate(self.run.plan, max(1, len(self.run.seating.seats)))

    @property
    def places(self) -> dict[str, str]:
        """Unit id of the only table to its file or pipe; empty without a destination."""
        return places(self.run)

    def to_json(self) -> dict[str, Any]:
        """Return the plan file: the run, which `unload` takes again, and more for the reader."""
        return {**self.run.without_secrets().to_json(), **self._for_the_reader()}

    def _for_the_reader(self) -> dict[str, Any]:

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
            "seats": to_builtins(run.seating.seats),
            "places": self.places,
            "notices": list(run.seating.notices),
            "compression_choice": to_builtins(run.output.choice),
            **({"routes": routes_json(run)} if run.request.routes is not None else {}),
        }


def _changes(lossless: bool | str) -> dict[str, str]:
    """Return the word for a column that is changed on purpose."""
    return {"values": lossless} if isinstance(lossless, str) else {}


@contextmanager
def _opened(source: SourceSpec, observe: Observer) -> Iterator[Catalog]:
    """Open a source to look at its tables; close it at the end of the context."""
    with translated():
        observe(PhaseStarted(phase="connecting"))
        with closing(source_of(source.kind).open_catalog(source)) as catalog:
            observe(PhaseStarted(phase="table"))
            yield catalog


def list_tables(source: SourceSpec, observe: Observer = silent) -> tuple[TableSummary, ...]:
    """Return the tables and views of a source, by schema and name.

    Raises:
        UnloaderError: ConfigError for a missing driver, SourceError if the source refused.
    """
    with _opened(source, observe) as catalog:
        return catalog.tables()


def describe(
    source: SourceSpec,
    table: TableName,
    as_text: tuple[str, ...] = (),
    observe: Observer = silent,
) -> TableDescription:
    """Return a table's columns, partitions and what each column would become.

    Raises:
        UnloaderError: SourceError if the table is missing or must not be read, UsageError if a
            pattern of `as_text` matches no column.
    """
    with _opened(source, observe) as catalog:
        info = catalog.describe(table, observe)
        check_as_text([column.name for column in info.columns], as_text)
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


def plan(
    asked: Request | TablesRequest, *, kept_with: Path | None = None, observe: Observer = silent
) -> PlannedRun:
    """Return what `unload` would do: units, statements, seats, predicted balance.

    Reads a sample of the rows if the codec is to be chosen by measuring.

    Args:
        asked: As for `unload`.
        kept_with: The file that the plan is written to next; a snapshot that the request asks to
            keep is kept while it exists.
        observe: Reports what happens; called in this thread.

    Raises:
        UnloaderError: As `unload` would before it starts its workers.
    """

    asked = TablesRequest.one(asked) if isinstance(asked, Request) else asked
    with translated(), resolved(asked, observe=observe) as ready:
        run, home, statements = ready.tables[0], "", {}
        if kept_with is not None:
            keep_until_gone(ready.catalog, (str(kept_with.absolute()),))
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


def schema_tables(
    source: SourceSpec, schema: str | None = None, observe: Observer = silent
) -> tuple[SchemaTable, ...]:
    """Return the tables and views of one schema, by name.

    Args:
        source: The source.
        schema: As it was typed; None is the only one that has tables.
        observe: Called with each event, in this thread.

    Raises:
        UnloaderError: UsageError if the database has several schemas and none is named, SourceError
            if the schema is missing or the source refused.
    """
    from unloader.checking import schema_tables as listed

    with _opened(source, observe) as catalog:
        return listed(catalog, schema)


def check(
    entries: Sequence[AskedTables],
    *,
    home: str = "",
    observe: Observer = silent,
    stop: Callable[[], bool] = lambda: False,
) -> Checked:
    """Return all facts about runs that need no reading of rows, with every problem.

    Args:
        entries: The user's entries; `AskedTables.of` makes one of a request. All have the same
            source.
        home: Where the manifest of a run over several tables goes, with its fields; empty if that
            is not known.
        observe: Called with each event, in this thread.
        stop: Asked several times a second while the source is opened.
    """
    from unloader.checking import check as look

    with translated():
        return look(entries, home=home, observe=observe, stop=stop)


def planned_run(document: Mapping[str, Any]) -> ResolvedTable:
    """Return the run that a plan file holds, for `unload`.

    Raises:
        PlanFailed: The document is not a plan file, has another version, or was edited.
    """
    return ResolvedTable.from_json(
        {key: value for key, value in document.items() if key not in FOR_THE_READER}
    )
