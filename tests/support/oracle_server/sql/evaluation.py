"""Compiled expressions, their environment and inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle_server.model import Column, Type
from oracle_server.sql.conversions import NUMBERS, expression_number, text_of, varchar

Value = Callable[[Sequence[Any]], Any]

BOOLEAN = Type(name="BOOLEAN")
ROWID = Type(name="ROWID")


@dataclass(slots=True, kw_only=True)
class Compiled:
    """An expression ready to be evaluated."""

    type: Type
    value: Value
    """From a row, which is the columns' values and the row's address behind them."""
    constant: bool = False
    volatile: bool = False
    """Whether it may be another the next time: SYSDATE, a session's setting, a bind."""
    needs_rowid: bool = False
    column: int | None = None
    """Place of the column that this simply is."""

    def now(self) -> Any:
        return self.value(())


@dataclass(slots=True, kw_only=True)
class Environment:
    """What an expression may depend on beside its row."""

    user: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    binds: Sequence[Any] = ()
    columns: tuple[Column, ...] = ()
    aliases: frozenset[str] = frozenset()
    """Names under which the columns may be qualified."""
    rowid: Type | None = None
    """Type of ROWID, or None."""
    check: Callable[[str], None] = lambda name: None
    """Raises the error that a user meets who may not call a function."""
    call: Callable[[str, tuple[Any, ...]], Any] = lambda name, arguments: None
    """Answers what only the database knows: the SCN, SYS_CONTEXT, the time."""


def as_text(argument: Compiled, environment: Environment) -> Value:
    """Return an expression's value as text by the session's settings."""
    inner, kind, settings = argument.value, argument.type, environment.settings
    if kind.name in ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR", "LONG", "XMLTYPE"):
        return inner
    return lambda row: text_of(inner(row), kind, settings)


def text_length(kind: Type) -> int:
    """Return the most characters that a value of a type has as text."""
    if kind.name in ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR"):
        return kind.length or 0
    if kind.name == "RAW":
        return 2 * (kind.length or 0)
    return {"ROWID": 18, "NUMBER": 40, "FLOAT": 40, "BOOLEAN": 5}.get(kind.name, 4000)


def common_type(results: list[Compiled]) -> Type:
    kinds = [r.type for r in results if not (r.type.name == "VARCHAR2" and not r.type.length)]
    if not kinds:
        return varchar(0)
    if all(kind == kinds[0] for kind in kinds):
        return varchar(kinds[0].length or 0) if kinds[0].name == "CHAR" else kinds[0]
    if all(kind.name in NUMBERS for kind in kinds):
        return expression_number()
    if any(kind.name == "CLOB" for kind in kinds):
        return Type(name="CLOB", expression=True)
    if kinds[0].name.startswith(("DATE", "TIMESTAMP")):
        return kinds[0]
    return varchar(max(text_length(kind) for kind in kinds))


def strict(arguments: list[Compiled], function: Callable[..., Any]) -> Value:
    values = [argument.value for argument in arguments]

    def value(row: Sequence[Any]) -> Any:
        found = [one(row) for one in values]
        return None if None in found else function(*found)

    return value
