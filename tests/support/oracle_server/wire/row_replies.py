"""Columns and rows as messages carry them: descriptions, cells, and rows that repeat."""

from __future__ import annotations

import hashlib
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, islice
from threading import Lock
from typing import Any, NamedTuple

from oracle_server.data.tables import in_turns, one_turn
from oracle_server.model import Column, OracleError, RowSource, Type
from oracle_server.sql.queries import Projected, Result
from oracle_server.wire.lobs import Locators, content_of
from oracle_server.wire.oracle_values import (
    FORMATS,
    LOCATOR_TYPES,
    LONG,
    LONG_NULL,
    LONG_RAW,
    LONG_VARCHAR,
    NULL,
    TEXT_ONLY_TYPES,
    XMLTYPE_OID,
    Encoder,
    clr,
    dalc,
    encoder,
    read_clr,
    read_dalc,
    read_ub,
    sb,
    ub,
    wire_type,
)

_COLLATION = 16382
"""Collation id of every text column of a database that uses none."""
_NATIONAL_CHARSET = 2000
_WIDE_SCALE_TYPES = frozenset({2, 180, 181, 183, 231})
_MAX_LENGTH = 32767
_SIZES = {
    "NUMBER": 22,
    "FLOAT": 22,
    "TIMESTAMP": 11,
    "LONG": 0,
    "LONG RAW": 0,
    "CLOB": 4000,
    "NCLOB": 4000,
    "BLOB": 4000,
    "XMLTYPE": 2000,
    "JSON": 8200,
    "VECTOR": 8200,
    "UROWID": 4000,
}
"""Described sizes; 1 for the others, as observed for DATE, ROWID and the binary floats. Sizes of
LOBs, JSON, VECTOR and XMLTYPE are guesses, for which clients only need something above zero."""
_ROW_SIZES = {
    "DATE": 7,
    "TIMESTAMP WITH TIME ZONE": 13,
    "TIMESTAMP WITH LOCAL TIME ZONE": 11,
    "INTERVAL YEAR TO MONTH": 5,
    "INTERVAL DAY TO SECOND": 11,
    "BINARY_FLOAT": 4,
    "BINARY_DOUBLE": 8,
}
"""What these types count for in the row size, in place of their described size of 1."""


def describe(
    columns: Sequence[Column],
    *,
    field_version: int,
    wide_scale: bool = False,
    statement: str = "",
    charset: int = 873,
) -> bytes:
    """Return a whole DESCRIBE message, its 10 (hex) first.

    Args:
        field_version: TTC field version that both sides agreed on (11g 6, 12.1 7, 19c 12, 21c 16,
            23ai 24); it decides which fields there are.
        wide_scale: The scale of NUMBER, timestamps and intervals is an sb2 (Go and Java clients),
            else one byte (Python, Node).
    """
    digest = hashlib.md5(statement.encode(), usedforsecurity=False).digest()
    now = _now()
    row_size = sum(_ROW_SIZES.get(column.type.name, size_of(column.type)) for column in columns)
    parts = [b"\x10", clr(digest + now), ub(row_size), ub(len(columns))]
    if columns:
        parts.append(b"\x82" if field_version >= 17 else b"\x5c")
    parts += (
        _column(column, position, field_version, wide_scale, charset)
        for position, column in enumerate(columns)
    )
    parts += (dalc(now), ub(0), ub(8168), ub(10), ub(10), NULL)
    return b"".join(parts)


def _now() -> bytes:
    moment = time.gmtime()
    century, year = divmod(moment.tm_year, 100)
    clock = (moment.tm_hour + 1, moment.tm_min + 1, moment.tm_sec % 60 + 1)
    return bytes((century + 100, year + 100, moment.tm_mon, moment.tm_mday, *clock))


