"""Statements that change rows."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from oracle_server.data.tables import Row, Segment, Table
from oracle_server.database import Database
from oracle_server.model import (
    Answer,
    Column,
    DaySecond,
    OracleError,
    Rowid,
    SessionState,
    Type,
    YearMonth,
)
from oracle_server.sql import conversions
from oracle_server.sql.compiling import compiled
from oracle_server.sql.evaluation import Environment
from oracle_server.sql.syntax import Bind, Call, Constant, Name, Parser, conjuncts, tokens
from oracle_server.wire.oracle_values import decode_number


class Changeable(Database):
    """What statements that change something need beside what queries need."""

    def writable(self, session: SessionState, owner: str | None, name: str) -> Table:
        """Return the table that a statement changes.

        Raises:
            OracleError: ORA-00942, or ORA-01031 if it is another user's.
        """
        found = self.catalog.find(owner, name, session.schema)
        if found is None:
            raise self.unknown(owner or session.schema, name)
        if not isinstance(found, Table):
            raise OracleError(1732, "data manipulation operation not legal on this view")
        if found.owner != session.user and not self.may_change(session.user):
            raise OracleError(1031, "insufficient privileges")
        return found

    def may_change(self, user: str) -> bool:
        return user == "SYS" or self.privileges.has(user, "ALTER ANY TABLE")

    def make_room(self, table: Table, wanted: dict[int, int]) -> None:
        """Give segments, by `id`, extents for that many rows each."""
        self._make_room(table, wanted)


_CONVERTED = ("NUMBER", "FLOAT", "DATE", "TIMESTAMP")
_TEXTS = ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR")
_YEARS = re.compile(r"\s*([-+]?)(\d{1,9})-(\d{1,2})\s*")
_DAYS = re.compile(r"\s*([-+]?)(\d{1,9}) (\d{1,2}):(\d\d):(\d\d)(?:\.(\d{1,9}))?\s*")


def _year_month(text: str) -> YearMonth:
    found = _YEARS.fullmatch(text)
    if found is None or int(found[3]) > 11:
        raise OracleError(1867, "the interval is invalid")
    months = int(found[2]) * 12 + int(found[3])
    return YearMonth(-months if found[1] == "-" else months)


def _day_second(text: str) -> DaySecond:
    found = _DAYS.fullmatch(text)
    if found is None:
        raise OracleError(1867, "the interval is invalid")
    days, hours, minutes, seconds = (int(part) for part in found.group(2, 3, 4, 5))
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    nanos = whole * 10**9 + int((found[6] or "").ljust(9, "0"))
    return DaySecond(-nanos if found[1] == "-" else nanos)


def _vector(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


def _json(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def _binary(code: str) -> Callable[[bytes], float]:
    return lambda data: float(struct.unpack(code, data)[0])


_MAKERS: dict[str, Callable[..., Any]] = {
    "TO_YMINTERVAL": _year_month,
    "TO_DSINTERVAL": _day_second,
    "TO_VECTOR": _vector,
    "JSON": _json,
    "XMLTYPE": str,
    "UTL_RAW.CAST_TO_NUMBER": decode_number,
    "UTL_RAW.CAST_TO_BINARY_FLOAT": _binary(">f"),
    "UTL_RAW.CAST_TO_BINARY_DOUBLE": _binary(">d"),
}
"""Functions of one argument that only statements with values have here."""
_EMPTY: dict[str, Any] = {"EMPTY_CLOB": "", "EMPTY_BLOB": b""}


def evaluated(
    expression: Any, column: Column, environment: Environment, row: Sequence[Any] = ()
) -> Any:
    """Return the value of a column after an assignment.

    Args:
        row: The row that the expression may use, followed by its address.

    Raises:
        OracleError: The value does not fit, or the expression is wrong.
    """
    name = expression.name if isinstance(expression, Call) else ""
    if name in _EMPTY:
        return _EMPTY[name]
    if name in _MAKERS:
        inner = compiled(expression.arguments[0], environment).value(row)
        return None if inner is None else _MAKERS[name](inner)
    one = compiled(expression, environment)
    return _stored(one.value(row), one.type, column, environment.settings)


def _stored(value: Any, source: Type, column: Column, settings: dict[str, str]) -> Any:
    kind = column.type
    if value is None:
        return None
    if kind.name.startswith(_CONVERTED):
        return conversions.cast(value, source, kind, settings)
    if kind.name in _TEXTS:
        text = conversions.text_of(value, source, settings) or ""
        used = len(text) if kind.in_chars or kind.name[0] == "N" else len(text.encode())
        if used > (kind.length or 0):
            raise OracleError(12899, f'value too large for column "{column.name}" (actual: {used})')
        return text
    if kind.name == "UROWID" and isinstance(value, str) and not value.startswith("*"):
        return Rowid.parse(value)
    if kind.name in ("RAW", "BLOB", "LONG RAW") and isinstance(value, str):
        return bytes.fromhex(value)
    if kind.name in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return float(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A statement."""

    kind: str
    """insert, update or delete."""
    owner: str | None
    name: str
    columns: tuple[str, ...] = ()
    """The ones that get values; of an INSERT none for all."""
    values: tuple[Any, ...] = ()
    condition: Any = None


