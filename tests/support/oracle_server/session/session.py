"""One logged-in session: its open cursors, and what each call answers.

Replies are made of pieces that are sent as they are taken; what has to happen on the way, a stall
or a cut, is said beside them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, cast

from oracle_server.faults import Fault, Faults
from oracle_server.model import Answer, Executor, OracleError, SessionState
from oracle_server.session.authentication import user_name
from oracle_server.session.cursors import Cursor, Reply
from oracle_server.wire import calls
from oracle_server.wire.announcements import session_changes
from oracle_server.wire.binds import BindType, bind_directions
from oracle_server.wire.calls import Execute, Head, LobOperation
from oracle_server.wire.errors import (
    STATUS_DDL,
    STATUS_DONE,
    STATUS_ENDED,
    STATUS_TRANSACTION,
    Outcome,
    parameters,
)
from oracle_server.wire.negotiation import Terms
from oracle_server.wire.packets import Pause, Piece
from oracle_server.wire.piggybacks import Piggybacks
from oracle_server.wire.rows.describe import describe
from oracle_server.wire.rows.lobs import LOCATOR_LENGTH, Locators
from oracle_server.wire.rows.row_sets import EncodedRows, RowCursor, RowSet

Rows = RowSet | EncodedRows

_CHANGES = frozenset({"insert", "update", "delete", "merge"})
_ENDS_TRANSACTION = frozenset({"ddl", "commit", "rollback"})
_QUERY = re.compile(r"[\s(]*(select|with)\b", re.IGNORECASE)


class Database(Executor, Protocol):
    """What stands behind the wire."""

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
        """Statements and names come without a length of their own."""
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
        """Do what came before a call.

        Raises:
            OracleError: There is no such schema.
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
            OracleError: There is no such locator or operation, or a fault is due.
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
        """Status of a call that changes nothing."""
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
    """Tell whether the first rows come with the reply.

    Go and Java clients say how many rows they take and leave the option out; they get them all the
    same. Python and Node mean it when they leave it out, of a query with LOBs that are defined.
    """
    if request.has(calls.OPTION_FETCH):
        return True
    return request.has(calls.OPTION_EXECUTE) and request.rows > 0 and cursor.defines is None
