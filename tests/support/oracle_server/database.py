"""The database of the test server: objects, rights, one SCN, and the statements that read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import RLock
from typing import Any

from oracle_server.data.definitions import Catalog, Definitions, View
from oracle_server.data.privileges import Privileges
from oracle_server.data.tables import Row, SegmentView, Storage, Table
from oracle_server.dictionary.views import Dictionary
from oracle_server.model import Answer, Column, OracleError, SessionState
from oracle_server.session import session as session_answers
from oracle_server.session.session import alter_session, run_block
from oracle_server.sql.evaluation import Compiled, Environment
from oracle_server.sql.fallback import Fallback, Shadows
from oracle_server.sql.queries import Context, Queries, Result, TableScan
from oracle_server.sql.statement import Condition, parse_query
from oracle_server.sql.syntax import Token, Unsupported, tokens
from oracle_server.wire.row_replies import Encodings

_CHANGES = {
    "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "DROP", "ALTER", "TRUNCATE", "GRANT", "REVOKE",
    "LOCK", "COMMENT", "ANALYZE", "EXPLAIN", "RENAME", "PURGE", "FLASHBACK", "AUDIT",
}  # fmt: skip


class Database(Definitions):
    """An Oracle database as far as reading goes; tests change it through its methods.

    Every change is its own commit, which raises the SCN by one. All methods may be called
    from any thread.
    """

    def __init__(self, *, version: str = "23ai", first_scn: int = 2_281_708) -> None:
        """Start with the user SYS alone.

        Args:
            version: 19c, 21c or 23ai; error texts and banners depend on it.
            first_scn: The SCN before the first change.
        """
        self.version = version
        self.lock = RLock()
        self.scn = first_scn
        self.undo_from = 0
        self.catalog = Catalog()
        self.storage = Storage()
        self.privileges = Privileges()
        self.sessions = {}
        self.read_only: dict[int, int] = {}
        """SCN of the read-only transaction that a session has open, by sid."""
        self._queries = Queries(self)
        self._encodings = Encodings()
        self._shadows = Shadows()
        self._dictionary = Dictionary(self)
        self._fallback = Fallback(self, self._dictionary, self._shadows)
        self.add_user("SYS", "change_on_install", dba=True)

    def execute(self, session: SessionState, sql: str, binds: Iterable[Any] = ()) -> Answer:
        """Run one statement.

        Raises:
            OracleError: As an Oracle server would refuse it.
        """
        self.sessions[session.sid] = session
        found = tokens(sql)
        first = found[0]
        if first.word("SELECT", "WITH", "("):
            result = self.select(sql, self._context(session, found, binds), found)
            return Answer(kind="select", rows=self._encodings.source(result))
        if first.word("ALTER") and found[1].word("SESSION"):
            if not self.privileges.has(session.user, "ALTER SESSION"):
                raise OracleError(1031, "insufficient privileges")
            return alter_session(session, sql, self.users)
        if first.word("BEGIN", "DECLARE", "CALL"):
            return run_block(sql)
        return self._other(session, first, found)

    def _other(self, session: SessionState, first: Token, found: list[Token]) -> Answer:
        if first.word("COMMIT", "ROLLBACK"):
            self.read_only.pop(session.sid, None)
            return Answer(kind=first.value.lower())
        if first.word("SET", "SAVEPOINT"):
            if any(token.word("READ") for token in found) and any(t.word("ONLY") for t in found):
                self.read_only[session.sid] = self.scn
            return Answer(kind="ddl")
        if first.word(*_CHANGES):
            raise OracleError(1031, "insufficient privileges")
        raise OracleError(900, "invalid SQL statement")

    def describe(self, session: SessionState, sql: str) -> tuple[Column, ...] | None:
        """Return the columns a query would have, without running it; None for other statements.

        Raises:
            OracleError: The query is wrong.
        """
        found = tokens(sql)
        if not found[0].word("SELECT", "WITH", "("):
            return None
        context = self._context(session, found, ())
        context.dry = True
        return self.select(sql, context, found).columns

    def query(self, user: str, sql: str, binds: Iterable[Any] = ()) -> list[Row]:
        """Return the rows of a query as Python values, for tests that need no wire."""
        session = SessionState(user=user, schema=user, sid=0, serial=0)
        found = tokens(sql)
        result = self.select(sql, self._context(session, found, binds), found)
        return [tuple(row) for row in result.rows]

    def _context(self, session: SessionState, found: list[Token], binds: Iterable[Any]) -> Context:
        return Context(
            session=session,
            user=session.user,
            schema=session.schema,
            binds=_by_occurrence(found, list(binds)),
            scn=self.read_only.get(session.sid),
        )

    def select(self, sql: str, context: Context, found: list[Token] | None = None) -> Result:
        """Return what a query finds, by our own evaluator or else by DuckDB.

        Raises:
            OracleError: As Oracle would refuse it.
        """
        found = tokens(sql) if found is None else found
        try:
            return self._queries.run(parse_query(sql, found), context)
        except Unsupported:
            return self._fallback.run(sql, found, context)

    def found(
        self, owner: str | None, name: str, context: Context, position: int = 0
    ) -> Table | View | None:
        """Return the table or view that a statement names, None for one of the dictionary.

        Raises:
            OracleError: ORA-00942, ORA-01031.
        """
        with self.lock:
            relation = self.catalog.find(owner, name, context.schema)
        if relation is None:
            if self._dictionary.has(owner, name, context.user):
                return None
            if owner is None and self._dictionary.knows(name):
                owner = "SYS"
                name = name.replace("V$", "V_$", 1) if name.startswith(("V$", "GV$")) else name
            raise self.unknown(owner or context.schema, name, position)
        if not self.privileges.may_read(context.user, relation.owner, relation.name):
            if self.privileges.sees(context.user, relation.owner, relation.name):
                raise OracleError(1031, "insufficient privileges", position)
            raise self.unknown(relation.owner, relation.name, position)
        asked = context.scn is not None and context.session.sid not in self.read_only
        if asked and not self.privileges.may_flash_back(
            context.user, relation.owner, relation.name
        ):
            raise OracleError(1031, "insufficient privileges", position)
        return relation

    def unknown(self, owner: str, name: str, position: int = 0) -> OracleError:
        """Return ORA-00942, which has the name only in 23ai."""
        if self.version == "23ai":
            text = f'table or view "{owner}"."{name}" does not exist'
        else:
            text = "table or view does not exist"
        return OracleError(942, text, position)

    def views(self, table: Table, scn: int | None) -> list[SegmentView]:
        """Return the visible rows of every segment of a table.

        Raises:
            OracleError: ORA-08181, ORA-01555, ORA-01466: the SCN cannot be used.
        """
        with self.lock:
            at = self.scn if scn is None else scn
            if at > self.scn or at <= 0:
                text = "specified number is not a valid system change number"
                raise OracleError(8181, text)
            if at < table.definition_scn and table.definition_error is not None:
                error = table.definition_error
                raise OracleError(error.code, error.text)
            if at < self.undo_from:
                text = 'snapshot too old: rollback segment number 5 with name "_SYSSMU5$" too small'
                raise OracleError(1555, text)
            return [segment.view(at) for segment in table.segments]

    def answer(self, session: SessionState, name: str, arguments: Sequence[Any]) -> Any:
        """Return what only the database can say: USER, SYS_CONTEXT, the SCN.

        Raises:
            OracleError: ORA-00904 where the right to a package is missing.
        """
        return session_answers.answer(self, session, name, arguments)

    def check_function(self, user: str, name: str) -> None:
        """Refuse a function that a user may not call.

        Raises:
            OracleError: ORA-00904 for a package out of reach, ORA-08180 without a mapping of times
                to SCNs.
        """
        session_answers.check_function(self, user, name)

    def shadow_filter(
        self,
        scan: TableScan,
        conditions: list[Condition],
        environment: Environment,
        context: Context,
    ) -> Compiled:
        """Return a filter on single rows that DuckDB evaluates, for conditions beyond our own."""
        return self._fallback.filter(scan, conditions, environment, context)


def _by_occurrence(found: list[Token], binds: list[Any]) -> list[Any]:
    """Return one value for each bind in the statement, also where names come twice."""
    names = [token.value.upper() for token in found if token.kind == "bind"]
    distinct = list(dict.fromkeys(names))
    if len(binds) == len(distinct) < len(names):
        values = dict(zip(distinct, binds, strict=True))
        return [values[name] for name in names]
    return binds
