"""The declared order of rows: told in the file where it holds, and refused where it does not."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoders.parquet_files import spec, write

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import ParquetFormat, SortColumn
from writers.parquet.writer import ParquetWriter


def ordered(*columns: SortColumn) -> ParquetFormat:
    """Return a format whose rows are said to be in that order."""
    return ParquetFormat(sorted_by=columns)


TABLE = pa.table(
    {
        "x": pa.array([{"y": 1}] * 6),
        "day": ["a", "a", "b", "b", "é", None],
        "price": pa.array([None, Decimal("2.5"), Decimal(-1), None, Decimal(7), Decimal(1)]),
    }
)


@pytest.mark.parametrize("batch_rows", [1, 2, 6])
def test_order_is_in_the_file(tmp_path: Path, batch_rows: int) -> None:
    """Each row group names its columns, counted as Parquet counts them, nested ones among them."""
    shape = ordered(SortColumn(name="day"))
    (path,) = write(tmp_path, TABLE, batch_rows, format=shape)
    assert pq.read_metadata(path).row_group(0).sorting_columns == (
        pq.SortingColumn(1, descending=False, nulls_first=False),
    )
    assert pq.read_table(path).equals(TABLE)


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ([SortColumn(name="day"), SortColumn(name="price", nulls_first=True)], 4),
        ([SortColumn(name="day"), SortColumn(name="price")], 2),
        ([SortColumn(name="day", nulls_first=True)], 6),
        ([SortColumn(name="day", descending=True)], 3),
        ([SortColumn(name="price", descending=True, nulls_first=True)], 4),
    ],
)
@pytest.mark.parametrize("batch_rows", [1, 2, 4, 6])
def test_other_order_is_refused(
    tmp_path: Path, columns: list[SortColumn], row: int, batch_rows: int
) -> None:
    """The first row out of order is named, whatever batch it came in, and no file is left."""
    writer = ParquetWriter(spec(tmp_path, format=ordered(*columns)), TABLE.schema, "t")

    def produce() -> None:
        for batch in TABLE.to_batches(max_chunksize=batch_rows):
            writer.write(batch)

    with pytest.raises(ValueNotRepresentable, match=rf"^row {row} is not after .*Next: "):
        produce()
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_value_without_an_order_is_refused(tmp_path: Path) -> None:
    """NaN is neither before nor behind a number."""
    table = pa.table({"f": [1.0, float("nan"), 2.0]})
    writer = ParquetWriter(spec(tmp_path, format=ordered(SortColumn(name="f"))), table.schema, "t")
    with pytest.raises(ValueNotRepresentable, match="row 2 "):
        writer.write(table.to_batches()[0])
    writer.abort()


@pytest.mark.parametrize(
    ("name", "said"), [("nope", "no column has the name 'nope'"), ("x", "no order")]
)
def test_impossible_order_is_refused(tmp_path: Path, name: str, said: str) -> None:
    """A column that is not there, or cannot be compared, is refused before a file is created."""
    with pytest.raises(FormatError, match=said):
        ParquetWriter(spec(tmp_path, format=ordered(SortColumn(name=name))), TABLE.schema, "t")
    assert not list(tmp_path.iterdir())
