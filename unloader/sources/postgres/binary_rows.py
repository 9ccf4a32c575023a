"""Rows of COPY's binary form, for columns whose values go to files of large objects.

A column with `RAW` has its bytes as they are, any other column the text that COPY would print. The
native code finds and reads all values, as it does in CSV. Without it, or for a text with a value
that is not ordinary, rows become CSV for the plain parser, which has the rules and the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyarrow import types

from unloader.sources.base import Text
from unloader.sources.postgres.statement import RAW
from writers.held_values import LEAST_BYTES, HeldValue, may_be_large
from writers.large_rows import LargeRow

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_NULL = 2**32 - 1
Field = tuple[int, int] | None
"""Start and end of a value; None is NULL."""


def raw_columns(schema: pa.Schema) -> list[int]:
    """Return the columns of a schema with bytes as they are in the binary form."""
    name, value = (each.encode() for each in RAW)
    return [at for at, field in enumerate(schema) if (field.metadata or {}).get(name) == value]


def records(data: memoryview) -> Iterator[tuple[Field, ...]]:
    """Yield the fields of each row, which may come after the header and before the end."""
    at = 0

    def number(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(data[at - size : at])

    if data[: len(_SIGNATURE)] == _SIGNATURE:
        at = len(_SIGNATURE) + 4
        at += number(4)
    while at < len(data):
        count, fields = number(2), list[Field]()
        for _ in range(count if count != 0xFFFF else 0):
            size = number(4)
            fields.append(None if size == _NULL else (at, at + size))
            at += 0 if size == _NULL else size
        if fields:
            yield tuple(fields)


class BinaryRows:
    """Makes batches of chunks of whole rows; a row of `least_bytes` or more is separate.

    `native` reads a chunk with raw columns, or returns None; `plain` parses CSV.
    """

    def __init__(
        self,
        schema: pa.Schema,
        native: Callable[[pa.Buffer, Sequence[int]], pa.RecordBatch | None],
        plain: Callable[[pa.Buffer], pa.RecordBatch],
        least_bytes: int,
    ) -> None:
        self._schema, self._native, self._parse = schema, native, plain
        self._least_bytes = least_bytes
        self._raw = [at for at in raw_columns(schema) if types.is_binary(schema.field(at).type)]
        self._texts = [
            types.is_string(field.type) or types.is_binary(field.type) for field in schema
        ]

    def rows(self, chunk: Text) -> Iterator[pa.RecordBatch | LargeRow]:
        view = memoryview(chunk).cast("B")
        if len(view) < self._least_bytes:
            batch = self._batch(view)
            if batch.num_rows:  # The end comes in a separate chunk.
                yield batch
            return
        for fields in records(view):
            values, small = [], list(fields)
            for index, (field, place) in enumerate(zip(self._schema, fields, strict=True)):
                if place is None or place[1] - place[0] < LEAST_BYTES or not may_be_large(field):
                    continue
                binary = index in self._raw
                if not binary and types.is_binary(field.type):
                    continue  # Hexadecimal digits.
                data = view[slice(*place)]
                values.append((index, HeldValue(data=data, binary=binary, column=field.name)))
                small[index] = None
            row = self._plain(view, [tuple(small)])
            if values:
                yield LargeRow(row=row, values=tuple(values), held_bytes=len(view))
            else:
                yield row

    def _batch(self, view: memoryview) -> pa.RecordBatch:
        batch = self._native(pa.py_buffer(view), self._raw)
        return self._plain(view, records(view)) if batch is None else batch

    def _plain(self, view: memoryview, rows: Iterable[tuple[Field, ...]]) -> pa.RecordBatch:
        """Parse rows as CSV; the chunk may have none."""
        text = bytearray()
        for fields in rows:
            for index, place in enumerate(fields):
                if index:
                    text += b","
                if place is None:
                    continue
                value = bytes(view[slice(*place)])
                if index in self._raw:
                    value = value.hex().encode()
                if self._texts[index]:
                    value = b'"%b"' % value.replace(b'"', b'""')
                text += value
            text += b"\n"
        if not text:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        return self._parse(pa.py_buffer(bytes(text)))
