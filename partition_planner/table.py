"""What a source says about a table: columns, partitions, sizes and where its rows lie.

These are facts and estimates, never wishes. None means that the source does not know; a wrong
estimate makes a plan slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

PartitionKind = Literal["partition", "subpartition"]


class ColumnInfo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column, in the words of its database."""

    name: str
    native_type: str
    """The type as the database prints it."""
    nullable: bool | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    """Facts that only the source interprets, carried along unread."""


class RowExtent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, array_like=True):
    """Half-open range [first, last) of row addresses; empty if first >= last.

    The unit of an address is the source's own: heap block number in PostgreSQL, rowid in DuckDB and
    SQLite, file and block in one number in Oracle. The planner only adds and compares addresses.
    """

    first: int
    last: int

    @property
    def addresses(self) -> int:
        return max(0, self.last - self.first)


def coalesced(extents: Iterable[RowExtent]) -> tuple[RowExtent, ...]:
    """Return the same addresses as the fewest extents: ascending, none empty, no two touching.

    The given ones may come in any order, repeat, touch or overlap. All empty, all forgotten.
    """
    made: list[RowExtent] = []
    for extent in sorted((each for each in extents if each.addresses), key=lambda each: each.first):
        if made and extent.first <= made[-1].last:
            last = max(made[-1].last, extent.last)
            made[-1] = RowExtent(first=made[-1].first, last=last)
        else:
            made.append(extent)
    return tuple(made)


class KeySample(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys at which the rows of a partition or table can be divided.

    The planner goes by a key's place in the sample and whether two are the same text. It never
    compares or reads them: the source determines their order, and their text in a statement.
    """

    column: str
    keys: tuple[str, ...]
    """Ascending in the database's own order, as exact text. One that many rows share may repeat:
    between two neighbours there are about equally many rows."""


class PartitionInfo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One leaf of a partitioned table."""

    name: str
    """Unique within the table; a sub-partition is named "parent/child"."""
    kind: PartitionKind = "partition"
    """Which of the two the database selects the leaf as."""
    relation: tuple[str, str] | None = None
    """(schema, name) of the physical table of the leaf, if it has one."""
    position: int
    """The partition's place in the order of the table."""
    rows: int | None = None
    bytes: int | None = None
    extents: tuple[RowExtent, ...] = ()
    """Where the rows lie, ascending and disjoint, perhaps far apart; () if that is not known.

    Addresses are those within `relation` if the partition is selected by name, else those within
    the table. The extents may be a mere sample, such as single blocks, if it has the same rate for
    all partitions: only their relative weight matters. A source whose addresses do not address
    single rows, or are a sample, knows `bytes` or `rows`, too.
    """
    keys: KeySample | None = None
    """Where ranges of keys can be cut; used where no extents are known."""
    object_id: int | None = None
    """The segment that the addresses belong to; a fact that only the source interprets."""


class TableInfo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table and the ways in which its source can read a part of it."""

    schema: str | None
    name: str
    columns: tuple[ColumnInfo, ...]
    partitions: tuple[PartitionInfo, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    extents: tuple[RowExtent, ...] = ()
    """Like `PartitionInfo.extents`; used without partitions, and so are the next two."""
    keys: KeySample | None = None
    object_id: int | None = None
    ranges_from: str | None = None
    """How the source knows extents or keys, for people to read; None if it knows neither."""
    named_partitions: bool
    """The database selects a partition by name or relation; if False, a partition is its extent."""
    row_ranges: bool
    """A range of addresses, or of keys, is read without scanning the rest, so cutting pays."""

    @property
    def label(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"
