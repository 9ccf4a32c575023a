"""CREATE TABLE as a description: columns, key, organization, partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle_server.data.tables import PartitionSpec
from oracle_server.model import Column, OracleError, Type
from oracle_server.sql.changes.data_manipulation import table_name
from oracle_server.sql.syntax import Parser

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
        """Return the partitions as tables take them."""
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