@dataclass(slots=True, kw_only=True)
class _Pending:
    """A change that waits for its session's commit."""

    change: Change
    table: Table
    environment: Environment
    rows: list[Row]
    """Of an INSERT."""


class DataManipulation:
    """The open transactions of all sessions, by sid."""

    def __init__(self, database: Changeable) -> None:
        self._database = database
        self._pending: dict[int, list[_Pending]] = {}

    def run(self, session: SessionState, sql: str, binds: list[Any]) -> Answer:
        """Take a statement into the session's transaction; count the rows that it would change now.

        Raises:
            OracleError: As Oracle would refuse it.
        """
        change = parse_change(sql)
        table = self._database.writable(session, change.owner, change.name)
        environment = Environment(
            user=session.user, settings=session.settings, binds=binds, columns=table.columns,
            aliases=frozenset((table.name,)), rowid=Type(name="ROWID"),
        )  # fmt: skip
        waiting = self._pending.setdefault(session.sid, [])
        if change.kind == "insert":
            row = _new_row(change, table, environment)
            last = waiting[-1] if waiting else None
            if last is not None and last.change.kind == "insert" and last.table is table:
                last.rows.append(row)
            else:
                pending = _Pending(change=change, table=table, environment=environment, rows=[row])
                waiting.append(pending)
            return Answer(kind="insert", count=1)
        pending = _Pending(change=change, table=table, environment=environment, rows=[])
        with self._database.lock:
            count = sum(1 for _ in _found(pending, self._database.scn))
        waiting.append(pending)
        return Answer(kind=change.kind, count=count)

    def roll_back(self, sid: int) -> None:
        self._pending.pop(sid, None)

    def commit(self, sid: int) -> None:
        """Let a session's transaction happen, all of it at the next SCN."""
        waiting = self._pending.pop(sid, [])
        database = self._database
        if not waiting:
            return
        with database.lock:
            database.scn += 1
            for pending in waiting:
                if pending.change.kind == "insert":
                    self._insert(pending.table, pending.rows)
                else:
                    self._apply(pending)
            database.catalog.version += 1

    def _insert(self, table: Table, rows: Iterable[Row]) -> None:
        groups: dict[int, list[Row]] = {}
        for row in table.prepared(rows):
            groups.setdefault(id(table.segment_for(row)), []).append(row)
        chosen = [segment for segment in table.segments if id(segment) in groups]
        self._database.make_room(
            table, {id(segment): len(segment) + len(groups[id(segment)]) for segment in chosen}
        )
        for segment in chosen:
            segment.append(groups[id(segment)], self._database.scn)

    def _apply(self, pending: _Pending) -> None:
        scn, table = self._database.scn, pending.table
        moved: list[Row] = []
        for segment, position, row in list(_found(pending, scn)):
            if pending.change.kind == "delete":
                segment.change(position, None, scn)
                continue
            new = _changed(pending, row)
            if table.segment_for(new) is segment:
                segment.change(position, new, scn)
            else:
                segment.change(position, None, scn)
                moved.append(new)
        if moved:
            self._insert(table, moved)


