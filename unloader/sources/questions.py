"""What a run asks of a source's catalog: to describe, choose, read, hold and count tables.

Of many tables together, a refusal of one table does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from partition_planner.model import ColumnInfo, TableInfo
from unloader.errors import SourceError, UsageError
from unloader.events import Notice, Observer, silent
from unloader.model import Projection, SampledKeys, ValueOptions
from unloader.selection.listing import Obstacle, TableProblem, problem_of
from unloader.sources.base import Catalog, Held, described_or_obstacle
from unloader.sources.readings import OutputNeeds, choose
from unloader.sources.statement import not_accepted

if TYPE_CHECKING:
    from unloader.selection.choice import Chosen

GONE = Obstacle(
    kind="gone",
    what="it was dropped or renamed after the run began",
    hint="leave the table out, or run again to read the tables as they are now",
)


class DescribedTables(Struct, frozen=True, kw_only=True):
    tables: tuple[TableInfo, ...]
    """By schema and name, each once."""
    problems: tuple[TableProblem, ...] = ()
    """One for each table that cannot be described, without the problems of the choice."""
    notices: tuple[str, ...] = ()


def describe_tables(
    catalog: Catalog, chosen: Chosen, observe: Observer = silent
) -> DescribedTables:
    """Describe the chosen tables that have no obstacle yet; raise what concerns all of them.

    The source resolves a name that is not in the listing. If the name means a table that is chosen
    or excluded already, it adds no table.
    """
    problems: list[TableProblem] = []
    notices: list[str] = []
    found: dict[tuple[str, str], TableInfo] = {}
    wanted = [table for table in chosen.tables if table.readable]
    infos = catalog.describe_tables(wanted, observe) if wanted else ()
    for listed, info in zip(wanted, infos, strict=True):
        if isinstance(info, Obstacle):
            problems.append(problem_of(listed.label, info))
        else:
            found[listed.key] = info
    for name, text in chosen.unlisted:
        single = described_or_obstacle(catalog, name, observe)
        if isinstance(single, Obstacle):
            problems.append(problem_of(text, single))
            continue
        key = (single.schema or "", single.name)
        if key in chosen.excluded:
            notices.append(f"{text} means {single.label}, which is excluded")
        else:
            found.setdefault(key, single)
    return DescribedTables(
        tables=tuple(info for _, info in sorted(found.items())),
        problems=tuple(problems),
        notices=tuple(notices),
    )


def hold_tables(
    catalog: Catalog, tables: Sequence[Held], observe: Observer = silent
) -> tuple[SourceError | None, ...]:
    """Hold each table unchanged and observe kinds that are not held; return the errors or None."""
    found = catalog.hold_tables(tables)
    for text in catalog.unheld():
        observe(Notice(text=text))
    return found


def describe_query(catalog: Catalog, query: str) -> TableInfo:
    """Return the columns of a query; an error that the database finds in it names the option."""
    try:
        return catalog.describe_query(query)
    except SourceError as error:
        raise not_accepted(
            "--query", error, "give --query one SELECT, in the SQL of the database"
        ) from error


def check_able(catalog: Catalog, option: str) -> None:
    if not catalog.capabilities.samples:
        raise UsageError(
            f"--{option} does not apply to this source, which cannot choose rows",
            "leave it out, or choose rows with --where or --query",
        )


def sampled_keys(catalog: Catalog, label: str, column: ColumnInfo, share: float) -> SampledKeys:
    """Return the sample of a column's values; `UsageError` where they cannot be keys."""
    found = catalog.sampled_keys(column, share)
    if found is None:
        raise UsageError(
            f"--sample-by {column.name}: the column of {label} has the type "
            f"{column.native_type or 'of any value'}, whose values cannot be keys",
            "give a column of whole or decimal numbers, text, UUIDs or bytes",
        )
    return found


def project(
    catalog: Catalog,
    table: TableInfo,
    query: str | None,
    outputs: Sequence[OutputNeeds],
    *,
    as_text: Sequence[str] = (),
    values: ValueOptions | None = None,
) -> Projection:
    """Return the projection of a table or query for some outputs; errors as for `choose`."""
    readings = catalog.readings(table, query, values or ValueOptions())
    return choose(readings, outputs, as_text=as_text, encodes=catalog.encodes)
