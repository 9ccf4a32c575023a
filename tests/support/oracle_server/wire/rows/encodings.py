"""Result rows for the wire; those of large tables are encoded once and served many times.

Of rows that come again and again one turn is encoded.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any

from oracle_server.data.repeated import in_turns, one_turn
from oracle_server.model import RowSource
from oracle_server.sql.queries import Projected, Result
from oracle_server.wire.rows.row_sets import EncodedTable, RowSet

SMALL_ROWS = 1000
"""Tables of fewer rows are encoded anew for every query."""
_KEPT = 12
_ENCODED_LATE = {
    "CLOB", "NCLOB", "BLOB", "JSON", "VECTOR", "LONG", "LONG RAW", "XMLTYPE", "UROWID",
}  # fmt: skip
"""Types whose form depends on the connection, or that no large table has."""


class Encodings:
    """The encoded forms, by table, version and projection; the least used go first."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._lock = Lock()
        self._found: OrderedDict[tuple[Any, ...], _Slot] = OrderedDict()

    def source(self, result: Result) -> RowSource:
        """Return a result's rows as the wire reads them."""
        projected = result.projected
        if projected is None or any(column.type.name in _ENCODED_LATE for column in result.columns):
            return RowSet(result.columns, result.rows)
        slices = projected.scan.slices()
        size = sum(len(view) for view in projected.scan.views)
        if slices is None or size < SMALL_ROWS:
            return RowSet(result.columns, result.rows)
        table = projected.scan.table
        key = (table.object_id, projected.scan.state, projected.key)
        with self._lock:
            slot = self._found.setdefault(key, _Slot())
            self._found.move_to_end(key)
            while len(self._found) > _KEPT:
                self._found.popitem(last=False)
        lengths = None if projected.needs_rowid else one_turn(projected.scan.views)
        if lengths is not None:
            slices = in_turns(slices, projected.scan.views, lengths)
        return slot.encoded(result, projected, lengths).rows(slices)


class _Slot:
    """One encoded table; the first who asks makes it, the others wait."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._table: EncodedTable | None = None

    def encoded(
        self, result: Result, projected: Projected, lengths: list[int] | None
    ) -> EncodedTable:
        scan = projected.scan
        with self._lock:
            if self._table is None:
                rows = (
                    scan.everything(with_rowid=projected.needs_rowid)
                    if lengths is None
                    else scan.beginnings(lengths)
                )
                self._table = EncodedTable.of(result.columns, projected.project(rows))
            return self._table
