"""Oracle functions in a sqlglot tree that DuckDB has not: replaced by ones it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.oracle import Oracle
from sqlglot.time import format_time

Answer = Callable[[str, tuple[Any, ...]], Any]

_ASKED = {
    "SYS_CONTEXT", "USERENV", "USER", "UID", "TIMESTAMP_TO_SCN", "DBTIMEZONE", "SESSIONTIMEZONE",
}  # fmt: skip
_ROWID_PARTS = {
    "ROWID_OBJECT": (1, 6),
    "ROWID_RELATIVE_FNO": (7, 3),
    "ROWID_BLOCK_NUMBER": (10, 6),
    "ROWID_ROW_NUMBER": (16, 3),
}
"""Place and length of each part in the text of a ROWID."""
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def rewrite(tree: exp.Expression, answer: Answer) -> None:
    """Replace functions in place; identifiers are already as the dictionary has them."""
    for select in list(tree.find_all(exp.Select)):
        _limit(select)
    for node in list(tree.walk()):
        if node.parent is None or node is tree:
            continue
        new = _replacement(node, answer)
        if new is not None:
            node.replace(new)


def _limit(select: exp.Select) -> None:
    """Turn a condition ROWNUM <= n into LIMIT n."""
    where = select.args.get("where")
    if where is None:
        return
    kept, limit = [], None
    conditions = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]
    for condition in conditions:
        left = condition.args.get("this")
        rownum = getattr(left, "name", "").upper() == "ROWNUM"
        right = condition.args.get("expression")
        if isinstance(condition, (exp.LT, exp.LTE, exp.EQ)) and rownum and right is not None:
            limit = int(right.name) - isinstance(condition, exp.LT)
        else:
            kept.append(condition)
    if limit is not None:
        select.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)
        select.limit(limit, copy=False)


def _replacement(node: Any, answer: Answer) -> Any:
    if isinstance(node, exp.ToChar):
        return _to_char(node)
    if isinstance(node, exp.Dot):
        return _package(node, answer)
    if isinstance(node, (exp.CurrentUser, exp.SessionUser)):
        return _constant(answer("USER", ()))
    if isinstance(node, exp.Column) and not node.table and node.name in _ASKED:
        return _constant(answer(node.name, ()))
    if isinstance(node, exp.Pseudocolumn) and node.name.upper() == "ROWNUM":
        return _number_of_row()
    if isinstance(node, exp.Column) and not node.table and node.name == "ROWNUM":
        return _number_of_row()
    if isinstance(node, exp.Anonymous) and str(node.this).upper() in _ASKED:
        values = tuple(argument.name for argument in node.expressions)
        return _constant(answer(str(node.this).upper(), values))
    return None


def _number_of_row() -> Any:
    return exp.Window(this=exp.RowNumber())


def _constant(value: Any) -> Any:
    if isinstance(value, int):
        return exp.Literal.number(value)
    return exp.Null() if value is None else exp.Literal.string(str(value))


def _to_char(node: exp.ToChar) -> Any:
    mask = node.args.get("format")
    text = mask.name if mask is not None else ""
    if any(letter in text.upper() for letter in ("Y", "DD", "HH", "MI")):
        written = format_time(text, Oracle.TIME_MAPPING) or text
        return exp.Anonymous(this="STRFTIME", expressions=[node.this, exp.Literal.string(written)])
    return exp.Cast(this=node.this, to=exp.DataType.build("VARCHAR"))


def _package(node: exp.Dot, answer: Answer) -> Any:
    """Return the value of a call such as DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER()."""
    package = node.this.name.upper() if node.this is not None else ""
    call = node.expression
    name = str(call.this if isinstance(call, exp.Anonymous) else call.name).upper()
    if package == "DBMS_FLASHBACK":
        return _constant(answer(f"{package}.{name}", ()))
    if package == "DBMS_LOB" and name == "GETLENGTH":
        return exp.Anonymous(this="LENGTH", expressions=call.expressions)
    if package == "DBMS_ROWID" and name in _ROWID_PARTS:
        start, width = _ROWID_PARTS[name]
        digits = [
            f"(instr('{_DIGITS}', substr({call.expressions[0].sql('duckdb')}, {start + n}, 1)) - 1)"
            f" * {64 ** (width - 1 - n)}"
            for n in range(width)
        ]
        return sqlglot.parse_one(f"({' + '.join(digits)})", read="duckdb")
    return None
