"""Tables as DuckDB tables, for the conditions and queries that Oracle's grammar makes too rich.

Types are as near as DuckDB has them. Row n has the number n in `$ORDINAL` and its address in
`$ROWID`; the order is the physical one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from itertools import islice
from threading import RLock
from typing import Any

import duckdb
import pyarrow as pa

from oracle_server.data.moments import in_utc, nanos_of
from oracle_server.data.tables import Row
from oracle_server.model import Column, DaySecond, Moment, Type, YearMonth
from oracle_server.sql.expressions.conversions import json_text, vector_text

ORDINAL = "$ORDINAL"
ROWID_COLUMN = "ROWID"
_EPOCH_DAY_NANOS = 2_440_588 * 86_400 * 10**9
_KEPT = 24
_BATCH_ROWS = 50_000


class Shadows:
    """The DuckDB database; tables are made when they are first wanted and the oldest dropped."""

    def __init__(self) -> None:
        """Open an empty one in memory, when it is first used."""
        self.lock = RLock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._names: OrderedDict[tuple[Any, ...], str] = OrderedDict()
        self._numbers = 0

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection; use it with `lock` held."""
        if self._connection is None:
            self._connection = duckdb.connect(":memory:")
            self._connection.execute("SET threads = 2")
            self._connection.execute("SET TimeZone = 'UTC'")
            for statement in _MACROS:
                self._connection.execute(statement)
        return self._connection

    def name_of(
        self,
        key: tuple[Any, ...],
        columns: tuple[Column, ...],
        rows: Callable[[], Iterable[Row]],
        *,
        addressed: bool,
    ) -> str:
        """Return the name of the DuckDB table with these rows, making it if the key is new.

        Args:
            key: What the rows are known by.
            columns: Their columns.
            rows: Makes them.
            addressed: Whether the rows have an address behind the columns' values.
        """
        with self.lock:
            if key in self._names:
                self._names.move_to_end(key)
                return self._names[key]
            self._numbers += 1
            name = f"$shadow_{self._numbers}"
            self._make(name, columns, rows(), addressed)
            self._names[key] = name
            while len(self._names) > _KEPT:
                _, oldest = self._names.popitem(last=False)
                self.connection.execute(f'DROP TABLE "{oldest}"')
            return name

    def _make(
        self, name: str, columns: tuple[Column, ...], rows: Iterable[Row], addressed: bool
    ) -> None:
        kept = list(columns)
        if addressed:
            kept.append(Column(name=ROWID_COLUMN, type=Type(name="VARCHAR2")))
        stored = list(rows) if _needs_all(columns) else rows
        forms = [
            _form(column.type, stored if isinstance(stored, list) else (), index)
            for index, column in enumerate(kept)
        ]
        described = ", ".join(
            f'"{column.name}" {form[0]}' for column, form in zip(kept, forms, strict=True)
        )
        connection = self.connection
        connection.execute(f'CREATE TABLE "{name}" ("{ORDINAL}" BIGINT, {described})')
        start, source = 0, iter(stored)
        while batch := list(islice(source, _BATCH_ROWS)):
            arrays = [pa.array(range(start, start + len(batch)), pa.int64())]
            for index, (_, arrow, convert) in enumerate(forms):
                values = [None if row[index] is None else convert(row[index]) for row in batch]
                arrays.append(pa.array(values, arrow))
            table = pa.Table.from_arrays(arrays, names=[f"c{n}" for n in range(len(arrays))])
            connection.register("$batch", table)
            connection.execute(f'INSERT INTO "{name}" SELECT * FROM "$batch"')
            connection.unregister("$batch")
            start += len(batch)


def _needs_all(columns: tuple[Column, ...]) -> bool:
    """Return whether a column's DuckDB type follows from its values."""
    return any(c.type.name in ("NUMBER", "FLOAT") and _decimal(c.type) is None for c in columns)


def _decimal(kind: Type) -> tuple[int, int] | None:
    """Return precision and scale in DuckDB of a NUMBER; None if the type does not say."""
    if kind.name != "NUMBER" or kind.precision is None:
        return None
    scale = kind.scale or 0
    if scale < 0:
        precision, scale = kind.precision - scale, 0
    else:
        precision = max(kind.precision, scale)
    return (precision, scale) if precision <= 38 else None


Form = tuple[str, Any, Callable[[Any], Any]]