def _found(pending: _Pending, scn: int) -> Iterator[tuple[Segment, int, Row]]:
    """Yield segment, position and values of the rows that a statement means."""
    table, environment = pending.table, pending.environment
    parts = [] if pending.change.condition is None else conjuncts(pending.change.condition)
    key = next((found for part in parts if (found := _equals(part, table, environment))), None)
    tests = [compiled(part, environment) for part in parts]
    for segment in table.segments:
        for position, row in segment.view(scn).rows():
            # Almost every statement of a test names one row; this finds it fast.
            if key is not None and row[key[0]] != key[1]:
                continue
            address = (table.rowid(segment, position, row),)
            if all(test.value((*row, *address)) for test in tests):
                yield segment, position, row


def _equals(part: Any, table: Table, environment: Environment) -> tuple[int, Any] | None:
    if not (isinstance(part, Call) and part.name == "=" and isinstance(part.arguments[0], Name)):
        return None
    left, right = part.arguments
    names = [column.name for column in table.columns]
    if left.name not in names or not isinstance(right, (Constant, Bind)):
        return None
    place = names.index(left.name)
    value = compiled(right, environment).now()
    is_number = table.columns[place].type.name == "NUMBER" and isinstance(value, int)
    return (place, value) if is_number else None


def _new_row(change: Change, table: Table, environment: Environment) -> Row:
    names = change.columns or tuple(column.name for column in table.columns)
    if len(names) != len(change.values):
        code, text = (947, "not enough values") if len(names) > len(change.values) else (
            913, "too many values",
        )  # fmt: skip
        raise OracleError(code, text)
    row: list[Any] = [None] * len(table.columns)
    for name, expression in zip(names, change.values, strict=True):
        place = table.index_of(name)
        row[place] = evaluated(expression, table.columns[place], environment)
    return tuple(row)


def _changed(pending: _Pending, row: Row) -> Row:
    table, new = pending.table, list(row)
    for name, expression in zip(pending.change.columns, pending.change.values, strict=True):
        place = table.index_of(name)
        new[place] = evaluated(expression, table.columns[place], pending.environment, row)
    return next(table.prepared([new]))


@lru_cache(maxsize=256)
def parse_change(sql: str) -> Change:
    """Return an INSERT of one row, an UPDATE or a DELETE.

    Raises:
        OracleError: It is another statement.
    """
    parser = Parser(sql, tokens(sql))
    first = parser.take().value
    if first in ("INSERT", "DELETE"):
        parser.accept("INTO" if first == "INSERT" else "FROM")
    owner, name = table_name(parser)
    if first == "INSERT":
        columns = _names(parser) if parser.accept("(") else ()
        parser.expect("VALUES")
        parser.expect("(")
        change = Change(
            kind="insert", owner=owner, name=name, columns=columns, values=_expressions(parser)
        )
    elif first == "UPDATE":
        parser.expect("SET")
        pairs = _assignments(parser)
        change = Change(
            kind="update", owner=owner, name=name, columns=tuple(pairs),
            values=tuple(pairs.values()), condition=_where(parser),
        )  # fmt: skip
    else:
        change = Change(kind="delete", owner=owner, name=name, condition=_where(parser))
    parser.accept(";")
    if parser.token.kind != "end":
        raise OracleError(933, "SQL command not properly ended", parser.token.start)
    return change


def table_name(parser: Parser) -> tuple[str | None, str]:
    """Return the owner, if there is one, and the name that come next."""
    name = parser.identifier()
    return (name, parser.identifier()) if parser.accept(".") else (None, name)


def _names(parser: Parser) -> tuple[str, ...]:
    found = [parser.identifier()]
    while parser.accept(","):
        found.append(parser.identifier())
    parser.expect(")")
    return tuple(found)


def _expressions(parser: Parser) -> tuple[Any, ...]:
    found = [parser.condition()]
    while parser.accept(","):
        found.append(parser.condition())
    parser.expect(")")
    return tuple(found)


def _assignments(parser: Parser) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    while True:
        name = parser.identifier()
        parser.expect("=")
        pairs[name] = parser.condition()
        if not parser.accept(","):
            return pairs


def _where(parser: Parser) -> Any:
    return parser.condition() if parser.accept("WHERE") else None
