"""The files of a run as an Iceberg table records them: columns, bounds, partitions, replaced files.

In a table with partitions each file must hold one value of each partition field. No row is moved
between files for that. The content of a file is read from its statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator, bind
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyparsing import ParseException

from unloader.errors import OutputFailed, UsageError
from unloader.lakehouse.table_commits import Column, Commit, check_alike, exact_type
from unloader.model import LakeTable, PartitionBy
from writers.model import SortColumn

_HINT = (
    "read one partition of the table at a time with --where, or write to a table without partitions"
)
_SUFFIXES = {"truncate": "trunc"}
"""Of the names of fields, as Iceberg's own library makes them, where they are not the word."""


def table_schema(schema: pa.Schema) -> Schema:
    """Return the schema of a table that holds such files, its fields numbered from 1."""
    fields = [
        types.NestedField(
            field_id=number, name=field.name, field_type=_type(field), required=not field.nullable
        )
        for number, field in enumerate(schema, start=1)
    ]
    return Schema(*fields)


def field_ids(schema: pa.Schema, table: Schema, name: str) -> tuple[int, ...]:
    """Return the numbers that a table has for the columns of files, in their order."""
    wanted = table_schema(schema).fields
    check_alike(map(_column, wanted), map(_column, table.fields), name)
    ids = {each.name: each.field_id for each in table.fields}
    return tuple(ids[each.name] for each in wanted)


def _column(field: types.NestedField) -> Column:
    return Column(name=field.name, kind=str(field.field_type), nullable=not field.required)


def _type(field: pa.Field) -> Any:
    if pa.types.is_fixed_size_binary(field.type):
        return types.FixedType(field.type.byte_width)
    return exact_type(
        field,
        "Iceberg",
        _TYPES,
        lambda zoned: types.TimestamptzType() if zoned else types.TimestampType(),
        types.DecimalType,
    )


_TYPES: dict[str, types.IcebergType] = {
    "bool": types.BooleanType(),
    "int8": types.IntegerType(),
    "int16": types.IntegerType(),
    "int32": types.IntegerType(),
    "int64": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "date32[day]": types.DateType(),
    "time64[us]": types.TimeType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
}


def schema_of(io: FileIO, commit: Commit) -> pa.Schema:
    """Return the columns of a run's files."""
    with io.new_input(commit.first_file()).open() as file:
        return pq.read_schema(file)


def data_files(io: FileIO, metadata: TableMetadata, commit: Commit) -> list[DataFile]:
    """Return the records of a run's files in the table; files without rows are left out."""
    found: list[Any] = []
    for file in commit.files:
        if not file.rows:
            continue
        try:
            with io.new_input(file.path).open() as opened:
                footer = pq.read_metadata(opened)
            check_file(footer, file.path, metadata, commit)
            one = parquet_file_to_data_file(io, _with_true_bounds(metadata, footer), file.path)
        except FileNotFoundError as error:
            raise _other(commit, f"{file.path} is missing") from error
        except ValueError as error:
            if metadata.spec().is_unpartitioned():
                raise
            raise several_partitions(file.path, str(error), commit) from error
        if (one.record_count, one.file_size_in_bytes) != (file.rows, file.bytes):
            raise _other(
                commit,
                f"{file.path} has {one.record_count} rows and {one.file_size_in_bytes} bytes "
                f"instead of {file.rows} and {file.bytes}",
            )
        found.append(one)
    return found


