"""Queries of one relation, the shape that unloading and most of everything else has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle_server.model import OracleError
from oracle_server.sql.syntax import Item, Parser, Token, Unsupported, select_items

_NO_ALIAS = {
    "WHERE", "ORDER", "GROUP", "HAVING", "UNION", "MINUS", "INTERSECT", "EXCEPT", "CONNECT",
    "START", "MODEL", "JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "ON", "USING",
    "FETCH", "OFFSET", "PIVOT", "UNPIVOT", "AS", "SAMPLE", "PARTITION", "SUBPARTITION", "FOR",
    "VERSIONS", "WINDOW", "QUALIFY",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What a query reads: a table by its name, or another query."""

    owner: str | None = None
    name: str = ""
    query: Query | None = None
    text: str = ""
    """A query that is more than one of a relation, as it is written."""
    first_bind: int = 0
    """How many binds come before that text."""
    partition: str | None = None
    subpartition: str | None = None
    sample_blocks: Any = None
    """Percentage of blocks, as an expression."""
    sample_rows: Any = None
    scn: Any = None
    """Expression after AS OF SCN."""
    alias: str | None = None
    start: int = 0
    """Where it is in the statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One of the conditions that WHERE joins with AND."""

    expression: Any
    """None if it is beyond the parser."""
    text: str
    first_bind: int = 0
    """How many binds come before it in the statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query of one relation."""

    items: tuple[Item, ...]
    distinct: bool
    relation: Relation
    conditions: tuple[Condition, ...]
    order: tuple[tuple[Any, bool], ...]
    """(expression, whether descending)."""
    limit: int | None = None
    """Of a ROWNUM condition."""


def parse_query(sql: str, found: list[Token]) -> Query:
    """Return a statement as a query of one relation.

    Raises:
        Unsupported: It is more than that.
        OracleError: It is not a statement at all.
    """
    parser = Parser(sql, found)
    query = _query(parser)
    parser.accept(";")
    if parser.token.kind != "end":
        raise OracleError(933, "SQL command not properly ended", parser.token.start)
    return query


def _query(parser: Parser) -> Query:
    if not parser.accept("SELECT"):
        raise Unsupported(parser.token.value)
    distinct = parser.accept("DISTINCT") or parser.accept("UNIQUE")
    parser.accept("ALL")
    items = tuple(select_items(parser))
    if not parser.accept("FROM"):
        raise OracleError(923, "FROM keyword not found where expected", parser.token.start)
    relation = _relation(parser)
    if parser.token.word(",", *_NO_ALIAS - {"WHERE", "ORDER"}):
        raise Unsupported(parser.token.value)
    conditions: tuple[Condition, ...] = ()
    if parser.accept("WHERE"):
        conditions = _conditions(parser)
    if parser.token.word(*_NO_ALIAS - {"ORDER"}):
        raise Unsupported(parser.token.value)
    order = _order(parser)
    return Query(
        items=items, distinct=distinct, relation=relation, conditions=conditions, order=order
    )


def _relation(parser: Parser) -> Relation:
    start = parser.token.start
    parts: dict[str, Any] = {"start": start}
    if parser.accept("("):
        _subquery(parser, parts)
    else:
        if parser.token.word("TABLE", "LATERAL", "ONLY", "XMLTABLE", "JSON_TABLE"):
            raise Unsupported(parser.token.value)
        parts["name"] = parser.identifier()
        if parser.accept("."):
            parts["owner"], parts["name"] = parts["name"], parser.identifier()
        if parser.token.word("(", "@"):
            raise Unsupported(parser.token.value)
        for word in ("PARTITION", "SUBPARTITION"):
            if parser.accept(word, "("):
                parts[word.lower()] = parser.identifier()
                parser.expect(")")
    _sample(parser, parts)
    if parser.accept("AS", "OF"):
        if not parser.accept("SCN"):
            raise Unsupported("AS OF")
        parts["scn"] = parser.sum()
    if parser.token.kind == "quoted" or (
        parser.token.kind == "name" and parser.token.value not in _NO_ALIAS
    ):
        parts["alias"] = parser.identifier()
    if parser.token.word("SAMPLE"):
        raise OracleError(933, "SQL command not properly ended", parser.token.start)
    return Relation(**parts)


