"""Records from columns of text: everything that stands between the cells and behind them."""

from __future__ import annotations

import pyarrow as pa

from writers.arrow_compute import pc
from writers.model import TextFormat
from writers.text.arrow_csv import csv_bytes
from writers.text.string_arrays import STRING_LIMIT, value_bytes


class Records:
    """The records of a batch.

    Args:
        cells: For each column the texts as they stand between two delimiters, null for NULL;
            string or large_string, at least one row.
        format: Its delimiter, end of line and NULL text are used.
    """

    def __init__(self, cells: list[pa.Array], format: TextFormat) -> None:
        self._cells = cells
        self._rows = len(cells[0])
        self._delimiter, self._eol, self._null = format.delimiter, format.eol, format.null
        self._trailing = format.trailing_delimiter
        self._end = (self._delimiter if self._trailing else "") + self._eol

    def lengths(self) -> pa.Array:
        """Return the bytes of each record in UTF-8, int32 or int64."""
        kind = pa.int64() if self._most_bytes() > STRING_LIMIT else pa.int32()
        null_bytes = len(self._null.encode())
        total: pa.Array | pa.Scalar = pa.scalar(self._literal_bytes(), kind)
        for cells in self._cells:
            lengths = pc.cast(pc.binary_length(cells), kind)
            if cells.null_count:
                lengths = pc.fill_null(lengths, pa.scalar(null_bytes, kind))
            total = pc.add(lengths, total)
        return total

    def prefixed(self, prefixes: pa.Array) -> memoryview:
        """Return the bytes of all records, each behind its prefix."""
        kind = self._kind(len(value_bytes(prefixes)))
        first = self._join([prefixes, self._cells[0]], "", kind)
        return self._bytes([first, *self._cells[1:]])

    def bytes(self) -> memoryview:
        """Return the bytes of all records."""
        return self._bytes(self._cells)

    def lines(self) -> pa.Array:
        """Return each record, string or large_string."""
        return self._lines(self._cells, self._kind())

    def _bytes(self, cells: list[pa.Array]) -> memoryview:
        size = self._most_bytes() + len(value_bytes(cells[0])) - len(value_bytes(self._cells[0]))
        last = [_empty(self._rows)] if self._trailing else []
        data = csv_bytes([*cells, *last], self._delimiter, self._eol, self._null, size)
        if data is not None:
            return data
        large = size > STRING_LIMIT
        return value_bytes(self._lines(cells, pa.large_string() if large else pa.string()))

    def _lines(self, cells: list[pa.Array], kind: pa.DataType) -> pa.Array:
        if self._trailing:
            return self._join([*cells, self._eol], self._delimiter, kind)
        last = self._join([cells[-1], self._eol], "", kind)
        return self._join([*cells[:-1], last], self._delimiter, kind)

    def _join(self, pieces: list[pa.Array | str], separator: str, kind: pa.DataType) -> pa.Array:
        columns = [
            pa.scalar(piece, kind) if isinstance(piece, str) else pc.cast(piece, kind)
            for piece in pieces
        ]
        return pc.binary_join_element_wise(
            *columns,
            pa.scalar(separator, kind),
            null_handling="replace",
            null_replacement=self._null,
        )

    def _kind(self, more_bytes: int = 0) -> pa.DataType:
        large = self._most_bytes() + more_bytes > STRING_LIMIT
        return pa.large_string() if large else pa.string()

    def _literal_bytes(self) -> int:
        """Return the bytes of a record that are not those of a cell."""
        return len(self._delimiter.encode()) * (len(self._cells) - 1) + len(self._end.encode())

    def _most_bytes(self) -> int:
        """Return the bytes of all records, and those of the NULL text for every cell."""
        nulls = len(self._null.encode()) * len(self._cells)
        cells = sum(len(value_bytes(cells)) for cells in self._cells)
        return self._rows * (self._literal_bytes() + nulls) + cells


def _empty(rows: int) -> pa.Array:
    """Return a column of empty texts: what stands behind the last delimiter."""
    # Not by `pa.repeat`, which looks for NumPy at every call, even where there is none.
    offsets = pa.py_buffer(bytes(4 * (rows + 1)))
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(b"")])
