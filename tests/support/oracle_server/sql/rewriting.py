"""Oracle's own clauses turned into what a general parser reads: AS OF SCN, PARTITION, binds.

A table read as of an SCN or in one partition becomes a table whose name says so; `reference` takes
such names apart again. A subquery as of an SCN gets an alias that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from oracle_server.model import Moment, OracleError
from oracle_server.sql.expressions.formats import moment_text, number_text
from oracle_server.sql.lexer import Token

_SCN = "$AS OF$"
_PARTITION = "$PARTITION$"
_SUBPARTITION = "$SUBPARTITION$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a rewritten table name stands for."""

    name: str
    partition: str | None = None
    subpartition: str | None = None
    scn: int | None = None


def reference(name: str) -> Reference:
    """Return what a rewritten table name stands for."""
    name, _, scn = name.partition(_SCN)
    name, _, sub = name.partition(_SUBPARTITION)
    name, _, partition = name.partition(_PARTITION)
    return Reference(
        name=name,
        partition=partition or None,
        subpartition=sub or None,
        scn=int(scn) if scn else None,
    )


def literal(value: Any) -> str:
    """Return a bind's value as SQL text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, Decimal)):
        return number_text(value, limit=400)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Moment):
        return f"TIMESTAMP '{moment_text(value, 'YYYY-MM-DD HH24:MI:SS.FF6')}'"
    return "'" + str(value).replace("'", "''") + "'"


def rewritten(sql: str, found: list[Token], binds: Sequence[Any], first_bind: int = 0) -> str:
    """Return a statement without binds and without clauses that only Oracle has.

    Raises:
        OracleError: ORA-01008 for a bind without a value.
    """
    parts = [sql[token.start : token.stop] for token in found]
    number = first_bind
    for index, token in enumerate(found):
        if token.kind == "bind":
            if number >= len(binds):
                raise OracleError(1008, "not all variables bound")
            parts[index] = literal(binds[number])
            number += 1
        elif token.kind == "text":
            parts[index] = literal(token.value)
    for index, token in enumerate(found):
        following = found[index + 1 : index + 3]
        if token.word("AS") and len(following) == 2 and following[0].word("OF"):
            _as_of(found, parts, index)
        elif token.word("PARTITION", "SUBPARTITION") and following[0].word("("):
            if found[index - 1].kind in ("name", "quoted") and found[index + 3].word(")"):
                mark = _PARTITION if token.value == "PARTITION" else _SUBPARTITION
                _rename(found, parts, index - 1, mark + found[index + 2].value)
                parts[index : index + 4] = [""] * 4
        elif token.word("SAMPLE") and following[0].word("(", "BLOCK"):
            text = "SAMPLE option not allowed in statement with multiple table references"
            raise OracleError(30561, text, token.start)
    return " ".join(part for part in parts if part and part != ";")


def _as_of(found: list[Token], parts: list[str], index: int) -> None:
    """Take AS OF SCN n away and note n at the table or subquery before it."""
    if not found[index + 2].word("SCN"):
        raise OracleError(8180, "no snapshot found based on specified time", found[index].start)
    scn = parts[index + 3].strip("'")
    if not scn.isdigit():
        raise OracleError(8181, "specified number is not a valid system change number")
    parts[index : index + 4] = [""] * 4
    before = index - 1
    if found[before].word(")"):
        opening = _opening(found, before)
        if opening and found[opening - 1].word("PARTITION", "SUBPARTITION"):
            before = opening - 2
        else:
            parts[opening] = "(SELECT * FROM ("
            parts[before] = f') "{_SCN}{scn}")'
            return
    _rename(found, parts, before, _SCN + scn)


def _opening(found: list[Token], closing: int) -> int:
    depth = 0
    for index in range(closing, -1, -1):
        depth += found[index].word(")") - found[index].word("(")
        if depth == 0:
            return index
    raise OracleError(907, "missing right parenthesis")


def _rename(found: list[Token], parts: list[str], index: int, mark: str) -> None:
    written = parts[index]
    name = written[1:-1] if written.startswith('"') else found[index].value
    parts[index] = f'"{name}{mark}"'


def scn_of_alias(alias: str) -> int | None:
    """Return the SCN that the alias of a rewritten subquery names."""
    return int(alias[len(_SCN) :]) if alias.startswith(_SCN) else None
