"""What a source says about a table: columns, partitions, sizes and where its rows lie.

These are facts and estimates, never wishes. None means that the source does not know; a wrong
estimate makes a plan slower, never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from partition_planner.json_fields import Fields, pair


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInfo:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExtent:
    """Half-open range [first, last) of row addresses; empty if first >= last.

    The unit of an address is the source's own: heap block number in PostgreSQL, rowid in DuckDB and
    SQLite. The planner only adds and compares addresses.
    """

    first: int
    last: int

    @property
    def addresses(self) -> int:
        """Number of addresses."""
        return max(0, self.last - self.first)

    def to_json(self) -> dict[str, object]:
        """Return the extent as JSON-able values."""
        return {"first": self.first, "last": self.last}

    @classmethod
    def from_json(cls, value: object, where: str = "extent") -> RowExtent:
        """Return the extent that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("first", "last"))
        return cls(first=fields.integer("first"), last=fields.integer("last"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One leaf of a partitioned table."""

    name: str
    """Unique within the table; a sub-partition is named "parent/child"."""
    relation: tuple[str, str] | None = None
    """(schema, name) of the physical table behind the leaf, where there is one."""
    position: int
    """The partition's place in the order of the table."""
    rows: int | None = None
    bytes: int | None = None
    extent: RowExtent | None = None
    """Addresses within `relation` if the partition is selected by name, else within the table."""

    def to_json(self) -> dict[str, object]:
        """Return the partition as JSON-able values."""
        return {
            "name": self.name,
            "relation": None if self.relation is None else list(self.relation),
            "position": self.position,
            "rows": self.rows,
            "bytes": self.bytes,
            "extent": None if self.extent is None else self.extent.to_json(),
        }

    @classmethod
    def from_json(cls, value: object, where: str = "partition") -> PartitionInfo:
        """Return the partition that `to_json` wrote; raise PlanError naming what is wrong."""
        names = ("name", "relation", "position", "rows", "bytes", "extent")
        fields = Fields(value, where, names)
        return cls(
            name=fields.text("name"),
            relation=fields.optional_pair("relation"),
            position=fields.integer("position"),
            rows=fields.optional_integer("rows"),
            bytes=fields.optional_integer("bytes"),
            extent=_optional_extent(fields),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """One table and the ways in which its source can read a part of it."""

    schema: str | None
    name: str
    columns: tuple[ColumnInfo, ...]
    partitions: tuple[PartitionInfo, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    extent: RowExtent | None = None
    named_partitions: bool
    """The database selects a partition by name or relation; if False, a partition is its extent."""
    row_ranges: bool
    """A range of row addresses is read without scanning the rest, so cutting pays."""

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
            "extent": None if self.extent is None else self.extent.to_json(),
            "named_partitions": self.named_partitions,
            "row_ranges": self.row_ranges,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "table") -> TableInfo:
        """Return the table that `to_json` wrote; raise PlanError naming what is wrong."""
        sizes = ("rows", "bytes", "extent")
        abilities = ("named_partitions", "row_ranges")
        names = ("schema", "name", "columns", "partitions", *sizes, *abilities)
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
            extent=_optional_extent(fields),
            named_partitions=fields.flag("named_partitions"),
            row_ranges=fields.flag("row_ranges"),
        )


def _optional_extent(fields: Fields) -> RowExtent | None:
    value = fields.raw("extent")
    return None if value is None else RowExtent.from_json(value, fields.path("extent"))
