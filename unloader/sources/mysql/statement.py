"""Types of MySQL, each read so that no value changes, and the statements that read them.

The server sends every value as its exact text. For text outputs a batch carries this text. Parquet,
and a date under a mask, need the value, which Arrow parses from the text. A value that the Arrow
type cannot hold, such as the date 0000-00-00, is refused by name.

The server rounds the text of a FLOAT to six digits, and of a DOUBLE(M,D) to D places. A product
with 1e0 is a DOUBLE, whose text has all digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote

from partition_planner.model import ColumnInfo, KeyRange, RowRange, Selector, WholeTable
from unloader.errors import SourceError
from unloader.model import Extract, SampledKeys
from unloader.sources import readings
from unloader.sources.statement import (
    below,
    limit_clause,
    quoted,
    relation_of,
    row_conditions,
    select,
)

MOST_WARNINGS = 65_535
"""The server keeps at most this number for a statement."""
CUT = 1301
"""Warning: a function had a result above max_allowed_packet, which the server makes NULL."""
_YEAR_SECONDS = 31_536_000
SETTINGS = (
    # Names in double quotes, and nothing that refuses a stored value or a statement of the user.
    "SET sql_mode = 'ANSI_QUOTES', time_zone = '+00:00', autocommit = 1, "
    f"sql_select_limit = {2**64 - 1}, sql_big_selects = 1, sql_safe_updates = 0, "
    # A worker may not read for as long as its output is slow.
    f"wait_timeout = {_YEAR_SECONDS}, net_write_timeout = {_YEAR_SECONDS}, "
    # A warning may be the only sign of a value that was replaced by NULL.
    f"max_error_count = {MOST_WARNINGS}"
)
"""Sets what would change a run without an error, or end it."""
SETTINGS_OF_MARIADB = (
    "SET max_statement_time = 0, idle_transaction_timeout = 0, "
    "idle_readonly_transaction_timeout = 0, system_versioning_asof = DEFAULT"
)
SETTINGS_OF_MYSQL = "SET max_execution_time = 0, information_schema_stats_expiry = 0"
READ_ONLY = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

_INTEGERS = {
    "tinyint": "int8",
    "smallint": "int16",
    "mediumint": "int32",
    "int": "int32",
    "bigint": "int64",
}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json")
_OTHER_TEXTS = ("time", "uuid", "inet4", "inet6")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector")
_SHAPES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
    *("multipolygon", "geometrycollection", "geomcollection"),
)
_MASKS: dict[str, readings.Mask] = {
    "date": "date",
    "datetime": "timestamp",
    "timestamp": "timestamp_tz",
}
_MOMENTS = {
    "date": "date32[day]",
    "datetime": "timestamp[us]",
    "timestamp": "timestamp[us, tz=UTC]",
}
_MAX_DECIMAL = 38
"""Digits of decimal128, the widest that DuckDB, Spark and BigQuery read from Parquet."""
_AS_ASKED = "exact text, as requested"

KEY_TYPES = ("char", "varchar", "binary", "varbinary", "date", "datetime", "timestamp", "decimal")
"""Types of keys whose order and ranges are the same in a condition and in an index."""


def name_of(native_type: str) -> str:
    return re.split(r"[ (]", native_type.lower(), maxsplit=1)[0]


def integer_type(native_type: str) -> str | None:
    """Return the Arrow type of an integer type, None for another one."""
    found = _INTEGERS.get(name_of(native_type))
    unsigned = "unsigned" in native_type or "zerofill" in native_type
    return f"u{found}" if found and unsigned else found


@lru_cache(maxsize=1024)  # Tables of a schema have columns in common.
def readings_of(column: ColumnInfo) -> readings.ColumnReadings:
    """Return how a column can be read; `SourceError` for an unknown type."""
    name, native, value = name_of(column.native_type), column.native_type.lower(), column.name
    expression, text, note, number = quoted(value), quoted(value), "", True
    output = integer_type(native)
    lossless = True
    if name in ("float", "double", "real"):
        expression = text = f"({quoted(value)} * 1e0)"
        output = "float" if name == "float" else "double"
    elif name in ("decimal", "numeric"):
        precision, scale = (int(each) for each in re.findall(r"\d+", native)[:2])
        output = f"decimal128({precision}, {scale})" if precision <= _MAX_DECIMAL else "string"
        note = "" if precision <= _MAX_DECIMAL else "does not fit decimal(38): exact text"
    elif name == "bit":
        expression = text = f"CAST({quoted(value)} AS UNSIGNED)"
        output = "uint64"
    elif name == "year":
        output, number = "int16", False
    elif output is None:
        number, output = False, _MOMENTS.get(name)
    if name == "timestamp":
        expression, text = f"CONCAT({quoted(value)}, 'Z')", f"CONCAT({quoted(value)}, '+00:00')"
        note = "instant in UTC"
    elif name in _TEXTS or name in _OTHER_TEXTS:
        output, note = "string", "exact text" if name in _OTHER_TEXTS else ""
    elif name in _BYTES or name in _SHAPES:
        output = "binary"
        if name in _SHAPES:
            # The server's own form has the SRID before the WKB.
            expression = f"ST_AsWKB({quoted(value)})"
            note, lossless = "WKB, without the SRID", False
        text = f"CONCAT('\\\\x', LOWER(HEX({expression})))"
    if output is None:
        raise SourceError(
            f"column {value} has the type {column.native_type}, which cannot be read exactly",
            f"leave it out with --exclude {value}",
        )
    types = (("source_type", column.native_type),)
    text_class = "number" if number else "moment" if name in _MASKS else None
    of_text = (*types, ("text_class", text_class)) if text_class else types
    # A year or a date of zeros has only its text.
    only_text = name in _MOMENTS or name == "year"
    found = [
        readings.Reading(
            expression=expression,
            output_type=output,
            serves=frozenset(("parquet", "masked")) if only_text else readings.BATCHES,
            as_text=False,
            lossless=lossless,
            note=note,
            metadata=of_text if output == "string" else types,
        )
    ]
    for asked in (False, True) if only_text else (True,):
        found.append(
            readings.Reading(
                expression=text,
                output_type="string",
                serves=readings.BATCHES if asked else frozenset(("text",)),
                as_text=asked,
                lossless=lossless,
                note=_AS_ASKED if asked else note,
                metadata=of_text,
            )
        )
    return readings.ColumnReadings(
        name=value,
        source_type=column.native_type,
        nullable=column.nullable,
        readings=tuple(found),
        mask=_MASKS.get(name),
    )


_LONGEST = {"TIME": 17, "YEAR": 4, "UUID": 36, "INET4": 15, "INET6": 39}


def declared(source_type: str) -> readings.Declared:
    name = name_of(source_type)
    if name in _MASKS:
        return readings.Declared(
            dated=name == "date", zone="offset" if name == "timestamp" else None, second_digits=6
        )
    plain = source_type.replace(" UNSIGNED", "").replace(" ZEROFILL", "")
    return (
        readings.text_length(plain, ("CHAR", "VARCHAR"))
        or readings.decimal_digits(plain)
        or readings.one_of(plain, _LONGEST)
    )


# By the number of a type in the protocol.
_FIELD_NAMES = {
    0: "decimal", 1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 6: "char",
    7: "timestamp", 8: "bigint", 9: "mediumint", 10: "date", 11: "time", 12: "datetime", 13: "year",
    14: "date", 15: "varchar", 16: "bit", 242: "vector", 245: "json", 246: "decimal", 247: "enum",
    248: "set", 249: "tinyblob", 250: "mediumblob", 251: "longblob", 252: "blob", 253: "varchar",
    254: "char", 255: "geometry",
}  # fmt: skip
_UNSIGNED, _ENUM, _SET = 32, 256, 2048
_BINARY_CHARSET = 63
_TEXT_OF = {"blob": "text", "tinyblob": "tinytext", "mediumblob": "mediumtext"}
_BYTES_OF = {"varchar": "varbinary", "char": "binary"}


def type_of_field(field: object) -> str:
    """Return the type of a query's column, in the words of the catalog."""
    code, flags, length, scale, charset = (
        getattr(field, each) for each in ("type_code", "flags", "length", "scale", "charsetnr")
    )
    name = _FIELD_NAMES.get(code, f"type {code}")
    if name == "char" and flags & (_ENUM | _SET):
        return "enum" if flags & _ENUM else "set"
    if name == "decimal":
        # The length has the sign and the point.
        precision = length - (scale > 0) - (not flags & _UNSIGNED)
        return f"decimal({precision},{scale})"
    if name in _INTEGERS:
        return f"{name} unsigned" if flags & _UNSIGNED else name
    if charset == _BINARY_CHARSET:
        return _BYTES_OF.get(name, name)
    return "longtext" if name == "longblob" else _TEXT_OF.get(name, name)


