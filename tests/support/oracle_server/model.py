"""The types that the parts of the test server share: Oracle values, columns, statements, errors.

Values are exact: what an Oracle server would hold to the last digit, never a float or a `datetime`
that could not hold it. None is NULL everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

_ROWID_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class Moment(NamedTuple):
    """A DATE or TIMESTAMP: the fields as a user sees them, in the value's own time zone."""

    year: int
    """-4712 to 9999; negative is BC. A year 0 does not exist."""
    month: int
    day: int
    hour: int = 0
    minute: int = 0
    second: int = 0
    nanos: int = 0
    zone: str | None = None
    """`+05:30` or a region such as `Europe/Berlin`; None where the type has no zone."""


class YearMonth(NamedTuple):
    """An INTERVAL YEAR TO MONTH, in months."""

    months: int


class DaySecond(NamedTuple):
    """An INTERVAL DAY TO SECOND, in nanoseconds."""

    nanos: int


class Rowid(NamedTuple):
    """A physical row address."""

    object: int
    """Data object id of the segment."""
    file: int
    """Relative file number."""
    block: int
    slot: int

    def __str__(self) -> str:
        """Return the 18 characters of an extended ROWID: 6 object, 3 file, 6 block, 3 slot."""
        return "".join(
            _ROWID_DIGITS[(value >> 6 * place) & 63]
            for value, width in zip(self, (6, 3, 6, 3), strict=True)
            for place in reversed(range(width))
        )

    @classmethod
    def parse(cls, text: str) -> Rowid:
        if len(text) != 18 or set(text) - set(_ROWID_DIGITS):
            raise OracleError(1410, "invalid ROWID")
        parts = []
        for start, width in ((0, 6), (6, 3), (9, 6), (15, 3)):
            value = 0
            for character in text[start : start + width]:
                value = value << 6 | _ROWID_DIGITS.index(character)
            parts.append(value)
        return cls(*parts)


class LobValue(Protocol):
    """The content of a CLOB, NCLOB or BLOB that is made when it is read."""

    length: int
    """Characters of a CLOB (UTF-16 units, as Oracle counts), bytes of a BLOB."""

    def read(self, offset: int, amount: int) -> str | bytes:
        """Return `amount` characters or bytes from `offset` on, which counts from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """A column's type, as the dictionary and a describe have it.

    The Python values of each: NUMBER and FLOAT `int` or `Decimal`; VARCHAR2, NVARCHAR2, CHAR (blank
    padded), NCHAR, LONG, XMLTYPE `str`; RAW, LONG RAW `bytes`; DATE, TIMESTAMP, TIMESTAMP WITH TIME
    ZONE, TIMESTAMP WITH LOCAL TIME ZONE (fields in UTC) `Moment`; INTERVAL YEAR TO MONTH
    `YearMonth`; INTERVAL DAY TO SECOND `DaySecond`; BINARY_FLOAT, BINARY_DOUBLE `float`; CLOB, NCLOB
    `str` or `LobValue`; BLOB `bytes` or `LobValue`; ROWID `Rowid`; UROWID `Rowid` or `str`; BOOLEAN
    `bool`; JSON plain Python data (numbers as `Decimal` or `int`); VECTOR a tuple of numbers.
    """

    name: str
    """As DATA_TYPE without precision: NUMBER, FLOAT, TIMESTAMP WITH TIME ZONE, LONG RAW, ..."""
    precision: int | None = None
    """Of NUMBER in decimal digits, FLOAT in binary ones, intervals in digits of the first field."""
    scale: int | None = None
    """Of NUMBER; digits of the second's fraction for timestamps and INTERVAL DAY TO SECOND."""
    length: int | None = None
    """Bytes of RAW; of character types the declared length, in characters if `in_chars`, else bytes."""
    in_chars: bool = False
    expression: bool = False
    """A NUMBER that is an expression, described with precision and scale 0; a LOB that is one, which
    comes as a temporary LOB."""
    element: str = ""
    """Format of a VECTOR's elements: FLOAT32, FLOAT64, INT8 or BINARY; empty: FLOAT32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table or of a query's result."""

    name: str
    type: Type
    nullable: bool = True


@dataclass(slots=True)
class OracleError(Exception):
    """An error of the server; the text is complete except for its `ORA-nnnnn: ` at the start."""

    code: int
    text: str
    position: int = 0
    """Offset of the error in the statement."""

    def __str__(self) -> str:
        return f"ORA-{self.code:05d}: {self.text}"


class RowSource(Protocol):
    """The rows of one open query, read forwards once; `rows.py` has the two kinds there are."""

    columns: tuple[Column, ...]


@dataclass(slots=True, kw_only=True)
class Answer:
    """What a statement led to."""

    kind: str
    """select, insert, update, delete, ddl, plsql, alter session, commit, rollback."""
    rows: RowSource | None = None
    """Of a query."""
    count: int = 0
    """Rows that DML changed."""
    out: tuple[Any, ...] = ()
    """Values of PL/SQL out binds, where a statement has them."""


@dataclass(slots=True, kw_only=True)
class SessionState:
    """What a statement may depend on beside its text; one for each connection."""

    user: str
    """Name as the dictionary has it: upper case unless quoted."""
    schema: str
    sid: int
    serial: int
    settings: dict[str, str] = field(default_factory=dict)
    """ALTER SESSION SET, names in upper case, and those a client sent at login."""
    module: str = ""
    action: str = ""
    client_identifier: str = ""
    client_info: str = ""
    statements: list[str] = field(default_factory=list)
    """Every statement of the session, in order, word for word."""
    is_active: bool = False
    """A call is being answered."""


class Executor(Protocol):
    """The database that runs statements."""

    def execute(self, session: SessionState, sql: str, binds: Iterable[Any] = ()) -> Answer:
        """Run one statement.

        Raises:
            OracleError: As an Oracle server would refuse it.
        """

    def describe(self, session: SessionState, sql: str) -> tuple[Column, ...] | None:
        """Return the columns a query would have, without running it; None for other statements."""
