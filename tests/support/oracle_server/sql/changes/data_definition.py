"""CREATE, DROP, TRUNCATE, ALTER, GRANT and REVOKE, as far as tests set tables up with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle_server.data.moments import ordered
from oracle_server.data.privileges import view_name
from oracle_server.data.tables import Row, hash_partition
from oracle_server.model import OracleError, SessionState
from oracle_server.sql.changes.changeable import Changeable
from oracle_server.sql.changes.data_manipulation import table_name
from oracle_server.sql.changes.table_texts import TableText, parse_table
from oracle_server.sql.expressions.compiling import compiled
from oracle_server.sql.expressions.evaluation import Environment
from oracle_server.sql.lexer import tokens
from oracle_server.sql.syntax import Parser

_ON_OBJECTS = {"SELECT", "READ", "FLASHBACK", "INSERT", "UPDATE", "DELETE", "ALL"}


class DataDefinition:
    """Runs statements that define things; each commits."""

    def __init__(self, database: Changeable) -> None:
        """Define things there."""
        self._database = database

    def run(self, session: SessionState, sql: str) -> None:
        """Run one statement.

        Raises:
            OracleError: As Oracle would refuse it, or it is beyond this module.
        """
        parser = Parser(sql, tokens(sql))
        first = parser.take().value
        if first == "CREATE":
            self._create(session, parser)
        elif first == "DROP":
            self._drop(session, parser)
        elif first == "TRUNCATE":
            parser.expect("TABLE")
            table = self._database.writable(session, *table_name(parser))
            self._database.truncate(table.owner, table.name)
        elif first == "ALTER":
            self._alter(session, parser)
        elif first in ("GRANT", "REVOKE"):
            self._grant(session, parser, given=first == "GRANT")
        elif first == "COMMENT":
            self._comment(session, parser)
        else:
            raise OracleError(900, "invalid SQL statement")

    def _create(self, session: SessionState, parser: Parser) -> None:
        database = self._database
        if parser.accept("OR"):
            parser.expect("REPLACE")
        public = parser.accept("PUBLIC")
        if parser.accept("USER"):
            name = parser.identifier()
            parser.expect("IDENTIFIED")
            parser.expect("BY")
            database.add_user(name, parser.take().value)
        elif parser.accept("TABLE"):
            self._create_table(session, parse_table(parser))
        elif parser.accept("VIEW"):
            owner, name = table_name(parser)
            parser.expect("AS")
            query = parser.sql[parser.token.start :]
            database.create_view(self._owner(session, owner), name, query)
        elif parser.accept("SYNONYM"):
            owner, name = table_name(parser)
            parser.expect("FOR")
            schema, target = table_name(parser)
            whose = "PUBLIC" if public else self._owner(session, owner)
            database.create_synonym(whose, name, (schema or session.schema, target))
        else:
            raise OracleError(901, "invalid CREATE command")

    def _comment(self, session: SessionState, parser: Parser) -> None:
        parser.expect("ON")
        parser.expect("TABLE")
        table = self._database.writable(session, *table_name(parser))
        parser.expect("IS")
        self._database.catalog.comments[table.owner, table.name] = parser.take().value
        self._database.catalog.version += 1

    def _owner(self, session: SessionState, owner: str | None) -> str:
        wanted = owner or session.schema
        if wanted != session.user and not self._database.may_change(session.user):
            raise OracleError(1031, "insufficient privileges")
        return wanted

    def _create_table(self, session: SessionState, text: TableText) -> None:
        database, owner = self._database, self._owner(session, text.owner)
        if database.catalog.find(owner, text.name, owner) is not None:
            raise OracleError(955, "name is already used by an existing object")
        database.create_table(
            owner,
            text.name,
            columns=tuple(text.columns),
            partitions=text.specs(),
            organization=text.organization,
            key=text.key,
            partition_of=_placement(text, session) if text.partitions else None,
            partition_key=text.partition_key,
            partitioning=text.partitioning or "HASH",
            rows_per_block=20,
        )

    def _drop(self, session: SessionState, parser: Parser) -> None:
        database = self._database
        kind = parser.take().value
        if kind == "PUBLIC":
            parser.expect("SYNONYM")
            database.catalog.synonyms.pop(("PUBLIC", parser.identifier()), None)
        elif kind == "USER":
            name = parser.identifier()
            if database.users.pop(name, None) is None:
                raise OracleError(1918, f"user '{name}' does not exist")
            for owned in [key for key in database.catalog.tables if key[0] == name]:
                database.drop_table(*owned)
        elif kind == "TABLE":
            table = database.writable(session, *table_name(parser))
            database.drop_table(table.owner, table.name)
            database.catalog.comments.pop((table.owner, table.name), None)
        elif kind in ("VIEW", "SYNONYM"):
            owner, name = table_name(parser)
            objects: dict[Any, Any] = (
                database.catalog.views if kind == "VIEW" else database.catalog.synonyms
            )
            objects.pop((owner or session.schema, name), None)
            database.catalog.version += 1
        else:
            raise OracleError(950, "invalid DROP option")

    def _alter(self, session: SessionState, parser: Parser) -> None:
        parser.expect("TABLE")
        table = self._database.writable(session, *table_name(parser))
        if parser.accept("TRUNCATE"):
            parser.expect("PARTITION")
            self._database.truncate(table.owner, table.name, parser.identifier())
        else:
            self._database.ddl(table.owner, table.name)

    def _grant(self, session: SessionState, parser: Parser, *, given: bool) -> None:
        """Give or take rights; those on packages and dictionary views are general ones here."""
        words = [""]
        while not parser.token.word("ON", "TO", "FROM"):
            token = parser.take()
            if token.kind == "end":
                raise OracleError(990, "missing or invalid privilege")
            if token.word(","):
                words.append("")
            else:
                words[-1] = f"{words[-1]} {token.value}".strip()
        on = table_name(parser) if parser.accept("ON") else None
        parser.take()
        user = parser.identifier()
        privileges = self._database.privileges
        change = privileges.grant if given else privileges.revoke
        for word in words:
            if on is None:
                change(user, word)
            elif word in _ON_OBJECTS and on[0] != "SYS":
                change(user, word, (self._owner(session, on[0]), on[1]))
            else:
                change(user, view_name(on[1]))


def _placement(text: TableText, session: SessionState) -> Callable[[Row], Any]:
    """Return what gives the partition or sub-partition of a row."""
    names = [column.name for column in text.columns]
    environment = Environment(user=session.user, settings=session.settings)
    place = names.index(text.partition_key[0])
    below = names.index(text.subpartition_key[0]) if text.subpartition_key else 0
    bounds = [
        [None if bound is None else _comparable(compiled(bound, environment).now())
         for bound in partition.bound]
        for partition in text.partitions
    ]  # fmt: skip

    def partition_of(row: Row) -> Any:
        number = _number(text.partitioning, row[place], bounds)
        if number is None:
            raise OracleError(14400, "inserted partition key does not map to any partition")
        found = text.partitions[number]
        if not found.subpartitions:
            return number if not text.subpartition_key else found.name
        return found.subpartitions[hash_partition(row[below], len(found.subpartitions))]

    return partition_of


def _number(partitioning: str, value: Any, bounds: list[list[Any]]) -> int | None:
    if partitioning == "HASH":
        return hash_partition(value, len(bounds))
    key = _comparable(value)
    for number, wanted in enumerate(bounds):
        if partitioning == "LIST":
            if key in wanted or wanted == [None]:
                return number
        elif wanted[0] is None or (key is not None and key < wanted[0]):
            return number
    return None


def _comparable(value: Any) -> Any:
    return ordered(value) if hasattr(value, "month") else value