KEY, KEY_TYPE = "key", "key_type"
"""Attributes of every column of a table that is read by ranges: the first column of its primary
key, and the type of that column, with the character set of a text."""


def selector_statement(columns: str, extract: Extract, selector: Selector) -> str:
    relation, conditions = relation_of(extract), list[str]()
    if not isinstance(selector, WholeTable) and selector.partition is not None:
        relation += partition_clause([leaf_name(selector.partition, selector.kind)])
    if isinstance(selector, (RowRange, KeyRange)):
        relation += " FORCE INDEX (PRIMARY)"
        facts = dict(extract.table.columns[0].attributes)
        conditions = [
            f"{quoted(facts[KEY])} {compared} {key_literal(facts[KEY_TYPE], end)}"
            for compared, end in ((">=", selector.first), ("<", selector.last))
            if end is not None
        ]
    rows = select(columns, relation, conditions + row_conditions(extract))
    return rows + limit_clause(extract.limit_rows)


def leaf_name(name: str, kind: str) -> str:
    """Return the name of a leaf in SQL; the names of sub-partitions are unique in their table."""
    return unquote(name.rpartition("/")[2]) if kind == "subpartition" else name


def partition_clause(leaves: Sequence[str]) -> str:
    return f" PARTITION ({', '.join(map(quoted, leaves))})"


