"""What a worker is told to read: selectors, and the work units that carry them.

A selector names rows in the planner's terms. Turning it into a statement is the source's job.
"""

from __future__ import annotations

from dataclasses import dataclass

from partition_planner.json_fields import Fields, broken
from partition_planner.table import RowExtent


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeTable:
    """Every row of the table."""

    def to_json(self) -> dict[str, object]:
        """Return the selector as JSON-able values."""
        return {"kind": "whole_table"}

    @classmethod
    def from_json(cls, value: object, where: str = "selector") -> WholeTable:
        """Return the selector that `to_json` wrote; raise PlanError naming what is wrong."""
        Fields(value, where, ("kind",))
        return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPartition:
    """Every row of one partition, whatever its extent was said to be."""

    partition: str
    relation: tuple[str, str] | None = None

    def to_json(self) -> dict[str, object]:
        """Return the selector as JSON-able values."""
        relation = None if self.relation is None else list(self.relation)
        return {"kind": "named_partition", "partition": self.partition, "relation": relation}

    @classmethod
    def from_json(cls, value: object, where: str = "selector") -> NamedPartition:
        """Return the selector that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("kind", "partition", "relation"))
        return cls(partition=fields.text("partition"), relation=fields.optional_pair("relation"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """The rows at addresses [first, last); None is an open end.

    The addresses are those of `relation`, or of the partition where the database selects it by
    name, or else of the table. first == last selects nothing.
    """

    partition: str | None = None
    relation: tuple[str, str] | None = None
    first: int | None
    last: int | None

    def offsets_in(self, extent: RowExtent) -> tuple[int, int]:
        """Return the offsets into a known extent at which the range starts and ends.

        An open end stops at the extent's own end.
        """
        start = extent.first if self.first is None else self.first
        stop = extent.last if self.last is None else self.last
        return start - extent.first, stop - extent.first

    def to_json(self) -> dict[str, object]:
        """Return the selector as JSON-able values."""
        return {
            "kind": "row_range",
            "partition": self.partition,
            "relation": None if self.relation is None else list(self.relation),
            "first": self.first,
            "last": self.last,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "selector") -> RowRange:
        """Return the selector that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("kind", "partition", "relation", "first", "last"))
        return cls(
            partition=fields.optional_text("partition"),
            relation=fields.optional_pair("relation"),
            first=fields.optional_integer("first"),
            last=fields.optional_integer("last"),
        )


Selector = WholeTable | NamedPartition | RowRange


def selector_from_json(value: object, where: str = "selector") -> Selector:
    """Return the selector whose `kind` the object names; raise PlanError naming what is wrong."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "whole_table":
        return WholeTable.from_json(value, where)
    if kind == "named_partition":
        return NamedPartition.from_json(value, where)
    if kind == "row_range":
        return RowRange.from_json(value, where)
    raise broken(f"{where} has the kind {kind!r}, not whole_table, named_partition or row_range")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkUnit:
    """What one worker reads in one go."""

    id: str
    """Ordinal in the order of the table, from 1, zero-padded: sorted ids give that order."""
    partition: str | None
    selector: Selector
    rows: int | None = None
    """Estimate; the units of a partition sum to the partition's own."""
    bytes: int | None = None
    """Estimate; the units of a partition sum to the partition's own."""

    def to_json(self) -> dict[str, object]:
        """Return the unit as JSON-able values."""
        return {
            "id": self.id,
            "partition": self.partition,
            "selector": self.selector.to_json(),
            "rows": self.rows,
            "bytes": self.bytes,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "unit") -> WorkUnit:
        """Return the unit that `to_json` wrote; raise PlanError naming what is wrong."""
        fields = Fields(value, where, ("id", "partition", "selector", "rows", "bytes"))
        return cls(
            id=fields.text("id"),
            partition=fields.optional_text("partition"),
            selector=selector_from_json(fields.raw("selector"), fields.path("selector")),
            rows=fields.optional_integer("rows"),
            bytes=fields.optional_integer("bytes"),
        )
