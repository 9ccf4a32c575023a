"""Readers find all rows with filters, in columns of every type that Arrow and Parquet have."""

from __future__ import annotations

from pathlib import Path

import pytest
from encoders.parquet_files import write
from filters import columns, readers
from long_tests import also

from writers.model import EncoderChoice, ParquetFormat

GROUPS = 24
FORMS: dict[str, ParquetFormat] = {
    "usual": ParquetFormat(row_group_rows=columns.GROUP_ROWS),
    "pages 2.0": ParquetFormat(row_group_rows=columns.GROUP_ROWS, data_page_version="2.0"),
    "no dictionary": ParquetFormat(row_group_rows=columns.GROUP_ROWS, dictionary=False),
}


@pytest.mark.parametrize(
    ("encoder", "form"),
    [
        ("native", "usual"),
        ("plain", "usual"),
        *also(
            "filters on other forms of files", ("native", "no dictionary"), ("plain", "pages 2.0")
        ),
    ],
)
def test_filters_on_every_arrow_type(tmp_path: Path, encoder: EncoderChoice, form: str) -> None:
    """DuckDB, polars and pyarrow count as many rows as there are."""
    rows = columns.table(list(columns.POOLS), GROUPS, seed=1)
    paths = write(tmp_path, rows, encoder=encoder, format=FORMS[form])
    readers.check_files([str(path) for path in paths], 10)


def test_filters_with_bloom_filters(tmp_path: Path) -> None:
    """A Bloom filter excludes no row group that has the value, for every type."""
    kinds = [kind for kind in columns.POOLS if kind.id not in columns.WITHOUT_BLOOM_FILTER]
    rows = columns.table(kinds, GROUPS, seed=2)
    form = ParquetFormat(
        row_group_rows=columns.GROUP_ROWS, bloom_filters=tuple(rows.column_names), statistics=False
    )
    paths = write(tmp_path, rows, format=form)
    readers.check_files([str(path) for path in paths], 10)