def text_literal(text: str) -> str:
    """Return a literal; in MySQL a backslash is an escape, unlike in the SQL standard."""
    doubled = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"


def key_literal(key_type: str, key: int | str) -> str:
    """Return a key as it is compared with its column."""
    name = name_of(key_type)
    if name in ("binary", "varbinary"):
        return f"x'{key}'"
    if name in (*_INTEGERS, "decimal"):
        return str(key)
    literal = text_literal(str(key))
    if (match := _CHARSET.search(key_type)) and match[1] != "utf8mb4":
        # A character that the column's character set lacks would be an illegal mix of collations.
        return f"CONVERT({literal} USING {match[1]}) COLLATE {match[2]}"
    return literal


_CHARSET = re.compile(r" CHARACTER SET (\w+) COLLATE (\w+)$")


def key_text(key_type: str, value: str) -> str:
    """Return SQL for the text of a key that `key_literal` takes."""
    return f"HEX({value})" if name_of(key_type) in ("binary", "varbinary") else f"{value}"


def sampled_keys(column: ColumnInfo, share: float) -> SampledKeys | None:
    name, text = name_of(column.native_type), quoted(column.name)
    if name in _INTEGERS or name == "uuid":
        text = f"CAST({text} AS CHAR)"
    elif name in ("decimal", "numeric"):
        shown = f"CAST({text} AS CHAR)"
        trimmed = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {shown}))"
        text = f"IF(LOCATE('.', {shown}) > 0, {trimmed}, {shown})"
    elif name in _BYTES:
        text = f"LOWER(HEX({text}))"
    elif name in _TEXTS and name != "json":
        text = f"CONVERT({text} USING utf8mb4)"
    else:
        return None
    # The order of hexadecimal digits is the same in every collation.
    condition = f"LENGTH({text}) > 0 AND SHA2({text}, 256) < '{below(share)}'"
    return SampledKeys(column=column.name, share=share, text=text, condition=condition)