def _column(
    column: Column, position: int, field_version: int, wide_scale: bool, charset: int
) -> bytes:
    kind = column.type
    number, form = wire_type(kind)
    precision, scale = _digits(kind)
    wide = wide_scale and number in _WIDE_SCALE_TYPES
    name = column.name.encode()
    is_object = kind.name == "XMLTYPE"
    parts = [
        bytes((number, 0x80 if form else 0, precision)),
        sb(scale) if wide else bytes((scale & 0xFF,)),
        ub(size_of(kind)),
        NULL,
        NULL,
        dalc(XMLTYPE_OID) if is_object else NULL,
        ub(1) if is_object else NULL,
        ub(_charset(column, form, charset)),
        bytes((form,)),
        ub(_characters(kind) if form else 0),
        ub(_COLLATION if form else 0) if field_version >= 8 else b"",
        bytes((column.nullable, min(len(name), 255))),
        dalc(name),
        dalc(b"SYS" if is_object else b""),
        dalc(b"XMLTYPE" if is_object else b""),
        ub(position),
        NULL,
    ]
    if field_version >= 17:
        parts += (NULL, NULL)
    if field_version >= 20:
        parts.append(NULL)
    if field_version >= 24:
        is_vector = kind.name == "VECTOR"
        parts.append(ub(kind.length or 0) if is_vector else NULL)
        parts.append(bytes((FORMATS[kind.element or "FLOAT32"] if is_vector else 0, 0)))
    return b"".join(parts)


def _digits(kind: Type) -> tuple[int, int]:
    """Return precision and scale: NUMBER without either has scale -127, an expression zeros."""
    if kind.name == "FLOAT":
        return kind.precision or 126, -127
    if kind.name == "NUMBER":
        if kind.expression:
            return 0, 0
        if kind.precision is None:
            return (0, -127) if kind.scale is None else (38, kind.scale)
        return kind.precision, kind.scale or 0
    if kind.name.startswith(("TIMESTAMP", "INTERVAL DAY")):
        leading = 2 if kind.precision is None else kind.precision
        return (leading if kind.name[0] == "I" else 0), (6 if kind.scale is None else kind.scale)
    if kind.name == "INTERVAL YEAR TO MONTH":
        return (2 if kind.precision is None else kind.precision), 0
    return 0, 0


def size_of(kind: Type) -> int:
    """Return a type's described size in bytes; text in characters takes four bytes each."""
    if kind.name == "RAW":
        return 2000 if kind.length is None else kind.length
    if kind.name in ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR"):
        width = 2 if kind.name[0] == "N" else 4 if kind.in_chars else 1
        return min(width * _characters(kind), _MAX_LENGTH)
    return _SIZES.get(kind.name, 1)


def _characters(kind: Type) -> int:
    if kind.name in ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR"):
        return (2000 if kind.name[0] == "N" else 4000) if kind.length is None else kind.length
    return 0


def _charset(column: Column, form: int, charset: int) -> int:
    if is_absent(column):
        return 1
    return (0, charset, _NATIONAL_CHARSET)[form]


def is_absent(column: Column) -> bool:
    """Return whether no row has a byte for this column: it is described with size 0 (a NULL literal).

    A VARCHAR2, CHAR or RAW of length 0 is such a column.
    """
    return not size_of(column.type) and not is_long(column)


def is_long(column: Column) -> bool:
    """Report whether the column is a LONG or LONG RAW, which switches bit vectors off."""
    return column.type.name in ("LONG", "LONG RAW")


def needs_define(columns: Sequence[Column]) -> bool:
    """Report whether an execute must answer without rows because the client defines LOBs first.

    So with a CLOB, NCLOB, BLOB, JSON or VECTOR column: the driver executes again with defines.
    """
    return any(column.type.name in LOCATOR_TYPES | TEXT_ONLY_TYPES for column in columns)


ROW = b"\x07"
VECTOR = b"\x15"
_INLINE = frozenset({LONG, LONG_RAW, LONG_VARCHAR})
"""Types that a LOB is defined as when its data is to come in the row; the last one by Go clients."""


def make_encoders(
    columns: Sequence[Column],
    defines: Sequence[int] | None,
    locators: Locators | None,
    prefetches: Sequence[int] = (),
) -> list[Encoder]:
    """Return each column's function from a value to its cell.

    Raises:
        OracleError: ORA-00932, a LOB is defined as neither a LOB nor a LONG.
        ValueError: A LOB column, and no locators to put its values behind.
    """
    wanted = defines or [wire_type(column.type).number for column in columns]
    return [
        _encoder(column, number, locators, prefetch)
        for column, number, prefetch in zip(
            columns, wanted, prefetches or (0,) * len(columns), strict=True
        )
    ]


