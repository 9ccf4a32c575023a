"""Small tables that are handed out together: one order to a worker, and one answer, for several.

An order, its answer and whoever wakes up for them cost more than most small tables take to be read.
What a bundle has not brought is tried again table by table, so a failure is that of one table, and
costs the others of its bundle no more than to be read once more.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from unloader.run.tables.counting import size_of
from unloader.run.tables.units import TableUnit, is_known

MOST_UNITS = 16
"""In a bundle. All of them are read again if the worker is lost (guess)."""
MOST_BYTES = 8 * 1024 * 1024
"""Of all units of a bundle, in the source: some tenths of a second (guess)."""
_LEAST_BUNDLES = 8
"""For each worker, so that all of them end at about the same time (guess)."""


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


def _is_small(each: TableUnit, able: Container[int]) -> bool:
    return each.table in able and is_known(each.unit) and size_of(each.unit) <= MOST_BYTES // 2


def _of(bundle: Sequence[TableUnit]) -> TableUnit:
    first, *others = bundle
    return replace(first, others=tuple(others))
