"""Describes: against the bytes of real servers, and field by field for every type and version."""

from __future__ import annotations

import pytest
from oracle.reply import Described, Reply
from oracle_server.model import Column, Type
from oracle_server.wire.rows.describe import describe, is_absent, needs_define
from oracle_server.wire.values.by_type import WIRE_TYPES


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


@pytest.mark.parametrize(
    ("kind", "precision", "scale", "size", "characters"),
    [
        (Type(name="NUMBER"), 0, -127, 22, 0),
        (Type(name="NUMBER", expression=True), 0, 0, 22, 0),
        (Type(name="NUMBER", precision=10, scale=-2), 10, -2, 22, 0),
        (Type(name="NUMBER", scale=0), 38, 0, 22, 0),
        (Type(name="FLOAT", precision=126), 126, -127, 22, 0),
        (Type(name="VARCHAR2", length=60, in_chars=True), 0, 0, 240, 60),
        (Type(name="NVARCHAR2", length=10), 0, 0, 20, 10),
        (Type(name="TIMESTAMP WITH TIME ZONE", scale=9), 0, 9, 1, 0),
        (Type(name="INTERVAL DAY TO SECOND", precision=9, scale=3), 9, 3, 1, 0),
        (Type(name="LONG"), 0, 0, 0, 0),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("version", [7, 11, 12, 16, 24])
def test_fields(
    kind: Type, precision: int, scale: int, size: int, characters: int, wide: bool, version: int
) -> None:
    """Precision, scale, size and characters are what servers say, whatever the field version."""
    message = describe((Column(name="Ä", type=kind),), field_version=version, wide_scale=wide)
    reply = Reply(message)
    (found,) = reply.described(field_version=version, wide_scale=wide)
    assert not reply.left()
    assert (found.name, found.precision, found.scale) == ("Ä", precision, scale)
    assert (found.size, found.characters) == (size, characters)


@pytest.mark.parametrize("version", [6, 12, 17, 24])
def test_every_type(version: int) -> None:
    """Every type is described, in order, XMLTYPE by its name, with its character set form."""
    columns = [column(name, name) for name in WIRE_TYPES]
    reply = Reply(describe(columns, field_version=version))
    found: list[Described] = reply.described(field_version=version, wide_scale=False)
    assert not reply.left()
    assert [one.name for one in found] == list(WIRE_TYPES)
    assert [(one.number, one.form) for one in found] == list(WIRE_TYPES.values())
    assert [one.position for one in found] == list(range(len(found)))
    assert {one.charset for one in found} == {0, 873, 2000}
    assert [one.type_name for one in found if one.schema == "SYS"] == ["XMLTYPE"]


def test_needs_define() -> None:
    """LOBs, JSON and vectors make the client define before it fetches; nothing else does."""
    names = {name for name in WIRE_TYPES if needs_define([column("C", name)])}
    assert names == {"CLOB", "NCLOB", "BLOB", "JSON", "VECTOR"}
