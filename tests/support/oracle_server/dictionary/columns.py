"""TAB_COLS: how the dictionary writes down a column's type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oracle_server.data.definitions import Definitions
from oracle_server.model import Column, Type

COLUMNS = (
    "OWNER TABLE_NAME COLUMN_NAME DATA_TYPE DATA_TYPE_MOD DATA_TYPE_OWNER DATA_LENGTH:N "
    "DATA_PRECISION:N DATA_SCALE:N NULLABLE COLUMN_ID:N DEFAULT_LENGTH:N DATA_DEFAULT:T "
    "NUM_DISTINCT:N NUM_NULLS:N CHARACTER_SET_NAME CHAR_COL_DECL_LENGTH:N AVG_COL_LEN:N "
    "CHAR_LENGTH:N CHAR_USED HIDDEN_COLUMN VIRTUAL_COLUMN SEGMENT_COLUMN_ID:N "
    "INTERNAL_COLUMN_ID:N QUALIFIED_COL_NAME USER_GENERATED IDENTITY_COLUMN COLLATION"
)
_FIXED_LENGTHS = {
    "NUMBER": 22, "FLOAT": 22, "DATE": 7, "BINARY_FLOAT": 4, "BINARY_DOUBLE": 8, "CLOB": 4000,
    "NCLOB": 4000, "BLOB": 4000, "ROWID": 10, "UROWID": 4000, "JSON": 8200, "XMLTYPE": 2000,
    "VECTOR": 8200, "BOOLEAN": 1, "LONG": 0, "LONG RAW": 0, "INTERVAL YEAR TO MONTH": 5,
    "INTERVAL DAY TO SECOND": 11,
}  # fmt: skip
_CHARACTER = ("CHAR", "VARCHAR2", "CLOB", "LONG")


def data_type(kind: Type) -> str:
    """Return DATA_TYPE: digits of seconds are part of it, precision and length are not."""
    if kind.name.startswith("TIMESTAMP"):
        digits = 6 if kind.scale is None else kind.scale
        return kind.name.replace("TIMESTAMP", f"TIMESTAMP({digits})", 1)
    years = 2 if kind.precision is None else kind.precision
    if kind.name == "INTERVAL YEAR TO MONTH":
        return f"INTERVAL YEAR({years}) TO MONTH"
    if kind.name == "INTERVAL DAY TO SECOND":
        digits = 6 if kind.scale is None else kind.scale
        return f"INTERVAL DAY({years}) TO SECOND({digits})"
    return kind.name


def _bytes(kind: Type) -> int:
    if kind.name.startswith("TIMESTAMP"):
        if kind.name == "TIMESTAMP WITH TIME ZONE":
            return 13
        return 7 if kind.scale == 0 else 11
    if kind.name in _FIXED_LENGTHS:
        return _FIXED_LENGTHS[kind.name]
    length = kind.length or 0
    if kind.name in ("NVARCHAR2", "NCHAR"):
        return 2 * length
    return min(4 * length, 4000) if kind.in_chars else length


def _described(column: Column) -> dict[str, Any]:
    kind = column.type
    text = kind.name in ("VARCHAR2", "CHAR", "NVARCHAR2", "NCHAR")
    national = kind.name in ("NVARCHAR2", "NCHAR", "NCLOB")
    character_set = "CHAR_CS" if kind.name in _CHARACTER else "NCHAR_CS" if national else None
    precision = kind.precision
    if kind.name == "FLOAT" and precision is None:
        precision = 126
    scale = kind.scale
    if kind.name.startswith("INTERVAL") and precision is None:
        precision = 2
    if kind.name.startswith("TIMESTAMP") and scale is None:
        scale = 6
    if kind.name == "INTERVAL DAY TO SECOND" and scale is None:
        scale = 6
    if kind.name == "INTERVAL YEAR TO MONTH":
        scale = 0
    return {
        "COLUMN_NAME": column.name,
        "DATA_TYPE": data_type(kind),
        "DATA_TYPE_OWNER": "PUBLIC" if kind.name == "XMLTYPE" else None,
        "DATA_LENGTH": _bytes(kind),
        "DATA_PRECISION": precision,
        "DATA_SCALE": scale if kind.name != "FLOAT" else None,
        "NULLABLE": "Y" if column.nullable else "N",
        "CHARACTER_SET_NAME": character_set,
        "CHAR_COL_DECL_LENGTH": _bytes(kind) if text else None,
        "CHAR_LENGTH": (kind.length or 0) if text else 0,
        "CHAR_USED": ("C" if kind.in_chars or national else "B") if text else None,
        "QUALIFIED_COL_NAME": column.name,
    }


def tab_cols(database: Definitions) -> Iterator[dict[str, Any]]:
    """TAB_COLS and TAB_COLUMNS, of tables and views."""
    for relation in database.catalog.relations():
        for number, column in enumerate(relation.columns, 1):
            yield {
                "OWNER": relation.owner,
                "TABLE_NAME": relation.name,
                **_described(column),
                "COLUMN_ID": number,
                "SEGMENT_COLUMN_ID": number,
                "INTERNAL_COLUMN_ID": number,
                "HIDDEN_COLUMN": "NO",
                "VIRTUAL_COLUMN": "NO",
                "USER_GENERATED": "YES",
                "IDENTITY_COLUMN": "NO",
            }
