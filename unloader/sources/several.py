"""What is asked of a source for many tables at once: to hold them, and to count their rows.

A source that can do it in few statements says so; any other is asked table by table. In both cases
what the database says against one table is that table's own, and the others are as if it were not
there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from unloader.errors import SnapshotGone, SourceError, TransientSourceError
from unloader.events import Notice, Observer, silent
from unloader.sources.statement import condition, select

if TYPE_CHECKING:
    from partition_planner.model import Selector
    from unloader.model import Extract
    from unloader.sources.base import Catalog

T = TypeVar("T")

COUNTED_TOGETHER = 100
"""Tables that one statement counts; SQLite joins 500 SELECTs at most."""

Held = tuple["Extract", "tuple[Selector, ...]"]
"""What is to be held of one table."""


class HoldingCatalog(Protocol):
    """What a catalog has besides where `capabilities.holds_many` is true."""

    def hold_tables(self, tables: Sequence[Held]) -> tuple[SourceError | None, ...]:
        """Do for each table what `Catalog.hold` does; return what keeps each from being held.

        All of them together wait no longer for the locks of others than one alone would.

        Raises:
            SourceError: The connection is lost.
            SnapshotGone: So is the snapshot of all.
        """


class CountingCatalog(Protocol):
    """What a catalog has besides where `capabilities.counts_many` is true."""

    def count_tables(self, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
        """Return for each extract what `Catalog.count` returns, or raises for that table alone.

        Raises:
            SourceError: The connection is lost.
            SnapshotGone: So is the snapshot of all.
        """


def hold_tables(
    catalog: Catalog, tables: Sequence[Held], observe: Observer = silent
) -> tuple[SourceError | None, ...]:
    """Keep what is to be read of each table as it is; return what keeps each from being held.

    Args:
        catalog: Has the snapshot.
        tables: What is to be held.
        observe: Called with a notice of each thing that cannot be held.

    Raises:
        SourceError: The connection is lost, or the snapshot of all.
    """
    if catalog.capabilities.holds_many:
        found = cast(HoldingCatalog, catalog).hold_tables(tables)
    else:
        found = tuple(error_or_none(partial(catalog.hold, *each)) for each in tables)
    for text in catalog.unheld():
        observe(Notice(text=text))
    return found


def count_tables(catalog: Catalog, extracts: Sequence[Extract]) -> tuple[int | SourceError, ...]:
    """Return the rows of each extract, counted by the source for each by itself.

    Raises:
        SourceError: The connection is lost, or the snapshot of all.
    """
    if catalog.capabilities.counts_many and len(extracts) > 1:
        return cast(CountingCatalog, catalog).count_tables(extracts)
    return tuple(result_or_error(partial(catalog.count, each)) for each in extracts)


def counted_in_union(
    catalog: Catalog,
    rows: Callable[[str], list[tuple[Any, ...]]],
    extracts: Sequence[Extract],
    relation_of: Callable[[Extract], str],
) -> tuple[int | SourceError, ...]:
    """Count many tables by statements that join the counts of each; an ability for catalogs.

    Each table has a count of its own, which reads nothing but that table; only the round trip is
    one. Where the statement is refused each is counted alone, so that what the database says of one
    is its own.

    Args:
        catalog: Counts those that are no whole table.
        rows: Runs a statement.
        extracts: What is counted.
        relation_of: Returns what an extract reads from.
    """
    found: dict[int, int | SourceError] = {}
    plain = [at for at, each in enumerate(extracts) if each.is_plain]
    for start in range(0, len(plain), COUNTED_TOGETHER):
        counts = []
        for at in plain[start : start + COUNTED_TOGETHER]:
            where = extracts[at].where
            conditions = [condition(where)] if where else []
            counts.append(select(f"{at}, count(*)", relation_of(extracts[at]), conditions))
        counted = result_or_error(partial(rows, " UNION ALL ".join(counts)))
        if not isinstance(counted, SourceError):
            found |= {int(at): int(count) for at, count in counted}
    for at, extract in enumerate(extracts):
        if at not in found:
            found[at] = result_or_error(partial(catalog.count, extract))
    return tuple(found[at] for at in range(len(extracts)))


def result_or_error(act: Callable[[], T]) -> T | SourceError:
    """Return what a call returns, or the error that is of its table alone.

    Raises:
        TransientSourceError: The connection may be lost; another attempt may succeed.
        SnapshotGone: The call says so of all tables.
    """
    try:
        return act()
    except (TransientSourceError, SnapshotGone):
        raise
    except SourceError as error:
        return error


def error_or_none(act: Callable[[], None]) -> SourceError | None:
    """Return the error that is of a table alone, as `result_or_error` tells it; None without."""
    found = result_or_error(act)
    return found if isinstance(found, SourceError) else None
