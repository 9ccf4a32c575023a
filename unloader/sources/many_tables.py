"""Many tables of a source together: described, held, and their rows counted.

A source needs a fixed number of statements, or few for a thousand tables. A refusal of one table
does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from unloader.errors import SourceError
from unloader.events import Notice, Observer, silent
from unloader.selection.listing import ListedTable, Obstacle, TableProblem, problem_of
from unloader.sources.base import (
    Catalog,
    Held,
    described_or_obstacle,
    quoted_name,
    result_or_error,
)
from unloader.sources.statement import relation_of, row_conditions, select

if TYPE_CHECKING:
    from partition_planner.model import TableInfo
    from unloader.model import Extract
    from unloader.selection.choice import Chosen

GONE = Obstacle(
    kind="gone",
    what="it was dropped or renamed after the run began",
    hint="leave the table out, or run again to read the tables as they are now",
)

Key = TypeVar("Key")
T = TypeVar("T")

TOGETHER = 100
"""Tables of one statement; SQLite joins 500 SELECTs at most, and more gain nothing in DuckDB."""


class DescribedTables(Struct, frozen=True, kw_only=True):
    """The descriptions of the chosen tables."""

    tables: tuple[TableInfo, ...]
    """By schema and name, each once."""
    problems: tuple[TableProblem, ...] = ()
    """One for each table that cannot be described, without the problems of the choice."""
    notices: tuple[str, ...] = ()


def describe_tables(
    catalog: Catalog, chosen: Chosen, observe: Observer = silent
) -> DescribedTables:
    """Describe the chosen tables that have no obstacle yet.

    The source resolves a name that is not in the listing. If the name means a table that is chosen
    or excluded already, it adds no table.

    Raises:
        TransientSourceError: The connection is lost.
        SnapshotGone: The snapshot is lost.
        SourceError: The database refused all of it.
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
    for named in chosen.unlisted:
        single = described_or_obstacle(catalog, named.name, observe)
        if isinstance(single, Obstacle):
            problems.append(problem_of(named.text, single))
            continue
        key = (single.schema or "", single.name)
        if key in chosen.excluded:
            notices.append(f"{named.text} means {single.label}, which is excluded")
        else:
            found.setdefault(key, single)
    return DescribedTables(
        tables=tuple(info for _, info in sorted(found.items())),
        problems=tuple(problems),
        notices=tuple(notices),
    )


def described_in_order(
    catalog: Catalog,
    tables: Sequence[ListedTable],
    infos: Iterable[TableInfo],
    there: Collection[tuple[str, str]],
    observe: Observer = silent,
) -> tuple[TableInfo | Obstacle, ...]:
    """Return a description or an obstacle of each table, in order; for `Catalog.describe_tables`.

    Args:
        catalog: Describes tables that are not among `infos`, one by one.
        infos: Descriptions of some tables, from one question.
        there: Schemas and names of the tables that exist now.
    """
    known = {(info.schema or "", info.name): info for info in infos}
    return tuple(
        known.get(table.key)
        or (
            described_or_obstacle(catalog, quoted_name(*table.key), observe)
            if table.key in there
            else GONE
        )
        for table in tables
    )


def asked_together(
    ask: Callable[[Sequence[Key]], Sequence[tuple[Key, T]]], keys: Sequence[Key]
) -> Iterator[tuple[Key, T]]:
    """Yield the answers of a source for many tables.

    One statement asks for up to a hundred tables. If it is refused, each table has a separate
    statement. A table whose statement is refused is left out.

    Raises:
        SourceError: There is one table only, and its statement is refused.
    """
    if len(keys) == 1:
        yield from ask(keys)
        return
    for start in range(0, len(keys), TOGETHER):
        some = keys[start : start + TOGETHER]
        found = result_or_error(partial(ask, some))
        if not isinstance(found, SourceError):
            yield from found
            continue
        for key in some:
            alone = result_or_error(partial(ask, [key]))
            yield from () if isinstance(alone, SourceError) else alone


def hold_tables(
    catalog: Catalog, tables: Sequence[Held], observe: Observer = silent
) -> tuple[SourceError | None, ...]:
    """Hold each table unchanged, and observe a notice for each kind of object that is not held.

    Returns:
        The error of each table, or None.

    Raises:
        SourceError: The connection is lost, or the snapshot of all.
    """
    found = catalog.hold_tables(tables)
    for text in catalog.unheld():
        observe(Notice(text=text))
    return found


def counted_in_union(
    catalog: Catalog, rows: Callable[[str], list[tuple[Any, ...]]], extracts: Sequence[Extract]
) -> tuple[int | SourceError, ...]:
    """Count many tables with statements that join their counts; for `Catalog.count_tables`.

    Tables share only the round trip. If a joined statement is refused, each table is counted
    separately, so that an error belongs to one table.

    Args:
        catalog: Counts the extracts that are not a whole table.
    """
    found: dict[int, int | SourceError] = {}
    plain = [at for at, each in enumerate(extracts) if each.is_plain]
    for start in range(0, len(plain), TOGETHER):
        counts = [
            select(f"{at}, count(*)", relation_of(extracts[at]), row_conditions(extracts[at]))
            for at in plain[start : start + TOGETHER]
        ]
        counted = result_or_error(partial(rows, " UNION ALL ".join(counts)))
        if not isinstance(counted, SourceError):
            found |= {int(at): int(count) for at, count in counted}
    for at, extract in enumerate(extracts):
        if at not in found:
            found[at] = result_or_error(partial(catalog.count, extract))
    return tuple(found[at] for at in range(len(extracts)))
