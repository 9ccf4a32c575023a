"""The types that travel: what a source says about a table, what workers read, and the plan.

All are frozen, picklable and JSON-able. What a source says are facts and estimates, never wishes.
None means that the source does not know; a wrong estimate makes a plan slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta, Struct, field


class PlanError(Exception):
    """The table cannot be planned as asked, or a stored plan cannot be trusted."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint
        """What to do about it; empty if nothing is known."""

    def __str__(self) -> str:
        return f"{self.message} Next: {self.hint}" if self.hint else self.message


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
    """Return the same addresses as the fewest extents: ascending, none empty, no two touching."""
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


class StoredRows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a source knows of the rows of a partition, or of a table without partitions."""

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


class PartitionInfo(StoredRows, frozen=True, kw_only=True):
    """One leaf of a partitioned table."""

    name: str
    """Unique within the table; a sub-partition is named "parent/child"."""
    kind: PartitionKind = "partition"
    """Which of the two the database selects the leaf as."""
    relation: tuple[str, str] | None = None
    """(schema, name) of the physical table of the leaf, if it has one."""
    position: int
    """The partition's place in the order of the table."""


class TableInfo(StoredRows, frozen=True, kw_only=True):
    """One table and the ways in which its source can read a part of it."""

    schema: str | None
    name: str
    columns: tuple[ColumnInfo, ...]
    partitions: tuple[PartitionInfo, ...] = ()
    ranges_from: str | None = None
    """How the source knows extents or keys, for people to read; None if it knows neither."""
    named_partitions: bool
    """The database selects a partition by name or relation; if False, a partition is its extent."""
    row_ranges: bool
    """A range of addresses, or of keys, is read without scanning the rest, so cutting pays."""

    @property
    def label(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


class WholeTable(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="whole_table",
):
    """Every row of the table, of all its partitions."""

    @property
    def partition(self) -> None:
        return None


class _InPartition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    partition: str | None = None
    kind: PartitionKind = field(default="partition", name="partition_kind")
    """Under "partition_kind" in JSON, where "kind" is the kind of the selector."""
    relation: tuple[str, str] | None = None


class NamedPartition(_InPartition, frozen=True, kw_only=True, tag="named_partition"):
    """Every row of one partition, for any extents."""

    partition: str


class RowRange(_InPartition, frozen=True, kw_only=True, tag="row_range"):
    """The rows at addresses [first, last) of `relation`, or else of the partition if the database
    selects it by name, or else of the table; None is an open end.
    """

    object_id: int | None = None
    """The segment of `StoredRows`."""
    first: int | None
    last: int | None


class KeyRange(_InPartition, frozen=True, kw_only=True, tag="key_range"):
    """The rows whose key in `column` is in [first, last); None is an open end.

    The ends are keys as the source gave them, in its own order and its own text. Every row has a
    key: if NULL is a value of the column, the source has a place for it in its order.
    """

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
    """Estimate, as `bytes`; the units of a partition sum to the partition's own."""
    bytes: int | None = None

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it reads, or reads a part of; empty if not read by partition."""
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


SPLITS = ("auto", "partition", "range", "none")
FORMAT_VERSION = 5
CostUnit = Literal["bytes", "rows", "units"]


class PlanLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    parallelism: int
    split: str = "auto"
    """auto: partitions, the largest cut if it pays; partition; range; none: one unit."""
    unit_bytes: int | None = None
    """Size above which a part is cut; None leaves it to the planner."""

    def check(self) -> None:
        if self.parallelism < 1:
            raise PlanError(
                f"Parallelism {self.parallelism} is below 1.", "give --parallelism 1 or more."
            )
        if self.split not in SPLITS:
            raise PlanError(
                f"Unknown way to split {self.split!r}.", f"give --split {', '.join(SPLITS)}."
            )
        if self.unit_bytes is not None and self.unit_bytes < 1:
            raise PlanError(
                f"A work unit of {self.unit_bytes} bytes cannot be made.",
                "give --unit-bytes a size such as 256MiB, or leave it out.",
            )


class SampledUnits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan has some of the units that the whole would be cut into."""

    share: float
    """The requested share, above 0 and below 1."""
    of_units: int
    """How many units the whole has."""
    cost_share: float
    """The share of the plan's units, if the estimates hold, 0 to 1."""


class PlanPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan has the units that one of several machines reads; see `plan_part`."""

    number: int
    """From 1."""
    of: int
    """How many parts there are."""
    of_units: int
    """How many units the whole has."""
    plan_digest: str
    """The digest of the plan of the whole."""


class Plan(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="format_version",
    tag=FORMAT_VERSION,
):
    """A table, or some of its partitions, cut into work units.

    Every requested row belongs to exactly one of the units, and no further row to any. For
    partitions this is checked whenever a plan is made: they read each requested partition, and
    nothing else. A sample or a part reads only requested rows, too, and each row once at most.
    """

    table: TableInfo
    partitions: tuple[str, ...] | None
    """The partitions asked for, in table order; None is the table."""
    units: tuple[WorkUnit, ...]
    """Largest first, equals by id: the order in which seats take them."""
    limits: PlanLimits
    sampled: SampledUnits | None = None
    """The units are a selection of the units that read every requested row; None for all units."""
    part: PlanPart | None = None
    """The units belong to one machine; None for all units."""
    digest: str
    """SHA-256, in hex, of the canonical JSON of the six fields above; a sample and a part only if
    there is one."""
    makespan: float
    """Cost at which the last worker finishes, if the estimates hold, in `cost_unit`."""
    lower_bound: float
    """Cost below which no assignment of these units finishes, in `cost_unit`."""
    cost_unit: CostUnit
    """"units" where neither bytes nor rows are known: 1.0 is then a unit of average size."""

    @property
    def has_all_units(self) -> bool:
        """Whether the units read every requested row; else they alone determine the rows."""
        return self.sampled is None and self.part is None

    @property
    def selectors(self) -> tuple[Selector, ...]:
        return tuple(selector for unit in self.units for selector in unit.selectors)
