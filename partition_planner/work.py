"""What a worker is to read: selectors, and the work units that carry them.

A selector names rows in the planner's terms. Turning it into a statement is the source's job.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from partition_planner.table import PartitionKind


class _Selector(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """A selector has its kind in JSON."""


class WholeTable(_Selector, frozen=True, kw_only=True, tag="whole_table"):
    """Every row of the table, of all its partitions."""

    @property
    def partition(self) -> None:
        return None


class NamedPartition(_Selector, frozen=True, kw_only=True, tag="named_partition"):
    """Every row of one partition, for any extents."""

    partition: str
    kind: PartitionKind = field(default="partition", name="partition_kind")
    """Under "partition_kind" in JSON, where "kind" is the kind of the selector."""
    relation: tuple[str, str] | None = None


class RowRange(_Selector, frozen=True, kw_only=True, tag="row_range"):
    """The rows at addresses [first, last); None is an open end.

    The addresses belong to `relation`, or to the partition where the database selects it by name,
    or else to the table.
    """

    partition: str | None = None
    kind: PartitionKind = field(default="partition", name="partition_kind")
    """The field of `NamedPartition`."""
    relation: tuple[str, str] | None = None
    object_id: int | None = None
    """The segment that the addresses belong to; a fact that only the source interprets."""
    first: int | None
    last: int | None


class KeyRange(_Selector, frozen=True, kw_only=True, tag="key_range"):
    """The rows whose key in `column` is in [first, last); None is an open end.

    The ends are keys as the source gave them, in its own order and its own text. Rows belong to the
    partition, or else to the table. No range holds rows without a key: the source knows that every
    row has a key.
    """

    partition: str | None = None
    kind: PartitionKind = field(default="partition", name="partition_kind")
    """The field of `NamedPartition`."""
    relation: tuple[str, str] | None = None
    column: str
    first: str | None
    last: str | None


Selector = WholeTable | NamedPartition | RowRange | KeyRange


class Piece(Struct, frozen=True, kw_only=True):
    unit: str
    """Id of the unit."""
    selector: Selector


class WorkUnit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one worker reads in one go."""

    id: Annotated[str, Meta(pattern=r"^[0-9]{1,20}\Z")]
    """Ordinal in the order of the table, from 1, zero-padded: sorted ids give that order. It is a
    part of file names."""
    selectors: Annotated[tuple[Selector, ...], Meta(min_length=1)]
    """The selectors that it reads, one after the other; at least one. Several are chosen partitions
    that are read as one unit: no single selector covers only some of the partitions."""
    rows: int | None = None
    """Estimate; the units of a partition sum to the partition's own."""
    bytes: int | None = None
    """Estimate; the units of a partition sum to the partition's own."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it reads, or reads a part of; empty if it is not read by partition.

        A unit without partitions has only the rows of its selectors: all of the table, or a range
        of a table without partitions.
        """
        names = (selector.partition for selector in self.selectors)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def partition(self) -> str | None:
        names = self.partitions
        return names[0] if len(names) == 1 else None

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its selectors, each with the unit's id, in the order in which they are read."""
        return tuple(Piece(unit=self.id, selector=selector) for selector in self.selectors)
