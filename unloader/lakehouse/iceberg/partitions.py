"""Tables that are partitioned: each file must hold one value of each partition field.

No row is moved between files for that. What a file holds is read from its statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from unloader.errors import OutputFailed, UsageError

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.sorting import SortOrder

    from unloader.lakehouse.model import Commit
    from unloader.model import PartitionBy
    from writers.model import SortColumn

_HINT = (
    "read one partition of the table at a time with --where, or write to a table without partitions"
)
_SUFFIXES = {"truncate": "trunc"}
"""Of the names of fields, as Iceberg's own library makes them, where they are not the word."""


def partition_spec(schema: Schema, fields: tuple[PartitionBy, ...]) -> PartitionSpec:
    """Return the partitions of a table that is made.

    Args:
        schema: Of the table, which has all columns that the fields name.
        fields: What is asked for.

    Raises:
        UsageError: A column has no such value, or a field's name is taken.
    """
    from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
    from pyiceberg.transforms import parse_transform

    found: list[PartitionField] = []
    taken = {each.name for each in schema.fields}
    for each in fields:
        column = schema.find_field(each.column)
        transform: Any = parse_transform(each.transform)
        if not transform.can_transform(column.field_type):
            raise UsageError(
                f"--partition-by: the transform {each.transform} does not exist for column "
                f"{each.column!r}, which is {column.field_type}",
                "choose another column, or the column without a transform",
            )
        word = each.transform.partition("[")[0]
        plain = word == "identity"
        name = each.column if plain else f"{each.column}_{_SUFFIXES.get(word, word)}"
        if (name in taken) != plain:
            raise UsageError(
                f"--partition-by: two fields would have the name {name!r}",
                "name each field once; give a column with that name another name in a --query",
            )
        taken ^= {name}
        number = PARTITION_FIELD_ID_START + len(found)
        found.append(PartitionField(column.field_id, number, transform, name))
    return PartitionSpec(*found, spec_id=0)


def sort_order(schema: Schema, columns: tuple[SortColumn, ...]) -> SortOrder:
    """Return the order that a table asks of its files: that of the run which makes it."""
    from pyiceberg.table.sorting import (
        UNSORTED_SORT_ORDER,
        NullOrder,
        SortDirection,
        SortField,
        SortOrder,
    )
    from pyiceberg.transforms import IdentityTransform

    if not columns:
        return UNSORTED_SORT_ORDER
    fields = [
        SortField(
            source_id=schema.find_field(each.name).field_id,
            transform=IdentityTransform(),
            direction=SortDirection.DESC if each.descending else SortDirection.ASC,
            null_order=NullOrder.NULLS_FIRST if each.nulls_first else NullOrder.NULLS_LAST,
        )
        for each in columns
    ]
    return SortOrder(*fields, order_id=1)


def check_spec(spec: PartitionSpec, schema: Schema, name: str) -> None:
    """Refuse a partition field of which the ends of a range do not tell the value.

    Raises:
        OutputFailed: There is one: a bucket, or a number among which NaN may be.
    """
    from pyiceberg.types import DoubleType, FloatType

    for field in spec.fields:
        column = schema.find_field(field.source_id)
        may_be_nan = isinstance(column.field_type, (FloatType, DoubleType))
        if may_be_nan or not field.transform.preserves_order:
            of = f"{field.transform} of {column.name}, {column.field_type}"
            raise OutputFailed(
                f"the table {name} is partitioned by {field.name} ({of}); the statistics of a "
                "file do not show this value, and rows are not sorted into partitions",
                "write to a table without such partitions",
            )


def check_file(footer: Any, path: str, metadata: TableMetadata, commit: Commit) -> None:
    """Refuse a file of which it is not certain that all its rows are in one partition.

    pyiceberg compares the partitions of the lowest and of the highest value. This function makes
    sure that every row group has these values, or that all values are null.

    Args:
        footer: Of the file, as pyarrow has it.
        path: Of the file.
        metadata: Of the table.
        commit: For messages.

    Raises:
        OutputFailed: It has nulls and values, or lacks statistics.
    """
    spec, schema = metadata.spec(), metadata.schema()
    if spec.is_unpartitioned():
        return
    for field in spec.fields:
        column = schema.find_column_name(field.source_id)
        kinds = set(_kinds(footer, column))
        if kinds not in ({"nulls"}, {"values"}):
            what = (
                "not complete in its statistics" if "unknown" in kinds else "both null and not null"
            )
            raise several_partitions(path, f"values of {column} are {what}", commit)
        mode = metadata.properties.get(
            f"write.metadata.metrics.column.{column}",
            metadata.properties.get("write.metadata.metrics.default", ""),
        )
        if kinds == {"values"} and mode.lower() in ("none", "counts"):
            raise OutputFailed(
                f"the table {commit.table.name} is partitioned by {column} but keeps no bounds "
                f"of this column (write.metadata.metrics: {mode}), so the partition of a file is "
                "unknown",
                f"set the property of the table: write.metadata.metrics.column.{column} = full",
            )


def several_partitions(path: str, what: str, commit: Commit) -> OutputFailed:
    """Return the refusal of a file whose rows are not in one partition, or may not be."""
    return OutputFailed(
        f"{path} contains rows of several partitions ({what}); run {commit.run_id} committed "
        f"nothing to {commit.table.name}",
        _HINT,
    )


def bounds_of(statistics: Any) -> tuple[Any, Any] | None:
    """Return the bounds of a column chunk; None if missing or outside of Python's years."""
    try:
        return (statistics.min, statistics.max) if statistics.has_min_max else None
    except (OverflowError, ValueError):
        return None


def _kinds(footer: Any, column: str | None) -> Iterator[str]:
    """Yield of each part of a file what it has of a column: nulls, values, or not known."""
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for at in range(group.num_columns):
            chunk = group.column(at)
            if chunk.path_in_schema != column:
                continue
            told = chunk.statistics
            if told is None or not told.has_null_count:
                yield "unknown"
            elif told.null_count == group.num_rows:
                yield "nulls"
            elif told.null_count == 0 and bounds_of(told) is not None:
                yield "values"
            else:
                yield "both" if told.null_count else "unknown"
