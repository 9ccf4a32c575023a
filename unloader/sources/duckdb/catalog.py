"""The parent's side of a DuckDB file: its tables, their columns, rowids and partitions.

DuckDB keeps no partitions. A file whose tables are written partition by partition can list them in
a table `unloader_partitions` (table_schema, table_name, partition_name, position, first_rowid,
last_rowid; both rowids inclusive). The map only names ranges and is used only while it covers the
table without gap or overlap: a stale map can cost names, never rows.

Source of truth for types: DuckDB's own Arrow export, tried type by type. A type that it cannot
carry exactly (HUGEINT, INTERVAL, TIMETZ, BIT, unions, ...) is cast to DuckDB's own exact text. A
date or timestamp may be infinite: DuckDB exports it as the end of the type's range, a finite value
to Arrow. Columns that are written as text without a mask are marked for the encoder, which knows
the ends; for Parquet, and under a mask, such a value stops the unit by name.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from partition_planner.model import (
    ColumnInfo,
    PartitionInfo,
    RowExtent,
    RowRange,
    Selector,
    TableInfo,
    WholeTable,
)
from unloader import errors
from unloader.events import Observer, PhaseStarted, silent
from unloader.model import (
    Consistency,
    Extract,
    ReadColumn,
    SampledKeys,
    Snapshot,
    SourceSpec,
    TableSummary,
    ValueOptions,
)
from unloader.request.names import matching_partitions
from unloader.sources import statement as common
from unloader.sources.base import Capabilities, result_or_error
from unloader.sources.file_state import FileCatalog, database_path, header_of, state_of
from unloader.sources.readings import ColumnReadings, Mask, Reading
from unloader.sources.registry import duckdb_driver
from writers.schema import INFINITE

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_MAP = "unloader_partitions"
EXTENT = "SELECT count(*), coalesce(min(rowid), 0), coalesce(max(rowid) + 1, 0) FROM "

FILE = "read-only-file"

logger = logging.getLogger(__name__)

TABLES = (
    "SELECT schema_name, table_name, 'table', estimated_size FROM duckdb_tables() "
    "WHERE NOT internal AND database_name = current_database() UNION ALL "
    "SELECT schema_name, view_name, 'view', NULL FROM duckdb_views() "
    "WHERE NOT internal AND database_name = current_database() ORDER BY 1, 2"
)
COLUMNS = (
    "SELECT schema_name, table_name, column_name, data_type, is_nullable FROM duckdb_columns() "
    "WHERE NOT internal AND database_name = current_database(){} "
    "ORDER BY schema_name, table_name, column_index"
)
MAP = (
    "SELECT table_schema, table_name, partition_name, first_rowid, last_rowid "
    f"FROM main.{PARTITION_MAP} ORDER BY position"
)
HAS_MAP = (
    "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() "
    f"AND schema_name = 'main' AND lower(table_name) = '{PARTITION_MAP}'"
)

_Key = tuple[str, str]
_Mapped = tuple[str, int, int]


OPEN_HERE: dict[int, str] = {}
"""The files of the open catalogs of this process. DuckDB opens a file in one process with one
set of settings, so a reader beside a catalog takes the settings of the catalog."""


class DuckDBCatalog(FileCatalog):
    """The parent's connection; while it is open, other processes cannot write the file."""

    capabilities = Capabilities(
        shared_snapshot=True, snapshot_outlives_run=True, folding="any", hashes=True, samples=True
    )

    def __init__(self, spec: SourceSpec) -> None:
        self._connection, self._identity = connect(spec, {})
        self.path = database_path(spec)
        OPEN_HERE[id(self)] = self.path
        version = self.rows("SELECT library_version FROM pragma_version()")[0][0]
        self.server_version = f"DuckDB {version}"

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return _all_rows(self._connection, sql, parameters)

    def tables(self) -> tuple[TableSummary, ...]:
        mapped = self._map()
        return tuple(
            TableSummary(
                schema=schema,
                name=name,
                kind=kind,
                rows=size,
                bytes=None,
                partitions=len(mapped.get((schema, name), ())),
            )
            for schema, name, kind, size in self.rows(TABLES)
            if name != PARTITION_MAP
        )

    def plain_tables(
        self, keys: Sequence[_Key], observe: Observer = silent
    ) -> dict[_Key, TableInfo | errors.SourceError]:
        observe(PhaseStarted(phase="columns"))
        columns: dict[_Key, list[ColumnInfo]] = {}
        one = len(keys) == 1
        for schema, table, name, kind, nullable in self.rows(
            COLUMNS.format(" AND schema_name = ? AND table_name = ?" if one else ""),
            *(keys[0] if one else ()),
        ):
            column = ColumnInfo(name=name, native_type=kind, nullable=nullable)
            columns.setdefault((schema, table), []).append(column)
        observe(PhaseStarted(phase="extents"))
        mapped = self._map()
        infos: dict[_Key, TableInfo | errors.SourceError] = {}
        for key in keys:
            found = result_or_error(partial(self.rows, EXTENT + common.qualified(*key)))
            if isinstance(found, errors.SourceError):
                infos[key] = found
                continue
            count, first, last = found[0]
            extent = RowExtent(first=first, last=last)
            infos[key] = TableInfo(
                schema=key[0],
                name=key[1],
                columns=tuple(columns[key]),
                partitions=_fitting_partitions(mapped[key], ".".join(key), extent)
                if key in mapped
                else (),
                rows=count,
                extents=(extent,),
                ranges_from="rowid",
                named_partitions=False,
                row_ranges=True,
            )
        return infos

    def derived_columns(self, schema: str, name: str) -> tuple[ColumnInfo, ...]:
        return self._columns(f"SELECT * FROM {common.qualified(schema, name)}")

    def _columns(self, query: str) -> tuple[ColumnInfo, ...]:
        rows = self.rows(f"DESCRIBE {query}")
        common.check_distinct([row[0] for row in rows])
        return tuple(
            ColumnInfo(name=row[0], native_type=row[1], nullable=row[2] == "YES") for row in rows
        )

    def _map(self) -> dict[_Key, list[_Mapped]]:
        """Return the partitions that the file's map names, by table, unchecked."""
        found: dict[_Key, list[_Mapped]] = {}
        # DuckDB takes 8 ms to refuse a table that is not there: it looks for similar names.
        if self.rows(HAS_MAP)[0][0]:
            # A table of that name with other columns is not a map.
            with suppress(errors.SourceError):
                for schema, name, partition, first, last in self.rows(MAP):
                    one = (str(partition), int(first), int(last))
                    found.setdefault((schema, name), []).append(one)
        return found

    def describe_query(self, query: str) -> TableInfo:
        # Bare first, for `SELECT 1) AS a, (SELECT 2` is another query in parentheses.
        self.explain(query)
        # Bare again: as a table the query has its second `a` renamed. DuckDB ignores case in names.
        common.check_distinct([row[0].casefold() for row in self.rows(f"DESCRIBE {query}")])
        return common.query_table(self._columns(f"SELECT * FROM {common.derived_table(query)}"))

    def explain(self, sql: str) -> None:
        # DuckDB runs all statements of a text; more than one here is always a mistake.
        try:
            found = self._connection.extract_statements(sql)
        except Exception as error:
            raise translated(error) from error
        if len(found) != 1:
            raise errors.SourceError(
                "it contains more than one statement", "give one without a semicolon"
            )
        self.rows(f"EXPLAIN {sql}")

    def snapshot(self, consistency: Consistency) -> Snapshot:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Snapshot(kind=FILE, value=self._identity, taken_at=now)

    def check_snapshot(self) -> None:
        if not os.path.isfile(self.path):
            raise errors.SnapshotGone(
                f"{self.path} does not exist any more", "restore the file and run again"
            )

    def readings(
        self, table: TableInfo, query: str | None, values: ValueOptions
    ) -> tuple[ColumnReadings, ...]:
        """Return the readings under the types that DuckDB's Arrow export reports for the result."""
        import pyarrow as pa

        columns = [readings_of(column) for column in table.columns]
        items = ", ".join(each.expression for column in columns for each in column.readings)
        read_from = common.qualified(table.schema, table.name)
        if query:
            read_from = common.derived_table(query)
        try:
            nothing = self._connection.sql(common.select(items, read_from, ["false"]))
        except Exception as error:
            raise translated(error) from error
        kinds, found = iter(nothing.to_arrow_reader(1).schema.types), []
        for column in columns:
            typed = []
            for reading in column.readings:
                kind = next(kinds)
                if pa.types.is_timestamp(kind) and kind.tz:
                    kind = pa.timestamp(kind.unit, "UTC")
                typed.append(replace(reading, output_type=str(kind), arrow_type=kind))
            found.append(replace(column, readings=tuple(typed)))
        return tuple(found)

    def sampled_keys(self, column: ColumnInfo, share: float) -> SampledKeys | None:
        value, kind = common.quoted(column.name), column.native_type
        text = f"CAST({value} AS VARCHAR)"
        if kind == "VARCHAR":
            text = value
        elif kind == "BLOB":
            text = f"lower(hex({value}))"
        elif match := _DECIMAL.fullmatch(kind):
            text = decimal_text(text, int(match[1]), int(match[2]))
        elif not (kind == "UUID" or kind.startswith("ENUM(") or re.fullmatch(_INTEGERS, kind)):
            return None
        condition = f"sha256(nullif({text}, '')) < {common.literal(common.below(share))}"
        return SampledKeys(column=column.name, share=share, text=text, condition=condition)

    def statement(self, extract: Extract, selector: Selector) -> str:
        return selector_statement(common.select_list(extract.projection.columns), extract, selector)

    def count_statement(self, extract: Extract, selector: Selector) -> str:
        return selector_statement("count(*)", extract, selector)

    def count(self, extract: Extract) -> int:
        """Return the rows asked for: by partition, where some were, as the file maps them now."""
        conditions = common.row_conditions(extract)
        if extract.partitions:
            key = (extract.table.schema or "main", extract.table.name)
            ranges = self._map().get(key, [])
            asked = matching_partitions((name for name, _, _ in ranges), extract.partitions)
            wanted = [
                f"rowid BETWEEN {first} AND {last}" for name, first, last in ranges if name in asked
            ]
            conditions.append(f"({' OR '.join(wanted) or 'false'})")
        counted = self.rows(
            common.select_count(common.relation_of(extract), conditions, extract.limit_rows)
        )
        return int(counted[0][0])

    def unhashed(self, extract: Extract) -> Mapping[int, str]:
        return HASHING.unhashed(extract)

    def open_hasher(self, extract: Extract) -> common.Hasher:
        """Open another connection to the same open file; DuckDB uses all cores."""
        connection = self._connection.cursor()
        return common.Hasher(
            hashing=HASHING,
            rows=partial(_all_rows, connection),
            cancel=connection.interrupt,
            close=connection.close,
        )

    def cancel(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()
        OPEN_HERE.pop(id(self), None)


def _all_rows(
    connection: Any, sql: str, parameters: Sequence[object] = ()
) -> list[tuple[Any, ...]]:
    try:
        return list(connection.execute(sql, list(parameters)).fetchall())
    except Exception as error:
        raise translated(error) from error


def _fitting_partitions(
    found: list[_Mapped], label: str, extent: RowExtent
) -> tuple[PartitionInfo, ...]:
    """Return a table's partitions in the map, in order; none if the map does not fit the table."""
    expected, flaw = 0, ""
    for partition, first, last in found:
        if first != expected or last < first - 1:
            flaw = f"has a gap or an overlap at {partition}"
            break
        expected = last + 1
    if not flaw and extent.addresses and (extent.first < 0 or extent.last > expected):
        flaw = f"ends at rowid {expected - 1} but the table ends at {extent.last - 1}"
    if flaw:
        logger.warning("the partition map of %s %s, so it is ignored", label, flaw)
        return ()
    return tuple(
        PartitionInfo(
            name=partition,
            position=position,
            rows=last + 1 - first,
            extents=(RowExtent(first=first, last=last + 1),),
        )
        for position, (partition, first, last) in enumerate(found)
    )


def selector_statement(columns: str, extract: Extract, selector: Selector) -> str:
    conditions: list[str] = []
    if isinstance(selector, RowRange):
        if selector.first is not None:
            conditions.append(f"rowid >= {selector.first}")
        if selector.last is not None:
            conditions.append(f"rowid < {selector.last}")
    else:
        assert isinstance(selector, WholeTable), "the source describes only these kinds"
    conditions += common.row_conditions(extract)
    return common.select(columns, common.relation_of(extract), conditions) + common.limit_clause(
        extract.limit_rows
    )


_ARROW_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")


def _hashed_text(column: ReadColumn, text_class: str) -> str | None:
    kind, value = column.output_type, column.expression
    shown = f"CAST({value} AS VARCHAR)"
    if kind in ("string", "bool", "time64[us]") or re.fullmatch(r"u?int\d+", kind):
        return shown
    if kind == "binary":
        return value
    if kind in ("float", "double"):
        bits = f"lower(hex(CAST(CAST({value} AS BIT) AS BLOB)))"
        return f"CASE WHEN isnan({value}) THEN 'NaN' ELSE {bits} END"
    if match := _ARROW_DECIMAL.fullmatch(kind):
        return decimal_text(shown, int(match[1]), int(match[2]))
    if kind == "date32[day]":
        return f"replace({shown}, ' (BC)', ' BC')"
    if kind.startswith("timestamp["):
        # The offset comes before the era; the connection is in UTC.
        if "tz=" in kind:
            shown = f"regexp_replace({shown}, '[+]00$', '+00:00')"
        return (
            f"CASE WHEN contains({shown}, ' (BC)') THEN replace({shown}, ' (BC)', '') || ' BC' "
            f"ELSE {shown} END"
        )
    return None


def decimal_text(shown: str, precision: int, scale: int) -> str:
    """Return SQL for the digits of a decimal without zeros at the end, from its text."""
    if not scale:
        return shown
    trimmed = f"rtrim(rtrim({shown}, '0'), '.')"
    if scale < precision:
        return trimmed
    # Such a number comes without a digit before the point.
    return f"CASE WHEN {trimmed} IN ('', '-') THEN '0' ELSE replace({trimmed}, '.', '0.') END"


HASHING = common.Hashing(
    text=_hashed_text,
    sum="sum(CAST('0x' || left(md5({}), 16) AS UBIGINT))",
    statement=selector_statement,
)


_INTEGERS = r"U?(?:TINY|SMALL|BIG|HUGE)?INT|U?INTEGER"
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
LOGS = ".wal*"
"""Beside the file, with the last commits if a writer was killed or prevents the checkpoint."""

HEADER_BYTES = 3 * 4096
"""A DuckDB file begins with three header blocks. The first never changes. Each checkpoint writes
one of the other two, with a number that increases."""

OLDEST_VERSION = 2
"""The oldest major version of DuckDB whose processes can sort on disk in one directory. Tried with
1.4.0 and 1.5.0, where some of three processes failed, and 2.0.1."""

SQLITE = b"SQLite format 3\0"


def connect(
    spec: SourceSpec, config: dict[str, str], read_header: Callable[[str, int], bytes] = header_of
) -> tuple[Any, str]:
    """Open the file with settings of DuckDB; return the connection and the `state_of` the file.

    `ConfigError` where DuckDB is missing, or the file is another database's; `SourceError` where
    DuckDB refuses.
    """
    duckdb = duckdb_driver()
    if int(duckdb.__version__.partition(".")[0]) < OLDEST_VERSION:
        # Temporary files of its older versions have the same names in all processes, so that
        # workers overwrote each other's.
        raise errors.ConfigError(
            f"DuckDB {duckdb.__version__} is installed, and at least {OLDEST_VERSION}.0 is needed",
            "pip install 'unloader[duckdb]'",
        )
    path = Path(database_path(spec))
    if os.fsencode(path).decode(errors="replace") != str(path):
        raise errors.SourceError(
            f"the path in {spec.location} is not UTF-8, and DuckDB opens only UTF-8 paths",
            "rename the file",
        )
    header = read_header(str(path), HEADER_BYTES)
    if header.startswith(SQLITE):
        raise errors.ConfigError(f"{path} is a SQLite file", f"write sqlite://{path}")
    # Nothing is to be fetched from the network, an extension for another kind of file included.
    config = {**config, "autoinstall_known_extensions": "false"}
    try:
        connection = duckdb.connect(str(path), read_only=True, config=config)
    except duckdb.Error as error:
        if "lock" in str(error).lower():
            raise errors.TransientSourceError(
                f"another process has {path} open for writing: {first_line(error)}",
                "run again when that process has closed it",
            ) from error
        raise errors.SourceError(
            f"cannot open {path}: {first_line(error)}",
            "check the path in the URL, and check that this user may read the file",
        ) from error
    # Zones of TIMESTAMPTZ must not follow the environment of a worker.
    with suppress(duckdb.Error):
        connection.execute("SET TimeZone = 'UTC'")
    return connection, state_of(str(path), header, LOGS)


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


_OF_VALUES = ("Conversion Error: ", "Invalid Input Error: ", "Out of Range Error: ")
"""Errors of expressions on values. Among the rows the text alone has the kind of the error."""


def translated(error: Exception) -> errors.UnloaderError:
    """Return the user's error for an error of DuckDB; an `UnloaderError` is returned unchanged."""
    if isinstance(error, errors.UnloaderError):
        return error
    text = first_line(error)
    if name := refused_column(text):
        return refusal([name])
    if is_out_of_memory(error):
        return errors.SourceError(f"DuckDB ran out of memory: {text}", "lower --parallelism")
    if any(kind in text for kind in _OF_VALUES):
        return errors.ValueRefused(f"DuckDB: {text}")
    hint = ""
    if "max_temp_directory_size" in text or "No space left" in text:
        hint = "free space on the disk of the database file, where DuckDB keeps temporary files"
    return errors.SourceError(f"DuckDB: {text}", hint)


def is_out_of_memory(error: Exception) -> bool:
    # Among the rows it comes through Arrow, as an OSError.
    return type(error).__name__ == "OutOfMemoryException" or "Out of Memory Error" in str(error)


REFUSED = "unloader refuses "

_PLAIN = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "TIME",
}  # fmt: skip
_INSTANTS = {
    "DATE": "",
    "TIMESTAMP": "",
    "TIMESTAMP WITH TIME ZONE": "",
    "TIMESTAMP_NS": "",
    "TIMESTAMP_S": "::TIMESTAMP",
    "TIMESTAMP_MS": "::TIMESTAMP",
}
"""Types that may be infinite, and the exact cast to microseconds where one is needed."""
_MASKS: dict[str, Mask] = {
    kind: "timestamp_tz" if kind.endswith("TIME ZONE") else "timestamp" for kind in _INSTANTS
} | {"DATE": "date"}
_TEXT_NOTES = {
    "HUGEINT": "wider than decimal(38): exact text",
    "UHUGEINT": "wider than decimal(38): exact text",
    "INTERVAL": "months, days and microseconds: exact text",
    "TIME WITH TIME ZONE": "keeps its offset: exact text",
    "UUID": "canonical text",
    "JSON": "text as stored",
}
_INEXACT_INSIDE = re.compile(
    r"HUGEINT|INTERVAL|TIME WITH TIME ZONE|\bBIT\b|UNION|DATE|TIMESTAMP|BIGNUM|VARINT|VARIANT"
    r"|GEOMETRY|ENUM|UUID|JSON|\[\d+\]"
)


