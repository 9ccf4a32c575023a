"""Statements that define tables, users, and rights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle_server.data.moments import ordered
from oracle_server.data.privileges import view_name
from oracle_server.data.tables import PartitionSpec, Row, hash_partition
from oracle_server.model import Column, OracleError, SessionState, Type
from oracle_server.sql.compiling import compiled
from oracle_server.sql.evaluation import Environment
from oracle_server.sql.manipulation import Changeable, table_name
from oracle_server.sql.syntax import Parser, tokens

_CHARACTERS = ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR", "RAW", "UROWID")
_WITHOUT_SIZE = {
    "DATE", "CLOB", "NCLOB", "BLOB", "BFILE", "ROWID", "XMLTYPE", "JSON", "BOOLEAN",
    "BINARY_FLOAT", "BINARY_DOUBLE",
}  # fmt: skip
_ATTRIBUTES = {"NOCOMPRESS", "NOLOGGING", "LOGGING", "SEGMENT", "CREATION", "IMMEDIATE"}


@dataclass(slots=True, kw_only=True)
class Partition:
    """A partition, its bound as expressions."""

    name: str
    bound: tuple[Any, ...] = ()
    """Of RANGE the values it stays below, of LIST those it has; None is MAXVALUE or DEFAULT."""
    high_value: str | None = None
    subpartitions: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class TableText:
    """What CREATE TABLE says."""

    owner: str | None
    name: str
    columns: list[Column] = field(default_factory=list)
    key: tuple[str, ...] = ()
    organization: str = "heap"
    partitioning: str = ""
    partition_key: tuple[str, ...] = ()
    partitions: list[Partition] = field(default_factory=list)
    subpartition_key: tuple[str, ...] = ()
    subpartitions: int = 0

    def specs(self) -> tuple[PartitionSpec, ...]:
        return tuple(
            PartitionSpec(name=p.name, subpartitions=p.subpartitions, high_value=p.high_value)
            for p in self.partitions
        )


def parse_table(parser: Parser) -> TableText:
    """Read what follows CREATE TABLE.

    Raises:
        OracleError: It is not understood.
    """
    owner, name = table_name(parser)
    table = TableText(owner=owner, name=name)
    parser.expect("(")
    while True:
        _element(parser, table)
        if not parser.accept(","):
            break
    parser.expect(")")
    _attributes(parser, table)
    for partition in table.partitions:
        if table.subpartitions and not partition.subpartitions:
            numbers = range(1, table.subpartitions + 1)
            partition.subpartitions = tuple(f"{partition.name}_S{n}" for n in numbers)
    return table


def _element(parser: Parser, table: TableText) -> None:
    if parser.accept("CONSTRAINT"):
        parser.identifier()
    if parser.accept("PRIMARY", "KEY"):
        table.key = _identifiers(parser)
        return
    name = parser.identifier()
    kind = column_type(parser)
    nullable = True
    while True:
        if parser.accept("NOT", "NULL"):
            nullable = False
        elif parser.accept("PRIMARY", "KEY"):
            table.key, nullable = (name,), False
        elif parser.accept("DEFAULT"):
            parser.sum()
        elif not parser.accept("NULL"):
            break
    table.columns.append(Column(name=name, type=kind, nullable=nullable))


def column_type(parser: Parser) -> Type:
    """Return the type that comes next in a definition of a column.

    Raises:
        OracleError: ORA-00902.
    """
    name = parser.identifier()
    if name == "SYS" and parser.accept("."):
        name = parser.identifier()
    if name == "LONG":
        return Type(name="LONG RAW" if parser.accept("RAW") else "LONG")
    if name == "INTERVAL":
        return _interval(parser)
    if name == "TIMESTAMP":
        scale = _size(parser) or [6]
        zone = ""
        if parser.accept("WITH"):
            zone = " WITH LOCAL TIME ZONE" if parser.accept("LOCAL") else " WITH TIME ZONE"
            parser.expect("TIME")
            parser.expect("ZONE")
        return Type(name=name + zone, scale=scale[0])
    if name in ("INTEGER", "INT", "SMALLINT"):
        return Type(name="NUMBER", scale=0)
    if name in ("NUMBER", "FLOAT"):
        return _numeric(name, _size(parser))
    if name == "VECTOR":
        size = _size(parser)
        return Type(name=name, length=size[0], element=str(size[1]) if len(size) > 1 else "FLOAT32")
    if name in _CHARACTERS:
        size = _size(parser) or [4000 if name == "UROWID" else 1]
        in_chars = name[0] == "N" or "CHAR" in size
        return Type(name=name, length=size[0], in_chars=in_chars)
    if name not in _WITHOUT_SIZE:
        raise OracleError(902, "invalid datatype", parser.token.start)
    return Type(name=name)


def _numeric(name: str, size: Sequence[Any]) -> Type:
    if name == "FLOAT":
        return Type(name=name, precision=size[0] if size else 126)
    if not size:
        return Type(name=name)
    precision = None if size[0] == "*" else size[0]
    return Type(name=name, precision=precision, scale=size[1] if len(size) > 1 else 0)


def _interval(parser: Parser) -> Type:
    if parser.accept("YEAR"):
        precision = (_size(parser) or [2])[0]
        parser.expect("TO")
        parser.expect("MONTH")
        return Type(name="INTERVAL YEAR TO MONTH", precision=precision)
    parser.expect("DAY")
    precision = (_size(parser) or [2])[0]
    parser.expect("TO")
    parser.expect("SECOND")
    scale = (_size(parser) or [6])[0]
    return Type(name="INTERVAL DAY TO SECOND", precision=precision, scale=scale)


def _size(parser: Parser) -> list[Any]:
    """Return the numbers and words in the parentheses that come next; none is an empty list."""
    found: list[Any] = []
    if not parser.accept("("):
        return found
    sign = 1
    while not parser.accept(")"):
        token = parser.take()
        if token.kind == "end":
            raise OracleError(907, "missing right parenthesis", token.start)
        if token.word("-"):
            sign = -1
        elif not token.word(","):
            found.append(sign * int(token.value) if token.kind == "number" else token.value)
            sign = 1
    return found


def _identifiers(parser: Parser) -> tuple[str, ...]:
    parser.expect("(")
    found = [parser.identifier()]
    while parser.accept(","):
        found.append(parser.identifier())
    parser.expect(")")
    return tuple(found)


def _attributes(parser: Parser, table: TableText) -> None:
    while parser.token.kind != "end" and not parser.accept(";"):
        if parser.accept("ORGANIZATION"):
            table.organization = parser.take().value.lower()
        elif parser.accept("PARTITION", "BY"):
            _partitions(parser, table)
        elif parser.accept("ENABLE", "ROW", "MOVEMENT") or parser.token.word(*_ATTRIBUTES):
            if parser.token.word(*_ATTRIBUTES):
                parser.take()
        elif parser.accept("PCTFREE") or parser.accept("TABLESPACE"):
            parser.take()
        else:
            raise OracleError(922, "missing or invalid option", parser.token.start)


def _partitions(parser: Parser, table: TableText) -> None:
    table.partitioning = parser.take().value
    table.partition_key = _identifiers(parser)
    if parser.accept("SUBPARTITION", "BY"):
        parser.expect("HASH")
        table.subpartition_key = _identifiers(parser)
        if parser.accept("SUBPARTITIONS"):
            table.subpartitions = int(parser.take().value)
    if parser.accept("PARTITIONS"):
        count = int(parser.take().value)
        table.partitions = [Partition(name=f"SYS_P{n}") for n in range(1, count + 1)]
        return
    parser.expect("(")
    while True:
        table.partitions.append(_partition(parser))
        if not parser.accept(","):
            break
    parser.expect(")")


def _partition(parser: Parser) -> Partition:
    parser.expect("PARTITION")
    partition = Partition(name=parser.identifier())
    if parser.accept("VALUES"):
        if parser.accept("LESS"):
            parser.expect("THAN")
        parser.expect("(")
        start = parser.token.start
        partition.bound = _bounds(parser)
        partition.high_value = parser.sql[start : parser.token.start].strip()
        parser.expect(")")
    if parser.accept("("):
        names = []
        while True:
            parser.expect("SUBPARTITION")
            names.append(parser.identifier())
            if not parser.accept(","):
                break
        parser.expect(")")
        partition.subpartitions = tuple(names)
    return partition


def _bounds(parser: Parser) -> tuple[Any, ...]:
    found = []
    while True:
        rest = parser.accept("MAXVALUE") or parser.accept("DEFAULT")
        found.append(None if rest else parser.condition())
        if not parser.accept(","):
            return tuple(found)


_ON_OBJECTS = {"SELECT", "READ", "FLASHBACK", "INSERT", "UPDATE", "DELETE", "ALL"}


class DataDefinition:
    """Runs statements that define things; each commits."""

    def __init__(self, database: Changeable) -> None:
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
        """Grant or revoke rights; rights on packages and dictionary views are general ones here."""
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
