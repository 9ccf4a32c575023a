"""The order in which work units of all tables are handed out, and which go to a worker together.

Small tables are handed out in bundles: one task and one answer for several, which cost more than
most small tables take to be read. The units that a failed bundle has not finished are tried again
table by table. So one table's failure stays with that table, and the other tables are only read
once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from partition_planner.model import WorkUnit

_BYTES_PER_ROW = 128
"""Guess, for tables whose rows alone are known to the source."""


def size_of(unit: WorkUnit) -> int:
    return unit.bytes or (unit.rows or 0) * _BYTES_PER_ROW


class TableUnit(Struct, frozen=True, kw_only=True):
    """A unit, and the number of its table."""

    table: int
    unit: WorkUnit
    others: tuple[TableUnit, ...] = ()
    """Of other tables, which the same worker does after this one; see `bundles`."""

    @property
    def id(self) -> str:
        return f"{self.table}.{self.unit.id}"

    @property
    def tables(self) -> tuple[int, ...]:
        """The numbers of all tables that it has a unit of."""
        return (self.table, *(each.table for each in self.others))

    @property
    def parts(self) -> tuple[TableUnit, ...]:
        """Each part of several parts; empty for a whole unit."""
        return (replace(self, others=()), *self.others) if self.others else ()


MOST_UNITS = 16
"""In a bundle. All of them are read again if the worker is lost (guess)."""
MOST_BYTES = 8 * 1024 * 1024
"""Of all units of a bundle, in the source: some tenths of a second (guess)."""
_LEAST_BUNDLES = 8
"""For each worker, so that all of them end at about the same time (guess)."""
_LAST_BUNDLES = 2
"""For each worker, which are handed out in pieces, so that all end at nearly the same time (guess).
"""
_LAST_UNITS = 4


def largest_first(units: Iterable[TableUnit]) -> list[TableUnit]:
    """Return units in the order in which they are handed out; of equals, as they come.

    No worker is idle while a unit waits, so small units remain for the end. No large unit begins
    when the other workers have nothing more to do. A table whose size the source does not know,
    such as a view, may be the largest of all.
    """
    return sorted(units, key=lambda each: (_is_known(each.unit), -size_of(each.unit)))


def bundled(units: Sequence[TableUnit], able: Container[int], workers: int) -> Iterator[TableUnit]:
    """Yield units in their order; some small units bring others with them.

    Args:
        able: Numbers of tables that may be in a bundle: of one unit that was not tried before.
    """
    small = sum(_is_small(each, able) for each in units)
    most = max(1, min(MOST_UNITS, small // (_LEAST_BUNDLES * workers)))
    bundle: list[TableUnit] = []
    for each in units:
        fits = sum(size_of(one.unit) for one in (*bundle, each)) <= MOST_BYTES
        if bundle and not (_is_small(each, able) and fits and len(bundle) < most):
            yield _of(bundle)
            bundle = []
        if _is_small(each, able):
            bundle.append(each)
        else:
            yield each
    if bundle:
        yield _of(bundle)


def spread_out(orders: Sequence[TableUnit], able: Container[int], workers: int) -> list[TableUnit]:
    """Return orders with some of the small ones between the large ones.

    A large unit keeps the source busy. Many small tables keep this side busy: each has its journal
    and manifest. One beside the other takes less time than one after the other. Enough of the small
    ones stay at the end for all workers to end together. These are the largest small ones: the
    worker that reads the last table waits for the tables that are still to be published.
    """
    large = [each for each in orders if not _is_small(each, able)]
    small = [each for each in orders if _is_small(each, able)]
    left = _early_bytes(list(map(_bytes, large)), sum(map(_bytes, small)), workers)
    moved = []
    # A few are soon done, wherever they are.
    for each in reversed(small) if len(small) > _LAST_BUNDLES * workers else ():
        left -= _bytes(each)
        if left < 0:
            break
        moved.append(each)
    if not moved:
        return list(orders)
    rest = small[: len(small) - len(moved)]
    # Evenly by their number, which is what takes our time; bytes are the source's.
    tables, total = sum(len(each.tables) for each in moved), sum(map(_bytes, large))
    found, begun, between = [], 0, 0
    waiting = deque(moved)
    for each in large:
        found.append(each)
        begun += _bytes(each)
        while waiting and between * total < tables * begun:
            between += len(waiting[0].tables)
            found.append(waiting.popleft())
    return [*found, *waiting, *_in_pieces(rest, _LAST_BUNDLES * workers)]


def _in_pieces(orders: Sequence[TableUnit], last: int) -> Iterator[TableUnit]:
    """Yield orders, of the last ones no more than a few units at a time."""
    yield from orders[:-last]
    for each in orders[-last:]:
        units = each.parts or (each,)
        for first in range(0, len(units), _LAST_UNITS):
            yield _of(units[first : first + _LAST_UNITS])


def _early_bytes(large: Sequence[int], small: int, workers: int) -> int:
    """Return how much of the small orders may come before the last large one.

    Each large unit must be able to end while other workers do the units after it.

    Args:
        large: The bytes of each, as they are handed out.
        small: The bytes of all small ones.
        workers: How many share them out.
    """
    behind = kept = 0
    for each in reversed(large):
        kept = max(kept, (workers - 1) * each - behind)
        behind += each
    return max(0, min(small - kept, small // 2, behind))


def _is_known(unit: WorkUnit) -> bool:
    return unit.bytes is not None or unit.rows is not None


def _bytes(order: TableUnit) -> int:
    return sum(size_of(each.unit) for each in (order, *order.others))


def _is_small(each: TableUnit, able: Container[int]) -> bool:
    return each.table in able and _is_known(each.unit) and size_of(each.unit) <= MOST_BYTES // 2


def _of(bundle: Sequence[TableUnit]) -> TableUnit:
    first, *others = bundle
    return replace(first, others=tuple(others))
