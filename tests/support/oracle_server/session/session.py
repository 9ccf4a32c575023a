"""A logged-in client: its statements, cursors, LOBs, and settings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from oracle_server.data.definitions import Definitions
from oracle_server.faults import Fault, Faults
from oracle_server.model import Answer, Column, Executor, OracleError, SessionState
from oracle_server.wire import requests as calls
from oracle_server.wire.channel import Pause, Piece
from oracle_server.wire.errors import (
    STATUS_DDL,
    STATUS_DONE,
    STATUS_ENDED,
    STATUS_TRANSACTION,
    Outcome,
    parameters,
    session_changes,
)
from oracle_server.wire.lobs import LOCATOR_LENGTH, Locators
from oracle_server.wire.negotiation import Terms
from oracle_server.wire.requests import (
    BindType,
    Execute,
    Head,
    LobOperation,
    Piggybacks,
    bind_directions,
)
from oracle_server.wire.row_replies import EncodedRows, RowCursor, RowSet, describe, needs_define

_KNOWN = (
    "NLS_", "OPTIMIZER_", "PARALLEL_", "STATISTICS_LEVEL", "CURSOR_SHARING", "TIME_ZONE",
    "DB_FILE_MULTIBLOCK_READ_COUNT", "ISOLATION_LEVEL", "EVENTS", "TRACEFILE_IDENTIFIER",
    "SQL_TRACE", "WORKAREA_SIZE_POLICY", "SORT_AREA_SIZE", "RESUMABLE", "DDL_LOCK_TIMEOUT", "_",
    "CONTAINER", "EDITION", "ERROR_ON_OVERLAP_TIME", "INMEMORY_QUERY",
)  # fmt: skip
_SETTING = re.compile(
    r"""\s*("[^"]+"|[\w$#]+)\s*=\s*('(?:[^']|'')*'|"[^"]*"|[-+\w$#.:]+)\s*""", re.DOTALL
)
_PARALLEL = re.compile(
    r"(ENABLE|DISABLE|FORCE)\s+PARALLEL\s+(QUERY|DML|DDL)(\s+PARALLEL\s+\d+)?\s*$"
)


def user_name(text: str) -> str:
    """Return a user's name as the dictionary has it: upper case unless quoted."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    return text.upper()


def alter_session(session: SessionState, sql: str, users: dict[str, Any]) -> Answer:
    """Take over ALTER SESSION into the session's settings.

    Raises:
        OracleError: ORA-00922 or ORA-02248 for an unknown setting, ORA-01435 for an unknown schema.
    """
    body = re.sub(r"(?is)^\s*ALTER\s+SESSION\s+", "", sql).strip().rstrip(";")
    parallel = _PARALLEL.match(body.upper())
    if parallel:
        session.settings[f"PARALLEL {parallel[2]}"] = parallel[1]
        return Answer(kind="alter session")
    match = re.match(r"(?i)SET\s+", body)
    if match is None:
        raise OracleError(922, "missing or invalid option")
    at = match.end()
    while at < len(body):
        setting = _SETTING.match(body, at)
        if setting is None:
            raise OracleError(922, "missing or invalid option", at)
        _set(session, setting[1].strip('"').upper(), setting[2], users)
        at = setting.end()
    return Answer(kind="alter session")


def _set(session: SessionState, name: str, written: str, users: dict[str, Any]) -> None:
    value = written[1:-1].replace("''", "'") if written[0] in "'\"" else written
    if name == "CURRENT_SCHEMA":
        schema = value if written[0] == '"' else value.upper()
        if schema not in users:
            raise OracleError(1435, "user does not exist")
        session.schema = schema
        return
    if not name.startswith(_KNOWN):
        raise OracleError(2248, "invalid option for ALTER SESSION")
    if name == "TIME_ZONE" and value.upper() == "LOCAL":
        value = "+00:00"
    session.settings[name] = value


def run_block(sql: str) -> Answer:
    """Run a PL/SQL block that does nothing.

    Raises:
        OracleError: ORA-06550 for anything else.
    """
    body = re.sub(r"(?is)^\s*(CALL|BEGIN)\s|\bEND\s*;?\s*$", "", sql.strip().rstrip("/").strip())
    if body.strip(" \n\t;").upper() not in ("", "NULL"):
        raise _undeclared(body)
    return Answer(kind="plsql")


def _undeclared(name: str) -> OracleError:
    short = name.split("(")[0].strip().upper()
    return OracleError(
        6550,
        f"line 1, column 7:\nPLS-00201: identifier '{short}' must be declared\n"
        "ORA-06550: line 1, column 7:\nPL/SQL: Statement ignored",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Bytes to send, and the action after them."""

    pieces: Iterable[Piece]
    fault: Fault | None = None
    """A `cut`, `reset` or `trickle`; a stall is among the pieces."""


@dataclass(slots=True, kw_only=True)
class Cursor:
    """One open cursor of a session."""

    number: int
    statement: str
    columns: tuple[Column, ...] | None = None
    """None for other statements."""
    rows: RowCursor | None = None
    """None: it was not executed, or failed."""
    kind: str = ""
    """Of its last Answer."""
    changed: int = 0
    """Rows that its last execution changed."""
    defines: tuple[int, ...] | None = None
    prefetches: tuple[int, ...] = ()
    bind_types: tuple[BindType, ...] = ()
    faults: tuple[Fault, ...] = ()
    """The ones that may happen to this execution."""
    slow: Fault | None = None
    """A trickle that has begun."""

    @property
    def is_ready(self) -> bool:
        """Rows may come: with LOB columns a client has to define them first."""
        return self.defines is not None or not needs_define(self.columns or ())

    def next_rows(self, asked: int, locators: Locators, faults: Faults) -> Reply:
        """Return the next rows, and the fault to send them with.

        Raises:
            OracleError: A fault is due; this reply's rows are lost, as they are on real servers.
        """
        rows = self.rows
        assert rows is not None
        before = rows.rows_so_far
        limits = [fault.torn_at(before) for fault in self.faults]
        # If another execution claims the fault first, the reply is short, which is harmless.
        limit = min([asked, *(each for each in limits if each is not None)])
        data = rows.take(
            limit, locators, defines=self.defines, prefetches=self.prefetches, asked=asked
        )
        for fault in self.faults:
            if not fault.is_due(before, rows.rows_so_far, rows.done) or not faults.claim(fault):
                continue
            if fault.error is not None:
                rows.rows_so_far = before
                raise fault.error
            if fault.kind == "stall":
                return Reply(pieces=_with_pause(data, fault), fault=self.slow)
            if fault.kind == "trickle":
                self.slow = fault
                break
            return Reply(pieces=[memoryview(data)[:-1]], fault=fault)
        return Reply(pieces=[data], fault=self.slow)

    def without_rows(self, faults: Faults) -> Reply:
        """Return the start of a reply to a statement without rows.

        Raises:
            OracleError: A fault is due that is an error.
        """
        for fault in self.faults:
            if fault.after_rows or not faults.claim(fault):
                continue
            if fault.error is not None:
                raise fault.error
            pause = [fault.pause] if fault.kind == "stall" else []
            return Reply(pieces=pause, fault=None if pause else fault)
        return Reply(pieces=[])


def _with_pause(data: bytes, fault: Fault) -> list[Piece]:
    """Return a reply that stops half way, or before its first byte if it is the first one."""
    pause = fault.pause
    if fault.after_rows == 0:
        return [pause, data]
    view = memoryview(data)
    middle = len(data) // 2
    return [view[:middle], pause, view[middle:]]


Rows = RowSet | EncodedRows
_CHANGES = frozenset({"insert", "update", "delete", "merge"})
_ENDS_TRANSACTION = frozenset({"ddl", "commit", "rollback"})
_QUERY = re.compile(r"[\s(]*(select|with)\b", re.IGNORECASE)


class Database(Executor, Protocol):
    """The database of a session."""

    scn: int


class Session:
    """What a client has opened, and the replies to its calls."""

    def __init__(
        self, state: SessionState, database: Database, faults: Faults, terms: Terms
    ) -> None:
        """Start without an open cursor."""
        self.state = state
        self.locators = Locators()
        self.calls = 0
        """Calls so far, which replies repeat."""
        self._database = database
        self._faults = faults
        self._terms = terms
        self._cursors: dict[int, Cursor] = {}
        self._numbers = itertools.count(1)
        self._in_transaction = False
        self._current: Cursor | None = None
        self._lob_faults: tuple[Fault, ...] = ()
        self._lob_calls = 0

    @property
    def field_version(self) -> int:
        """TTC field version that both sides agreed on."""
        return self._terms.field_version

    @property
    def bare_texts(self) -> bool:
        """Statements and names come without their own length."""
        return self._terms.bare_texts

    @property
    def bind_types(self) -> dict[int, tuple[BindType, ...]]:
        """Bind types of every open cursor, which re-executes do not repeat."""
        return {number: cursor.bind_types for number, cursor in self._cursors.items()}

    def begin(self) -> None:
        """Count a call, which has nothing to do with the cursor of the one before."""
        self.calls += 1
        self._current = None

    def apply(self, piggybacks: Piggybacks) -> None:
        """Perform the requests that precede a call.

        Raises:
            OracleError: The schema does not exist.
        """
        for number in piggybacks.cursors:
            self._cursors.pop(number, None)
        for name, value in piggybacks.attributes.items():
            if hasattr(self.state, name):
                setattr(self.state, name, value)
        for locators in piggybacks.locators:
            for start in range(0, len(locators), LOCATOR_LENGTH):
                self.locators.free(locators[start : start + LOCATOR_LENGTH])
        if piggybacks.schema:
            schema = user_name(piggybacks.schema)
            self._database.execute(self.state, f'ALTER SESSION SET CURRENT_SCHEMA = "{schema}"')

    def execute(self, head: Head, request: Execute) -> Reply:
        """Answer functions 94, 78 and 4.

        Raises:
            OracleError: The statement is refused, or a fault is due.
        """
        cursor = self._cursor_for(request)
        self._current = cursor
        before = (self.state.schema, self.state.settings.get("TIME_ZONE"))
        if request.defines is not None:
            cursor.defines, cursor.prefetches = request.defines, request.prefetches
            start = Reply(pieces=[])
        elif request.has(calls.OPTION_EXECUTE):
            start = self._run(cursor, request)
        else:
            self.state.statements.append(cursor.statement)
            cursor.columns = self._database.describe(self.state, cursor.statement)
            start = Reply(pieces=[])
        pieces = [*self._preface(cursor, request), *start.pieces]
        fault = start.fault
        if cursor.rows is not None and cursor.is_ready and _wants_rows(request, cursor):
            rows = cursor.next_rows(request.rows, self.locators, self._faults)
            fault = rows.fault
            first, *others = rows.pieces
            pieces = [first, *pieces] if isinstance(first, Pause) else [*pieces, first]
            pieces += others
        if fault is not None and fault.closes:
            return Reply(pieces=pieces, fault=fault)
        if head.function == calls.EXECUTE:
            pieces.append(parameters(self._database.scn, cursor.number, self._in_transaction))
        pieces += session_changes(self.state, *before)
        pieces.append(self._end(head, iterations=1))
        return Reply(pieces=pieces, fault=fault)

    def fetch(self, head: Head, number: int, asked: int) -> Reply:
        """Answer function 5.

        Raises:
            OracleError: The cursor has no rows to give, or a fault is due.
        """
        cursor = self._find(number)
        self._current = cursor
        if cursor.rows is None:
            raise OracleError(1002, "fetch out of sequence")
        rows = cursor.next_rows(asked, self.locators, self._faults)
        if rows.fault is not None and rows.fault.closes:
            return rows
        return replace(rows, pieces=[*rows.pieces, self._end(head)])

    def operate(self, head: Head, request: LobOperation) -> Reply:
        """Answer function 96.

        Raises:
            OracleError: The locator or operation is unknown, or a fault is due.
        """
        fault = self._lob_fault()
        pieces = self.locators.operate(
            request.operation,
            request.locator,
            offset=request.offset,
            amount=request.amount,
            has_amount=request.has_amount,
            data=request.data,
            charset_form=request.offset,
            type_number=request.destination_offset,
        )
        end = self._end(head)
        if fault is not None and fault.kind == "stall":
            return Reply(pieces=itertools.chain((fault.pause,), pieces, (end,)))
        return Reply(pieces=itertools.chain(pieces, (end,)), fault=fault)

    def finish(self, statement: str) -> int:
        """Commit or roll back and return the status to report."""
        self._database.execute(self.state, statement)
        self._in_transaction = False
        return STATUS_ENDED

    @property
    def status(self) -> int:
        return STATUS_DONE | (STATUS_TRANSACTION if self._in_transaction else 0)

    def fail(self, head: Head, error: OracleError) -> bytes:
        """Return the OER of a call that failed; its cursor gives no more rows."""
        reply = self._encoded(self._outcome(head, error=error))
        if self._current is not None:
            self._current.rows = None
        return reply

    def _end(self, head: Head, *, iterations: int = 0) -> bytes:
        return self._encoded(self._outcome(head, iterations=iterations))

    def _encoded(self, outcome: Outcome) -> bytes:
        return outcome.encode(self._terms.field_version, wide=self._terms.wide_scale)

    def _outcome(
        self, head: Head, *, error: OracleError | None = None, iterations: int = 0
    ) -> Outcome:
        """Return how a call ended, about the cursor it used."""
        common = Outcome(
            call=head.call,
            sequence=self.calls,
            status=self.status,
            error=error,
            iterations=iterations,
        )
        cursor = self._current
        if cursor is None:
            return common
        rows = cursor.rows
        status = self.status | (STATUS_DDL if cursor.kind == "ddl" and error is None else 0)
        return replace(
            common,
            status=status,
            cursor=cursor.number,
            rows=cursor.changed if rows is None else rows.rows_so_far,
            end_of_rows=rows is not None and rows.done and error is None,
            flags=0 if rows is None else rows.oer_flags,
            kind=cursor.kind,
        )

    def _cursor_for(self, request: Execute) -> Cursor:
        if request.cursor:
            cursor = self._find(request.cursor)
            if request.statement is not None:
                cursor.statement, cursor.columns, cursor.defines = request.statement, None, None
        elif request.statement is None:
            raise OracleError(1001, "invalid cursor")
        else:
            cursor = Cursor(number=next(self._numbers), statement=request.statement)
            self._cursors[cursor.number] = cursor
        if request.bind_types is not None:
            cursor.bind_types = request.bind_types
        return cursor

    def _find(self, number: int) -> Cursor:
        cursor = self._cursors.get(number)
        if cursor is None:
            raise OracleError(1001, "invalid cursor")
        return cursor

    def _run(self, cursor: Cursor, request: Execute) -> Reply:
        """Run a cursor's statement once for each row of binds, and return the reply's start."""
        statement = cursor.statement
        self.state.statements.append(statement)
        cursor.rows, cursor.slow, cursor.changed = None, None, 0
        cursor.faults = self._faults.armed("rows", statement)
        self._lob_faults = self._faults.armed("lob", statement) or self._lob_faults
        self._lob_calls = 0
        start = Reply(pieces=[])
        if not _QUERY.match(statement):
            start = cursor.without_rows(self._faults)
            if start.fault is not None and start.fault.closes:
                return start
        for binds in request.bind_rows:
            answer = self._database.execute(self.state, statement, binds)
            self._take_over(cursor, answer)
        if request.has(calls.OPTION_COMMIT) and self._in_transaction:
            self.finish("COMMIT")
        return start

    def _take_over(self, cursor: Cursor, answer: Answer) -> None:
        cursor.kind = answer.kind
        cursor.changed += answer.count
        if answer.rows is not None:
            cursor.rows = RowCursor(cast(Rows, answer.rows), vectors=self._terms.vectors)
            cursor.columns = answer.rows.columns
        elif answer.kind in _CHANGES:
            self._in_transaction = True
        elif answer.kind in _ENDS_TRANSACTION:
            self._in_transaction = False

    def _preface(self, cursor: Cursor, request: Execute) -> Iterator[Piece]:
        """Yield what stands before the rows of a statement that was parsed just now."""
        if request.statement is None:
            return
        if cursor.columns is not None:
            yield describe(
                cursor.columns,
                field_version=self._terms.field_version,
                wide_scale=self._terms.wide_scale,
                statement=cursor.statement,
                charset=self._terms.charset,
            )
        if cursor.kind == "plsql" and cursor.bind_types:
            yield bind_directions(len(cursor.bind_types))

    def _lob_fault(self) -> Fault | None:
        """Return the fault that this LOB operation is to have.

        Raises:
            OracleError: It is an error.
        """
        before = self._lob_calls
        self._lob_calls += 1
        for fault in self._lob_faults:
            if fault.is_due(before, before + 1, False) and self._faults.claim(fault):
                if fault.error is not None:
                    raise fault.error
                return fault
        return None


def _wants_rows(request: Execute, cursor: Cursor) -> bool:
    """Report whether the first rows come with the reply.

    Go and Java clients send a number of rows and leave the option out; they still get rows. Python
    and Node leave it out on purpose, for a query with defined LOBs.
    """
    if request.has(calls.OPTION_FETCH):
        return True
    return request.has(calls.OPTION_EXECUTE) and request.rows > 0 and cursor.defines is None


LANGUAGE = (
    ("LXLAN", "AMERICAN", "NLS_LANGUAGE", 16),
    ("LXCTERRITORY", "AMERICA", "NLS_TERRITORY", 9),
    ("LXCCURRENCY", "$", "NLS_CURRENCY", 0),
    ("LXCISOCURR", "AMERICA", "NLS_ISO_CURRENCY", 1),
    ("LXCNUMERICS", ".,", "NLS_NUMERIC_CHARACTERS", 2),
    ("LXCDATEFM", "DD-MON-RR", "NLS_DATE_FORMAT", 7),
    ("LXCDATELANG", "AMERICAN", "NLS_DATE_LANGUAGE", 8),
    ("LXCSORT", "BINARY", "NLS_SORT", 11),
    ("LXCCALENDAR", "GREGORIAN", "NLS_CALENDAR", 12),
    ("LXCUNIONCUR", "$", "NLS_DUAL_CURRENCY", 52),
    ("LXCTIMEFM", "HH.MI.SSXFF AM", "NLS_TIME_FORMAT", 57),
    ("LXCSTMPFM", "DD-MON-RR HH.MI.SSXFF AM", "NLS_TIMESTAMP_FORMAT", 58),
    ("LXCTTZNFM", "HH.MI.SSXFF AM TZR", "NLS_TIME_TZ_FORMAT", 59),
    ("LXCSTZNFM", "DD-MON-RR HH.MI.SSXFF AM TZR", "NLS_TIMESTAMP_TZ_FORMAT", 60),
    ("LXLENSEMANTICS", "BYTE", "NLS_LENGTH_SEMANTICS", 61),
    ("LXNCHARCONVEXCP", "FALSE", "NLS_NCHAR_CONV_EXCP", 62),
    ("LXCOMP", "BINARY", "NLS_COMP", 50),
)
"""Key of the login, default, name of the setting, number of the keyword in message 23."""
NLS_PARAMETERS = {
    "NLS_CHARACTERSET": "AL32UTF8",
    "NLS_NCHAR_CHARACTERSET": "AL16UTF16",
    **{name: value for _, value, name, _ in LANGUAGE},
}
"""The database's own settings."""
VERSIONS = {
    "19c": ("19.0.0.0.0", "19.22.0.0.0", "Oracle Database 19c Enterprise Edition Release"),
    "21c": ("21.0.0.0.0", "21.3.0.0.0", "Oracle Database 21c Express Edition Release"),
    "23ai": ("23.0.0.0.0", "23.26.1.0.0", "Oracle AI Database 26ai Free Release"),
}
"""Version, full version and product by the mode of the server."""


def answer(
    database: Definitions, session: SessionState, name: str, arguments: Sequence[Any]
) -> Any:
    """Return the value of a function that depends on session or database.

    Raises:
        OracleError: ORA-00904 where the right to a package is missing.
    """
    check_function(database, session.user, name)
    if name in ("DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER", "TIMESTAMP_TO_SCN"):
        return database.scn
    if name == "USER":
        return session.user
    if name == "DBTIMEZONE":  # JDBC asks for it.
        return "+00:00"
    context = {"CURRENT_SCHEMA": session.schema, "SERVICE_NAME": "freepdb1"}
    found = context.get(str(arguments[-1]).upper())
    if found is None:
        raise OracleError(2003, "invalid USERENV parameter")
    return found


def check_function(database: Definitions, user: str, name: str) -> None:
    """Refuse a function that a user may not call.

    Raises:
        OracleError: ORA-00904 for a package out of reach, ORA-08180 without a mapping of times to
            SCNs.
    """
    package, _, function = name.partition(".")
    if function and not database.privileges.has(user, package):
        raise OracleError(904, f'"{package}"."{function}": invalid identifier')
    if name == "TIMESTAMP_TO_SCN" and not database.privileges.has(user, name):
        raise OracleError(8180, "no snapshot found based on specified time")
