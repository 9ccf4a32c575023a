"""Small tables that are handed out together: one order to a worker, and one answer, for several.

An order, its answer and whoever wakes up for them cost more than most small tables take to be read.
What a bundle has not brought is tried again table by table, so a failure is that of one table, and
costs the others of its bundle no more than to be read once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Sequence

from msgspec.structs import replace

from unloader.run.telling import size_of
from unloader.run.work import TableUnit, is_known

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
"""In such a piece (guess)."""


def bundled(units: Sequence[TableUnit], able: Container[int], workers: int) -> Iterator[TableUnit]:
    """Yield units in their order, small ones of which some bring others with them.

    Args:
        units: The largest first.
        able: Numbers of tables that may be in a bundle: of one unit that was not tried before.
        workers: How many share the units out.
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

    A large unit keeps the source busy, many small tables keep us: each has a journal and a manifest
    of its own. One beside the other takes less time than one after the other. As much of the small
    ones stays behind as there must be for all workers to end together: the largest of them, as
    whoever has read the last one waits for those that are still to be published.

    Args:
        orders: The largest first.
        able: See `bundled`.
        workers: How many share the orders out.
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

    While the others do what is behind it each large one must be able to come to its end.

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


def _bytes(order: TableUnit) -> int:
    return sum(size_of(each.unit) for each in (order, *order.others))


def _is_small(each: TableUnit, able: Container[int]) -> bool:
    return each.table in able and is_known(each.unit) and size_of(each.unit) <= MOST_BYTES // 2


def _of(bundle: Sequence[TableUnit]) -> TableUnit:
    first, *others = bundle
    return replace(first, others=tuple(others))