def _subquery(parser: Parser, parts: dict[str, Any]) -> None:
    """Read a query in parentheses after the opening one."""
    start = parser.at
    try:
        parts["query"] = _query(parser)
        parser.expect(")")
    except Unsupported:
        if not parser.tokens[start].word("SELECT", "WITH"):
            raise
        parser.at = closing = _closing(parser.tokens, start)
        parts["query"] = None
        parts["text"] = parser.sql[parser.tokens[start].start : parser.tokens[closing].start]
        parts["first_bind"] = sum(1 for token in parser.tokens[:start] if token.kind == "bind")
        parser.expect(")")


def _closing(found: list[Token], start: int) -> int:
    depth = 0
    for index in range(start, len(found)):
        if depth == 0 and found[index].word(")"):
            return index
        depth += found[index].word("(") - found[index].word(")")
    raise OracleError(907, "missing right parenthesis", found[-1].start)


def _sample(parser: Parser, parts: dict[str, Any]) -> None:
    if not parser.accept("SAMPLE"):
        return
    name = "sample_blocks" if parser.accept("BLOCK") else "sample_rows"
    parser.expect("(")
    parts[name] = parser.sum()
    parser.expect(")")
    if parser.accept("SEED"):
        parser.expect("(")
        parser.sum()
        parser.expect(")")


def _conditions(parser: Parser) -> tuple[Condition, ...]:
    """Return the conditions; one that is beyond the parser is kept as text."""
    found, depth, cases, between = [], 0, 0, 0
    start = parser.at
    while True:
        token = parser.token
        at_top = depth == 0 and cases == 0
        ends = (
            token.kind == "end"
            or token.word(";")
            or (at_top and (token.word(")") or _clause(parser)))
        )
        if ends or (at_top and token.word("AND") and not between):
            found.append(_condition(parser, start))
            if ends:
                return tuple(found)
            start = parser.at + 1
        elif at_top and token.word("AND"):
            between -= 1
        depth += token.word("(") - token.word(")")
        cases += token.word("CASE") - (cases > 0 and token.word("END"))
        between += at_top and token.word("BETWEEN")
        parser.take()


def _clause(parser: Parser) -> bool:
    following = parser.tokens[parser.at + 1 :]
    if parser.token.word("ORDER", "GROUP"):
        return following[0].word("BY")
    return parser.token.word(
        "FETCH", "OFFSET", "CONNECT", "HAVING", "UNION", "MINUS", "INTERSECT", "EXCEPT", "START"
    ) and not following[0].word("=", "<", ">", ".", ")", "IS", "IN")


def _condition(parser: Parser, start: int) -> Condition:
    inside = parser.tokens[start : parser.at]
    if not inside:
        raise OracleError(936, "missing expression", parser.token.start)
    text = parser.sql[inside[0].start : inside[-1].stop]
    end = Token("end", "", inside[-1].stop, inside[-1].stop)
    # The parser is given all tokens before too, so that it counts binds from the statement's start.
    inner = Parser(parser.sql, [*parser.tokens[: parser.at], end], start)
    binds = sum(1 for token in parser.tokens[:start] if token.kind == "bind")
    try:
        return Condition(expression=inner.whole(), text=text, first_bind=binds)
    except Unsupported:
        return Condition(expression=None, text=text, first_bind=binds)


def _order(parser: Parser) -> tuple[tuple[Any, bool], ...]:
    if not parser.accept("ORDER", "BY"):
        return ()
    found = []
    while True:
        expression = parser.condition()
        descending = parser.accept("DESC")
        parser.accept("ASC")
        if parser.token.word("NULLS"):
            raise Unsupported("NULLS")
        found.append((expression, descending))
        if not parser.accept(","):
            return tuple(found)
