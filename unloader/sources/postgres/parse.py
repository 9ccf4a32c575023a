"""COPY's CSV text into record batches of a fixed schema, exactly or not at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from unloader.errors import OutputFailed, SourceError

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMN = re.compile(r"In CSV column #(\d+): (.*)", re.DOTALL)


class CopyParser:
    """Parses whole records of `COPY ... (FORMAT csv)` into batches.

    NULL is the bare empty field, an empty string is the enclosed one.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Prepare for batches of `schema`; binary columns arrive as bare hex text."""
        import pyarrow as pa

        self._schema = schema
        self._binary = [pa.types.is_binary(field.type) for field in schema]
        self._types = {
            f"f{position}": pa.string() if binary else field.type
            for position, (field, binary) in enumerate(zip(schema, self._binary, strict=True))
        }

    def parse(self, data: bytes) -> pa.RecordBatch:
        """Return the records in `data` as one batch.

        Raises:
            OutputFailed: A value does not fit the Arrow type of its column; names every such
                column in `data`.
        """
        import pyarrow as pa

        try:
            table = self._read(data, self._types)
        except pa.ArrowInvalid as error:
            raise self._refusal(data, error) from error
        arrays = [
            _unhexed(_single(column)) if binary else _single(column)
            for column, binary in zip(table.columns, self._binary, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _read(self, data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        import pyarrow as pa
        from pyarrow import csv

        return csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=list(types)
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

    def _refusal(self, data: bytes, error: Exception) -> OutputFailed | SourceError:
        """Return the error that names every column whose text does not fit its type."""
        import pyarrow as pa

        types = dict(self._types)
        found: dict[str, str] = {}
        while True:
            match = _COLUMN.search(str(error))
            if match is None:
                return SourceError(f"COPY sent text that cannot be parsed: {error}")
            position = int(match.group(1))
            name = self._schema.field(position).name
            if types[f"f{position}"] == pa.string():
                return OutputFailed(
                    f"column {name} holds text that is not valid UTF-8",
                    f"leave it out with --exclude {name}",
                )
            found[name] = match.group(2).strip().splitlines()[0]
            types[f"f{position}"] = pa.string()
            try:
                self._read(data, types)
            except pa.ArrowInvalid as following:
                error = following
                continue
            break
        reasons = "; ".join(f"column {name}: {reason}" for name, reason in found.items())
        names = ",".join(found)
        return OutputFailed(
            f"values do not fit the output type: {reasons}",
            f"write them as exact text with --as-text {names}, or leave them out with --exclude",
        )


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
