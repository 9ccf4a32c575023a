"""Tables: versions of their rows, the blocks that they are in, and rows that repeat."""

from __future__ import annotations

import zlib
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, overload

from oracle_server.model import Column, OracleError, Rowid, Type

BLOCK_BYTES = 8192
HEADER_BLOCKS = 3
"""Blocks at the start of a segment that hold no rows: two bitmaps and the segment header."""
ABSOLUTE_FILE_OFFSET = 8
"""FILE_ID is the relative file number plus this, as they differ in a pluggable database."""


class Extent(NamedTuple):
    """Blocks side by side in one file, which has a relative file number."""

    file: int
    block: int
    blocks: int


@dataclass(slots=True)
class Storage:
    """The files of a database."""

    next_block: dict[int, int] = field(default_factory=dict)
    others: list[Extent] = field(default_factory=list)
    """Extents of foreign segments between the extents of the tables."""
    turns: int = 0

    def allocate(self, blocks: int, files: Sequence[int]) -> Extent:
        self.turns += 1
        file = files[self.turns % len(files)]
        start = self.next_block.get(file, 128)
        gap = 8 * (self.turns * 7 % 3)
        if gap:
            self.others.append(Extent(file, start, gap))
        self.next_block[file] = start + gap + blocks
        return Extent(file, start + gap, blocks)


@dataclass(slots=True, kw_only=True)
class Layout:
    """The extents of one segment, and how row positions map to addresses in them.

    Position p is the p-th row in the order of the extents, a fixed number of rows to a block.
    """

    rows_per_block: int
    extents: list[Extent] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    """Position of the first row of each extent."""
    capacity: int = 0

    def add(self, extent: Extent) -> None:
        header = HEADER_BLOCKS if not self.extents else 0
        self.extents.append(extent)
        self.firsts.append(self.capacity)
        self.capacity += max(0, extent.blocks - header) * self.rows_per_block

    def rowid(self, data_object: int, position: int) -> Rowid:
        number = bisect_right(self.firsts, position) - 1
        block, slot = divmod(position - self.firsts[number], self.rows_per_block)
        return Rowid(
            data_object, self.extents[number].file, self._first_block(number) + block, slot
        )

    def _first_block(self, number: int) -> int:
        return self.extents[number].block + (HEADER_BLOCKS if number == 0 else 0)

    def _end(self, number: int) -> int:
        return self.firsts[number + 1] if number + 1 < len(self.firsts) else self.capacity

    def between(
        self, low: tuple[int, int, int] | None, high: tuple[int, int, int] | None
    ) -> Iterator[tuple[int, int]]:
        """Yield the position ranges of addresses (file, block, slot) from `low` to below `high`."""
        for number in range(len(self.extents)):
            start = self.firsts[number] if low is None else self._bound(number, low)
            stop = self._end(number) if high is None else self._bound(number, high)
            if start < stop:
                yield start, stop

    def _bound(self, number: int, address: tuple[int, int, int]) -> int:
        """Return the first position in an extent that is not before an address."""
        file, block, slot = address
        first, end, extent = self.firsts[number], self._end(number), self.extents[number]
        if file != extent.file:
            return first if file < extent.file else end
        begin = self._first_block(number)
        if block < begin:
            return first
        offset = (block - begin) * self.rows_per_block + min(slot, self.rows_per_block)
        return min(first + offset, end)

    def blocks(self, count: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (file, block, first position, end position) of each block of the first rows."""
        for number, extent in enumerate(self.extents):
            begin = self._first_block(number)
            for start in range(self.firsts[number], self._end(number), self.rows_per_block):
                if start >= count:
                    break
                block = begin + (start - self.firsts[number]) // self.rows_per_block
                yield extent.file, block, start, min(start + self.rows_per_block, count)


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
    """Whether it was truncated, exchanged or dropped while someone may still read it."""

    def __len__(self) -> int:
        return len(self.base) + len(self.tail)

    def first_values(self, position: int) -> Row:
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
        return self.count - len(self._gone)

    @property
    def is_changed(self) -> bool:
        """Whether any row is not one of the ones that were laid down first, or is not visible."""
        return bool(self._overrides) or self.count != len(self.segment.base)

    def ordinal(self, position: int) -> int:
        """Return how many visible rows come before a position."""
        position = min(position, self.count)
        return position - bisect_left(self._gone, position)

    def ordinals(self, ranges: Iterable[Slice]) -> Iterator[Slice]:
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
            OracleError: ORA-02149 or ORA-14251 if the name is unknown.
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


class RepeatedRows(Sequence[Row]):
    """The rows of a sequence, one turn after the other."""

    def __init__(self, rows: Sequence[Row], times: int) -> None:
        self.rows = rows
        self._times = times

    def __len__(self) -> int:
        return len(self.rows) * self._times

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        """Return a row, or the rows of a slice without a step."""
        if isinstance(index, int):
            return self.rows[index % len(self.rows)]
        start, stop, _ = index.indices(len(self))
        parts = turns((start, stop), len(self.rows))
        return [row for first, last in parts for row in self.rows[first:last]]


def turns(rows: Slice, length: int) -> list[Slice]:
    """Return the slices of a turn of that many rows that a slice of all turns consists of."""
    start, stop = rows
    found: list[Slice] = []
    while start < stop:
        first = start % length
        count = min(length - first, stop - start)
        found.append((first, first + count))
        start += count
    return found


def one_turn(views: Sequence[SegmentView]) -> list[int] | None:
    """Return how many rows a turn of each segment has; None if a row is not one of such turns."""
    lengths = []
    for view in views:
        base = view.segment.base
        if not isinstance(base, RepeatedRows) or view.is_changed:
            return None
        lengths.append(len(base.rows))
    return lengths


def in_turns(
    slices: Sequence[Slice], views: Sequence[SegmentView], lengths: Sequence[int]
) -> list[Slice]:
    """Return slices of a table as slices of one turn of each of its segments, in their order.

    Args:
        lengths: Rows of a turn of each.
    """
    found: list[Slice] = []
    for start, stop in slices:
        before = here = 0
        for view, length in zip(views, lengths, strict=True):
            first, last = max(start - before, 0), min(stop - before, len(view))
            found += [(here + a, here + b) for a, b in turns((first, last), length)]
            before += len(view)
            here += length
    return found