def _form(kind: Type, rows: Iterable[Row], index: int) -> Form:
    """Return the DuckDB type, the Arrow type and the conversion for a column."""
    name = kind.name
    if name in ("NUMBER", "FLOAT"):
        return _number_form(kind, rows, index)
    if name in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return "DOUBLE", pa.float64(), float
    if name == "DATE" or name == "TIMESTAMP":
        return "TIMESTAMP", pa.timestamp("us"), _micros
    if name == "TIMESTAMP WITH LOCAL TIME ZONE":
        return "TIMESTAMPTZ", pa.timestamp("us", "UTC"), _micros
    if name == "TIMESTAMP WITH TIME ZONE":
        return "TIMESTAMPTZ", pa.timestamp("us", "UTC"), lambda m: _micros(in_utc(m))
    if name == "INTERVAL DAY TO SECOND":
        return "INTERVAL", pa.duration("us"), _interval_micros
    if name == "INTERVAL YEAR TO MONTH":
        return "BIGINT", pa.int64(), lambda v: v.months
    if name in ("RAW", "LONG RAW"):
        return "BLOB", pa.binary(), bytes
    if name == "BLOB":
        return "BLOB", pa.binary(), lambda v: v if isinstance(v, bytes) else v.read(0, 4000)
    if name == "BOOLEAN":
        return "BOOLEAN", pa.bool_(), bool
    return "VARCHAR", pa.string(), _text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if hasattr(value, "read"):
        return str(value.read(0, 4000))
    if isinstance(value, (dict, list)):
        return json_text(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return vector_text(value, "FLOAT64")
    return str(value)


def _micros(moment: Moment) -> int:
    return (nanos_of(moment) - _EPOCH_DAY_NANOS) // 1000


def _interval_micros(value: DaySecond) -> int:
    """Return microseconds; DuckDB has no more than 64 bits of them."""
    return min(max(value.nanos // 1000, -(2**62)), 2**62)


def _number_form(kind: Type, rows: Iterable[Row], index: int) -> Form:
    fixed = _decimal(kind)
    if fixed is None:
        fixed = _widest(row[index] for row in rows)
    if fixed is None:
        return "DOUBLE", pa.float64(), float
    precision, scale = fixed
    arrow = pa.decimal128(precision, scale)
    return f"DECIMAL({precision}, {scale})", arrow, Decimal


def _widest(values: Iterable[Any]) -> tuple[int, int] | None:
    """Return a precision and scale that hold all of the values, None if 38 digits do not."""
    whole = scale = 0
    for value in values:
        if value is None:
            continue
        exact = Decimal(value)
        exponent = exact.as_tuple().exponent
        assert isinstance(exponent, int)
        scale = max(scale, -exponent)
        whole = max(whole, exact.adjusted() + 1)
    return (38, scale) if whole + scale <= 38 else None


def from_duckdb(value: Any) -> Any:
    """Return a value that DuckDB gave in the form of ours."""
    if isinstance(value, datetime):
        zone = None if value.tzinfo is None else "+00:00"
        fields = (value.year, value.month, value.day, value.hour, value.minute, value.second)
        return Moment(*fields, value.microsecond * 1000, zone)
    if hasattr(value, "isoformat") and hasattr(value, "year"):
        return Moment(value.year, value.month, value.day)
    if hasattr(value, "total_seconds"):
        micros = (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds
        return DaySecond(micros * 1000)
    if isinstance(value, str) and not value:
        return None
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    return value


def shaped(value: Any, kind: Type) -> Any:
    """Return a value in the form that a column's type wants."""
    if value is None:
        return None
    if kind.name == "INTERVAL YEAR TO MONTH" and isinstance(value, int):
        return YearMonth(value)
    if kind.name in ("NUMBER", "FLOAT") and isinstance(value, float):
        return Decimal(repr(value))
    if kind.name == "TIMESTAMP WITH LOCAL TIME ZONE":
        return value._replace(zone=None)
    return value


_MACROS = (
    "CREATE MACRO nvl(a, b) AS coalesce(a, b)",
    "CREATE MACRO nvl2(a, b, c) AS CASE WHEN a IS NOT NULL THEN b ELSE c END",
    "CREATE MACRO to_number(a) AS a::DECIMAL(38, 10)",
    "CREATE MACRO rowidtochar(a) AS a",
    "CREATE MACRO chartorowid(a) AS a",
    "CREATE MACRO regexp_like(a, b) AS regexp_matches(a, b)",
    "CREATE MACRO instr2(a, b) AS instr(a, b)",
    "CREATE MACRO bitand(a, b) AS a::BIGINT & b::BIGINT",
    "CREATE MACRO add_months(a, b) AS a + to_months(b::INTEGER)",
    "CREATE MACRO rawtohex(a) AS hex(a)",
    "CREATE MACRO ora_hash(a, b) AS hash(a) % (b + 1)",
)
