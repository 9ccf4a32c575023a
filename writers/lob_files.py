"""Packed files: the values of one column of a work unit, one after another, beside its rows.

The row has the place of its value instead, as a LOB location specifier: `NAME.OFFSET.LENGTH/`. The
offset is counted from 1, and offset and length are in bytes. SQL*Loader and external tables read
this form in a field that is declared `LLS`. A length of -1 is NULL there; Parquet has NULL itself.

A value goes from the memory of its batch, or piece by piece from its source, into the buffers of
the file's sink. So memory does not depend on the length of values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from msgspec.structs import replace
from pyarrow import types

from writers.errors import FormatError, ValueNotRepresentable
from writers.files.sink import StagedFiles
from writers.large_rows import LargeRow, is_long
from writers.model import (
    PLAIN,
    Compression,
    FinalNames,
    LobColumn,
    OutputSpec,
    StageSeconds,
    TextFormat,
    WrittenFile,
)
from writers.schema import pc, text_class
from writers.text.dialects import OutputEncoding
from writers.text.string_arrays import value_bytes, without_views

EXTENSION = "lob"


def packed_schema(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return a schema whose columns with these names hold specifiers; FormatError for other types.

    A value must be text or bytes: another type has no bytes that every program would expect.
    """
    fields = []
    for field in schema:
        if field.name in names:
            kind = field.type
            views = types.is_string_view(kind) or types.is_binary_view(kind)
            if not (is_long(kind) or views) or text_class(field):
                raise FormatError(
                    f"column {field.name} has the type {text_class(field) or kind}, and files of "
                    "large objects hold text or bytes.",
                    "leave the column out of --lob-files.",
                )
            field = pa.field(field.name, pa.string(), field.nullable)
        fields.append(field)
    return pa.schema(fields, metadata=schema.metadata)


class LobFiles:
    """The packed files of a work unit, one for each column; `close` or `abort` ends them, once."""

    def __init__(
        self, spec: OutputSpec, schema: pa.Schema, stem: str, lobs: Sequence[LobColumn]
    ) -> None:
        self.schema = packed_schema(schema, {lob.name for lob in lobs})
        text = spec.format if isinstance(spec.format, TextFormat) else None
        encoding = OutputEncoding(text.encoding if text else "utf-8")
        self._columns: dict[int, _PackedColumn] = {}
        try:
            for number, lob in enumerate(lobs):
                index = schema.names.index(lob.name)
                self._columns[index] = _PackedColumn(
                    # Offsets in compressed bytes would lead nowhere.
                    StagedFiles(
                        replace(
                            spec,
                            file_size_bytes=0,
                            encryption=PLAIN,
                            finals=spec.finals and _final(spec.finals, lob.file),
                        ),
                        stem,
                        f"{EXTENSION}{number}",
                        Compression(),
                    ),
                    lob,
                    encoding,
                    null_length="-1" if text else None,
                )
        except BaseException:
            self.abort()
            raise

    @property
    def bytes_written(self) -> int:
        return sum(each.files.bytes_written for each in self._columns.values())

    @property
    def stages(self) -> tuple[StageSeconds, ...]:
        return tuple(each.files.stages(0.0) for each in self._columns.values())

    def packed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Append the values of a batch to the files; return the batch with specifiers."""
        columns = [
            self._columns[index].packed(column) if index in self._columns else column
            for index, column in enumerate(batch.columns)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def packed_row(self, row: LargeRow) -> LargeRow:
        """Append the values of a row, whose large ones come in pieces; return specifiers."""
        large = dict(row.values)
        columns = [
            self._columns[index].packed(column)
            if index in self._columns and index not in large
            else column
            for index, column in enumerate(row.row.columns)
        ]
        left = []
        for index, value in row.values:
            if index in self._columns:
                columns[index] = self._columns[index].packed_pieces(value.pieces())
            else:
                left.append((index, value))
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return LargeRow(row=batch, values=tuple(left), held_bytes=row.held_bytes)

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish and sync the files, which keep their staging names; or leave none."""
        found: list[WrittenFile] = []
        try:
            for each in self._columns.values():
                each.files.finish(0)
                found += (replace(file, column=each.lob.name) for file in each.files.files)
        except BaseException:
            self.abort()
            raise
        return tuple(found)

    def abort(self) -> None:
        """Remove every file; never raises."""
        for each in self._columns.values():
            each.files.abort()


def _final(finals: FinalNames, name: str) -> FinalNames:
    return FinalNames(place=finals.place, name=lambda number: name)


class _PackedColumn:
    def __init__(
        self,
        files: StagedFiles,
        lob: LobColumn,
        encoding: OutputEncoding,
        *,
        null_length: str | None,
    ) -> None:
        self.files, self.lob = files, lob
        self._encoding, self._null_length = encoding, null_length
        self._next = 1
        """The offset of the next value."""

    def packed(self, values: pa.Array) -> pa.Array:
        """Append the values of an array, which are in order and adjoin; return the specifiers."""
        if types.is_string_view(values.type) or types.is_binary_view(values.type):
            values = without_views(values)
        is_text = types.is_string(values.type) or types.is_large_string(values.type)
        if is_text and not self._encoding.is_utf8:
            encoded = [None if text is None else self._encoded(text) for text in values.to_pylist()]
            values = pa.array(encoded, pa.large_binary())
        lengths = pc.cast(pc.binary_length(values), pa.int64())
        filled = pc.fill_null(lengths, 0)
        data = value_bytes(values)
        total = pc.sum(filled).as_py() or 0
        if data.nbytes != total:  # Bytes without a row, below a NULL.
            data = value_bytes(values.drop_null())
        if data.nbytes:
            self.files.sink().write(data)
        starts = pc.add(pc.subtract(pc.cumulative_sum(filled), filled), self._next)
        self._next += total
        texts = pc.cast(lengths, pa.string())
        if self._null_length is not None:
            texts = pc.fill_null(texts, self._null_length)
        name, end, dot = (pa.scalar(text) for text in (self.lob.file, "/", "."))
        places = pc.binary_join_element_wise(name, pc.cast(starts, pa.string()), texts, dot)
        return pc.binary_join_element_wise(places, end, pa.scalar(""))

    def packed_pieces(self, pieces: Iterator[bytes] | Iterator[str]) -> pa.Array:
        """Append one value; return the array of its specifier."""
        size, sink = 0, self.files.sink()
        for piece in pieces:
            data = self._encoded(piece) if isinstance(piece, str) else piece
            sink.write(data)
            size += len(data)
        start, self._next = self._next, self._next + size
        return pa.array([f"{self.lob.file}.{start}.{size}/"], pa.string())

    def _encoded(self, text: str) -> bytes:
        try:
            return self._encoding.encode(text)
        except UnicodeEncodeError as error:
            raise ValueNotRepresentable(
                f"column {self.lob.name}: {self._encoding.name} has no character "
                f"U+{ord(text[error.start]):04X}.",
                "use --encoding utf-8.",
            ) from None
