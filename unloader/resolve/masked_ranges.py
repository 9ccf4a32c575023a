"""Where a table may be cut into work units, if columns of it are masked.

The ends of some ranges are values of a column: those of keys, and the rowids of a SQLite table
whose key they are. They stand in plans, in the record of the run and in SQL, so a table is not cut
by values that the output is not to show.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from partition_planner.model import KeySample, TableInfo
from unloader.errors import PlanFailed
from unloader.sources.abilities import address_column

if TYPE_CHECKING:
    from unloader.resolve.outputs.transforming import ResolvedTransform
    from unloader.sources.base import Catalog


def without_masked_ranges(
    table: TableInfo,
    catalog: Catalog,
    transforms: Iterable[ResolvedTransform | None],
    split: str = "auto",
) -> TableInfo:
    """Return a table without the ranges whose ends are values that some output masks or leaves out.

    Args:
        table: As it was described.
        catalog: That has described it.
        transforms: Of each output; None where its columns are written as they are read.
        split: How the table is to be cut.

    Raises:
        PlanFailed: It is to be cut into ranges, and can only be by such values.
    """
    masking = [each for each in transforms if each is not None and each.options.masked_columns]
    if not masking:
        return table
    clear = [
        {column.source for column in each.columns if column.masked is None} for each in masking
    ]
    shown = set.intersection(*clear)
    column = address_column(catalog, table) if table.extents else None
    samples = [table.keys, *(each.keys for each in table.partitions)]
    hidden = {keys.column for keys in samples if keys is not None} - shown
    if column is not None and column not in shown:
        hidden.add(column)
    if not hidden:
        return table
    if split == "range":
        raise PlanFailed(
            f"{table.label} can only be divided by values of column {min(hidden)}; a plan may "
            "not show these values, because the column is masked or not written",
            "run with --split auto",
        )
    parts = tuple(replace(each, keys=_kept(each.keys, shown)) for each in table.partitions)
    return replace(
        table,
        extents=() if column in hidden else table.extents,
        keys=_kept(table.keys, shown),
        partitions=parts,
    )


def _kept(keys: KeySample | None, shown: set[str]) -> KeySample | None:
    return keys if keys is not None and keys.column in shown else None
