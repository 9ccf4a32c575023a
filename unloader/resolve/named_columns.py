"""The columns that Parquet options name, as the run's own: found as `--columns` finds them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from unloader.errors import UsageError
from unloader.model import Projection
from unloader.request.names import Folding, one_column
from writers.model import ParquetFormat


def named_columns(
    parquet: ParquetFormat, projection: Projection, folding: Folding
) -> ParquetFormat:
    """Return the layout with the names of its columns as the database writes them.

    Raises:
        UsageError: There is no such column, it may be several, or one is named twice.
    """
    if not (parquet.bloom_filters or parquet.sorted_by):
        return parquet
    names = [column.name for column in projection.columns]
    blooms = tuple(one_column(names, name, folding) for name in parquet.bloom_filters)
    order = tuple(
        replace(column, name=one_column(names, column.name, folding))
        for column in parquet.sorted_by
    )
    _check_once("--bloom-filter", blooms)
    _check_once("--sorted-by", (column.name for column in order))
    return replace(parquet, bloom_filters=blooms, sorted_by=order)


def _check_once(option: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{option} names {name!r} twice", "name each column once")
        seen.add(name)
