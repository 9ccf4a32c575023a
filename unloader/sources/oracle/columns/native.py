"""Names of Oracle types: as the dictionary and a describe give them, and taken apart again."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from partition_planner.model import ColumnInfo

if TYPE_CHECKING:
    import oracledb

ROWID = "rowid"
"""Attribute of a column: "no" where the rows it belongs to have no ROWID (a view, a query, ...)."""

_ARGUMENTS = re.compile(r"\s*\(([^)]*)\)")
_DESCRIBED = {
    "DB_TYPE_VARCHAR": "VARCHAR2",
    "DB_TYPE_NVARCHAR": "NVARCHAR2",
    "DB_TYPE_TIMESTAMP_TZ": "TIMESTAMP WITH TIME ZONE",
    "DB_TYPE_TIMESTAMP_LTZ": "TIMESTAMP WITH LOCAL TIME ZONE",
    "DB_TYPE_INTERVAL_DS": "INTERVAL DAY TO SECOND",
    "DB_TYPE_INTERVAL_YM": "INTERVAL YEAR TO MONTH",
    "DB_TYPE_LONG_RAW": "LONG RAW",
    "DB_TYPE_LONG_NVARCHAR": "LONG",
}
"""The driver's names that are not Oracle's behind their `DB_TYPE_`."""
_NO_SCALE = -127
"""What a describe has as the scale of a NUMBER or FLOAT without one."""


class NativeType(Struct, frozen=True, kw_only=True):
    """A type's name and what stands in its parentheses."""

    name: str
    """Without parentheses: NUMBER, TIMESTAMP WITH TIME ZONE, LONG RAW, SCOTT.ADDRESS_T, ..."""
    numbers: tuple[int | None, ...] = ()
    """The arguments in order; None where one is no number (`*`)."""
    in_chars: bool = False
    """A length is one of characters, not of bytes."""

    @property
    def first(self) -> int | None:
        """The first argument, None without one."""
        return self.numbers[0] if self.numbers else None


@lru_cache(maxsize=256)
def parse_native(text: str) -> NativeType:
    """Return the parts of a type as Oracle prints it, such as `INTERVAL DAY(2) TO SECOND(6)`."""
    numbers: list[int | None] = []
    for arguments in _ARGUMENTS.findall(text):
        for argument in arguments.split(","):
            word = argument.split()[0] if argument.split() else ""
            numbers.append(int(word) if re.fullmatch(r"-?\d+", word) else None)
    name = " ".join(_ARGUMENTS.sub("", text).split())
    if name in ("SYS.XMLTYPE", "PUBLIC.XMLTYPE"):
        name = "XMLTYPE"
    return NativeType(
        name=name,
        numbers=tuple(numbers),
        in_chars=" CHAR)" in text or name in ("NCHAR", "NVARCHAR2"),
    )


def native_text(
    name: str, *, precision: int | None, scale: int | None, length: int | None, in_chars: bool
) -> str:
    """Return a type as Oracle prints it, from the facts that the dictionary has of a column.

    Args:
        name: DATA_TYPE, which has the digits of timestamps and intervals in it already.
        precision: DATA_PRECISION.
        scale: DATA_SCALE.
        length: CHAR_LENGTH of character types, DATA_LENGTH of RAW and UROWID.
        in_chars: CHAR_USED is C.
    """
    if name == "NUMBER":
        if precision is None:
            return "NUMBER" if scale is None else f"NUMBER(*,{scale})"
        return f"NUMBER({precision},{scale})" if scale else f"NUMBER({precision})"
    if name == "FLOAT":
        return f"FLOAT({precision})" if precision else "FLOAT"
    if name in ("VARCHAR2", "CHAR"):
        return f"{name}({length} {'CHAR' if in_chars else 'BYTE'})" if length else name
    if name in ("NVARCHAR2", "NCHAR", "RAW", "UROWID"):
        return f"{name}({length})" if length else name
    return name


def described_column(info: oracledb.FetchInfo) -> ColumnInfo:
    """Return a column of a query as the driver describes it.

    Such a column has no ROWID to its rows.
    """
    driver_name = str(info.type_code.name)
    name = _DESCRIBED.get(driver_name, driver_name.removeprefix("DB_TYPE_"))
    if name == "OBJECT" and info.type is not None:
        name = f"{info.type.schema}.{info.type.name}"
    return ColumnInfo(
        name=info.name,
        native_type=_described_text(name, info),
        nullable=info.null_ok,
        attributes=((ROWID, "no"),),
    )


def _described_text(name: str, info: oracledb.FetchInfo) -> str:
    precision, scale = info.precision, info.scale
    if name == "NUMBER":
        # An expression has neither: (0, 0) or no scale at all. A FLOAT has digits, but no scale.
        if scale == _NO_SCALE:
            return f"FLOAT({precision})" if precision else "NUMBER"
        facts = (precision, scale) if precision else (None, scale or None)
        return native_text(name, precision=facts[0], scale=facts[1], length=None, in_chars=False)
    if name.startswith("TIMESTAMP"):
        return name.replace("TIMESTAMP", f"TIMESTAMP({scale or 0})", 1)
    in_bytes = info.internal_size or None
    length = info.display_size if name in ("NVARCHAR2", "NCHAR") else in_bytes
    return native_text(name, precision=None, scale=None, length=length, in_chars=False)
