"""Options on the layout of Parquet files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from unloader.request.options.kinds import COUNT, FLAG, NAMES, ORDER, SIZE_FROM_1, Choice
from unloader.request.options.option import READING, Option
from unloader.request.options.output import FORMAT
from unloader.request.settings import parse_order
from writers.model import ParquetFormat, SortColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

_parquet = partial(
    Option,
    section="Parquet",
    commands=READING,
    effect="changes",
    scope="route",
    formats=("parquet",),
    owner=ParquetFormat,
)


def _sort_columns(items: Sequence[str]) -> tuple[SortColumn, ...]:
    return tuple(SortColumn(**parse_order(item)) for item in items)


OPTIONS = (
    _parquet(
        name="row-group-rows",
        kind=COUNT,
        field=f"{FORMAT}.row_group_rows",
        help="Maximum number of rows in a row group.",
        example="500k",
    ),
    _parquet(
        name="row-group-bytes",
        kind=SIZE_FROM_1,
        field=f"{FORMAT}.row_group_bytes",
        help="Size in memory at which a row group ends, in bytes.",
        example="64MiB",
    ),
    _parquet(
        name="parquet-version",
        kind=Choice("1.0", "2.4", "2.6"),
        field=f"{FORMAT}.version",
        help="Version of the format. It decides which types can be used.",
        example="2.4",
    ),
    _parquet(
        name="data-page-version",
        kind=Choice("1.0", "2.0"),
        field=f"{FORMAT}.data_page_version",
        help="Version of the data pages. All readers support 1.0.",
        example="2.0",
    ),
    _parquet(
        name="dictionary",
        kind=FLAG,
        opposite=True,
        field=f"{FORMAT}.dictionary",
        help="Write dictionary pages for columns whose values repeat.",
    ),
    _parquet(
        name="statistics",
        kind=FLAG,
        opposite=True,
        field=f"{FORMAT}.statistics",
        help="Write the minimum and maximum of each column, for each row group and page.",
    ),
    _parquet(
        name="byte-stream-split",
        kind=FLAG,
        opposite=True,
        field=f"{FORMAT}.byte_stream_split",
        help=(
            "Store floating-point numbers byte by byte. Store other numbers in this way where the "
            "file becomes smaller. Spark 3 and 4.0 cannot read that."
        ),
    ),
    _parquet(
        name="bloom-filter",
        kind=NAMES,
        multiple=True,
        field=f"{FORMAT}.bloom_filters",
        help=(
            "Write a Bloom filter for these columns. This needs pyarrow 24. Separate several with "
            "commas, or repeat the option."
        ),
        example="ID",
    ),
    _parquet(
        name="sorted-by",
        kind=ORDER,
        multiple=True,
        field=f"{FORMAT}.sorted_by",
        shape=_sort_columns,
        help=(
            "Order of the rows in each file, such as DAY,ID desc. The file records it. If the rows "
            "come in another order, the run fails. Separate several with commas, or repeat the "
            "option."
        ),
        example="'DAY,ID desc'",
    ),
)
