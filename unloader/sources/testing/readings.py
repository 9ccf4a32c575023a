"""Whether a source says of each column how every output can read it; part of its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unloader.model import ValueOptions
from unloader.sources.projection import encodes_of
from unloader.sources.readings import ENCODED_TYPE, ColumnReadings, Use
from unloader.sources.testing.rows import ensure

if TYPE_CHECKING:
    from partition_planner.model import TableInfo
    from unloader.sources.base import Catalog


def check_readings(catalog: Catalog, table: TableInfo) -> None:
    """Check that each column of a table has a reading for every use, asked for as text or not."""
    found = catalog.readings(table, None, ValueOptions())
    columns = tuple(column for column in found if not column.beside)
    names = [column.name for column in table.columns]
    ensure(
        [column.name for column in columns] == names,
        f"readings are given of {[column.name for column in columns]}, not of {names}",
    )
    uses: tuple[Use, ...] = ("parquet", "text", *(("masked",) if _has_mask(columns) else ()))
    if encodes_of(catalog) is not None:
        uses += ("encoded",)
    for column in columns:
        for use in uses:
            for asked in (False, True):
                _check_served(column, use, asked=asked)
        for reading in column.readings:
            ensure(
                (reading.output_type == ENCODED_TYPE) == (reading.serves == {"encoded"}),
                f"a reading of column {column.name} is rendered text or Arrow, not both",
            )


def _has_mask(columns: tuple[ColumnReadings, ...]) -> bool:
    return any(column.mask for column in columns)


def _check_served(column: ColumnReadings, use: Use, *, asked: bool) -> None:
    served = any(
        use in reading.serves and reading.as_text in (None, asked) for reading in column.readings
    )
    ensure(
        served or (use == "masked" and column.mask is None),
        f"column {column.name} has no reading for {use}, {'' if asked else 'not '}asked for as "
        "exact text",
    )
