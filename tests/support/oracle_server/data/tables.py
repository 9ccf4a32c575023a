"""Tables whose rows have versions: what a query sees depends on the SCN it reads at.

A segment holds rows at positions that never change. The rows as first inserted are a sequence; a
row that was changed or deleted since has its versions in a dictionary beside it.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from oracle_server.data.storage import Layout
from oracle_server.model import Column, OracleError, Rowid, Type

Row = tuple[Any, ...]
Slice = tuple[int, int]


class Version(NamedTuple):
    """A row between two SCNs."""

    born: int
    died: int | None
    values: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """A partition to create."""

    name: str
    subpartitions: tuple[str, ...] = ()
    high_value: str | None = None


@dataclass(slots=True, kw_only=True)
class Segment:
    """The rows of one table, partition or sub-partition."""

    partition: str | None
    subpartition: str | None
    object_id: int
    data_object_id: int
    layout: Layout
    base: Sequence[Row] = ()
    tail: list[Row] = field(default_factory=list)
    births: list[Slice] = field(default_factory=list)
    """(first position, SCN) of each insert, ascending."""
    changes: dict[int, list[Version]] = field(default_factory=dict)
    scns: list[int] = field(default_factory=list)
    """SCNs at which the rows changed, ascending."""
    gone: bool = False
    """Whether it was truncated, exchanged or dropped while somebody may still read it."""

    def __len__(self) -> int:
        """Return how many positions there are."""
        return len(self.base) + len(self.tail)

    def first_values(self, position: int) -> Row:
        """Return a row as it was inserted."""
        at = position - len(self.base)
        return self.tail[at] if at >= 0 else self.base[position]

    def append(self, rows: Iterable[Row], scn: int) -> int:
        """Insert rows; return how many."""
        start = len(self)
        self.tail.extend(rows)
        count = len(self) - start
        if count:
            self.births.append((start, scn))
            self.mark(scn)
        return count

    def mark(self, scn: int) -> None:
        """Note that the rows changed."""
        if not self.scns or self.scns[-1] != scn:
            self.scns.append(scn)

    def change(self, position: int, values: Row | None, scn: int) -> None:
        """Give a row new values, or delete it."""
        versions = self.changes.setdefault(position, [])
        if not versions:
            index = bisect_right(self.births, (position, 1 << 62)) - 1
            versions.append(Version(self.births[index][1], None, self.first_values(position)))
        versions[-1] = versions[-1]._replace(died=scn)
        if values is not None:
            versions.append(Version(scn, None, values))
        self.mark(scn)

    def view(self, scn: int) -> SegmentView:
        """Return what is visible at an SCN."""
        count = 0
        for number, (_, born) in enumerate(self.births):
            if born > scn:
                break
            later = self.births[number + 1 : number + 2]
            count = later[0][0] if later else len(self)
        overrides: dict[int, Row | None] = {}
        for position, versions in self.changes.items():
            if position < count:
                alive = (v for v in versions if v.born <= scn and (v.died is None or v.died > scn))
                overrides[position] = next((v.values for v in alive), None)
        return SegmentView(self, count, overrides, bisect_right(self.scns, scn))


class SegmentView:
    """The rows of a segment at one SCN. Ordinal n is the n-th visible row."""

    def __init__(
        self, segment: Segment, count: int, overrides: dict[int, Row | None], version: int
    ) -> None:
        """Take the number of positions and those whose rows are not as inserted (None: gone)."""
        self.segment = segment
        self.count = count
        self.version = version
        """How many changes of the segment are visible."""
        self._overrides = overrides
        self._gone = sorted(position for position, row in overrides.items() if row is None)

    def __len__(self) -> int:
        """Return the number of visible rows."""
        return self.count - len(self._gone)

    @property
    def is_changed(self) -> bool:
        """Whether any row is not one of those that were laid down first, or is not visible."""
        return bool(self._overrides) or self.count != len(self.segment.base)

    def ordinal(self, position: int) -> int:
        """Return how many visible rows come before a position."""
        position = min(position, self.count)
        return position - bisect_left(self._gone, position)

    def ordinals(self, ranges: Iterable[Slice]) -> Iterator[Slice]:
        """Yield position ranges as ranges of ordinals, those that touch as one."""
        last: Slice | None = None
        for start, stop in ranges:
            found = (self.ordinal(start), self.ordinal(stop))
            if found[0] >= found[1]:
                continue
            if last is not None and last[1] == found[0]:
                last = (last[0], found[1])
                continue
            if last is not None:
                yield last
            last = found
        if last is not None:
            yield last

    def rows(self, ranges: Iterable[Slice] | None = None) -> Iterator[tuple[int, Row]]:
        """Yield the position and values of the visible rows in position ranges, in order."""
        segment, changed = self.segment, self._overrides
        for start, stop in self._stretches(ranges):
            for position, row in enumerate(self._stretch(start, stop), start):
                if changed and position in changed:
                    new = changed[position]
                    if new is not None:
                        yield position, new
                else:
                    yield position, row
            if segment.gone:
                raise OracleError(8103, "object no longer exists")

    def _stretches(self, ranges: Iterable[Slice] | None) -> Iterator[Slice]:
        for first, last in ((0, self.count),) if ranges is None else ranges:
            last = min(last, self.count)
            for start in range(first, last, 4096):
                yield start, min(start + 4096, last)

    def _stretch(self, start: int, stop: int) -> Sequence[Row]:
        segment, border = self.segment, len(self.segment.base)
        if stop <= border:
            return segment.base[start:stop]
        early = list(segment.base[start:border]) if start < border else []
        return early + segment.tail[max(start - border, 0) : stop - border]


def normalised(value: Any, kind: Type) -> Any:
    """Return a value as Oracle stores it: an empty text is NULL, CHAR is padded with blanks."""
    if value is None or (value in ("", b"") and kind.name in _EMPTY_IS_NULL):
        return None
    if kind.name in ("CHAR", "NCHAR") and kind.length is not None:
        used = len(value) if kind.in_chars or kind.name == "NCHAR" else len(value.encode())
        return value + " " * (kind.length - used)
    return value


_EMPTY_IS_NULL = {"VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR", "RAW", "LONG", "LONG RAW"}
_AS_GIVEN = {"NUMBER", "DATE", "TIMESTAMP", "FLOAT", "ROWID"}


def hash_partition(value: Any, partitions: int) -> int:
    """Return the number of the partition a key value is in, where a test gives no function."""
    return zlib.crc32(repr(value).encode()) % partitions


@dataclass(slots=True, kw_only=True, eq=False)
class Table:
    """A table with its segments, which are in the order of its partitions."""

    owner: str
    name: str
    columns: tuple[Column, ...]
    object_id: int
    segments: list[Segment]
    partitions: tuple[PartitionSpec, ...] = ()
    partition_objects: dict[str, int] = field(default_factory=dict)
    """Object ids of partitions that have sub-partitions."""
    partition_key: tuple[str, ...] = ()
    partitioning: str = "HASH"
    partition_of: Callable[[Row], Any] | None = None
    organization: str = "heap"
    """heap, index or external."""
    key: tuple[str, ...] = ()
    materialized: bool = False
    files: tuple[int, ...] = ()
    blocks_per_extent: int = 8
    definition_scn: int = 0
    """SCN of the last change of the definition; rows before it cannot be read."""
    definition_error: OracleError | None = None
    """What a query before that SCN fails with."""

    @property
    def version(self) -> int:
        """A number that grows with every change of the rows."""
        return max((segment.scns[-1] for segment in self.segments if segment.scns), default=0)

    def index_of(self, column: str) -> int:
        """Return the place of a column.

        Raises:
            OracleError: ORA-00904.
        """
        for index, found in enumerate(self.columns):
            if found.name == column:
                return index
        raise OracleError(904, f'"{column}": invalid identifier')

    def prepared(self, rows: Iterable[Sequence[Any]]) -> Iterator[Row]:
        """Yield rows as they are stored.

        Raises:
            OracleError: ORA-00947 if a row has too few values, ORA-01400 for a NULL too many.
        """
        kinds = [column.type for column in self.columns]
        required = [i for i, column in enumerate(self.columns) if not column.nullable]
        special = [i for i, kind in enumerate(kinds) if kind.name not in _AS_GIVEN]
        for given in rows:
            row = list(given)
            if len(row) != len(kinds):
                raise OracleError(947 if len(row) < len(kinds) else 913, "wrong number of values")
            for index in special:
                row[index] = normalised(row[index], kinds[index])
            for index in required:
                if row[index] is None:
                    name = f'"{self.owner}"."{self.name}"."{self.columns[index].name}"'
                    raise OracleError(1400, f"cannot insert NULL into ({name})")
            yield tuple(row)

    def segment_for(self, row: Row) -> Segment:
        """Return the segment a new row belongs in."""
        if len(self.segments) == 1:
            return self.segments[0]
        if self.partition_of is None:
            first = row[self.index_of(self.partition_key[0]) if self.partition_key else 0]
            return self.segments[hash_partition(first, len(self.segments))]
        found = self.partition_of(row)
        if isinstance(found, int):
            return self.segments[found]
        for segment in self.segments:
            if found in (segment.subpartition, segment.partition):
                return segment
        raise OracleError(14400, "inserted partition key does not map to any partition")

    def selected(self, partition: str | None, subpartition: str | None) -> list[Segment]:
        """Return the segments of a partition or sub-partition, or all of them.

        Raises:
            OracleError: ORA-02149 or ORA-14251 if there is none of that name.
        """
        if partition is not None:
            found = [s for s in self.segments if s.partition == partition]
            if not found or not self.partitions:
                raise OracleError(2149, "Specified partition does not exist")
            return found
        if subpartition is not None:
            found = [s for s in self.segments if s.subpartition == subpartition]
            if not found:
                raise OracleError(14251, "Specified subpartition does not exist")
            return found
        return self.segments

    def key_order(self) -> Callable[[Row], Any]:
        """Return the sort key of an index-organized table's rows."""
        places = [self.index_of(name) for name in self.key]
        return itemgetter(*places)

    def rowid(self, segment: Segment, position: int, row: Row) -> Rowid | str:
        """Return the address of a row; for an index-organized table it is made of the key."""
        if self.organization != "index":
            return segment.layout.rowid(segment.data_object_id, position)
        key = self.key_order()(row)
        return logical_rowid(key if isinstance(key, tuple) else (key,))


def logical_rowid(key: Row) -> str:
    """Return the UROWID of a row of an index-organized table.

    As Oracle's it is `*` and in base64 the number 4, a guess at the block, each key with its length
    and the number 254; Oracle's keys are in their internal form, these are text.
    """
    parts = [str(part).encode() for part in key]
    content = b"\4\1\x80\0\x81" + b"".join(bytes([len(p)]) + p for p in parts) + b"\xfe"
    return "*" + b64encode(content).decode().rstrip("=")
