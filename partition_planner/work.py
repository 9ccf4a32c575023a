"""What a worker is to read: selectors, and the work units that carry them.

A selector names rows in the planner's terms. Turning it into a statement is the source's job.
"""

from __future__ import annotations

import re

from msgspec import Struct

from partition_planner.json_fields import Fields, broken, not_as_expected
from partition_planner.table import PartitionKind, partition_kind


class WholeTable(Struct, frozen=True, kw_only=True):
    """Every row of the table, of all its partitions."""

    @property
    def partition(self) -> None:
        """None: it is not read by partition."""
        return None

    def to_json(self) -> dict[str, object]:
        """Return the selector as JSON-able values."""
        return {"kind": "whole_table"}

    @classmethod
    def from_json(cls, value: object, where: str = "selector") -> WholeTable:
        """Return the selector that `to_json` wrote; raise PlanError naming what is wrong."""
        Fields(value, where, ("kind",))
        return cls()


class NamedPartition(Struct, frozen=True, kw_only=True):
    """Every row of one partition, whatever its extents were said to be."""

    partition: str
    kind: PartitionKind = "partition"
    """Under "partition_kind" in JSON, where "kind" is that of the selector."""
    relation: tuple[str, str] | None = None

    def to_json(self) -> dict[str, object]:
        """Return the selector as JSON-able values."""
        return {
            "kind": "named_partition",
            "partition": self.partition,
            "partition_kind": self.kind,
            "relation": None if self.relation is None else list(self.relation),
        }

    @classmethod
    def from_json(cls, value: object, where: str = "selector") -> NamedPartition:
        """Return the selector that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("kind", "partition", "partition_kind", "relation"))
        return cls(
            partition=fields.text("partition"),
            kind=partition_kind(fields, "partition_kind"),
            relation=fields.optional_pair("relation"),
        )


class RowRange(Struct, frozen=True, kw_only=True):
    """The rows at addresses [first, last); None is an open end.

    The addresses are those of `relation`, or of the partition where the database selects it by
    name, or else of the table. first == last selects nothing.
    """

    partition: str | None = None
    kind: PartitionKind = "partition"
    """As in `NamedPartition`."""
    relation: tuple[str, str] | None = None
    object_id: int | None = None
    """The segment that the addresses belong to; a fact that only the source interprets."""
    first: int | None
    last: int | None

    def to_json(self) -> dict[str, object]:
        """Return the selector as JSON-able values."""
        return {
            "kind": "row_range",
            "partition": self.partition,
            "partition_kind": self.kind,
            "relation": None if self.relation is None else list(self.relation),
            "object_id": self.object_id,
            "first": self.first,
            "last": self.last,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "selector") -> RowRange:
        """Return the selector that `to_json` wrote; raise PlanError naming what is wrong."""
        names = ("kind", "partition", "partition_kind", "relation", "object_id", "first", "last")
        fields = Fields(value, where, names)
        return cls(
            partition=fields.optional_text("partition"),
            kind=partition_kind(fields, "partition_kind"),
            relation=fields.optional_pair("relation"),
            object_id=fields.optional_integer("object_id"),
            first=fields.optional_integer("first"),
            last=fields.optional_integer("last"),
        )


class KeyRange(Struct, frozen=True, kw_only=True):
    """The rows whose key in `column` is in [first, last); None is an open end.

    The ends are keys as the source gave them, in its own order and its own text. Rows are those of
    the partition, or else of the table. A row without a key is in none: the source knows that there
    is none.
    """

    partition: str | None = None
    kind: PartitionKind = "partition"
    """As in `NamedPartition`."""
    relation: tuple[str, str] | None = None
    column: str
    first: str | None
    last: str | None

    def to_json(self) -> dict[str, object]:
        """Return the selector as JSON-able values."""
        return {
            "kind": "key_range",
            "partition": self.partition,
            "partition_kind": self.kind,
            "relation": None if self.relation is None else list(self.relation),
            "column": self.column,
            "first": self.first,
            "last": self.last,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "selector") -> KeyRange:
        """Return the selector that `to_json` wrote; raise PlanError naming what is wrong."""
        names = ("kind", "partition", "partition_kind", "relation", "column", "first", "last")
        fields = Fields(value, where, names)
        return cls(
            partition=fields.optional_text("partition"),
            kind=partition_kind(fields, "partition_kind"),
            relation=fields.optional_pair("relation"),
            column=fields.text("column"),
            first=fields.optional_text("first"),
            last=fields.optional_text("last"),
        )


Selector = WholeTable | NamedPartition | RowRange | KeyRange


def selector_from_json(value: object, where: str = "selector") -> Selector:
    """Return the selector whose `kind` the object names; raise PlanError naming what is wrong."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "whole_table":
        return WholeTable.from_json(value, where)
    if kind == "named_partition":
        return NamedPartition.from_json(value, where)
    if kind == "row_range":
        return RowRange.from_json(value, where)
    if kind == "key_range":
        return KeyRange.from_json(value, where)
    known = "whole_table, named_partition, row_range or key_range"
    raise broken(f"{where} has the kind {kind!r}, not {known}")


_ID = re.compile("[0-9]{1,20}")
"""An id is a part of file names."""


class Piece(Struct, frozen=True, kw_only=True):
    """One of a unit's selectors: what one statement reads."""

    unit: str
    """Id of the unit."""
    selector: Selector


class WorkUnit(Struct, frozen=True, kw_only=True):
    """What one worker reads in one go."""

    id: str
    """Ordinal in the order of the table, from 1, zero-padded: sorted ids give that order."""
    selectors: tuple[Selector, ...]
    """What it reads, one after the other; at least one. Several are chosen partitions that are read
    as one unit: no single selector stands for some of the partitions."""
    rows: int | None = None
    """Estimate; the units of a partition sum to the partition's own."""
    bytes: int | None = None
    """Estimate; the units of a partition sum to the partition's own."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it reads, or reads a part of; empty if it is not read by partition.

        A unit without partitions has no rows but those of its selectors: all of the table, or a
        range of a table that has no partitions.
        """
        names = (selector.partition for selector in self.selectors)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def partition(self) -> str | None:
        """The only partition that it reads; None if it is not read by partition, or has several."""
        names = self.partitions
        return names[0] if len(names) == 1 else None

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its selectors, each with the unit's id, in the order in which they are read."""
        return tuple(Piece(unit=self.id, selector=selector) for selector in self.selectors)

    def to_json(self) -> dict[str, object]:
        """Return the unit as JSON-able values."""
        return {
            "id": self.id,
            "selectors": [selector.to_json() for selector in self.selectors],
            "rows": self.rows,
            "bytes": self.bytes,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "unit") -> WorkUnit:
        """Return the unit that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("id", "selectors", "rows", "bytes"))
        selectors = tuple(
            selector_from_json(item, f"{where}.selectors[{at}]")
            for at, item in enumerate(fields.items("selectors"))
        )
        if not selectors:
            raise broken(f"{where} reads nothing")
        if _ID.fullmatch(fields.text("id")) is None:
            raise not_as_expected(fields.path("id"), "a number", fields.text("id"))
        return cls(
            id=fields.text("id"),
            selectors=selectors,
            rows=fields.optional_integer("rows"),
            bytes=fields.optional_integer("bytes"),
        )
