"""Selections of rows and columns, the ways a run may take to carry them out, and pairs of both.

The truth is a list of rows made here. This module also decides which of them a selection has, so
the program under test has no part in its own expected result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import NamedTuple


class Row(NamedTuple):
    """One row of the table, whose columns are `id`, `name`, `k` and `region`."""

    id: int
    name: str
    k: int
    region: str


COLUMNS = Row._fields
REGIONS = ("north", "east", "south", "west")
ROWS = tuple(
    Row(id=n, name=f"row {n}", k=n % 10, region=REGIONS[n * len(REGIONS) // 1200])
    for n in range(1200)
)
"""In the order of their regions, so that a source without partitions may name ranges of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection, with its rows and columns."""

    options: Mapping[str, str] = field(default_factory=dict)
    """Options of `run` without their dashes; without one of them the table `t` is meant."""
    wanted: Callable[[Row], bool] = lambda row: True
    columns: tuple[str, ...] = COLUMNS
    limit: int | None = None
    """The number of wanted rows; the source chooses which ones come."""

    @property
    def count(self) -> int:
        """The number of rows that must come out."""
        return len(self.rows) if self.limit is None else min(len(self.rows), self.limit)

    @property
    def rows(self) -> list[tuple[object, ...]]:
        """The rows that are wanted, by their `id`, with the columns in order."""
        return [
            tuple(getattr(row, name) for name in self.columns) for row in ROWS if self.wanted(row)
        ]


def _north(row: Row) -> bool:
    return row.region == "north"


def in_sample(key: str, share: float) -> bool:
    """Return whether a key is in a sample, as docs/subsets.md defines it."""
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) < int(share * 2**32)


SELECTIONS = {
    "all": Selection(),
    "where": Selection(
        options={"where": "k > 6 OR k = 1"}, wanted=lambda row: row.k in (1, 7, 8, 9)
    ),
    "columns": Selection(options={"columns": "region,id"}, columns=("region", "id")),
    "exclude": Selection(options={"exclude": "name"}, columns=("id", "k", "region")),
    "query": Selection(
        options={"query": "SELECT id, k FROM t WHERE k < 3"},
        wanted=lambda row: row.k < 3,
        columns=("id", "k"),
    ),
    "columns where": Selection(
        options={"columns": "id,k", "where": "region = 'west'"},
        wanted=lambda row: row.region == "west",
        columns=("id", "k"),
    ),
    "filter": Selection(
        options={"filter": "k % 3 = 1 AND region <> 'east'", "columns": "id,name"},
        wanted=lambda row: row.k % 3 == 1 and row.region != "east",
        columns=("id", "name"),
    ),
    "key sample": Selection(
        options={"sample": "30%", "sample-by": "id", "exclude": "id"},
        wanted=lambda row: in_sample(str(row.id), 0.3),
        columns=("name", "k", "region"),
    ),
    "limit where": Selection(
        options={"limit-rows": "100", "where": "k < 5"}, wanted=lambda row: row.k < 5, limit=100
    ),
}
"""For every source."""

BY_PARTITION = {
    "first partition": Selection(options={"partition": "north*"}, wanted=_north),
    "two partitions": Selection(
        options={"partition": "east,west"}, wanted=lambda row: row.region in ("east", "west")
    ),
    "glob": Selection(options={"partition": "*ST"}, wanted=lambda row: row.region.endswith("st")),
    "partition where": Selection(
        options={"partition": "south", "where": "k = 5"},
        wanted=lambda row: row.region == "south" and row.k == 5,
    ),
    "partition columns": Selection(
        options={"partition": "north", "columns": "id"}, wanted=_north, columns=("id",)
    ),
}
"""For sources whose table has a partition for each region; `north` may be divided further."""

SELECTING = frozenset(
    (
        *("table", "query", "columns", "exclude", "where", "partition"),
        *("filter", "sample", "sample-by", "limit-rows"),
    )
)
"""The options that select rows and columns."""

NOT_SELECTING = frozenset(
    ("query-name", "as-text", "number-without-precision", "nanoseconds", "zone-columns")
)
"""Options beside them in the help for the form of values."""

OF_A_PLAN = frozenset(("part",))
"""Options that choose among the units of a finished plan: tests/system/test_parts.py tries them."""

FACTORS: Mapping[str, tuple[str, ...]] = {
    "split": ("auto", "partition", "range", "none"),
    "file_per": ("unit", "table"),
    "format": ("csv", "parquet"),
    "to": ("directory", "directories", "stdout", "pipe"),
    "given": ("arguments", "plan", "job file", "variables"),
}

Way = Mapping[str, str]
"""A value for each factor, the `selection` by name, and perhaps the `source`."""


def is_possible(way: Way, *, partitions: bool) -> bool:
    """Return whether the program accepts these together; refusals are tested elsewhere."""
    one_stream, streams = way["to"] in ("stdout", "pipe"), way["to"] != "directory"
    # Both are read in one unit.
    if way["selection"] in ("query", "limit where") and way["split"] not in ("auto", "none"):
        return False
    if way["split"] == "partition" and not partitions:
        return False
    if one_stream and way["format"] == "parquet" and way["split"] not in ("auto", "none"):
        return False
    return not (streams and way["file_per"] == "table")


def ways(selections: Sequence[str], *, partitions: bool) -> list[Way]:
    """Return every possible way to take for each selection."""
    names = ("selection", *FACTORS)
    found = (dict(zip(names, each, strict=True)) for each in product(selections, *FACTORS.values()))
    return [way for way in found if is_possible(way, partitions=partitions)]


def covering(every: Sequence[Way], together: int) -> Iterator[Way]:
    """Yield few of these ways that have among them every value, or every pair of values together.

    The same ways at each call: each time the first one that brings the most new ones.

    Args:
        every: The ways to choose from.
        together: 1 for values, 2 for pairs of values.
    """
    bits: dict[tuple[tuple[str, str], ...], int] = {}

    def bits_of(way: Way) -> int:
        found = 0
        for values in combinations(sorted(way.items()), together):
            found |= bits.setdefault(values, 1 << len(bits))
        return found

    left = [(way, bits_of(way)) for way in every]
    missing = (1 << len(bits)) - 1
    while missing:
        way, values = max(left, key=lambda each: (each[1] & missing).bit_count())
        missing &= ~values
        yield way