def _encoder(column: Column, number: int, locators: Locators | None, prefetch: int = 0) -> Encoder:
    kind = column.type
    if is_absent(column):
        return lambda value: b""
    if kind.name not in LOCATOR_TYPES:
        return encoder(kind)
    if number in _INLINE:
        return _inline(kind)
    if number != wire_type(kind).number:
        raise OracleError(932, f"inconsistent data types: expected {kind.name} got type {number}")
    if locators is None:
        raise ValueError(f"column {column.name}: a {kind.name} is encoded for one connection only")
    return lambda value: locators.cell(value, kind, prefetch=prefetch)


def _inline(kind: Type) -> Encoder:
    """Return the encoder of a LOB that the client defined as a LONG: the data is in the row.

    A CLOB is sent in the client's character set, an NCLOB in the national one.
    """

    def encode(value: Any) -> bytes:
        if value is None:
            return LONG_NULL
        content = content_of(value, kind)
        data = content.read(0, content.length())
        if kind.name == "CLOB":
            data = data.decode("utf-16-be", "replace").encode()
        return clr(data) + b"\x00\x00"

    return encode


def has_long(columns: Sequence[Column], defines: Sequence[int] | None) -> bool:
    """Report whether a column goes over as a LONG or LONG RAW."""
    numbers = defines or [wire_type(column.type).number for column in columns]
    return any(number in _INLINE for number in numbers)


def always_sent(columns: Sequence[Column]) -> frozenset[int]:
    """Return the columns that are sent even if equal: LOBs."""
    return frozenset(at for at, column in enumerate(columns) if column.type.name in LOCATOR_TYPES)


def changes(
    row: Sequence[bytes], before: Sequence[bytes], always: frozenset[int] = frozenset()
) -> tuple[bool, ...]:
    """Return for each column whether it must be sent after the row before it."""
    if not always:
        return tuple(map(bytes.__ne__, row, before))
    return tuple(
        at in always or cell != old for at, (cell, old) in enumerate(zip(row, before, strict=True))
    )


