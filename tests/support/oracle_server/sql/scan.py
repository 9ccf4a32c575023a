"""Reading a table as one query sees it: chosen segments at one SCN, cut to addresses and samples."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

from oracle_server.data.tables import Row, SegmentView, Slice, Table
from oracle_server.model import Column, Rowid, Type

Bound = tuple[int, int, int, int]


class RowsScan:
    """Rows that something else made: a subquery, DUAL."""

    def __init__(self, columns: tuple[Column, ...], rows: Iterable[Row]) -> None:
        """Take columns and rows, which are read once."""
        self.columns = columns
        self.rowid: Type | None = None
        self._rows = rows

    def rows(self, *, with_rowid: bool) -> Iterator[Row]:
        """Yield the rows."""
        return iter(self._rows)


class TableScan:
    """The rows of a table's segments at one SCN."""

    def __init__(self, table: Table, views: list[SegmentView], chosen: list[int]) -> None:
        """Take what is visible of every segment, and the numbers of those to read."""
        self.table = table
        self.columns = table.columns
        self.rowid = Type(name="UROWID" if table.organization == "index" else "ROWID")
        self.views = views
        self.chosen = chosen
        self._ranges: dict[int, list[Slice]] = {n: [(0, views[n].count)] for n in chosen}
        self._sampled: float | None = None
        self.whole = True
        """Whether nothing was cut off the chosen segments."""

    @property
    def state(self) -> tuple[tuple[int, int], ...]:
        """What changes with the visible rows of the whole table."""
        return tuple((view.segment.data_object_id, view.version) for view in self.views)

    def restrict(self, low: Bound | None, high: Bound | None) -> None:
        """Keep the addresses from `low` to below `high`; heap tables only."""
        self.whole = False
        for number in self.chosen:
            segment = self.views[number].segment
            mine = segment.data_object_id
            start = stop = None
            if low is not None:
                start = low[1:] if low[0] == mine else None
            if high is not None:
                stop = high[1:] if high[0] == mine else None
            outside = (low is not None and low[0] > mine) or (high is not None and high[0] < mine)
            found = [] if outside else list(segment.layout.between(start, stop))
            self._ranges[number] = _within(found, self.views[number].count)

    def sample_blocks(self, percent: float) -> None:
        """Keep about so many blocks of a hundred, always the same ones."""
        self.whole = False
        for number in self.chosen:
            view = self.views[number]
            if self.table.organization == "index":
                self._sampled = percent
                continue
            self._ranges[number] = [
                (start, stop)
                for file, block, start, stop in view.segment.layout.blocks(view.count)
                if _drawn((file, block), percent)
            ]

    def sample_rows(self, percent: float) -> None:
        """Keep about so many rows of a hundred, always the same ones."""
        self.whole = False
        self._sampled = percent

    def count(self) -> int:
        """Return the number of rows that are left."""
        if self._sampled is not None:
            return sum(1 for _ in self.rows(with_rowid=False))
        return sum(
            stop - start
            for number in self.chosen
            for start, stop in self.views[number].ordinals(self._ranges[number])
        )

    def slices(self) -> list[Slice] | None:
        """Return what is left as ranges of the table's rows in physical order.

        None if that is no few ranges: samples of rows, index-organized tables.
        """
        if self._sampled is not None or self.table.organization == "index":
            return None
        found: list[Slice] = []
        before = 0
        for number, view in enumerate(self.views):
            if number in self._ranges:
                for start, stop in view.ordinals(self._ranges[number]):
                    found.append((before + start, before + stop))
            before += len(view)
        return found

    def block_rowids(self) -> Iterator[Row]:
        """Yield one row for each block with rows, of which only the address is right."""
        nothing = (None,) * len(self.columns)
        for number in self.chosen:
            segment = self.views[number].segment
            for start, stop in self._ranges[number]:
                step = segment.layout.rows_per_block
                for position in range(start, stop, step):
                    yield (*nothing, segment.layout.rowid(segment.data_object_id, position))
                if (stop - start) % step and stop - start > step:
                    yield (*nothing, segment.layout.rowid(segment.data_object_id, stop - 1))

    def everything(self, *, with_rowid: bool) -> Iterator[Row]:
        """Yield all rows of the table, also those cut off, in physical order."""
        full = TableScan(self.table, self.views, list(range(len(self.views))))
        return full.rows(with_rowid=with_rowid)

    def beginnings(self, lengths: list[int]) -> Iterator[Row]:
        """Yield so many rows from the start of each segment, without addresses."""
        first = TableScan(self.table, self.views, list(range(len(self.views))))
        first._ranges = {number: [(0, length)] for number, length in enumerate(lengths)}
        return first.rows(with_rowid=False)

    def rows(self, *, with_rowid: bool) -> Iterator[Row]:
        """Yield the rows, their address behind the columns' values if asked for."""
        for number in self.chosen:
            view = self.views[number]
            segment = view.segment
            numbered: Iterable[tuple[int, Row]] = view.rows(self._ranges[number])
            if self.table.organization == "index":
                key = self.table.key_order()
                numbered = sorted(numbered, key=lambda found: key(found[1]))
            if self._sampled is not None:
                percent, owner = self._sampled, segment.object_id
                numbered = (f for f in numbered if _drawn((owner, f[0]), percent))
            if with_rowid:
                address = self.table.rowid
                yield from (
                    (*values, address(segment, position, values)) for position, values in numbered
                )
            else:
                yield from map(itemgetter(1), numbered)


def _within(ranges: Iterable[Slice], count: int) -> list[Slice]:
    return [(start, min(stop, count)) for start, stop in ranges if start < count]


def _drawn(what: tuple[int, int], percent: float) -> bool:
    number = zlib.crc32(b"%d,%d" % what)
    return (number * 2654435761 >> 7) % 1_000_000 < percent * 10_000


def bounds(conditions: list[tuple[str, Any]]) -> tuple[Bound | None, Bound | None]:
    """Return the range (from, to below) of addresses that comparisons with ROWID leave."""
    low: Bound | None = None
    high: Bound | None = None
    for operator, address in conditions:
        here: Bound = tuple(address if isinstance(address, Rowid) else Rowid.parse(str(address)))  # type: ignore[assignment]
        behind: Bound = (*here[:3], here[3] + 1)
        start = {">=": here, ">": behind, "=": here}.get(operator)
        stop = {"<": here, "<=": behind, "=": behind}.get(operator)
        if start is not None:
            low = start if low is None else max(low, start)
        if stop is not None:
            high = stop if high is None else min(high, stop)
    return low, high
