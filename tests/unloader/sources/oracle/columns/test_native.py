"""Names of Oracle types, taken apart and put together."""

from __future__ import annotations

import pytest

from unloader.sources.oracle.columns.native import NativeType, native_text, parse_native


@pytest.mark.parametrize(
    ("text", "name", "numbers", "in_chars"),
    [
        ("NUMBER", "NUMBER", (), False),
        ("NUMBER(10,-2)", "NUMBER", (10, -2), False),
        ("NUMBER(*,2)", "NUMBER", (None, 2), False),
        ("VARCHAR2(15 CHAR)", "VARCHAR2", (15,), True),
        ("VARCHAR2(15 BYTE)", "VARCHAR2", (15,), False),
        ("NVARCHAR2(15)", "NVARCHAR2", (15,), True),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE", (9,), False),
        ("INTERVAL DAY(2) TO SECOND(6)", "INTERVAL DAY TO SECOND", (2, 6), False),
        ("VECTOR(3, FLOAT32)", "VECTOR", (3, None), False),
        ("SYS.XMLTYPE", "XMLTYPE", (), False),
        ("LONG RAW", "LONG RAW", (), False),
        ("SCOTT.ADDRESS_T", "SCOTT.ADDRESS_T", (), False),
    ],
)
def test_types_are_taken_apart(
    text: str, name: str, numbers: tuple[int | None, ...], in_chars: bool
) -> None:
    """A printed type gives its name, its arguments, and whether a length counts characters."""
    assert parse_native(text) == NativeType(name=name, numbers=numbers, in_chars=in_chars)


@pytest.mark.parametrize(
    ("text", "name", "precision", "scale", "length", "in_chars"),
    [
        ("NUMBER", "NUMBER", None, None, 22, False),
        ("NUMBER(*,0)", "NUMBER", None, 0, 22, False),
        ("NUMBER(10)", "NUMBER", 10, 0, 22, False),
        ("NUMBER(10,-2)", "NUMBER", 10, -2, 22, False),
        ("FLOAT(126)", "FLOAT", 126, None, 22, False),
        ("VARCHAR2(15 CHAR)", "VARCHAR2", None, None, 15, True),
        ("CHAR(1 BYTE)", "CHAR", None, None, 1, False),
        ("NCHAR(4)", "NCHAR", None, None, 4, True),
        ("RAW(16)", "RAW", None, None, 16, False),
        ("TIMESTAMP(6) WITH TIME ZONE", "TIMESTAMP(6) WITH TIME ZONE", None, 6, 13, False),
        ("CLOB", "CLOB", None, None, 4000, False),
    ],
)
def test_types_are_printed_as_oracle_does(
    text: str,
    name: str,
    precision: int | None,
    scale: int | None,
    length: int | None,
    in_chars: bool,
) -> None:
    """The facts of the dictionary give the text that Oracle's own tools show."""
    made = native_text(name, precision=precision, scale=scale, length=length, in_chars=in_chars)
    assert made == text
