"""COPY's CSV text into record batches of a fixed schema, exactly or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unloader.errors import OutputFailed, SourceError
from unloader.sources.base import Text
from unloader.sources.postgres.timestamps import parse_timestamps

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", re.DOTALL)
"""Arrow's row is that of a piece of the text, which says nothing to anybody else."""


class CopyParser:
    """Parses whole records of `COPY ... (FORMAT csv)` into batches.

    NULL is the bare empty field, an empty string is the enclosed one.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Prepare for batches of `schema`; binary columns arrive as bare hex text."""
        import pyarrow as pa

        self._schema = schema
        self._binary = [pa.types.is_binary(field.type) for field in schema]
        self._odd: set[int] = set()
        """Columns of dates with values that Arrow does not read by itself."""
        self._types = {
            f"f{position}": pa.string() if binary else field.type
            for position, (field, binary) in enumerate(zip(schema, self._binary, strict=True))
        }

    def parse(self, *chunks: Text) -> pa.RecordBatch:
        """Return the records in some chunks, each of whole ones, as one batch.

        Raises:
            OutputFailed: A value does not fit the Arrow type of its column; names every such
                column in them.
        """
        import pyarrow as pa

        table, refused = self._table(_joined(chunks))
        arrays: list[pa.Array] = []
        for position, column in enumerate(table.columns):
            array = _single(column)
            field = self._schema.field(position)
            if self._binary[position]:
                array = _unhexed(array)
            elif position in self._odd:
                try:
                    array = parse_timestamps(array, field.type)
                except ValueError as error:
                    refused[field.name] = str(error)
            arrays.append(array)
        if refused:
            raise _misfits([name for name in self._schema.names if name in refused], refused)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _table(self, data: pa.Buffer) -> tuple[pa.Table, dict[str, str]]:
        """Return the columns as Arrow reads them, and those with values that do not fit.

        A column of dates that Arrow cannot read is read as text from then on, in all batches.
        """
        import pyarrow as pa

        refused: dict[str, str] = {}
        types = dict(self._types)
        while True:
            try:
                return self._read(data, types), refused
            except pa.ArrowInvalid as error:
                match = _COLUMN.search(str(error))
                if match is None:
                    raise SourceError(f"COPY sent text that cannot be parsed: {error}") from error
                position, reason = int(match.group(1)), match.group(2).strip().splitlines()[0]
            field, column = self._schema.field(position), f"f{position}"
            if types[column] == pa.string():
                raise OutputFailed(
                    f"column {field.name} holds text that is not valid UTF-8",
                    f"leave it out with --exclude {field.name}",
                )
            types[column] = pa.string()
            if pa.types.is_temporal(field.type):
                self._types[column] = pa.string()
                self._odd.add(position)
            else:
                refused[field.name] = reason

    def _read(self, data: pa.Buffer, types: dict[str, pa.DataType]) -> pa.Table:
        import pyarrow as pa
        from pyarrow import csv

        return csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=data.size + 1, column_names=list(types)
            ),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


def _misfits(names: list[str], reasons: dict[str, str]) -> OutputFailed:
    reported = "; ".join(f"column {name}: {reasons[name]}" for name in names)
    return OutputFailed(
        f"values do not fit the output type: {reported}",
        f"write them as exact text with --as-text {','.join(names)}, or leave them out with "
        "--exclude",
    )


def _joined(chunks: Sequence[Text]) -> pa.Buffer:
    """Return the chunks in one piece of Arrow's memory.

    The C library would keep freed memory of the size of one of its own largest pieces: with pieces
    as large as these, a wide row took twice its size while it arrived.
    """
    import pyarrow as pa

    buffer = pa.allocate_buffer(sum(map(len, chunks)))
    room, at = memoryview(buffer).cast("B"), 0
    for chunk in chunks:
        room[at : at + len(chunk)] = chunk
        at += len(chunk)
    return buffer


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _unhexed(array: pa.Array) -> pa.Array:
    """Return binary values for an array of hex text, decoding the value buffer in one go."""
    import pyarrow as pa
    import pyarrow.compute as pc

    length = len(array)
    lengths = pc.fill_null(pc.binary_length(array), 0)
    ends = pc.cumulative_sum(pc.divide(lengths, 2))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    text = "".join(value for value in (pc.binary_join(_as_list(array), "")[0].as_py(),) if value)
    values = pa.py_buffer(bytes.fromhex(text))
    validity = array.is_valid()
    if array.null_count == 0:
        return pa.Array.from_buffers(pa.binary(), length, [None, offsets.buffers()[1], values])
    bitmap = pa.array(validity, pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(), length, [bitmap, offsets.buffers()[1], values], array.null_count
    )


def _as_list(array: pa.Array) -> pa.Array:
    import pyarrow as pa

    dense = array.drop_null()
    return pa.ListArray.from_arrays(pa.array([0, len(dense)], pa.int32()), dense)
