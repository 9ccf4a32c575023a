"""What a source says about a table: columns, partitions, sizes and where its rows lie.

These are facts and estimates, never wishes. None means that the source does not know; a wrong
estimate makes a plan slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from partition_planner.json_fields import Fields, integer_pair, not_as_expected, pair

PartitionKind = Literal["partition", "subpartition"]


class ColumnInfo(Struct, frozen=True, kw_only=True):
    """One column, in the words of its database."""

    name: str
    native_type: str
    """The type as the database prints it."""
    nullable: bool | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    """Facts that only the source interprets, carried along unread."""

    def to_json(self) -> dict[str, object]:
        """Return the column as JSON-able values."""
        return {
            "name": self.name,
            "native_type": self.native_type,
            "nullable": self.nullable,
            "attributes": [list(item) for item in self.attributes],
        }

    @classmethod
    def from_json(cls, value: object, where: str = "column") -> ColumnInfo:
        """Return the column that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("name", "native_type", "nullable", "attributes"))
        return cls(
            name=fields.text("name"),
            native_type=fields.text("native_type"),
            nullable=None if fields.raw("nullable") is None else fields.flag("nullable"),
            attributes=tuple(
                pair(item, f"{where}.attributes[{at}]")
                for at, item in enumerate(fields.items("attributes"))
            ),
        )


class RowExtent(Struct, frozen=True, kw_only=True):
    """Half-open range [first, last) of row addresses; empty if first >= last.

    The unit of an address is the source's own: heap block number in PostgreSQL, rowid in DuckDB and
    SQLite, file and block in one number in Oracle. The planner only adds and compares addresses.
    """

    first: int
    last: int

    @property
    def addresses(self) -> int:
        """Number of addresses."""
        return max(0, self.last - self.first)

    def to_json(self) -> list[int]:
        """Return [first, last]: short, for a table may have 100,000 extents."""
        return [self.first, self.last]

    @classmethod
    def from_json(cls, value: object, where: str = "extent") -> RowExtent:
        """Return the extent that `to_json` wrote; raise PlanError naming what is wrong."""
        first, last = integer_pair(value, where)
        return cls(first=first, last=last)


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


