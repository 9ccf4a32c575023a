"""INSERT, UPDATE and DELETE in transactions of sessions.

What a session changes waits until it commits, and then happens at one SCN. Until then nobody sees
it, the session itself included: the tests that change tables never look before they commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from oracle_server.data.tables import Row, Segment, Table
from oracle_server.model import Answer, OracleError, SessionState, Type
from oracle_server.sql.changes.changeable import Changeable
from oracle_server.sql.changes.data_values import evaluated
from oracle_server.sql.expressions.compiling import compiled
from oracle_server.sql.expressions.evaluation import Environment
from oracle_server.sql.lexer import tokens
from oracle_server.sql.syntax import Bind, Call, Constant, Name, Parser, conjuncts


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A statement."""

    kind: str
    """insert, update or delete."""
    owner: str | None
    name: str
    columns: tuple[str, ...] = ()
    """Those that get values; of an INSERT none for all."""
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
        """Change that database."""
        self._database = database
        self._pending: dict[int, list[_Pending]] = {}

    def run(self, session: SessionState, sql: str, binds: list[Any]) -> Answer:
        """Take a statement into the session's transaction; count what it would change now.

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
        """Forget a session's transaction."""
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
    """Return place and value of `"COLUMN" = number`."""
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
        OracleError: It is none.
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
