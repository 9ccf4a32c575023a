"""Expressions evaluated over exact values, the way Oracle would, NULLs and types included."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from oracle_server.data.moments import DAY_NANOS, difference, ordered, shifted
from oracle_server.model import DaySecond, Moment, OracleError, Rowid, Type
from oracle_server.sql import functions
from oracle_server.sql.conversions import (
    EXACT,
    NUMBERS,
    expression_number,
    mask_of,
    moment_from,
    number_of,
    varchar,
)
from oracle_server.sql.evaluation import (
    BOOLEAN,
    ROWID,
    Compiled,
    Environment,
    Value,
    as_text,
    common_type,
    text_length,
)
from oracle_server.sql.syntax import Bind, Call, Constant, Name, Unsupported


def compiled(expression: Any, environment: Environment) -> Compiled:
    """Return a compiled expression.

    Raises:
        OracleError: ORA-00904 for names that are not columns, and the errors of wrong types.
        Unsupported: The expression needs something this evaluator does not know.
    """
    if isinstance(expression, Constant):
        return _constant(expression.value)
    if isinstance(expression, Bind):
        return _bind(expression, environment)
    if isinstance(expression, Name):
        return _name(expression, environment)
    if not isinstance(expression, Call):
        raise Unsupported(str(expression))
    arguments = [compiled(argument, environment) for argument in expression.arguments]
    build = _OPERATORS.get(expression.name)
    if build is not None:
        found = build(arguments, environment)
    else:
        found = functions.build(expression, arguments, environment)
    found.constant = all(a.constant for a in arguments) and not found.needs_rowid
    found.volatile = found.volatile or any(a.volatile for a in arguments)
    found.needs_rowid = found.needs_rowid or any(a.needs_rowid for a in arguments)
    return found


def _constant(value: Any) -> Compiled:
    if value is None:
        kind = varchar(0)
    elif isinstance(value, bool):
        kind = BOOLEAN
    elif isinstance(value, str):
        kind = Type(name="CHAR", length=len(value), in_chars=True)
    else:
        kind = Type(name="NUMBER")
    return Compiled(type=kind, value=lambda row: value, constant=True)


def type_of_value(value: Any) -> Type:
    kinds = ((bool, "BOOLEAN"), (float, "BINARY_DOUBLE"), (int, "NUMBER"), (Decimal, "NUMBER"))
    for python, name in kinds:
        if isinstance(value, python):
            return Type(name=name)
    if isinstance(value, Moment):
        return Type(name="TIMESTAMP WITH TIME ZONE" if value.zone else "TIMESTAMP", scale=9)
    if isinstance(value, Rowid):
        return ROWID
    if isinstance(value, bytes):
        return Type(name="RAW", length=len(value))
    return varchar(len(value) if isinstance(value, str) else 32)


def _bind(bind: Bind, environment: Environment) -> Compiled:
    if bind.index >= len(environment.binds):
        raise OracleError(1008, "not all variables bound")
    value = environment.binds[bind.index]
    value = None if value == "" else value
    kind = type_of_value(value)
    return Compiled(type=kind, value=lambda row: value, constant=True, volatile=True)


def _name(name: Name, environment: Environment) -> Compiled:
    if name.table is not None and name.table not in environment.aliases:
        raise OracleError(904, f'"{name.table}"."{name.name}": invalid identifier')
    for index, column in enumerate(environment.columns):
        if column.name == name.name:
            return Compiled(type=column.type, value=_at(index), column=index)
    if name.name == "ROWID" and environment.rowid is not None:
        place = len(environment.columns)
        return Compiled(type=environment.rowid, value=_at(place), needs_rowid=True)
    if name.name in ("ROWNUM", "LEVEL", "ORA_ROWSCN", "CURRVAL", "NEXTVAL", "OBJECT_VALUE"):
        raise Unsupported(name.name)
    raise OracleError(904, f'"{name.name}": invalid identifier')


def _at(index: int) -> Value:
    return lambda row: row[index]


def comparable(left: Compiled, right: Compiled, environment: Environment) -> tuple[Value, Value]:
    """Return both sides as values that Python orders as Oracle does."""
    names = (left.type.name, right.type.name)
    sides: list[Value] = []
    for side, other in ((left, right), (right, left)):
        if other.type.name in NUMBERS and side.type.name not in NUMBERS:
            sides.append(_then(side.value, number_of))
        elif other.type.name.startswith(("DATE", "TIMESTAMP")) and _is_text(side.type):
            sides.append(
                _then(side.value, _moment_reader(mask_of(other.type, environment.settings)))
            )
        elif side.type.name.startswith(("DATE", "TIMESTAMP")):
            sides.append(_then(side.value, ordered))
        elif other.type.name == "ROWID" and _is_text(side.type):
            sides.append(_then(side.value, Rowid.parse))
        elif all(name in ("CHAR", "NCHAR") for name in names):
            sides.append(_then(side.value, lambda text: text.rstrip(" ")))
        elif other.type.name == "RAW" and _is_text(side.type):
            sides.append(_then(side.value, bytes.fromhex))
        else:
            sides.append(side.value)
    return sides[0], sides[1]


def _moment_reader(mask: str) -> Callable[[str], int]:
    return lambda text: ordered(moment_from(text, mask))


def _is_text(kind: Type) -> bool:
    return kind.name in ("VARCHAR2", "NVARCHAR2", "CHAR", "NCHAR", "LONG")


def _then(value: Value, change: Callable[[Any], Any]) -> Value:
    def changed(row: Sequence[Any]) -> Any:
        found = value(row)
        return None if found is None else change(found)

    return changed


def _comparison(test: Callable[[Any, Any], bool]) -> Callable[..., Compiled]:
    def build(arguments: list[Compiled], environment: Environment) -> Compiled:
        for argument in arguments:
            if argument.type.name in ("CLOB", "NCLOB", "BLOB", "JSON", "XMLTYPE", "LONG"):
                text = f"inconsistent datatypes: expected - got {argument.type.name}"
                raise OracleError(932, text)
        left, right = comparable(arguments[0], arguments[1], environment)

        def value(row: Sequence[Any]) -> bool | None:
            a, b = left(row), right(row)
            return None if a is None or b is None else test(a, b)

        return Compiled(type=BOOLEAN, value=value)

    return build


def _and(arguments: list[Compiled], environment: Environment) -> Compiled:
    left, right = arguments[0].value, arguments[1].value

    def value(row: Sequence[Any]) -> bool | None:
        a = left(row)
        if a is False:
            return False
        b = right(row)
        return b if a else (False if b is False else None)

    return Compiled(type=BOOLEAN, value=value)


def _or(arguments: list[Compiled], environment: Environment) -> Compiled:
    left, right = arguments[0].value, arguments[1].value

    def value(row: Sequence[Any]) -> bool | None:
        a = left(row)
        if a:
            return True
        b = right(row)
        return True if b else (False if a is False and b is False else None)

    return Compiled(type=BOOLEAN, value=value)


def _not(arguments: list[Compiled], environment: Environment) -> Compiled:
    return Compiled(type=BOOLEAN, value=_then(arguments[0].value, lambda found: not found))


def _is_null(arguments: list[Compiled], environment: Environment) -> Compiled:
    inner = arguments[0].value
    return Compiled(type=BOOLEAN, value=lambda row: inner(row) is None)


def _in(arguments: list[Compiled], environment: Environment) -> Compiled:
    equal = _comparison(lambda a, b: a == b)
    tests = [equal([arguments[0], other], environment).value for other in arguments[1:]]

    def value(row: Sequence[Any]) -> bool | None:
        found = [test(row) for test in tests]
        return True if True in found else (None if None in found else False)

    return Compiled(type=BOOLEAN, value=value)


def _like(arguments: list[Compiled], environment: Environment) -> Compiled:
    if not all(argument.constant for argument in arguments[1:]):
        raise Unsupported("LIKE")
    pattern, escape = arguments[1].now(), arguments[2].now() if len(arguments) > 2 else None
    if pattern is None:
        return Compiled(type=BOOLEAN, value=lambda row: None)
    regex, at = "", 0
    while at < len(pattern):
        if pattern[at] == escape and at + 1 < len(pattern):
            at += 1
            regex += re.escape(pattern[at])
        else:
            regex += {"%": ".*", "_": "."}.get(pattern[at], re.escape(pattern[at]))
        at += 1
    matcher = re.compile(regex, re.DOTALL)
    text = as_text(arguments[0], environment)
    return Compiled(
        type=BOOLEAN, value=_then(text, lambda found: matcher.fullmatch(found) is not None)
    )


def _concatenation(arguments: list[Compiled], environment: Environment) -> Compiled:
    left, right = (as_text(argument, environment) for argument in arguments)
    length = sum(text_length(argument.type) for argument in arguments)

    def value(row: Sequence[Any]) -> str | None:
        return ((left(row) or "") + (right(row) or "")) or None

    return Compiled(type=varchar(min(length, 4000)), value=value)


def _arithmetic(operator: str) -> Callable[..., Compiled]:
    def build(arguments: list[Compiled], environment: Environment) -> Compiled:
        left, right = arguments
        kinds = [argument.type.name for argument in arguments]
        if any(kind.startswith(("DATE", "TIMESTAMP")) for kind in kinds):
            return _moment_arithmetic(operator, left, right)
        if any(kind in ("BINARY_FLOAT", "BINARY_DOUBLE") for kind in kinds):
            raise Unsupported("binary arithmetic")

        def value(row: Sequence[Any]) -> Any:
            a, b = number_of(left.value(row)), number_of(right.value(row))
            return None if a is None or b is None else _calculated(operator, a, b)

        return Compiled(type=expression_number(), value=value)

    return build


def _calculated(operator: str, a: Any, b: Any) -> Any:
    a, b = Decimal(a), Decimal(b)
    if operator == "+":
        return EXACT.add(a, b)
    if operator == "-":
        return EXACT.subtract(a, b)
    if operator == "*":
        return EXACT.multiply(a, b)
    if not b:
        raise OracleError(1476, "divisor is equal to zero")
    return EXACT.divide(a, b)


def _moment_arithmetic(operator: str, left: Compiled, right: Compiled) -> Compiled:
    sign = -1 if operator == "-" else 1
    both = right.type.name.startswith(("DATE", "TIMESTAMP"))
    kind = Type(name="DATE") if left.type.name == "DATE" else left.type
    if both:
        dates = left.type.name == right.type.name == "DATE"
        span = Type(name="INTERVAL DAY TO SECOND", precision=9, scale=6)
        kind = expression_number() if dates else span

    def value(row: Sequence[Any]) -> Any:
        a, b = left.value(row), right.value(row)
        if a is None or b is None:
            return None
        if both:
            found = difference(a, b)
            dates = kind.name == "NUMBER"
            return EXACT.divide(Decimal(found.nanos), Decimal(DAY_NANOS)) if dates else found
        if isinstance(b, DaySecond):
            return shifted(a, sign * b.nanos)
        return shifted(a, sign * int(Decimal(number_of(b) or 0) * DAY_NANOS))

    return Compiled(type=kind, value=value)


def _case(arguments: list[Compiled], environment: Environment) -> Compiled:
    pairs = [(arguments[i].value, arguments[i + 1].value) for i in range(0, len(arguments) - 1, 2)]
    otherwise = arguments[-1].value

    def value(row: Sequence[Any]) -> Any:
        for test, result in pairs:
            if test(row):
                return result(row)
        return otherwise(row)

    results = [arguments[i] for i in range(1, len(arguments) - 1, 2)] + [arguments[-1]]
    return Compiled(type=common_type(results), value=value)


_OPERATORS: dict[str, Callable[..., Compiled]] = {
    "AND": _and,
    "OR": _or,
    "NOT": _not,
    "IS NULL": _is_null,
    "IN": _in,
    "LIKE": _like,
    "CASE": _case,
    "||": _concatenation,
    "=": _comparison(lambda a, b: a == b),
    "<>": _comparison(lambda a, b: a != b),
    "<": _comparison(lambda a, b: a < b),
    "<=": _comparison(lambda a, b: a <= b),
    ">": _comparison(lambda a, b: a > b),
    ">=": _comparison(lambda a, b: a >= b),
    **{operator: _arithmetic(operator) for operator in "+-*/"},
}