class KeySample(Struct, frozen=True, kw_only=True):
    """Keys at which the rows of a partition or table can be divided.

    The planner goes by a key's place in the sample and whether two are the same text. It never
    compares or reads them: the order, and how the text stands in a statement, are the source's.
    """

    column: str
    keys: tuple[str, ...]
    """Ascending in the database's own order, as exact text. One that many rows share may repeat:
    between two neighbours there are about equally many rows."""

    def to_json(self) -> dict[str, object]:
        """Return the sample as JSON-able values."""
        return {"column": self.column, "keys": list(self.keys)}

    @classmethod
    def from_json(cls, value: object, where: str = "keys") -> KeySample:
        """Return the sample that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("column", "keys"))
        return cls(column=fields.text("column"), keys=fields.texts("keys"))


class PartitionInfo(Struct, frozen=True, kw_only=True):
    """One leaf of a partitioned table."""

    name: str
    """Unique within the table; a sub-partition is named "parent/child"."""
    kind: PartitionKind = "partition"
    """Which of the two the database selects the leaf as."""
    relation: tuple[str, str] | None = None
    """(schema, name) of the physical table behind the leaf, where there is one."""
    position: int
    """The partition's place in the order of the table."""
    rows: int | None = None
    bytes: int | None = None
    extents: tuple[RowExtent, ...] = ()
    """Where the rows lie, ascending and disjoint, perhaps far apart; () if that is not known.

    Addresses are those within `relation` if the partition is selected by name, else those within
    the table. The extents may be a mere sample, such as single blocks, if it has the same rate for
    all partitions: only their relative weight matters. A source whose addresses are not those of
    single rows, or are a sample, knows `bytes` or `rows`, too.
    """
    keys: KeySample | None = None
    """Where ranges of keys can be cut; used where no extents are known."""
    object_id: int | None = None
    """The segment that the addresses belong to; a fact that only the source interprets."""

    def to_json(self) -> dict[str, object]:
        """Return the partition as JSON-able values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "relation": None if self.relation is None else list(self.relation),
            "position": self.position,
            "rows": self.rows,
            "bytes": self.bytes,
            "extents": [extent.to_json() for extent in self.extents],
            "keys": None if self.keys is None else self.keys.to_json(),
            "object_id": self.object_id,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "partition") -> PartitionInfo:
        """Return the partition that `to_json` wrote; raise PlanError naming what is wrong."""
        names = ("name", "kind", "relation", "position", "rows", "bytes")
        fields = Fields(value, where, (*names, "extents", "keys", "object_id"))
        return cls(
            name=fields.text("name"),
            kind=partition_kind(fields, "kind"),
            relation=fields.optional_pair("relation"),
            position=fields.integer("position"),
            rows=fields.optional_integer("rows"),
            bytes=fields.optional_integer("bytes"),
            extents=_extents(fields),
            keys=_optional_keys(fields),
            object_id=fields.optional_integer("object_id"),
        )


class TableInfo(Struct, frozen=True, kw_only=True):
    """One table and the ways in which its source can read a part of it."""

    schema: str | None
    name: str
    columns: tuple[ColumnInfo, ...]
    partitions: tuple[PartitionInfo, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    extents: tuple[RowExtent, ...] = ()
    """As `PartitionInfo.extents`; used where there are no partitions, and so are the next two."""
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
        """The table's name for messages, with its schema if it has one."""
        return self.name if self.schema is None else f"{self.schema}.{self.name}"

    def to_json(self) -> dict[str, object]:
        """Return the table as JSON-able values."""
        return {
            "schema": self.schema,
            "name": self.name,
            "columns": [column.to_json() for column in self.columns],
            "partitions": [partition.to_json() for partition in self.partitions],
            "rows": self.rows,
            "bytes": self.bytes,
            "extents": [extent.to_json() for extent in self.extents],
            "keys": None if self.keys is None else self.keys.to_json(),
            "object_id": self.object_id,
            "ranges_from": self.ranges_from,
            "named_partitions": self.named_partitions,
            "row_ranges": self.row_ranges,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "table") -> TableInfo:
        """Return the table that `to_json` wrote; raise PlanError naming what is wrong."""
        known = ("rows", "bytes", "extents", "keys", "object_id", "ranges_from")
        abilities = ("named_partitions", "row_ranges")
        names = ("schema", "name", "columns", "partitions", *known, *abilities)
        fields = Fields(value, where, names)
        return cls(
            schema=fields.optional_text("schema"),
            name=fields.text("name"),
            columns=tuple(
                ColumnInfo.from_json(item, f"{where}.columns[{at}]")
                for at, item in enumerate(fields.items("columns"))
            ),
            partitions=tuple(
                PartitionInfo.from_json(item, f"{where}.partitions[{at}]")
                for at, item in enumerate(fields.items("partitions"))
            ),
            rows=fields.optional_integer("rows"),
            bytes=fields.optional_integer("bytes"),
            extents=_extents(fields),
            keys=_optional_keys(fields),
            object_id=fields.optional_integer("object_id"),
            ranges_from=fields.optional_text("ranges_from"),
            named_partitions=fields.flag("named_partitions"),
            row_ranges=fields.flag("row_ranges"),
        )


def partition_kind(fields: Fields, name: str) -> PartitionKind:
    """Return the kind of partition under a key; raise PlanError if it is neither."""
    value = fields.text(name)
    if value == "partition":
        return "partition"
    if value == "subpartition":
        return "subpartition"
    raise not_as_expected(fields.path(name), "partition or subpartition", value)


def _extents(fields: Fields) -> tuple[RowExtent, ...]:
    return tuple(
        RowExtent.from_json(item, f"{fields.path('extents')}[{at}]")
        for at, item in enumerate(fields.items("extents"))
    )


def _optional_keys(fields: Fields) -> KeySample | None:
    value = fields.raw("keys")
    return None if value is None else KeySample.from_json(value, fields.path("keys"))