def _with_true_bounds(metadata: TableMetadata, footer: Any) -> TableMetadata:
    """Return the metadata of a table with settings that suit the bounds in a file.

    pyiceberg takes the bounds of a file from the row groups that have bounds. They do not cover the
    other row groups, which have NaN or long text. So such a column gets counts only, and so does a
    column with days outside of Python's years. A column without statistics gets nothing.

    pyiceberg also shortens an upper bound of text, and replaces its last character by the next one.
    U+D7FF has no next one in UTF-8, so such text is not shortened.
    """
    modes = {}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            found = chunk.statistics
            if found is None:
                modes[chunk.path_in_schema] = "none"
            elif found.null_count == chunk.num_values:
                continue
            elif (bounds := bounds_of(found)) is None:
                modes[chunk.path_in_schema] = "counts"
            elif isinstance(bounds[1], str) and "\ud7ff" in bounds[1]:
                modes.setdefault(chunk.path_in_schema, "full")
    changed = {f"write.metadata.metrics.column.{name}": mode for name, mode in modes.items()}
    return metadata.model_copy(update={"properties": {**metadata.properties, **changed}})


def _other(commit: Commit, what: str) -> OutputFailed:
    return OutputFailed(
        f"the files of run {commit.run_id} were changed after they were written: {what}",
        "find out which program changed them; then run again",
    )


def partition_spec(schema: Schema, fields: tuple[PartitionBy, ...]) -> PartitionSpec:
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
    """Return the sort order of a new table, which is the order of the run that creates it."""
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
    """Refuse a partition field whose value does not follow from the bounds of a file."""
    for field in spec.fields:
        column = schema.find_field(field.source_id)
        may_be_nan = isinstance(column.field_type, (types.FloatType, types.DoubleType))
        if may_be_nan or not field.transform.preserves_order:
            of = f"{field.transform} of {column.name}, {column.field_type}"
            raise OutputFailed(
                f"the table {name} is partitioned by {field.name} ({of}); the statistics of a "
                "file do not show this value, and rows are not sorted into partitions",
                "write to a table without such partitions",
            )


def check_file(footer: Any, path: str, metadata: TableMetadata, commit: Commit) -> None:
    """Refuse row groups of several partitions, where pyiceberg looks at the file's bounds alone."""
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
    """Yield the content of a column in each row group: nulls, values, both, or unknown."""
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


def check_filter(text: str, schema: Schema) -> None:
    """Check that a condition can be read, and that the table has its columns."""
    try:
        bind(schema, parse(text), case_sensitive=True)
    except (ParseException, ValueError, TypeError) as error:
        raise UsageError(
            f"--replace-where {text} is not a condition on the table: {error}",
            "write it as pyiceberg does, such as: DAY = '2026-01-31'",
        ) from error


def replaced_files(table: Table, target: LakeTable) -> list[DataFile]:
    """Return all files to replace, or those whose rows all meet a condition; rewrite none."""
    refs = table.metadata.refs
    branch = next((each for each in (target.branch, "main") if each in refs), None)
    if branch is None:
        return []
    files: list[Any] = [task.file for task in table.scan().use_ref(branch).plan_files()]
    if target.replace_where is None:
        return files
    condition = parse(target.replace_where)
    may_match = _InclusiveMetricsEvaluator(table.schema(), condition).eval
    must_match = _StrictMetricsEvaluator(table.schema(), condition).eval
    gone = [file for file in files if may_match(file)]
    mixed = [file for file in gone if not must_match(file)]
    if mixed:
        raise OutputFailed(
            f"{len(mixed)} files of {target.name} contain, or may contain, both rows that meet "
            f"--replace-where {target.replace_where} and other rows, first {mixed[0].file_path}; "
            "files are replaced as a whole",
            "choose a condition that matches whole files; or delete the rows first with an "
            "engine that rewrites files, and append",
        )
    return gone


def check_condition(files: list[DataFile], metadata: TableMetadata, commit: Commit) -> None:
    """Refuse new files with rows that may not meet the condition: those would stay for ever."""
    text = commit.table.replace_where
    if text is None:
        return
    must_match = _StrictMetricsEvaluator(metadata.schema(), parse(text)).eval
    for file in files:
        if not must_match(file):
            raise OutputFailed(
                f"{file.file_path} of run {commit.run_id} contains, or may contain, rows that do "
                f"not meet --replace-where {text}",
                "read the same rows with --where, and run again",
            )