def readings_of(column: ColumnInfo) -> ColumnReadings:
    """Return how a column can be read; the catalog fills in `output_type`."""
    name, kind = common.quoted(column.name), column.native_type
    metadata = (("source_type", kind),)
    unquoted = re.sub("'[^']*'|\"[^\"]*\"", "", kind)
    as_text = Reading(
        expression=f"CAST({name} AS VARCHAR)",
        output_type="",
        as_text=True,
        # Two values of a UNION have one text: 1 and '1'.
        lossless=not re.search(r"\b(UNION\(|VARIANT\b)", unquoted),
        note="exact text, as requested",
        metadata=metadata,
    )
    usual = replace(as_text, as_text=False)
    if kind in _INSTANTS:
        value, message = name + _INSTANTS[kind], common.literal(REFUSED + column.name)
        finite = (
            f"CASE WHEN isfinite({name}) THEN {value} "
            f"WHEN {name} IS NOT NULL THEN error({message}) END"
        )
        # One reading has infinite values, which only text can show; the other one stops there.
        infinite = (*metadata, *INFINITE.items())
        shown = replace(usual, expression=value, lossless=True, note="")
        readings = [
            replace(shown, serves=frozenset(("text",)), metadata=infinite),
            replace(shown, expression=finite, serves=frozenset(("parquet", "masked"))),
        ]
    else:
        nested = kind.endswith("]") or kind.startswith(("STRUCT(", "MAP("))
        if (
            kind in _PLAIN
            or _DECIMAL.fullmatch(kind)
            or (nested and not _INEXACT_INSIDE.search(kind))
        ):
            readings = [replace(usual, expression=name, lossless=True, note="")]
        else:
            note = _TEXT_NOTES.get(kind, "exact text")
            if not as_text.lossless:
                note = (
                    "text without the type of each value: the number 1 and the text '1' are "
                    "written the same"
                )
            readings = [replace(usual, note=note)]
    return ColumnReadings(
        name=column.name,
        source_type=kind,
        nullable=column.nullable,
        readings=(*readings, as_text),
        mask=_MASKS.get(kind),
    )


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch under the run's schema; only names of zones and metadata may differ."""
    import pyarrow as pa

    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def refusal(names: Sequence[str]) -> errors.OutputFailed:
    columns, them = (f"column {names[0]} holds", "the column")
    if len(names) > 1:
        columns, them = f"columns {', '.join(names)} hold", "the columns"
    listed = ",".join(names)
    return errors.OutputFailed(
        f"{columns} an infinite date or timestamp, which neither Parquet nor a date mask can show",
        f"write {them} as exact text with --as-text {listed}, or leave {them} out with --exclude "
        f"{listed}",
    )


def refused_column(text: str) -> str:
    """Return the column that a guard of ours names in an error text, empty if none does."""
    return text.partition(REFUSED)[2].strip()
