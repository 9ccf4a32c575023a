"""Describes: against the bytes of real servers, and field by field for every type and version."""

from __future__ import annotations

from oracle_server.model import Column, Type
from oracle_server.wire.row_replies import describe, is_absent


def column(name: str, type_name: str, *, nullable: bool = True, **fields: int | bool) -> Column:
    """Return a column of a type given by name and fields."""
    return Column(name=name, type=Type(name=type_name, **fields), nullable=nullable)  # type: ignore[arg-type]


def body(message: bytes) -> str:
    """Return a describe without its hash and dates, in hex."""
    assert message[:2] == b"\x10\x17"
    end = message.rindex(message[18:25])
    return f"{message[25:end].hex(' ')} | {message[end + 7 :].hex(' ')}"


def test_recorded_23ai() -> None:
    """Eleven columns of a table have the bytes a 23ai server sent to python-oracledb."""
    columns = (
        column("ID", "NUMBER", precision=9, scale=0, nullable=False),
        column("BIG", "NUMBER", precision=19, scale=0),
        column("PRICE", "NUMBER", precision=9, scale=2),
        column("ANYNUM", "NUMBER"),
        column("NAME", "VARCHAR2", length=40),
        column("FIXED", "CHAR", length=5),
        column("HIRED", "DATE"),
        column("UPDATED", "TIMESTAMP", scale=6),
        column("PAYLOAD", "RAW", length=30),
        column("RATING", "BINARY_DOUBLE"),
        column("SCORE", "BINARY_FLOAT"),
    )
    recorded = (
        "01 c1 01 0b 82 02 00 09 00 01 16 00 00 00 00 00 00 00 00 00 02 01 02 02 49 44 00 00 00 00"
        " 00 00 00 00 00 00 02 00 13 00 01 16 00 00 00 00 00 00 00 00 01 03 01 03 03 42 49 47 00 00"
        " 01 01 00 00 00 00 00 00 00 02 00 09 02 01 16 00 00 00 00 00 00 00 00 01 05 01 05 05 50 52"
        " 49 43 45 00 00 01 02 00 00 00 00 00 00 00 02 00 00 81 01 16 00 00 00 00 00 00 00 00 01 06"
        " 01 06 06 41 4e 59 4e 55 4d 00 00 01 03 00 00 00 00 00 00 00 01 80 00 00 01 28 00 00 00 00"
        " 02 03 69 01 01 28 02 3f fe 01 04 01 04 04 4e 41 4d 45 00 00 01 04 00 00 00 00 00 00 00 60"
        " 80 00 00 01 05 00 00 00 00 02 03 69 01 01 05 02 3f fe 01 05 01 05 05 46 49 58 45 44 00 00"
        " 01 05 00 00 00 00 00 00 00 0c 00 00 00 01 01 00 00 00 00 00 00 00 00 01 05 01 05 05 48 49"
        " 52 45 44 00 00 01 06 00 00 00 00 00 00 00 b4 00 00 06 01 0b 00 00 00 00 00 00 00 00 01 07"
        " 01 07 07 55 50 44 41 54 45 44 00 00 01 07 00 00 00 00 00 00 00 17 00 00 00 01 1e 00 00 00"
        " 00 00 00 00 00 01 07 01 07 07 50 41 59 4c 4f 41 44 00 00 01 08 00 00 00 00 00 00 00 65 00"
        " 00 00 01 01 00 00 00 00 00 00 00 00 01 06 01 06 06 52 41 54 49 4e 47 00 00 01 09 00 00 00"
        " 00 00 00 00 64 00 00 00 01 01 00 00 00 00 00 00 00 00 01 05 01 05 05 53 43 4f 52 45 00 00"
        " 01 0a 00 00 00 00 00 00 00 01 07 07 | 00 02 1f e8 01 0a 01 0a 00"
    )
    assert body(describe(columns, field_version=24)) == recorded


def test_recorded_19c() -> None:
    """Columns of a 19c server with another character set have the bytes it sent."""
    columns = (
        column("OWNER", "VARCHAR2", length=128, nullable=False),
        column("OBJECT_TYPE", "VARCHAR2", length=23),
        column("CNT", "NUMBER"),
    )
    recorded = (
        "01 ad 01 03 5c 01 80 00 00 01 80 00 00 00 00 01 2e 01 01 80 02 3f fe 00 05 01 05 05 4f 57"
        " 4e 45 52 00 00 00 00 01 80 00 00 01 17 00 00 00 00 01 2e 01 01 17 02 3f fe 01 0b 01 0b 0b"
        " 4f 42 4a 45 43 54 5f 54 59 50 45 00 00 01 01 00 02 00 00 81 01 16 00 00 00 00 00 00 00 00"
        " 01 03 01 03 03 43 4e 54 00 00 01 02 00 01 07 07 | 00 02 1f e8 01 0a 01 0a 00"
    )
    assert body(describe(columns, field_version=12, charset=46)) == recorded


def test_recorded_null_literal() -> None:
    """A NULL literal is described with size 0, and is absent from rows."""
    columns = (column("N", "VARCHAR2", length=0),)
    recorded = (
        "00 01 01 82 01 80 00 00 00 00 00 00 00 01 01 01 00 02 3f fe 01 01 01 01 01 4e 00 00 00 00"
        " 00 00 00 00 00 00 01 07 07 | 00 02 1f e8 01 0a 01 0a 00"
    )
    assert body(describe(columns, field_version=24)) == recorded
    assert is_absent(columns[0])
