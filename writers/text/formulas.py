"""Values that spreadsheets take for formulas, and the quote that keeps them from it.

A program such as Excel runs a field of a CSV file that begins with one of `STARTS`; what it does
then somebody else may have written into the database. With the quote in front it is text. The list
is that of OWASP's page on CSV injection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from writers.arrow_compute import pc
from writers.schema import text_class

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.large_rows import LargeRow, LargeValue

STARTS = "=+-@\t\r\n＝＋－＠"
"""The last four are the wide forms of the first four."""

GUARD = "'"

_PATTERN = rf"\A[{STARTS.replace('-', chr(92) + '-')}]"


def guarded_name(name: str) -> str:
    """Return a column's name, or any other text, as it is written."""
    return GUARD + name if name.startswith(tuple(STARTS)) else name


def is_guarded(field: pa.Field) -> bool:
    """Return whether a column has texts that may be taken for formulas.

    Numbers, dates and timestamps have none, also where they are carried as text.
    """
    return _is_text(_plain(field.type)) and not text_class(field)


class FormulaGuard:
    """Puts a quote in front of texts of one schema that begin like a formula."""

    def __init__(self, schema: pa.Schema) -> None:
        """Take the schema of the batches."""
        import pyarrow as pa

        self._guarded = tuple(map(is_guarded, schema))
        fields = [
            field.with_name(guarded_name(field.name)).with_type(
                _plain(field.type) if guarded else field.type
            )
            for field, guarded in zip(schema, self._guarded, strict=True)
        ]
        self.schema = pa.schema(fields, metadata=schema.metadata)
        """Of the guarded batches, its names guarded, too."""

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with its texts guarded; NULL stays NULL."""
        import pyarrow as pa

        columns = [
            _guard(pc.cast(column, field.type)) if guarded else column
            for column, field, guarded in zip(
                batch.columns, self.schema, self._guarded, strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def row(self, row: LargeRow) -> LargeRow:
        """Return a row with its texts guarded, the large ones as they are read."""
        values = tuple(
            (index, _GuardedValue(value) if self._guarded[index] else value)
            for index, value in row.values
        )
        return replace(row, row=self.batch(row.row), values=values)


class _GuardedValue(Struct, frozen=True):
    """A large text with the quote in front where it begins like a formula."""

    value: LargeValue

    @property
    def binary(self) -> bool:
        return self.value.binary

    def pieces(self) -> Iterator[str]:
        begun = False
        for piece in self.value.pieces():
            assert isinstance(piece, str)
            yield piece if begun else guarded_name(piece)
            begun = begun or bool(piece)


def _guard(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    found = pc.match_substring_regex(column, _PATTERN)
    if not pc.any(found).as_py():
        return column
    quote = pa.scalar(GUARD, column.type)
    quoted = pc.binary_join_element_wise(quote, column, pa.scalar("", column.type))
    return pc.if_else(found, quoted, column)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type that texts of a column are taken out of, of which Arrow has functions."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return pa.large_string() if kind == pa.string_view() else kind


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return kind in (pa.string(), pa.large_string())