@lru_cache(maxsize=4096)
def bits(changed: tuple[bool, ...]) -> bytes:
    value = sum(1 << at for at, sent in enumerate(changed) if sent)
    return value.to_bytes((len(changed) + 7) // 8, "little")


@lru_cache(maxsize=4096)
def vector_message(changed: tuple[bool, ...]) -> bytes:
    """Return message 15 (hex) and the 07 of the row it stands before."""
    count = sum(changed)
    return VECTOR + (bytes((1, count)) if 0 < count < 256 else _count(count)) + bits(changed) + ROW


def _count(count: int) -> bytes:
    return b"\x02" + count.to_bytes(2, "big") if count else b"\x00"


def sent(row: Iterable[bytes], changed: Sequence[bool]) -> bytes:
    return b"".join(compress(row, changed))


def split(columns: Sequence[Column], row: memoryview) -> list[bytes]:
    """Return the cells of a complete row message, whose 07 is its first byte."""
    position = len(ROW)
    cells = []
    for column in columns:
        end = position if is_absent(column) else _end(column.type.name, row, position)
        cells.append(bytes(row[position:end]))
        position = end
    return cells


def _end(name: str, row: memoryview, position: int) -> int:
    first = row[position]
    if name == "ROWID":
        return _skip(row, position + 1, "uubuu") if first else position + 1
    if name == "UROWID":
        return _skip(row, position, "uc") if first else position + 1
    if name == "XMLTYPE":
        end = _skip(row, position, "dddu")
        length, end = read_ub(row, end)
        return _skip(row, end, "uc" if length else "u")
    return _skip(row, position, "cuu" if name in ("LONG", "LONG RAW") else "c")


def _skip(row: memoryview, position: int, parts: str) -> int:
    """Return the position after some parts: u integer, b byte, c byte string, d one with two lengths."""
    for part in parts:
        if part == "b":
            position += 1
        elif part == "u":
            position = read_ub(row, position)[1]
        elif part == "c":
            position = read_clr(row, position)[1]
        else:
            position = read_dalc(row, position)[1]
    return position


_CHUNK_ROWS = 10_000
_REMEMBERED_VALUES = 100_000
"""Cells remembered in a column, so that repeated values are encoded once."""


class Batch(NamedTuple):
    """The rows of one reply, without their header."""

    rows: int
    body: bytes
    vector: bytes
    """Bit vector of the first row, which goes into the row header; empty if that row is whole."""
    sent: int
    """Columns of the first row that are sent."""
    compressed: bool
    """A row had a vector."""
    repeats: bool
    """A vector named a repeated value."""


class EncodedTable:
    """Rows that were encoded once, to be served many times at next to no cost."""

    def __init__(self, columns: tuple[Column, ...], *, vectors: bool) -> None:
        """Start without rows; use `of`."""
        self.columns = columns
        self.vectors = vectors
        self._whole = bytearray()
        self._whole_ends = array("Q", [0])
        self._partial = bytearray()
        self._partial_ends = array("Q", [0])
        self._repeats = bytearray()

    @classmethod
    def of(
        cls, columns: Iterable[Column], values: Iterable[Sequence[Any]], *, vectors: bool = True
    ) -> EncodedTable:
        """Encode rows.

        Args:
            columns: Of the projection; no CLOB, NCLOB or BLOB.
            values: One sequence of Python values a row.
            vectors: Keep the compressed form too (twice the memory). Without it cursors over this
                table send complete rows.

        Raises:
            ValueError: A column has a type whose form depends on the connection.
        """
        columns = tuple(columns)
        table = cls(columns, vectors=vectors and not has_long(columns, None))
        encoders = [_remembering(encode) for encode in make_encoders(columns, None, None)]
        always = always_sent(columns)
        rows = iter(values)
        before: Sequence[bytes] = ()
        while chunk := list(islice(rows, _CHUNK_ROWS)):
            in_columns = [
                list(map(encode, column))
                for encode, column in zip(encoders, zip(*chunk, strict=True), strict=True)
            ]
            for row in zip(*in_columns, strict=True):
                table._add(row, before, always)
                before = row
        return table

    def _add(self, row: Sequence[bytes], before: Sequence[bytes], always: frozenset[int]) -> None:
        whole = b"".join(row)
        self._whole += ROW
        self._whole += whole
        self._whole_ends.append(len(self._whole))
        if not self.vectors:
            return
        if not before:
            self._repeats.append(0)
        else:
            changed = changes(row, before, always)
            complete = all(changed)
            self._repeats.append(not complete)
            self._partial += vector_message(changed)
            self._partial += whole if complete else sent(row, changed)
        self._partial_ends.append(len(self._partial))

    def __len__(self) -> int:
        return len(self._whole_ends) - 1

    def rows(self, slices: Iterable[tuple[int, int]] | None = None) -> EncodedRows:
        """Return a RowSource of rows [start, stop) of each slice in order; None is every row."""
        return EncodedRows(self, slices)

    def whole(self, start: int, stop: int) -> memoryview:
        ends = self._whole_ends
        return memoryview(self._whole)[ends[start] : ends[stop]]

    def partial(self, start: int, stop: int) -> memoryview:
        """Return row messages, each with the vector before it, except row 0."""
        ends = self._partial_ends
        return memoryview(self._partial)[ends[start] : ends[stop]]

    def repeats(self, start: int, stop: int) -> bool:
        """Report whether one of these rows repeats a value of the row before it in the table."""
        return self._repeats.find(1, start, stop) >= 0


class EncodedRows:
    """A RowSource over slices of an EncodedTable. Each is read once, by one cursor."""

    def __init__(self, table: EncodedTable, slices: Iterable[tuple[int, int]] | None) -> None:
        """Take the slices; the ones that touch become one."""
        self.columns = table.columns
        self.can_compress = table.vectors
        self._table = table
        self._always = always_sent(table.columns)
        self._slices = _joined(slices if slices is not None else ((0, len(table)),), len(table))
        self._at, self._stop = next(self._slices, (0, 0))
        self._last: int | None = None

    @property
    def table(self) -> EncodedTable:
        return self._table

    def batch(self, limit: int, position: int, compress: bool, encoders: list[Encoder]) -> Batch:
        """Return the next rows; see `rows.RowSet.batch`."""
        parts: list[bytes | memoryview] = []
        count, vector, width = 0, b"", len(self.columns)
        repeats = False
        while count < limit and self._find_row():
            start, last = self._at, self._last
            if compress and position + count >= 2 and (not count or last != start - 1):
                message, row_repeats = self._after(start, last)
                if not count:
                    vector, width, message = self._taken_apart(message)
                parts.append(message)
                repeats = repeats or row_repeats
                stop = start + 1
            elif compress and position + count >= 2:
                stop = min(self._stop, start + limit - count)
                parts.append(self._table.partial(start, stop))
                repeats = repeats or self._table.repeats(start, stop)
            else:
                most = min(limit - count, 2 - position - count) if compress else limit - count
                stop = min(self._stop, start + most)
                parts.append(self._table.whole(start, stop))
            count += stop - start
            self._at, self._last = stop, stop - 1
        compressed = compress and position + count > 2 and count > 0
        return Batch(count, b"".join(parts), vector, width, compressed, repeats)

    def _find_row(self) -> bool:
        """Go to the next slice if this one is at its end; return whether there is a row."""
        while self._at >= self._stop:
            following = next(self._slices, None)
            if following is None:
                return False
            self._at, self._stop = following
        return True

    def _after(self, row: int, last: int | None) -> tuple[bytes | memoryview, bool]:
        """Return a row's message with its vector after the row that was sent last."""
        if last == row - 1:
            return self._table.partial(row, row + 1), self._table.repeats(row, row + 1)
        assert last is not None
        ours = split(self.columns, self._table.whole(row, row + 1))
        before = split(self.columns, self._table.whole(last, last + 1))
        changed = changes(ours, before, self._always)
        return vector_message(changed) + sent(ours, changed), not all(changed)

    def _taken_apart(self, message: bytes | memoryview) -> tuple[bytes, int, bytes]:
        """Return a row's vector, columns sent and message: in a row header they stand elsewhere."""
        start = 2 + message[1]
        end = start + (len(self.columns) + 7) // 8
        width = int.from_bytes(message[2:start], "big")
        return bytes(message[start:end]), width, bytes(message[end:])


def _joined(slices: Iterable[tuple[int, int]], length: int) -> Iterator[tuple[int, int]]:
    """Yield the slices, cut to the table, without empty ones, the ones that touch as one."""
    held: tuple[int, int] | None = None
    for start, stop in slices:
        start, stop = max(start, 0), min(stop, length)
        if start >= stop:
            continue
        if held is not None and held[1] == start:
            held = held[0], stop
            continue
        if held is not None:
            yield held
        held = start, stop
    if held is not None:
        yield held


def _remembering(encode: Encoder) -> Callable[[Any], bytes]:
    """Return an encoder that makes the cell of a value it had lately only once."""
    known: dict[Any, bytes] = {}

    def encode_cell(value: Any) -> bytes:
        try:
            cell = known.get(value)
        except TypeError:
            return encode(value)
        if cell is None:
            cell = encode(value)
            if len(known) >= _REMEMBERED_VALUES:
                known.clear()
            # 0.0 and -0.0 are one key but two values.
            if value != 0 or not isinstance(value, float):
                known[value] = cell
        return cell

    return encode_cell


_HEADER = b"\x06"
_FIRST_REPLY = 0x22
_LATER_REPLY = 0x02
_NOTHING_REPEATED = 0x20
_COMPLETE_ROWS = 2
"""Rows at the start of a result set that never have a vector."""


class RowSet:
    """A RowSource made of Python values, which are encoded when they are asked for."""

    can_compress = True

    def __init__(self, columns: Iterable[Column], values: Iterable[Sequence[Any]]) -> None:
        """Take the columns and an iterable of rows, which is read once and no faster than sent."""
        self.columns = tuple(columns)
        self._rows = iter(values)
        self._always = always_sent(self.columns)
        self._before: Sequence[bytes] = ()

    def batch(self, limit: int, position: int, compress: bool, encoders: list[Encoder]) -> Batch:
        """Return the next rows of a reply.

        Args:
            position: Rows that earlier replies had.
            compress: Vectors are on.
        """
        parts: list[bytes] = []
        count, vector, width = 0, b"", len(self.columns)
        repeats = False
        for row in islice(self._rows, limit):
            ours = [encode(value) for encode, value in zip(encoders, row, strict=True)]
            if not compress or position + count < _COMPLETE_ROWS:
                parts += (ROW, *ours)
            else:
                changed = changes(ours, self._before, self._always)
                if count:
                    parts.append(vector_message(changed))
                else:
                    vector, width = bits(changed), sum(changed)
                    parts.append(ROW)
                parts.append(sent(ours, changed))
                repeats = repeats or not all(changed)
            self._before = ours
            count += 1
        compressed = compress and count > 0 and position + count > _COMPLETE_ROWS
        return Batch(count, b"".join(parts), vector, width, compressed, repeats)


class RowCursor:
    """One open cursor's position in its rows, and the state of its compression.

    A reply is `cursor.take(...)`, then [parameters], then an OER whose row counts are `rows_so_far`,
    whose flags byte is `oer_flags`, and whose number is 1403 if `done`.
    """

    def __init__(self, source: RowSet | EncodedRows, *, vectors: bool = True) -> None:
        """Start before the first row.

        Args:
            vectors: Leave out repeated values, for clients that know bit vectors; else every row is
                complete.
        """
        self.columns: tuple[Column, ...] = source.columns
        self.last_count = 0
        """Rows in the last reply."""
        self.rows_so_far = 0
        """Rows in all replies, the last one included: what an OER reports as row and rows."""
        self.done = False
        """The last reply had fewer rows than requested: its OER is 1403.

        Exactly as many rows as asked leave it False, as real servers do: the next fetch is empty.
        """
        self.oer_flags = 0
        """Flags byte of the reply's OER."""
        self._source = source
        self._compress = vectors and source.can_compress
        self._encoders: list[Encoder] = []
        self._encoders_for: object = None
        self._replied = False

    def take(
        self,
        n: int,
        locators: Locators,
        *,
        defines: Sequence[int] | None = None,
        prefetches: Sequence[int] = (),
        asked: int | None = None,
        first_reply: bool | None = None,
    ) -> bytes:
        """Return one reply's ROW HEADER (06) and the messages (15, 07) of up to `n` rows.

        The header is there even when no row is left. `done` states whether `n` rows were there.

        Args:
            n: Rows to send at most (fewer than asked for to stop at a fault, say).
            locators: Of the connection; LOB values of these rows get their locators there.
            defines: Oracle type number of each column's define (8 LONG, 24 LONG RAW, 112, 113, ...)
                as the client's last execute with defines had them; None: as described.
            prefetches: How much of each column's LOBs comes with their locators; empty: nothing.
            asked: Rows the client asked for, which the header repeats; None: n.
            first_reply: The header has the flags of the first reply with rows; None: of this
                cursor's first.

        Raises:
            OracleError: ORA-00932, a LOB's define is neither a LOB nor a LONG.
        """
        self._prepare(defines, prefetches, locators)
        batch = self._source.batch(n, self.rows_so_far, self._compress, self._encoders)
        first = not self._replied if first_reply is None else first_reply
        self._replied = True
        self.last_count = batch.rows
        self.rows_so_far += batch.rows
        self.done = batch.rows < n
        switched_off = batch.compressed and not batch.repeats
        self.oer_flags = _NOTHING_REPEATED if switched_off else 0
        self._compress = self._compress and not switched_off
        return _header(batch, first, n if asked is None else asked) + batch.body

    def _prepare(
        self, defines: Sequence[int] | None, prefetches: Sequence[int], locators: Locators
    ) -> None:
        """Make the columns' encoders, again only if the defines are others."""
        wanted = (None if defines is None else tuple(defines), tuple(prefetches), id(locators))
        if wanted == self._encoders_for:
            return
        if isinstance(self._source, RowSet):
            self._encoders = make_encoders(self.columns, defines, locators, prefetches)
        self._encoders_for = wanted
        self._compress = self._compress and not has_long(self.columns, defines)


def _header(batch: Batch, first: bool, asked: int) -> bytes:
    vector = ub(len(batch.vector)) + bytes((len(batch.vector),)) + batch.vector
    return b"".join(
        (
            _HEADER,
            bytes((_FIRST_REPLY if first else _LATER_REPLY,)),
            ub(batch.sent),
            NULL,
            ub(asked),
            NULL,
            vector if batch.vector else NULL,
            NULL,
        )
    )


SMALL_ROWS = 1000
"""Tables of fewer rows are encoded again for every query."""
_KEPT = 12
_ENCODED_LATE = {
    "CLOB", "NCLOB", "BLOB", "JSON", "VECTOR", "LONG", "LONG RAW", "XMLTYPE", "UROWID",
}  # fmt: skip
"""Types whose form depends on the connection, or that no large table has."""


class Encodings:
    """The encoded forms, by table, version and projection; the least used go first."""

    def __init__(self) -> None:
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
