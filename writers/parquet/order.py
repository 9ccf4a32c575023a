"""Whether rows are in the order that is declared for them: a file must not promise another.

The order is that of Parquet's statistics: numbers by value, text and bytes by their bytes. A
database that sorts text by a language's rules has another one, and so has NaN none at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from writers.errors import FormatError, ValueNotRepresentable

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.model import SortColumn


class OrderCheck:
    """Compares each row with the one before it.

    Args:
        schema: Of the batches.
        columns: The declared order.

    Raises:
        FormatError: A column is not there, is there twice, or has no order.
    """

    def __init__(self, schema: pa.Schema, columns: tuple[SortColumn, ...]) -> None:
        self._columns = columns
        self._places = [_place(schema, column.name) for column in columns]
        self._last: list[pa.Array] = []
        self._rows = 0

    def check(self, batch: pa.RecordBatch) -> None:
        """Check the rows of a batch, the first against the last of the batch before.

        Raises:
            ValueNotRepresentable: A row is out of order; names it, counted from 1.
        """
        if not self._columns or not batch.num_rows:
            return
        import pyarrow as pa

        keys = [batch.column(place) for place in self._places]
        if self._last:
            ends = zip(self._last, keys, strict=True)
            self._check([pa.concat_arrays([last, key.slice(0, 1)]) for last, key in ends], -1)
        self._check(keys, 0)
        self._last = [key.slice(len(key) - 1) for key in keys]
        self._rows += batch.num_rows

    def _check(self, keys: list[pa.Array], shift: int) -> None:
        import pyarrow.compute as pc

        rows = len(keys[0])
        if rows < 2:
            return
        wrong = pc.index(self._in_order(keys), False).as_py()
        if wrong >= 0:
            declared = ", ".join(_words(column) for column in self._columns)
            raise ValueNotRepresentable(
                f"row {self._rows + wrong + 2 + shift:,} is not after the row before it in the "
                f"declared order {declared}.",
                "sort the rows in this order in the query (text by its bytes), or leave "
                "--sorted-by out.",
            )

    def _in_order(self, keys: list[pa.Array]) -> pa.Array:
        """Tell for each row but the first whether it may follow the one before."""
        import pyarrow as pa
        import pyarrow.compute as pc

        fine: Any = pa.scalar(True)
        for column, key in reversed(list(zip(self._columns, keys, strict=True))):
            before, after = key.slice(0, len(key) - 1), key.slice(1)
            none_before, none_after = pc.is_null(before), pc.is_null(after)
            compare = pc.greater if column.descending else pc.less
            earlier = pc.fill_null(compare(before, after), False)
            null_side = none_before if column.nulls_first else none_after
            earlier = pc.or_(earlier, pc.and_(pc.xor(none_before, none_after), null_side))
            same = pc.fill_null(pc.equal(before, after), False)
            same = pc.or_(same, pc.and_(none_before, none_after))
            fine = pc.or_(earlier, pc.and_(same, fine))
        return fine


def sorting_columns(paths: list[str], columns: tuple[SortColumn, ...]) -> list[Any] | None:
    """Return the order as pyarrow tells it in a file; None where there is none.

    Args:
        paths: Of all columns in the file.
        columns: The declared order.
    """
    import pyarrow.parquet as pq

    return [
        pq.SortingColumn(paths.index(column.name), column.descending, column.nulls_first)
        for column in columns
    ] or None


def _place(schema: pa.Schema, name: str) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        raise FormatError(
            f"{'several columns have' if places else 'no column has'} the name {name!r} in "
            "--sorted-by.",
            f"use one of {', '.join(schema.names[:50])}.",
        )
    nothing = pa.nulls(0, schema.field(places[0]).type)
    try:
        pc.less(nothing, nothing)
        pc.equal(nothing, nothing)
    except pa.ArrowNotImplementedError as exc:
        raise FormatError(
            f"column {name!r} has the type {nothing.type}, which has no order.",
            "leave it out of --sorted-by.",
        ) from exc
    return int(places[0])


def _words(column: SortColumn) -> str:
    """Return a column of the order as the option takes it."""
    down = " desc" if column.descending else ""
    usual = column.descending
    nulls = "" if column.nulls_first == usual else f" nulls {'last' if usual else 'first'}"
    return f"{column.name}{down}{nulls}"
